"""Frozen nouns of the house; standard library only."""
