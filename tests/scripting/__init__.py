"""Scripts in real processes."""
