"""A query becomes hits, an order, and cards that fit a budget."""
