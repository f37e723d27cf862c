"""Documents as trees whose values know where they were written: YAML, JSON and TOML."""
