"""Names are the house's own words, every public one says what it is, and imports stand at the top."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.source import Module, modules

EMPTY_WORDS = re.compile(r"(Manager|Helper|Service|Utils?|Impl|Base)$|^(utils?|common|shared|core|helpers?|misc)$")

HIDDEN_IMPORTS = {
    "__main__.py": "the MCP SDK and the demo take a second to load, which other commands must not pay",
    "domain/suggestions.py": "the first wrong name loads what compares names; no other command pays for it",
    "providers/database_tools/charts.py": "charts need a library that may be left out",
    "providers/mcp/connect.py": "a transport's library is loaded when the first server of its kind is connected",
    "providers/sql/registry/configured_registries.py": "who writes into a registry needs SQLAlchemy",
    "providers/sql/registry/provider.py": "a start with stored definitions needs neither SQLAlchemy nor psycopg",
    "providers/sql/database_source.py": "a start without a database does not pay for SQLAlchemy",
    "results/read_kept_result.py": "JMESPath is loaded by the first path that somebody asks for",
    "search/embeddings/__init__.py": "a gateway without an endpoint for embeddings needs no HTTP client",
    "server/run.py": "a client over stdio does not pay for REST",
    "storage/postgres.py": "hardly any start runs migrations",
    "storage/sqlite.py": "hardly any start runs migrations",
    "storage/storage.py": "a command that reads a SQLite file does not pay for SQLAlchemy",
    "surfaces/cli/output_and_logs.py": "the progress bar's library is loaded only where somebody watches",
    "surfaces/cli/app.py": "a command loads its own module; the help loads none",
    "wiring.py": "scripts, databases and local tools are loaded where there are some",
}
"""Modules that may import inside a function, and why; this list only ever shrinks."""


@pytest.mark.requirement("P-HOUSE-WORDS")
def test_no_name_is_an_empty_word():
    classes = [(m.name, node.name) for m in modules() for node in ast.walk(m.tree) if isinstance(node, ast.ClassDef)]
    files = [(m.name, m.path.stem) for m in modules()]
    assert [(where, name) for where, name in classes + files if EMPTY_WORDS.search(name)] == []


@pytest.mark.requirement("P-HOUSE-DOCSTRINGS")
def test_every_module_and_public_name_has_a_docstring():
    bare = [m.name for m in modules() if not ast.get_docstring(m.tree)]
    bare += [f"{m.name}:{name}" for m in modules() for name in _undocumented(m)]
    assert bare == []


@pytest.mark.requirement("P-HOUSE-IMPORTS")
def test_imports_stand_at_the_top():
    hidden = {m.name for m in modules() for f in m.functions() if any(_is_import(n) for n in ast.walk(f))}
    assert hidden == HIDDEN_IMPORTS.keys()


def _undocumented(module: Module) -> list[str]:
    found = []
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                found.append(node.name)
            if isinstance(node, ast.ClassDef):
                found += [
                    f"{node.name}.{inner.name}"
                    for inner in node.body
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not inner.name.startswith("_")
                    and not ast.get_docstring(inner)
                ]
    return found


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)
