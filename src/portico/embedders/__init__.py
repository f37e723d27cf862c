"""What texts mean, as vectors: the embedders, and the memory that spares them work."""
