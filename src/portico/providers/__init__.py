"""The code that offers a server's tools and runs them."""
