"""The SQL that makes a registry in a database, with samples to try."""

from __future__ import annotations

from importlib.resources import files

from portico.errors import ConfigError
from portico.providers.sql.registry.rows import OBJECT_NAME
from portico.providers.sql.registry.statements import dialect_named
from portico.providers.sql.statements import tokens

_SAMPLES = "-- Samples:"
"""Begins the part that can be left out."""


def setup_script(dialect: str, schema: str, *, samples: bool = True) -> str:
    """The whole SQL that makes a registry; it can be run again.

    On Teradata, which has no IF NOT EXISTS, a table that is already there is told by the error 3803.

    Raises:
        ConfigError: the schema cannot have such a name, or there is no registry for this kind of database.
    """
    spoken = dialect_named(dialect)
    if not OBJECT_NAME.fullmatch(schema) or len(schema) > spoken.longest_name:
        fix = f"Use at most {spoken.longest_name} letters, digits, _, $ and #, and begin with a letter or _"
        raise ConfigError(f"a registry cannot live in {schema[:60]!r}", where="registry", fix=fix)
    text = files(__package__).joinpath(f"{spoken.name}.sql").read_text(encoding="utf-8")
    return (text if samples else text.partition(_SAMPLES)[0]).replace("{schema}", f'"{schema}"')


def setup_steps(dialect: str, schema: str, *, samples: bool = True) -> tuple[str, ...]:
    """The same, one statement each, for drivers that take no more.

    Raises:
        ConfigError: as for the whole.
    """
    spoken, steps, depth = dialect_named(dialect), [""], 0
    for piece in tokens(setup_script(dialect, schema, samples=samples), spoken.name):
        depth += {"open": 1, "close": -1}.get(piece.kind, 0)
        if piece.kind == "end" and depth == 0:  # the statements of a macro stand in parentheses
            steps.append("")
        elif piece.kind != "line":
            steps[-1] += piece.text
    return tuple(step.strip() for step in steps if step.strip())
