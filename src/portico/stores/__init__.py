"""What is remembered between starts."""
