"""Large results: truncated, previewed, paged, searched and selected from."""
