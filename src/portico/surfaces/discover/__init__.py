"""The `discover` surface, the default: search, describe, call, read on, run a script."""
