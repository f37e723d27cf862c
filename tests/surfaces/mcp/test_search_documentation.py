"""Parameters in a Python programmer's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sample_tools import handle_base_readQuery, handle_dba_userSqlList

from portico.domain.docstrings import section_texts
from portico.providers.python.functions import define
from portico.surfaces.search import parameters, type_name
from portico.testing import definition, tool


@pytest.mark.requirement("S0-16", "S0-17", "S0-18", "S0-19", "S0-20")
def test_the_documented_parameter_comes_out() -> None:
    documented = {
        "type": "str",
        "required": False,
        "default": "None",
        "description": "SQL text, with optional bind-parameter placeholders",
    }
    found = parameters(tool(define(handle_base_readQuery)))
    assert found == {"sql": documented | {"default_json": None}}, "internal parameters are no part of it"


@pytest.mark.requirement("S0-17")
@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "array", "items": {"type": "string"}}, "list"),
        ({"type": "object"}, "dict"),
        ({"type": "null"}, "None"),
        ({"type": ["string", "null"]}, "str"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}, "int | str"),
        ({"enum": ["a", "b"]}, "str"),
        ({"enum": ["a", 1, None]}, "str | int"),
        ({"const": True}, "bool"),
        ({"$ref": "#/$defs/Person"}, "dict"),
        ({"allOf": [{"$ref": "#/$defs/Person"}]}, "dict"),
        ({"$ref": "#/$defs/nothing"}, "Any"),
        ({"items": {}}, "list"),
        ({}, "Any"),
        (True, "Any"),
        ({"type": "strange"}, "Any"),
    ],
)
def test_a_type_is_spelled_as_in_python(schema: object, name: str) -> None:
    assert type_name(schema, {"$defs": {"Person": {"properties": {}}}}) == name


@pytest.mark.requirement("S0-18", "S0-19", "S0-E5")
def test_a_default_is_text_and_what_it_really_is() -> None:
    given = {
        "needed": {"type": "string", "default": "x"},
        "days": {"type": "integer", "default": 7},
        "word": {"type": "string", "default": "None"},
        "nothing": {"type": "string", "default": None},
        "silent": {"type": "string"},
    }
    raw = {"name": "x", "inputSchema": {"type": "object", "properties": given, "required": ["needed"]}}
    found = parameters(tool(raw))
    told = {
        name: {key: p[key] for key in ("required", "default", "default_json") if key in p} for name, p in found.items()
    }
    assert told == {
        "needed": {"required": True},
        "days": {"required": False, "default": "7", "default_json": 7},
        "word": {"required": False, "default": "None", "default_json": "None"},
        "nothing": {"required": False, "default": "None", "default_json": None},
        "silent": {"required": False, "default": "None"},
    }


@pytest.mark.requirement("S0-20")
def test_descriptions_come_from_the_schema_or_else_from_the_docstring() -> None:
    doc = "Reads.\n\nArgs:\n    path (str): where\n        it lies\n    mode - how\n\nReturns:\n    text: all of it"
    own = {"type": "string", "description": "The mode"}
    found = parameters(tool(definition("x", doc, path="string", mode=own, text="string")))
    assert {name: p["description"] for name, p in found.items()} == {
        "path": "where it lies",
        "mode": "The mode",
        "text": "",
    }
    described = parameters(tool(define(handle_dba_userSqlList)))
    assert described["user_name"]["description"] == 'user name, "" for everybody'


def test_a_required_parameter_without_a_schema_is_told() -> None:
    raw = {"name": "x", "inputSchema": {"type": "object", "required": ["a"]}}
    assert parameters(tool(raw)) == {"a": {"type": "Any", "required": True, "description": ""}}


@pytest.mark.parametrize(
    ("doc", "texts"),
    [
        ("Arguments:\n  sql - SQL text\n  n: how many", {"sql": "SQL text", "n": "how many"}),
        ("PARAMETERS:\n- `sql` - SQL text", {"sql": "SQL text"}),
        ("Args:\na - one\nb - two\n\nAnd so on.\nc - three", {"a": "one", "b": "two"}),
        ("a - one", {}),
        ("Args:", {}),
        ("", {}),
    ],
)
def test_the_arguments_section_is_read(doc: str, texts: dict[str, str]) -> None:
    assert section_texts(doc) == texts


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "anyOf", "enum", "$ref", "const", "items", "x"]), inner, max_size=4)
    ),
)


@given(json_values, st.text(max_size=200))
def test_any_schema_has_a_type_and_any_text_is_read(schema: Any, text: str) -> None:
    assert type_name(schema, {})
    section_texts(f"Args:\n{text}")
