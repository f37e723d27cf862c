"""The `search` surface: one tool that searches by keywords, one that executes."""
