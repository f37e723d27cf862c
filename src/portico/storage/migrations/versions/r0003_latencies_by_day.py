"""Latencies by day: reports and the fold of old days look for days, and must not read all that there is."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the index."""
    op.create_index("usage_latencies_by_day", "usage_latencies", ["day"])
