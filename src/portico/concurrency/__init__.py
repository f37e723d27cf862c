"""Worker threads and event loops for code that may hang or block; every layer may import them."""
