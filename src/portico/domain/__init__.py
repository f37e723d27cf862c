"""Frozen nouns of the application; standard library only."""

VERSION = "0.2.0"
"""The version, as text: asking the package's metadata for it would cost every command ten milliseconds."""
