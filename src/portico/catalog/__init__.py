"""Definitions become snapshots: normalised, named, categorised and published."""
