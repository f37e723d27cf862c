"""The journal with its usage, the catalog with its tiers, and how processes tell each other of changes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    _create_catalog()
    _create_entries()
    _create_usage()
    _create_signals()


def _create_catalog() -> None:
    op.create_table(
        "mcp_servers",
        _id(),
        sa.Column("server_name", sa.Text, nullable=False, unique=True),
        _text("display_name"),
        _text("docker_image"),
        _text("network_mode"),
        _truth("is_active", "TRUE"),
    )
    op.create_table(
        "mcp_categories",
        sa.Column("category_name", sa.Text, primary_key=True),
        _text("display_name"),
        _text("description"),
        _number("sort_order"),
        _truth("is_edited", "FALSE"),
    )
    op.create_table(
        "mcp_tools",
        _id(),
        sa.Column("server_id", _big(), sa.ForeignKey("mcp_servers.id"), nullable=False),
        sa.Column("tool_name", sa.Text, nullable=False),
        _text("display_name"),
        _text("description"),
        _text("parameters_schema", "{}"),
        _text("primary_category", "misc"),
        _text("tier", "cold"),
        sa.Column("tier_score", sa.Double, nullable=False, server_default="0"),
        sa.Column("avg_latency_ms", sa.Double, nullable=False, server_default="0"),
        _number("success_count"),
        _number("total_invocations"),
        sa.Column("seconds_total", sa.Double, nullable=False, server_default="0"),
        _number("tokens_in"),
        _number("tokens_out"),
        _truth("is_active", "TRUE"),
        _truth("is_scored", "FALSE"),
        _text("mark"),
        sa.UniqueConstraint("server_id", "tool_name"),
    )
    op.create_index("mcp_tools_by_score", "mcp_tools", ["tier_score"])


def _create_entries() -> None:
    op.create_table(
        "invocations",
        _id(),
        sa.Column("at", sa.Double, nullable=False),
        _number("day"),
        _text("server"),
        sa.Column("tool", sa.Text),
        _text("spelled"),
        _text("caller"),
        _text("surface"),
        _text("outcome"),
        sa.Column("seconds", sa.Double, nullable=False, server_default="0"),
        _text("code"),
        _number("tokens_in"),
        _number("tokens_out"),
        _text("parent"),
        _number("rank"),
    )
    op.create_index("invocations_by_time", "invocations", ["at"])
    op.create_table(
        "lookups",
        _id(),
        sa.Column("at", sa.Double, nullable=False),
        _number("day"),
        _text("look"),
        _text("caller"),
        _text("surface"),
        sa.Column("seconds", sa.Double, nullable=False, server_default="0"),
        _text("text"),
        _number("shown"),
        _number("found"),
        _truth("fits", "TRUE"),
        _number("tokens"),
        _number("instead"),
    )
    op.create_index("lookups_by_time", "lookups", ["at"])
    op.create_table(
        "writers",
        sa.Column("writer", sa.Text, primary_key=True),
        _number("stored"),
        _number("dropped"),
        _number("lost"),
        _truth("is_gone", "FALSE"),
        sa.Column("seen_at", sa.Double, nullable=False, server_default="0"),
    )


def _create_usage() -> None:
    op.create_table(
        "usage_days",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("server", "tool")),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        _number("calls"),
        _number("done"),
        sa.Column("seconds", sa.Double, nullable=False, server_default="0"),
        _number("tokens_in"),
        _number("tokens_out"),
        sqlite_with_rowid=False,  # a row that is found by its key needs no number beside
    )
    op.create_index("usage_days_by_day", "usage_days", ["day"])
    op.create_table(
        "usage_latencies",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("server", "tool")),
        *(sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False) for name in ("bucket", "day")),
        _number("calls"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cache_counts",
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, primary_key=True),
        _number("hits"),
        _number("misses"),
        sqlite_with_rowid=False,
    )


def _create_signals() -> None:
    op.create_table("signals", sa.Column("topic", sa.Text, primary_key=True), _number("number"))
    op.create_table("jobs", sa.Column("job", sa.Text, primary_key=True), sa.Column("ran_at", sa.Double, nullable=False))


def _big() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # where only INTEGER counts up by itself


def _id() -> sa.Column[Any]:
    return sa.Column("id", _big(), primary_key=True, autoincrement=True)


def _text(name: str, default: str = "") -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _truth(name: str, default: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.text(default))
