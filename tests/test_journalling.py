"""Every look and every call, through whatever door, is in the journal; and a call knows the search that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from portico import Catalog
from portico.domain.call import Call, Outcome
from portico.domain.journal_entries import Look, Lookup
from portico.domain.search_answers import Query
from portico.errors import InvalidArguments
from portico.rendering.budget import TokenEstimate
from portico.storage.memory import MemoryJournal
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.client_questions_and_logs import Context, Logs
from portico.surfaces.mcp.server import Tools
from portico.surfaces.mcp.surface import Envelope, Surface
from portico.surfaces.search import Search
from portico.surfaces.static import Static
from portico.testing import AGENT, FakeApplication, definition, make_test_app


@pytest.fixture
def application() -> FakeApplication:
    weather = [definition("forecast", city="string"), definition("warnings"), definition("tides", port="string")]
    return make_test_app({"weather": weather, "mail": [definition("send_mail", to="string"), definition("read_mail")]})


def looks(application: FakeApplication) -> Sequence[Lookup]:
    return list(cast(MemoryJournal, application.gateway.executor.journal).lookups)


def tools_of(application: FakeApplication, surface: Surface) -> Tools:
    return Tools(application.gateway, surface, AGENT, Logs(application.gateway.executor.running))


@pytest.mark.requirement("S1-57")
def test_a_search_is_written_down_with_what_it_has_shown_and_cost(application: FakeApplication) -> None:
    answer = application.gateway.search(AGENT, Query(text="send a mail", limit=1))
    (look,) = looks(application)
    assert (look.look, look.text, look.caller, look.surface) == (Look.SEARCH, "send a mail", "agent", "test")
    assert (look.shown, look.tokens, look.fits) == (1, answer.tokens, True)
    assert look.at > 1_000_000_000
    assert look.seconds > 0


def test_a_search_that_nothing_fits_is_written_down_as_that(application: FakeApplication) -> None:
    application.gateway.search(AGENT, Query(text="zzz qqq"))
    (look,) = looks(application)
    assert (look.fits, look.shown) == (False, 0)


def test_the_map_a_filter_and_a_description_are_looks_of_their_own_kind(application: FakeApplication) -> None:
    application.gateway.search(AGENT, Query(text=""))
    application.gateway.search(AGENT, Query(text="", server="mail"))
    application.gateway.describe(AGENT, ["mail.send_mail", "mail.read_mail"])
    assert [(look.look, look.text, look.shown) for look in looks(application)] == [
        (Look.BROWSE, "", 5),
        (Look.BROWSE, "server=mail", 2),
        (Look.DESCRIBE, "mail.send_mail mail.read_mail", 2),
    ]


@pytest.mark.requirement("P-JOURNAL-DOORS")
async def test_a_call_knows_at_which_place_its_tool_was_found_and_only_the_first_one_does(
    application: FakeApplication,
) -> None:
    application.provider("mail").returns("read_mail", {"content": [{"type": "text", "text": "hello"}]})
    found = application.gateway.hits(AGENT, Query(text="mail")).hits
    place = 1 + [hit.handle for hit in found].index("mail.read_mail")
    application.gateway.search(AGENT, Query(text="mail"))
    for _ in range(2):
        await application.gateway.call(AGENT, Call(tool="mail.read_mail", arguments={}))
    assert [call.rank for call in application.invocations] == [place, 0]


async def test_a_place_on_a_later_page_counts_from_the_first(application: FakeApplication) -> None:
    for name in ("send_mail", "read_mail"):
        application.provider("mail").returns(name, {"content": []})
    first = application.gateway.search(AGENT, Query(text="mail", limit=1))
    cursor = first.next.split('"cursor": "')[1].split('"')[0]
    second = application.gateway.search(AGENT, Query(text="mail", limit=1, cursor=cursor))
    arguments = {"to": "ana"} if second.cards[0].handle == "mail.send_mail" else {}
    await application.gateway.call(AGENT, Call(tool=second.cards[0].handle, arguments=arguments))
    assert application.invocations[-1].rank == 2


@pytest.mark.requirement("P-JOURNAL-DOORS")
async def test_a_tool_that_was_found_by_browsing_has_no_place(application: FakeApplication) -> None:
    application.provider("mail").returns("read_mail", {"content": []})
    application.gateway.search(AGENT, Query(text="", server="mail"))
    application.gateway.search(AGENT, Query(text=""))
    await application.gateway.call(AGENT, Call(tool="mail.read_mail", arguments={}))
    assert application.invocations[-1].rank == 0


async def test_a_call_is_written_down_with_its_time_its_tokens_and_the_script_it_came_from(
    application: FakeApplication,
) -> None:
    text = "Rain in the morning, sun in the afternoon."
    application.provider("weather").returns("forecast", {"content": [{"type": "text", "text": text}]})
    call = Call(tool="weather.forecast", arguments={"city": "Oslo"}, parent="script-7")
    await application.gateway.call(AGENT, call)
    (written,) = application.invocations
    count = TokenEstimate().count
    assert (written.outcome, written.parent) == (Outcome.DONE, "script-7")
    assert written.at > 1_000_000_000
    assert (written.tokens_in, written.tokens_out) == (count('{"city":"Oslo"}'), count(text))


@pytest.mark.requirement("P-JOURNAL-DOORS")
async def test_a_list_is_written_down_with_what_listing_every_tool_would_have_cost(
    application: FakeApplication,
) -> None:
    for surface in (Discover(application.gateway), Static(application.gateway)):
        await tools_of(application, surface).list(cast(Context, None), {})
    discover, static = looks(application)
    assert [discover.look, static.look] == [Look.LIST, Look.LIST]
    assert discover.instead == static.instead == static.tokens > 0
    assert discover.tokens != static.tokens


@pytest.mark.requirement("P-JOURNAL-DOORS")
async def test_search_tool_is_a_search_and_shows_where_a_tool_was_found(application: FakeApplication) -> None:
    application.provider("mail").returns("read_mail", {"content": []})
    tools = tools_of(application, Search(application.gateway))
    answer = await tools._call(tools.caller, "search_tool", {"query": "mail"}, Envelope())
    names = [tool["name"] for tool in answer["structuredContent"]["tools"]]
    await tools._call(tools.caller, "execute_tool", {"tool_name": "mail__read_mail", "arguments": {}}, Envelope())
    (look,) = looks(application)
    assert (look.look, look.text, look.shown) == (Look.SEARCH, "mail", len(names))
    assert application.invocations[-1].rank == names.index("mail__read_mail") + 1


@pytest.mark.requirement("P-JOURNAL-DOORS")
async def test_the_library_is_a_door_like_any_other() -> None:
    catalog = Catalog()
    catalog.add_tools("mail", [definition("send_mail"), definition("read_mail")], call=lambda name, arguments: name)
    hits = catalog.search("read mail")
    await catalog.call(hits[0].handle)
    journal = cast(MemoryJournal, catalog._application.gateway.executor.journal)
    assert [look.text for look in journal.lookups] == ["read mail"]
    assert [call.rank for call in journal.recent] == [1]


async def test_a_call_that_had_to_be_corrected_keeps_its_place(application: FakeApplication) -> None:
    application.provider("weather").returns("tides", {"content": []})
    application.gateway.search(AGENT, Query(text="tides", server="weather"))
    with pytest.raises(InvalidArguments):
        await application.gateway.call(AGENT, Call(tool="weather.tides", arguments={}))
    await application.gateway.call(AGENT, Call(tool="weather.tides", arguments={"port": "Oslo"}))
    invalid, done = application.invocations
    assert invalid.rank == 0
    assert done.rank > 0
