"""The four tiers of disclosure: hot list, categories, one category, one tool."""
