"""Names that look like a spelling: the same as if every name were compared, for little work."""

from __future__ import annotations

import random
from collections.abc import Set

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz
from tests.catalogue import generate

from portico.catalog.naming import identifier
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.suggestions import CUTOFF_AMONG_MANY
from portico.domain.tool import ToolId
from portico.testing import definition, make_test_app


def compare_all(
    snapshot: CatalogSnapshot, spelling: str, within: Set[ToolId], limit: int = 10
) -> list[tuple[float, str]]:
    """The reference: the spelling beside every name, the most similar first."""
    wanted = identifier(spelling).casefold()
    bare = wanted.rsplit("__", 1)[-1]
    scored = []
    for id in within:
        handle = snapshot.tools[id].handle
        names = (handle.casefold().replace(".", "_"), identifier(id.name).casefold())
        score = max(fuzz.ratio(wanted, names[0]), fuzz.ratio(bare, names[1]) if bare else 0)
        if score >= CUTOFF_AMONG_MANY:
            scored.append((score, handle))
    return sorted(scored, key=lambda row: (-row[0], row[1]))[:limit]


def near(snapshot: CatalogSnapshot, spelling: str, within: Set[ToolId] | None = None) -> list[str]:
    permitted = snapshot.tools.keys() if within is None else within
    return [tool.handle for tool in snapshot.resolver.near(spelling, permitted)]


def slip(rng: random.Random, name: str) -> str:
    """The name as somebody writes it who does not look."""
    letters = list(name)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(letters))
        change = rng.choice(("lose", "add", "swap", "other"))
        if change == "lose" and len(letters) > 1:
            del letters[place]
        elif change == "add":
            letters.insert(place, rng.choice("abcdefghijklmnopqrstuvwxyz_"))
        elif change == "swap":
            letters[place : place + 2] = reversed(letters[place : place + 2])
        else:
            letters[place] = rng.choice("abcdefghijklmnopqrstuvwxyz_")
    return "".join(letters)


@pytest.fixture(scope="module")
def large() -> CatalogSnapshot:
    return make_test_app(generate(40, 2_000)).gateway.snapshot


@pytest.mark.parametrize("seed", range(40))
def test_what_looks_most_like_a_slip_is_found_among_thousands(large: CatalogSnapshot, seed: int) -> None:
    rng = random.Random(seed)
    tool = rng.choice(list(large.tools.values()))
    spelling = slip(rng, rng.choice((tool.handle, tool.id.name, tool.listed)))
    found = near(large, spelling)
    assert [handle for score, handle in compare_all(large, spelling, large.tools.keys()) if handle not in found] == []


names = st.sets(st.text(alphabet="abcde_", min_size=1, max_size=9), min_size=1, max_size=25)


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(["a", "bad", "cab_bed", "deed"]), names, min_size=1),
    st.text(alphabet="abcde_", min_size=1, max_size=14),
)
def test_no_name_that_is_alike_is_left_out(servers: dict[str, set[str]], spelling: str) -> None:
    offered = {server: [definition(name) for name in sorted(found)] for server, found in servers.items()}
    snapshot = make_test_app(offered).gateway.snapshot
    found = near(snapshot, spelling)
    assert found == [handle for _, handle in compare_all(snapshot, spelling, snapshot.tools.keys())]


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING", "T17")
@pytest.mark.parametrize("spelling", ["issues.get_isue", "creat_message", "serch", "list"])
def test_hidden_tools_change_nothing_in_what_looks_alike(large: CatalogSnapshot, spelling: str) -> None:
    shown = {server: tools[::2] for server, tools in generate(40, 2_000).items()}
    without = make_test_app(shown).gateway.snapshot
    within = without.tools.keys() & large.tools.keys()
    assert len(within) == len(without.tools)
    assert near(large, spelling, within) == near(without, spelling)


def test_a_name_that_many_servers_have_is_given_in_order() -> None:
    snapshot = make_test_app(
        {f"server{number:03}": [definition("search_pages")] for number in range(500)}
    ).gateway.snapshot
    assert near(snapshot, "serch_pages") == [f"server{number:03}.search_pages" for number in range(10)]


def test_a_name_that_is_spelled_like_the_handle_of_another_tool_is_given_beside_it() -> None:
    offered = {"a": [definition("b_search")], "a_b": [definition("search")], "x": [definition("a_b_search")]}
    assert near(make_test_app(offered).gateway.snapshot, "a_b_serch") == ["a.b_search", "a_b.search", "x.a_b_search"]


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "spelling", ["x" * 200, "ab" * 100, "get_" * 50, "e" * 1_000_000, "éé" * 500_000, "_", "a__", "__", ""]
)
def test_a_hostile_spelling_is_compared_with_thousands_of_names_at_once(large: CatalogSnapshot, spelling: str) -> None:
    for _ in range(20):
        near(large, spelling)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("spelling", ["ab" * 100, "a" * 200, "ba" * 64, "aab" * 66])
def test_hostile_names_take_no_longer(spelling: str) -> None:
    rng = random.Random(7)
    hostile = {"".join(rng.choices("ab", k=500)) for _ in range(1_000)}
    snapshot = make_test_app({"s": [definition(name) for name in sorted(hostile)]}).gateway.snapshot
    for _ in range(20):
        near(snapshot, spelling)
