"""A query becomes hits: words, vectors, index and ranking."""
