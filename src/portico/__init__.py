"""Portico: one catalog in front of every tool."""
