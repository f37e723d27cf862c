"""The `search` surface: `search_tool` and `execute_tool`."""
