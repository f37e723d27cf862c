"""Frozen nouns of the application; standard library only."""
