"""Tools that come along: plain functions over a connection that reads, with no MCP in them."""

MODULES = (
    "portico.packaged.base",
    "portico.packaged.quality",
    "portico.packaged.security",
    "portico.packaged.plots",
    "portico.packaged.retrieval",
    "portico.packaged.tuning",
)
"""The modules whose `handle_*` functions profile `base` offers."""
