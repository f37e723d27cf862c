"""Tools that find passages in the texts of a table, for answers that rest on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from portico.errors import InvalidArguments
from portico.providers.python.decorator_and_injection import tool
from portico.providers.sql import Column, QueryResult, ReadConnection, TableName

WORDS = 12  # words of a question that are looked for
PASSAGE = 2_000  # characters of a text that are shown
SCORE = "portico_score"  # what the score is called among the columns of a table, which may have a `score` of its own
_FTS5 = re.compile(r"create\s+virtual\s+table\b.*?\busing\s+fts5\b", re.IGNORECASE | re.DOTALL)


@tool(read_only=True, idempotent=True)
def handle_rag_searchText(  # noqa: N802
    conn: ReadConnection,
    question: str,
    table_name: str,
    columns: list[str] | None = None,
    database_name: str = "",
    limit: int = 5,
) -> dict[str, Any]:
    """Finds the rows of a table whose texts fit a question best, for retrieval-augmented answers.

    No index is needed. `method` tells how it was searched: PostgreSQL's tsvector, SQLite's FTS5 where the table is one,
    else LIKE, which knows no word forms.

    Arguments:
      question - what to look for, in plain words
      table_name - Table or view with the texts
      columns - text columns to search; all text columns when none are given
      database_name - Database name; empty for the default one
      limit - how many rows to return
    """
    table = conn.find(table_name, database_name)
    searched = _text_columns(conn, table, columns)
    words = list(dict.fromkeys(word.lower() for word in re.findall(r"\w+", question) if len(word) > 1))[:WORDS]
    if not words:
        raise InvalidArguments("question", details=("it has no words of two letters or more; ask in plain words",))
    method, found = _search(conn, table, searched, words, limit)
    hits = [_hit(found.columns, row) for row in found.rows]
    return {"table": table.name, "method": method, "searched": [column.name for column in searched], "hits": hits}


def _search(
    conn: ReadConnection, table: TableName, columns: Sequence[Column], words: Sequence[str], limit: int
) -> tuple[str, QueryResult]:
    if conn.dialect == "postgresql":
        return "tsvector", _search_postgres(conn, table, columns, words, limit)
    if conn.dialect == "sqlite" and _FTS5.match(conn.ddl(table)):
        return "fts5", _search_fts5(conn, table, columns, words, limit)
    return "like", _search_like(conn, table, columns, words, limit)


def _search_postgres(
    conn: ReadConnection, table: TableName, columns: Sequence[Column], words: Sequence[str], limit: int
) -> QueryResult:
    """Any of the words counts, in whatever form; rows with more of them come first."""
    text = " || ' ' || ".join(f"coalesce(CAST(t.{conn.quoted(column)} AS text), '')" for column in columns)
    query = "CAST(replace(CAST(plainto_tsquery('english', :question) AS text), '&', '|') AS tsquery)"
    sql = (
        f"SELECT ts_rank(m.vector, m.query) AS {SCORE}, t.* FROM {conn.quoted(table)} AS t "  # noqa: S608
        f"CROSS JOIN LATERAL (SELECT to_tsvector('english', {text}) AS vector, {query} AS query) AS m "
        "WHERE m.vector @@ m.query ORDER BY 1 DESC"
    )
    return conn.rows(sql, {"question": " ".join(words)}, limit=limit)


def _search_fts5(
    conn: ReadConnection, table: TableName, columns: Sequence[Column], words: Sequence[str], limit: int
) -> QueryResult:
    within = " ".join(conn.quoted(column) for column in columns)
    asked = " OR ".join(f'"{word}"' for word in words)
    name = conn.quoted(table)
    sql = f"SELECT -bm25({name}) AS {SCORE}, * FROM {name} WHERE {name} MATCH :asked ORDER BY 1 DESC"  # noqa: S608
    return conn.rows(sql, {"asked": f"{{{within}}} : ({asked})"}, limit=limit)


def _search_like(
    conn: ReadConnection, table: TableName, columns: Sequence[Column], words: Sequence[str], limit: int
) -> QueryResult:
    """A point for every word that a row has; words hold letters and digits alone, so that `_` is all to escape."""
    binds = {f"w{place}": f"%{word.replace('_', '!_')}%" for place, word in enumerate(words)}
    text = " || ' ' || ".join(f"coalesce({conn.quoted(column)}, '')" for column in columns)
    points = " + ".join(f"CASE WHEN lower({text}) LIKE :{name} ESCAPE '!' THEN 1 ELSE 0 END" for name in binds)
    ranked = f"SELECT {points} AS {SCORE}, t.* FROM {conn.quoted(table)} t"  # noqa: S608
    sql = f"SELECT * FROM ({ranked}) ranked WHERE {SCORE} > 0 ORDER BY {SCORE} DESC"  # noqa: S608
    return conn.rows(sql, binds, limit=limit)


def _text_columns(conn: ReadConnection, table: TableName, names: Sequence[str] | None) -> list[Column]:
    if names:
        return [conn.column(table, name) for name in names]
    known = conn.columns(table)
    is_virtual = conn.dialect == "sqlite" and bool(_FTS5.match(conn.ddl(table)))
    found = [column for column in known if column.kind == "text" or is_virtual]
    if not found:
        raise InvalidArguments("table_name", details=(f"{table.name!r} has no text column; name one in columns",))
    return found


def _hit(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    found = {name: _shortened(value) for name, value in zip(columns, row, strict=True)}
    score = found.pop(SCORE)
    return {SCORE if "score" in found else "score": score, **found}


def _shortened(value: Any) -> Any:
    return f"{value[:PASSAGE]}..." if isinstance(value, str) and len(value) > PASSAGE else value
