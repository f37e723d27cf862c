"""The tools for databases that come with Portico: plain functions over a connection that only reads."""

MODULES = tuple(
    f"portico.providers.database_tools.{name}"
    for name in ("queries_and_tables", "data_quality", "users_and_roles", "charts", "text_search")
)
"""The modules whose `handle_*` functions profile `base` offers."""
