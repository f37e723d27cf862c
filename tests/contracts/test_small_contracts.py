"""What every policy, index, journal and token counter promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.catalog.publisher import IndexBuilder
from portico.catalog.snapshot import EMPTY, CatalogSnapshot
from portico.catalog.view import CatalogPolicy, Policy
from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Look, Lookup
from portico.domain.server import ToolFilter
from portico.domain.tool import ToolId
from portico.errors import Refused
from portico.protocols import Journal, TokenCounter
from portico.rendering.budget import ExactTokens, TokenEstimate
from portico.search.index import build_index
from portico.storage.journal import StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.memory import USAGE_KEPT, MemoryJournal
from portico.storage.storage import open_database
from portico.surfaces.search import build_keyword_index
from portico.testing import AGENT, definition, make_test_app

POLICIES: dict[str, Callable[[], Policy]] = {
    "everything": CatalogPolicy,
    "globs": lambda: CatalogPolicy(filters={"a": ToolFilter(allow=("x*",)), "b": ToolFilter(deny=("*",))}),
}
INDEXES: dict[str, IndexBuilder] = {"words": build_index, "keywords": build_keyword_index}
JOURNALS = ("recent", "sqlite", "durable", "postgresql")
COUNTERS: dict[str, Callable[[], TokenCounter]] = {"estimate": TokenEstimate}
if find_spec("splintr"):  # the extra `tokens`
    COUNTERS["exact"] = ExactTokens


@pytest.fixture(scope="module")
def snapshot() -> CatalogSnapshot:
    return make_test_app({s: [definition(n, f"Does {n}") for n in ("x1", "x2", "y")] for s in "abc"}).gateway.snapshot


@pytest.mark.requirement("P-POLICY-CONTRACT", "T25")
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_only_narrows_and_admits_what_it_shows(name: str, snapshot: CatalogSnapshot) -> None:
    policy = POLICIES[name]()
    visible = policy.visible(AGENT, snapshot)
    assert visible <= snapshot.tools.keys()
    assert policy.visible(AGENT, snapshot) == visible
    assert policy.visible(AGENT, EMPTY) == set()
    for id, tool in snapshot.tools.items():
        if id in visible:
            policy.admit(AGENT, tool, {})
        else:
            with pytest.raises(Refused):
                policy.admit(AGENT, tool, {})


@pytest.mark.requirement("P-INDEX-CONTRACT")
@pytest.mark.parametrize("name", INDEXES)
def test_an_index_finds_only_what_is_visible_best_first(name: str, snapshot: CatalogSnapshot) -> None:
    index = INDEXES[name](snapshot, None)
    visible = {id for id in snapshot.tools if id.server == "a"}
    hits = index.query("does x1", within=visible, limit=2).hits
    assert hits[0].tool.id == ToolId("a", "x1")
    assert len(hits) <= 2
    assert {hit.tool.id for hit in hits} <= visible
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert index.query("does x1", within=set(), limit=2).hits == ()
    assert index.query("does x1", within=visible, limit=0).hits == ()
    assert index.query("", within=visible, limit=2).hits == ()
    assert index.query("does x1", within={ToolId("gone", "gone")}, limit=2).hits == ()
    assert INDEXES[name](snapshot, index).query("does x1", within=visible, limit=2).hits == hits


@pytest.fixture(params=JOURNALS)
def journal(request: pytest.FixtureRequest) -> Iterator[Journal]:
    if request.param == "recent":
        yield MemoryJournal()
        return
    store = request.getfixturevalue("migrated_url") if request.param == "postgresql" else "memory"
    database = open_database(store, Path())
    stored = StoredJournal(Ledger(database), durable=request.param == "durable")
    yield stored
    stored.close()
    database.close()


def settle(journal: Journal) -> None:
    """Wait for a journal that works in the background."""
    assert not isinstance(journal, StoredJournal) or journal.flush(20)


def invoked(tool: ToolId | None, outcome: Outcome = Outcome.DONE, seconds: float = 0.25) -> Invocation:
    return Invocation(tool=tool, spelled="\ud800\0", caller="", surface="", outcome=outcome, seconds=seconds, at=time())


@pytest.mark.requirement("P-JOURNAL-CONTRACT")
async def test_a_journal_takes_any_number_of_entries(journal: Journal) -> None:
    for outcome in Outcome:
        for _ in range(500):
            journal.record(invoked(None, outcome))
    for look in Look:
        journal.record(Lookup(look=look, caller="", surface="", text="\ud800\0", at=time()))
    with anyio.fail_after(20):
        assert await journal.written() == ""
    settle(journal)
    assert not journal.usage()


@pytest.mark.requirement("P-JOURNAL-CONTRACT", "P-USAGE")
def test_a_journal_knows_the_usage_of_the_tools_that_were_called(journal: Journal) -> None:
    assert not journal.usage()
    for tool, outcome in [("a", Outcome.DONE), ("a", Outcome.FAILED), ("b", Outcome.INVALID), ("c", Outcome.DONE)]:
        journal.record(invoked(ToolId("s", tool), outcome))
    journal.record(invoked(None, seconds=1.0))
    settle(journal)
    usage = journal.usage()
    assert {id.name: (u.calls, u.done, u.mean_ms) for id, u in usage.items()} == {"a": (2, 1, 250), "c": (1, 1, 250)}


def test_the_recent_journal_keeps_the_usage_of_what_was_called_last_and_no_more() -> None:
    journal = MemoryJournal()
    for number in range(USAGE_KEPT + 500):
        for name in ("always", str(number)):
            journal.record(
                Invocation(tool=ToolId("s", name), spelled="", caller="", surface="", outcome=Outcome.DONE, seconds=0.0)
            )
    usage = journal.usage()
    assert len(usage) == USAGE_KEPT
    assert usage[ToolId("s", "always")].calls == USAGE_KEPT + 500
    assert ToolId("s", "0") not in usage


def test_the_recent_journal_keeps_the_newest_and_no_more() -> None:
    journal = MemoryJournal()
    for number in range(2_500):
        journal.record(
            Invocation(tool=None, spelled=str(number), caller="", surface="", outcome=Outcome.DONE, seconds=0.0)
        )
    assert len(journal.recent) == 1_000
    assert journal.recent[-1].spelled == "2499"


@pytest.mark.requirement("P-COUNTER-CONTRACT")
@pytest.mark.parametrize("name", COUNTERS)
@given(st.text(max_size=300), st.text(max_size=300))
def test_a_counter_is_steady_and_adding_text_never_makes_it_much_cheaper(name: str, one: str, other: str) -> None:
    counter = COUNTERS[name]()
    assert counter.name
    assert counter.count("") == 0
    assert counter.count(one) == counter.count(one) >= 0
    assert counter.count(f"{one}\n{other}") <= counter.count(one) + counter.count(other) + 3
