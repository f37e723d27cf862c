"""A reader finds the file: few modules at the top, few files in all, and no name of a module that says two things."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.house.source import ROOT, SOURCE, modules

TOP_LEVEL = 10
FILES = 235
"""The most files; this number only ever shrinks."""
SHARED_NAMES = frozenset({"__init__", "provider", "surface", "errors", "budget", "session"})
"""Names of modules that say the same wherever they stand."""
VOCABULARY = 25
"""The most words of our own."""
CLASSES_TWICE: frozenset[str] = frozenset()
"""Public classes of one name; this list only ever shrinks."""
TWICE = frozenset(
    {"app", "cache", "database", "demo", "http", "items", "journal", "loading", "open", "postgres", "run", "server"}
    | {"sqlite", "statements", "values"}
)
"""Other names that two modules have; this list only ever shrinks."""


@pytest.mark.requirement("P-HOUSE-LAYERS")
def test_few_modules_stand_at_the_top():
    assert len([m.name for m in modules() if "/" not in m.name]) <= TOP_LEVEL


@pytest.mark.requirement("P-HOUSE-SIZES")
def test_there_are_no_more_files_than_before():
    assert len(modules()) <= FILES


@pytest.mark.requirement("P-HOUSE-WORDS")
def test_the_name_of_a_module_says_one_thing():
    names = Counter(m.path.stem for m in modules())
    assert {name for name, times in names.items() if times > 1} - SHARED_NAMES == TWICE


@pytest.mark.requirement("P-HOUSE-WORDS")
def test_no_two_public_classes_have_one_name():
    classes = Counter(n.name for m in modules() for n in m.tree.body if isinstance(n, ast.ClassDef))
    shared = {name for name, times in classes.items() if times > 1 and not name.startswith("_")}
    assert shared <= CLASSES_TWICE


@pytest.mark.requirement("P-HOUSE-WORDS")
def test_the_vocabulary_is_short():
    words = (ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8").count("\n| **")
    assert words <= VOCABULARY


@pytest.mark.requirement("P-HOUSE-IMPORTS")
def test_our_own_modules_are_imported_by_statements():
    public = SOURCE / "__init__.py"  # which loads each public name when it is first used
    by_name = [m.name for m in modules() if m.path != public for n in ast.walk(m.tree) if _imports_by_name(n)]
    assert by_name == []


def _imports_by_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("import_module", "importlib.import_module"):
        return False
    name = node.args[0]
    return isinstance(name, ast.Constant) and str(name.value).startswith("portico")
