"""Every format is read into the same values, with the line of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config.load import read_settings
from portico.config.settings import GatewaySettings, InstallationPaths
from portico.documents.document import Document, dotted, parse_document, read_document
from portico.errors import ConfigError, RestrictionError

SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\u2028\u2029"), max_size=12)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(TEXTS, VALUES, max_size=4)
TRIVIA = st.sampled_from(["", " ", "\n", "\t", '// note, with { " } signs\n', '/* a\n * block, [ " */', "\r\n"])


def document(text: str, name: str = "c.json") -> Document:
    return parse_document(text, Path(name))


@given(VALUES)
def test_json_reads_as_the_standard_library_does(value: Any) -> None:
    assert document(json.dumps(value)).data == value
    assert document(json.dumps(value, indent=2, ensure_ascii=False)).data == value


@given(TABLES, st.data())
def test_comments_and_trailing_commas_change_nothing(value: dict[str, Any], data: st.DataObject) -> None:
    assert document(_commented(value, data)).data == value


def _commented(value: Any, data: st.DataObject) -> str:
    gap = data.draw(TRIVIA)
    if isinstance(value, dict):
        inner = [f"{json.dumps(key)}{gap}:{_commented(item, data)}" for key, item in value.items()]
        return gap + "{" + ",".join(inner) + ("," if inner and data.draw(st.booleans()) else "") + gap + "}"
    if isinstance(value, list):
        inner = [_commented(item, data) for item in value]
        return "[" + ",".join(inner) + ("," if inner and data.draw(st.booleans()) else "") + gap + "]" + gap
    return gap + json.dumps(value) + gap


@given(TABLES)
def test_yaml_reads_back_what_was_dumped(value: dict[str, Any]) -> None:
    assert document(yaml.safe_dump(value, allow_unicode=True), "c.yaml").data == value


def test_urls_and_comment_signs_inside_texts_are_text() -> None:
    assert document('{"a": "http://x//y", "b": "/* no */", "c": "\\"// no"}').data == {
        "a": "http://x//y",
        "b": "/* no */",
        "c": '"// no',
    }


LINED = {
    "c.json": '{\n  // note\n  "servers": {\n    "a": {\n      "command": "x",\n      "args": ["p",\n  "q"]\n}}}',
    "c.yaml": "# one\n# two\nservers:\n  a:\n    command: x\n    args: [p,\n  q]\n",
}


@pytest.mark.parametrize("name", LINED)
def test_every_value_knows_its_line(name: str) -> None:
    found = document(LINED[name], name)
    lines = [found.line(path) for path in [("servers",), ("servers", "a"), ("servers", "a", "command")]]
    assert lines == [3, 4, 5]
    assert found.line(("servers", "a", "args", 1)) == 7
    assert found.line(("servers", "a", "missing")) == 4


def test_toml_lines_are_found_by_header_and_key() -> None:
    found = document(
        '# x\nmodel = "o"\n\n[mcp_servers.a]\ncommand = "x"\nenv = { B = "c" }\n["q.r"]\ns.t = 1\n', "c.toml"
    )
    assert found.line(("mcp_servers", "a")) == 4
    assert found.line(("mcp_servers", "a", "command")) == 5
    assert found.line(("mcp_servers", "a", "env", "B")) == 6
    assert found.line(("q.r", "s", "t")) == 8


def test_repeated_keys_are_found_at_every_depth() -> None:
    found = document('{"a": {"x": 1,\n"x": 2},\n"a": 3, "l": [{"y": 1, "y": 2}]}')
    assert found.data == {"a": {"x": 1}, "l": [{"y": 1}]}
    assert [(dotted(twice.path), twice.first, twice.second) for twice in found.duplicates()] == [
        ("a.x", 1, 2),
        ("a", 1, 3),
        ("l[0].y", 3, 3),
    ]


def test_merged_keys_are_not_repeated_keys() -> None:
    found = document("d: &d {a: 1, b: 2}\ne:\n  <<: *d\n  b: 3\n", "c.yaml")
    assert found.data["e"] == {"b": 3, "a": 1}
    assert found.duplicates() == ()


def test_keys_stay_as_they_are_spelled() -> None:
    assert list(document("yes: 1\n022: 2\n1.0: 3\nnull: 4\n", "c.yaml").data) == ["yes", "022", "1.0", "null"]


def test_numbers_can_be_had_as_they_are_spelled() -> None:
    assert document('{"a": [1.10, 1e3, true, "x", null]}').words("a") == ["1.10", "1e3", "true", "x", None]
    assert document("a: [1.10, 0x1F, 22:22, yes]", "c.yaml").words("a") == ["1.10", "0x1F", "22:22", "yes"]


@pytest.mark.parametrize("name", ["portico", "config.txt"])
def test_a_file_without_a_telling_name_is_told_by_its_first_sign(name: str) -> None:
    assert document('// c\n{"a": 1,}', name).format == "json"
    assert document("a: 1", name).format == "yaml"


@pytest.mark.timeout(90)
def test_a_file_of_four_megabytes_is_read_in_seconds(tmp_path: Path) -> None:
    file = tmp_path / "big.json"
    text = json.dumps({"servers": {}, "x": [{"key": "value", "n": i} for i in range(100_000)]}, indent=1)
    file.write_text(text)
    assert len(text) > 4_000_000
    assert len(read_document(file).data["x"]) == 100_000


SIGNS = st.text(alphabet="{}[]\":,- \n#&*!|>'$abé\t0.\\/=<", max_size=60)


@pytest.mark.requirement("F50")
@settings(max_examples=300)
@given(SIGNS | st.text(max_size=40), st.sampled_from(["c.json", "c.yaml", "c.toml"]))
def test_no_text_is_answered_with_anything_but_settings_or_a_config_error(text: str, name: str) -> None:
    answer = _answer(text, name)
    assert isinstance(answer, GatewaySettings) or (answer.fix and answer.file == name)


FIELDS = st.sampled_from(
    "command args env cwd url headers type enabled disabled alias tools timeouts timeout httpUrl http_headers"
    " env_http_headers env_vars bearer_token_env_var startup_timeout_sec enabled_tools description".split()
)


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["a", "b"]), VALUES | st.dictionaries(FIELDS, VALUES, max_size=6)),
    st.sampled_from(["servers", "mcpServers", "mcp_servers", "context_servers"]),
)
def test_no_entry_is_answered_with_anything_but_specs_and_problems(entries: dict[str, Any], table: str) -> None:
    found = _answer(json.dumps({table: entries}), "c.json")
    if isinstance(found, RestrictionError):
        return  # a filter that cannot be read ends everything
    assert isinstance(found, GatewaySettings)
    names = {spec.name for spec in found.servers} | {str(problem.where).split(".")[1] for problem in found.problems}
    assert names == set(entries)
    assert all(problem.line and problem.fix for problem in found.problems)


def _answer(text: str, name: str) -> GatewaySettings | ConfigError:
    try:
        return _read(text, name)
    except ConfigError as error:
        return error


def _read(text: str, name: str) -> GatewaySettings:
    home = InstallationPaths(config=Path("/nowhere"), data=Path("/nowhere"))
    return read_settings(document(text, name), home, {}, Path("/nowhere"))
