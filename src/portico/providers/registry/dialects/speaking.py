"""Finds the dialect of a database by its name."""

from __future__ import annotations

from collections.abc import Mapping

from portico.errors import ConfigError

from .dialect import Dialect
from .postgresql import Postgresql
from .sqlite import Sqlite
from .teradata import Teradata

DIALECTS: Mapping[str, Dialect] = {
    "postgresql": Postgresql(),
    "sqlite": Sqlite(),
    "teradata": Teradata(),
    "teradatasql": Teradata(),
}
"""By the names that SQLAlchemy and people give them."""


def dialect_named(name: str) -> Dialect:
    """The dialect of a database.

    Raises:
        ConfigError: registries of such databases are not read.
    """
    if name not in DIALECTS:
        known = "postgresql, sqlite and teradata"
        raise ConfigError(f"a registry in a {name!r} database cannot be used", fix=f"There are: {known}")
    return DIALECTS[name]
