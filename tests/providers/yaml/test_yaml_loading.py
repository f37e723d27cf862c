"""Files are read one by one: what is wrong is named with file, line and what to do, and the rest is offered."""

from __future__ import annotations

import re
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.normalise import normalise
from portico.providers.yaml import LoadedYaml, load_yaml
from portico.testing import FakeApplication

Load = Callable[..., LoadedYaml]

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "yaml-tools.md"
EXAMPLES = [text for text in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "\n  type: " in text]

GOOD = "{type: tool, description: d, sql: SELECT 1}"


def names(loaded: LoadedYaml) -> list[str]:
    return [tool.name for tool in loaded.tools]


def said(loaded: LoadedYaml) -> str:
    return "\n".join(map(str, loaded.problems))


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: [1", 1, "the YAML cannot be read"),
        ("a: 'b", 1, "the YAML cannot be read"),
        ("a:\n\t- b", 2, "Indent with spaces, not tabs"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ("a: *b", 1, "the alias 'b' is not defined"),
        ("a: !!python/object/apply:os.system [id]", 1, "this is a list, not a table"),
        ("a: !!python/name:os.system x", 1, "the tag"),
        ("--- \na: {}\n---\nb: {}", 3, "a second document"),
        ("? [a]\n: b", 1, "a key must be plain text"),
        ("- a", 1, "the file holds a list"),
        ("just text", 1, "the file holds a text"),
        ("", 1, "the file holds nothing"),
        ("a: \x07", 1, "a character here may not stand in YAML"),
        ("a: 5", 1, "this is a number, not a table"),
        ("a: {}", 1, "it has no 'type'"),
        ("a: {type: tol}", 1, "Did you mean 'tool'?"),
        ("a: {type: tool}", 1, "either `sql` or `command`"),
        ("\n'a b': {type: tool}", 2, "an entry cannot be called 'a b'"),
        ('a: "\\ud800"', 1, "invalid Unicode character escape"),
    ],
)
@pytest.mark.requirement("P-YAML-ERRORS")
def test_what_is_wrong_is_named_with_file_line_and_what_to_do(load: Load, text: str, line: int, problem: str) -> None:
    loaded = load(text)
    assert (loaded.tools, loaded.prompts, loaded.terms) == ((), (), ())
    (found,) = loaded.problems
    assert found.line == line
    assert str(found.file).endswith("tools.yml")
    assert found.fix
    assert problem in str(found)


@pytest.mark.requirement("P-YAML-ERRORS")
def test_a_bad_entry_does_not_hurt_the_others(load: Load) -> None:
    loaded = load(f"a: {GOOD}\nb: {{type: tool, description: d, sql: 'SELECT 1; DROP TABLE x'}}\nc: {GOOD}")
    assert names(loaded) == ["a", "c"]
    assert "tools.yml:2: b: the SQL cannot be used: it is more than one statement." in said(loaded)


def test_of_two_entries_with_one_name_in_a_file_the_first_is_offered(load: Load) -> None:
    loaded = load(f"a: {GOOD}\nb: {GOOD}\na: {{type: prompt, description: d, prompt: p}}")
    assert names(loaded) == ["a", "b"]
    assert loaded.prompts == ()
    assert "tools.yml:3: 'a' is there already, in line 1; this one is not offered. Rename one of them" in said(loaded)


def test_a_later_file_replaces_an_entry_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "1.yml").write_text(f"a: {GOOD}\nb: {GOOD}")
    (tmp_path / "2.yaml").write_text("a: {type: tool, description: mine, sql: SELECT 2}\nb: {type: tool}")
    loaded = load_yaml(["*.y*ml"], tmp_path, packaged=False)
    assert [(tool.name, tool.definition["description"]) for tool in loaded.tools] == [("a", "mine"), ("b", "d")]
    assert [path.name for path in loaded.files] == ["1.yml", "2.yaml"]
    assert "2.yaml:2: b" in said(loaded)


def test_entries_of_a_user_replace_packaged_ones(tmp_path: Path) -> None:
    packaged = load_yaml([], tmp_path)
    assert packaged.problems == ()
    assert {"base_answerQuestion", "base_describeTable", "qlty_reviewTable"} <= {p.name for p in packaged.prompts}
    (tmp_path / "mine.yml").write_text("base_describeTable: {type: prompt, description: mine, prompt: p}")
    mine = load_yaml(["mine.yml"], tmp_path)
    assert [prompt.name for prompt in mine.prompts] == [prompt.name for prompt in packaged.prompts]
    assert {prompt.name: prompt.description for prompt in mine.prompts}["base_describeTable"] == "mine"
    assert load_yaml([], tmp_path, packaged=False) == LoadedYaml()


def test_terms_of_several_glossaries_stand_in_one_and_the_later_counts(load: Load, tmp_path: Path) -> None:
    loaded = load("a: {type: glossary, terms: {x: one, y: one}}\nb: {type: glossary, terms: {X: two}}")
    assert [(term.name, term.definition) for term in loaded.terms] == [("X", "two"), ("y", "one")]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("no.yml", "there is no file 'no.yml'"),
        ("*.nothing", "no .yml or .yaml file fits"),
        ("folder", "'folder' is a folder. Write folder/*.yml"),
    ],
)
def test_a_pattern_that_names_no_file_is_a_problem(tmp_path: Path, pattern: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "good.yml").write_text(f"a: {GOOD}")
    loaded = load_yaml([pattern, "good.yml"], tmp_path, packaged=False)
    assert names(loaded) == ["a"]
    assert problem in said(loaded)


def test_a_file_that_is_no_text_or_too_large_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_bytes(b"a: b\nc: \xff\xfe")
    (tmp_path / "b.yml").write_bytes(b"#" * 1_000_001)
    (tmp_path / "c.yml").write_bytes(b"\xef\xbb\xbfc: " + GOOD.encode())
    (tmp_path / "d.yml").symlink_to(tmp_path / "gone")
    loaded = load_yaml(["a.yml", "b.yml", "c.yml", "d.yml"], tmp_path, packaged=False)
    assert names(loaded) == ["c"]
    assert "a.yml:2: the file is not UTF-8 text" in said(loaded)
    assert "b.yml: the file has more than 1,000,000 bytes. Split it" in said(loaded)
    assert "there is no file 'd.yml'" in said(loaded)


def test_anchors_and_merge_keys_are_understood(load: Load) -> None:
    loaded = load(f"a: &a {GOOD}\nb: {{<<: *a, description: other}}\nc: {{<<: [*a], sql: SELECT 3}}")
    assert [tool.definition["description"] for tool in loaded.tools] == ["d", "other", "d"]
    assert loaded.problems == ()


BOMBS = {
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]" for b, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "merges": "a: &a {k: 1}\n"
    + "\n".join(f"{c}: &{c} {{<<: [{','.join([f'*{b}'] * 9)}]}}" for b, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "depth": "a: " + "[" * 5_000,
    "blocks": "\n".join(" " * depth + "a:" for depth in range(900)),
    "wide": "a: [" + "1," * 60_000 + "]",
    "itself": "a: &a [*a]",
    "digits": f"a: {'9' * 10_000}",
    "sexagesimal": f"a: {':'.join(['59'] * 5_000)}",
}


SAID = {
    "laughs": "the file holds more than 50000 values, aliases written out. Split it, or write it without aliases",
    "wide": "the file holds more than 50000 values",
    "depth": "values are nested more than 20 deep",
    "blocks": "values are nested more than 20 deep",
    "itself": "the alias 'a' is not defined before this line",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_memory(load: Load, name: str) -> None:
    tracemalloc.start()
    try:
        loaded = load(BOMBS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loaded.problems
    assert all(problem.line and problem.fix for problem in loaded.problems)
    assert SAID.get(name, "") in said(loaded)
    assert peak < 60_000_000


@pytest.mark.requirement("S0-2")
def test_a_hundred_tools_of_a_file_join_the_catalog(load: Load, make_test_app: Callable[..., FakeApplication]) -> None:
    text = "\n".join(f"run_{n}: {{type: tool, description: Tool {n}, command: [echo, '{n}']}}" for n in range(120))
    loaded = load(text)
    application = make_test_app(loaded)
    assert len(application.gateway.snapshot.tools) == 120
    assert application.gateway.snapshot.rejected == ()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["SELECT 1", "SELECT :a", "{a}", "'", "SELECT {a}", "COUNT(*)", "integer", "identifier", "--", "-x"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=8), st.sampled_from(["a", "b", "type", "default", "enum", "expression", "of"])),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
KEYS = (
    "description title category tags server parameters sql command prompt terms dimensions measures cwd env timeout"
    " read_only"
).split()
ENTRIES = st.dictionaries(
    st.one_of(st.text(max_size=8), st.sampled_from(["a", "b", "base_x"])),
    st.one_of(
        VALUES,
        st.builds(
            lambda kind, rest: {"type": kind, **rest},
            st.sampled_from(["tool", "cube", "prompt", "glossary", "x"]),
            st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
        ),
    ),
    max_size=4,
)


def taken_or_refused(raw: bytes) -> None:
    """Whatever a file holds, it is offered in full or named with a reason."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "any.yml").write_bytes(raw)
        loaded = load_yaml(["any.yml"], Path(folder), packaged=False)
    for tool in loaded.tools:
        normalise(dict(tool.definition))
        tool.read(dict.fromkeys(tool.definition["inputSchema"]["properties"], "x"))
    orjson.dumps([prompt.definition for prompt in loaded.prompts])
    for problem in loaded.problems:
        assert str(problem.file).endswith("any.yml")
        assert problem.problem
        assert problem.fix


@settings(max_examples=200)
@given(
    st.one_of(st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=200))
)
def test_any_text_is_taken_or_refused_with_a_reason(raw: bytes) -> None:
    taken_or_refused(raw)


@settings(max_examples=250)
@given(ENTRIES)
def test_any_entries_are_taken_or_refused_with_a_reason(entries: dict[str, Any]) -> None:
    taken_or_refused(yaml.safe_dump(entries, allow_unicode=False).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.partition(":")[0])
def test_every_example_of_the_guide_is_taken(load: Load, example: str) -> None:
    loaded = load(example)
    assert loaded.problems == ()
    assert loaded.tools or loaded.prompts or loaded.terms
