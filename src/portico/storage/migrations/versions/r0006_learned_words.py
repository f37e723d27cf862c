"""Words that callers searched with before they called a tool."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "learned_words",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("server", "tool", "word", "caller")),
        sa.Column("spelled", sa.Text, nullable=False),
        sa.Column("uses", sa.BigInteger, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
