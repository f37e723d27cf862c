"""Results that were too large for their callers, in pieces; and what the results of tools look like."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "results",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("outline", sa.LargeBinary, nullable=False),
    )
    op.create_index("results_by_expiry", "results", ["expires_at"])
    op.create_table(
        "result_pieces",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("run", sa.BigInteger, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("piece", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "shapes",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("shape", sa.Text, nullable=False),
        sa.Column("results", sa.BigInteger, nullable=False),
    )
