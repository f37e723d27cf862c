"""Definitions come in: watched, normalised, named, categorised, merged and published as an edition."""
