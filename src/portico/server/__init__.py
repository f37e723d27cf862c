"""Serves an application: over HTTP, over stdio, or inside another program."""
