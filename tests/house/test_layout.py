"""A reader finds the file: few modules at the top, few files in all, and no name of a module that says two things."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from portico.application import Application
from portico.gateway import Gateway
from portico.storage.storage import Storage
from portico.wiring import Parts
from tests.house.source import ROOT, SOURCE, modules

TOP_LEVEL = 10
FILES = 230
"""The most files; this number only ever shrinks."""
SHARED_NAMES = frozenset({"__init__", "provider", "surface", "errors", "budget", "session"})
"""Names of modules that say the same wherever they stand."""
FIELDS = 15
"""The most fields of a class."""
MANY_FIELDS: frozenset[str] = frozenset()
"""Classes with more; this list only ever shrinks."""
VOCABULARY = 25
"""The most words of our own."""
CLASSES_TWICE: frozenset[str] = frozenset()
"""Public classes of one name; this list only ever shrinks."""
TWICE = frozenset({"app", "cache", "server"})
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
    assert 0 < _vocabulary().count("\n| **") <= VOCABULARY


@pytest.mark.requirement("P-HOUSE-SIZES")
def test_no_class_has_many_fields():
    many = {f"{m.name}:{n.name}" for m in modules() for n in ast.walk(m.tree) if _has_many_fields(n)}
    assert many <= MANY_FIELDS


@pytest.mark.requirement("P-HOUSE-SIZES")
def test_an_application_is_complete_when_it_is_made():
    frozen = [found.__dataclass_params__.frozen for found in (Application, Gateway, Parts, Storage)]
    assert frozen == [True] * 4
    builders = [m for m in modules() if m.name in ("wiring.py", "application.py", "library.py")]
    assert [ast.unparse(n) for m in builders for n in ast.walk(m.tree) if _changes_another(n)] == []


def _vocabulary() -> str:
    return (ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8")


def _has_many_fields(node: ast.AST) -> bool:
    """Whether a class declares more fields than it may, or assigns more to itself."""
    if not isinstance(node, ast.ClassDef):
        return False
    assigned = {n.attr for n in ast.walk(node) if _is_assigned(n) and ast.unparse(n.value) == "self"}
    return len(assigned | {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}) > FIELDS


def _changes_another(node: ast.AST) -> bool:
    return _is_assigned(node) and ast.unparse(node.value) != "self"


def _is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


@pytest.mark.requirement("P-HOUSE-WORDS")
def test_each_word_of_the_vocabulary_is_used_where_it_says():
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|.*\| ([^|]+) \|$", _vocabulary(), re.MULTILINE)
    assert len(rows) > 20
    for word, places in rows:
        for place in re.findall(r"`([^`]+)`", places):
            named = SOURCE / place
            files = [named] if named.is_file() else [*named.rglob("*.py")]
            assert any(word.lower() in f.read_text(encoding="utf-8").lower() for f in files), (word, place)


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
