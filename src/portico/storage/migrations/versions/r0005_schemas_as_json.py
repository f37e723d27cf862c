"""Schemas as JSON on PostgreSQL, so that queries can look into them; SQLite looks into texts as they are.

JSON, not JSONB: a schema is kept as it was written, with escapes that JSONB does not take.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Change the type of the column."""
    if op.get_context().dialect.name != "postgresql":
        return
    op.execute("ALTER TABLE mcp_tools ALTER COLUMN parameters_schema DROP DEFAULT")
    op.execute("ALTER TABLE mcp_tools ALTER COLUMN parameters_schema TYPE json USING CAST(parameters_schema AS json)")
    op.execute("ALTER TABLE mcp_tools ALTER COLUMN parameters_schema SET DEFAULT '{}'")
