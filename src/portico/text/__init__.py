"""Text from outside: made printable and fenced, and kept free of secrets."""
