"""Settings and the dialects of every client's config file."""
