"""What happened to servers and to gateways."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # where only INTEGER counts up by itself
    op.create_table(
        "events",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("gateway", "server", "kind", "text", "stderr")),
        sa.Column("times", sa.BigInteger, nullable=False),
    )
    op.create_index("events_by_time", "events", ["at"])
