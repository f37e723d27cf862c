"""The `capabilities` surface: an inventory of all tools, one schema at a time, direct calls."""
