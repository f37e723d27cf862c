"""The identifier rule and the names that are listed: safe, injective, and the same after a restart."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Container, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.naming import (
    META_TOOLS,
    RESERVED_SERVERS,
    distinct,
    identifier,
    name_servers,
    name_tools,
    server_identifier,
    tell_apart,
    wish_names,
)
from portico.domain.tool import ToolId

LISTED = re.compile(r"^[A-Za-z0-9_.-]{1,128}\Z")
IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")

part = st.text(alphabet="ab_.-: /é1", min_size=1, max_size=6) | st.text(min_size=1, max_size=150)
pairs = st.sets(st.tuples(part, part), min_size=1, max_size=12)


def list_names(tools: Iterable[tuple[ToolId, str]], handles: Container[str] = ()) -> dict[ToolId, str]:
    """The names in `tools/list` of tools with their sources, as an edition puts them together."""
    wishes: dict[str, dict[str, str]] = defaultdict(dict)
    for id, source in tools:
        wishes[id.server] |= wish_names(id.server, [id.name], source)
    told_apart = tell_apart(wishes, handles)
    return {
        ToolId(server, name): told_apart.get(server, {}).get(name, wish)
        for server, own in wishes.items()
        for name, wish in own.items()
    }


@pytest.mark.requirement("S3-35", "S3-36", "S3-37", "S3-38", "S3-39", "S3-40", "S3-41", "S3-42", "S3-E2", "S3-E3")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data-server", "data_server"),
        ("my.api", "my_api"),
        ("123numbers", "_123numbers"),
        ("while", "_while"),
        ("goto", "_goto"),
        ("", "_unnamed"),
        ("a b/c:d", "a_b_c_d"),
        ("日本", "__"),
        ("naïve", "na_ve"),
        ("٣", "_"),
        ("already_fine", "already_fine"),
        ("nil", "_nil"),
        ("While", "While"),
    ],
)
def test_a_name_is_spelled_as_one_safe_word(name: str, expected: str) -> None:
    assert identifier(name) == expected


@pytest.mark.requirement("S3-E5", "S1-E12")
@pytest.mark.parametrize(
    "name", ["result", "string", "table", "math", "print", "_G", "_gateway", "category", "search_tools", "list-servers"]
)
def test_a_reserved_server_name_is_moved_out_of_the_way(name: str) -> None:
    spelled = server_identifier(name)
    assert spelled == f"_{identifier(name)}"
    assert spelled not in RESERVED_SERVERS


@pytest.mark.requirement("S3-E4", "P-NAMES-COLLISIONS")
def test_names_that_collapse_are_numbered_in_sorted_order_of_the_originals() -> None:
    assert name_tools(["a.b", "a-b", "a b"]) == {"a b": "a_b", "a-b": "a_b_2", "a.b": "a_b_3"}


@pytest.mark.requirement("P-NAMES-COLLISIONS")
def test_a_suffix_never_takes_a_name_that_somebody_really_has() -> None:
    assert name_tools(["a-b", "a.b", "a_b_2"]) == {"a-b": "a_b", "a.b": "a_b_3", "a_b_2": "a_b_2"}


def test_an_alias_is_the_server_spelling_and_collisions_are_told_apart() -> None:
    named = name_servers({"serena-mcp-server": "serena", "serena": "", "other": ""})
    assert named == {"other": "other", "serena": "serena", "serena-mcp-server": "serena_2"}


@pytest.mark.requirement("P-NAMES-INJECTIVE", "T30")
def test_separators_inside_names_do_not_merge_two_tools() -> None:
    ids = [ToolId("a", "b__c"), ToolId("a__b", "c")]
    assert list_names((id, "upstream") for id in ids) == {ids[0]: "a__b__c", ids[1]: "a__b__c_2"}


@pytest.mark.requirement("P-NAMES-INJECTIVE", "T30")
def test_names_that_are_cut_stay_apart() -> None:
    ids = [ToolId("server", "x" * 200 + end) for end in ("", "1", "2", "é", "ü")]
    listed = list_names((id, "upstream") for id in ids)
    assert len(set(listed.values())) == len(ids)
    assert all(LISTED.match(name) for name in listed.values())


@pytest.mark.requirement("P-NAMES-LISTED")
def test_a_local_tool_is_listed_bare_unless_a_surface_has_that_name() -> None:
    ids = [ToolId("local", name) for name in ("base_readQuery", *sorted(META_TOOLS), "list-servers")]
    listed = list_names((id, "local") for id in ids)
    assert listed[ids[0]] == "base_readQuery"
    assert {identifier(name) for name in listed.values()}.isdisjoint(META_TOOLS)


@pytest.mark.requirement("P-NAMES-LISTED")
def test_a_listed_name_is_never_the_handle_of_another_tool() -> None:
    local, other = ToolId("local", "github.create"), ToolId("github", "create")
    listed = list_names([(local, "local"), (other, "upstream")], {"local.github_create", "github.create"})
    assert listed == {local: "github.create_2", other: "github__create"}


@pytest.mark.requirement("P-NAMES-INJECTIVE", "P-NAMES-LISTED")
@settings(max_examples=400)
@given(pairs)
def test_every_set_of_tools_gets_distinct_listable_names(found: set[tuple[str, str]]) -> None:
    ids = [ToolId(server, name) for server, name in found]
    listed = list_names((id, "upstream" if len(id.name) % 2 else "local") for id in ids)
    assert len(set(listed.values())) == len(ids)
    assert all(LISTED.match(name) for name in listed.values())


@pytest.mark.requirement("P-NAMES-INJECTIVE", "P-NAMES-STABLE", "T30")
def test_ten_thousand_random_sets_stay_injective_in_any_order() -> None:
    rng = random.Random(7)
    for _ in range(10_000):
        names = {_adversarial(rng) for _ in range(rng.randint(2, 6))}
        servers = {_adversarial(rng) for _ in range(2)}
        ids = [ToolId(server, name) for server in servers for name in names]
        listed = list_names((id, "upstream") for id in ids)
        rng.shuffle(ids)
        assert list_names((id, "upstream") for id in ids) == listed
        spelled = name_tools(names)
        assert len(set(listed.values())) == len(ids)
        assert len(set(spelled.values())) == len(names)
        assert all(LISTED.match(name) for name in listed.values())
        assert all(IDENTIFIER.match(name) for name in spelled.values())


@pytest.mark.requirement("P-NAMES-STABLE")
@given(st.lists(part, unique=True, max_size=10), st.randoms(use_true_random=False))
def test_spellings_do_not_depend_on_the_order_of_arrival(names: list[str], rng: random.Random) -> None:
    expected = name_tools(names)
    rng.shuffle(names)
    assert name_tools(names) == expected


@pytest.mark.timeout(90)
def test_forty_thousand_collisions_are_told_apart_quickly_and_stay_listable() -> None:
    names = [(chr(0x4E00 + number // 200) + chr(0x4E00 + number % 200)) * 65 for number in range(40_000)]
    listed = list_names((ToolId("s", name), "upstream") for name in names)
    assert len(set(name_tools(names).values())) == len(set(listed.values())) == 40_000
    assert all(LISTED.match(name) for name in listed.values())


def test_what_is_taken_is_never_given_out() -> None:
    assert distinct([("x", "a"), ("y", "a")], taken={"a", "a_2"}) == {"x": "a_3", "y": "a_4"}


def _adversarial(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return "__".join(rng.choices("abc", k=rng.randint(1, 4)))
    if kind < 0.7:
        return rng.choice(["a", "ab"]) + rng.choice(["-", ".", "_", " ", "é", "::", "_2", "_3"]) + rng.choice("ab")
    if kind < 0.85:
        return "long" * rng.randint(28, 40) + rng.choice(["", "x", "é", "-"])
    return "".join(chr(rng.randint(32, 0x2FFF)) for _ in range(rng.randint(1, 8)))
