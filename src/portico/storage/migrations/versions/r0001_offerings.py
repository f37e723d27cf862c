"""Offerings, failures and vectors: all that was remembered at first, and may be there from before Alembic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create what is not there yet."""
    op.create_table(
        "offerings",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("saved_at", sa.Double, nullable=False),
        sa.Column("offering", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "failures",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("failed_at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "vectors",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index("vectors_by_use", "vectors", ["used_at"], if_not_exists=True)
