"""The version, as text: asking the package's metadata for it would cost every command ten milliseconds."""

VERSION = "0.2.0"
