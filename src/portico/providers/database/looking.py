"""What every reading can tell of a database's own catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import Connection as SqlConnection

from .connection import Column, Table
from .doors import Door
from .faults import HANDLED, Faults, translated
from .inspecting import Inspection, quoted


class Looking:
    """The half of a `conn` that looks around; the inspector is made when it is first needed."""

    def __init__(self, door: Door, faults: Faults, database: str, connection: SqlConnection | None = None) -> None:
        self._door, self._faults, self._database = door, faults, database
        self._link = connection
        self._open = ExitStack()
        self._look: Inspection | None = None

    @property
    def dialect(self) -> str:
        """What SQL is spoken."""
        return str(self._door.engine.dialect.name)

    @property
    def inspector(self) -> Any:
        """SQLAlchemy's inspector; on SQLite it has a connection of its own, past the guard."""
        with self._looking() as look:
            return look.inspector

    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas, the default one first."""
        with self._looking() as look:
            return look.schemas()

    def tables(self, schema: str = "") -> tuple[Table, ...]:
        """The tables and views of a schema."""
        with self._looking() as look:
            return look.tables(schema)

    def find(self, table: str, schema: str = "") -> Table:
        """The table or view of that name."""
        with self._looking() as look:
            return look.find(table, schema)

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table in their order."""
        with self._looking() as look:
            return look.columns(table)

    def column(self, table: Table, name: str) -> Column:
        """One column by name."""
        with self._looking() as look:
            return look.column(table, name)

    def ddl(self, table: Table) -> str:
        """The statements that would create a table or view."""
        with self._looking() as look:
            return look.ddl(table)

    def quoted(self, subject: Table | Column | str) -> str:
        """A name between this database's quotes."""
        return quoted(self._door.engine.dialect, subject)

    def close(self) -> None:
        """Let go of what was opened on the way."""
        self._open.close()

    @contextmanager
    def _looking(self) -> Iterator[Inspection]:
        with translated(self._faults, HANDLED):
            if self._look is None:
                inspector = self._open.enter_context(self._door.inspecting(self._link))
                self._look = Inspection(inspector, self._database)
            yield self._look
