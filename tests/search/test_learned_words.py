"""What callers search with before they call a tool becomes words for it: for them, and with enough of them for all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.config import SearchSettings
from portico.domain.call import Call, Caller, Invocation, Outcome
from portico.domain.search_answers import Findings, Hit, Query
from portico.domain.tool import Tool, ToolId
from portico.domain.usage_and_tiers import (
    CALLER_WORDS_KEPT,
    DAY_SECONDS,
    HALF_LIFE,
    SHARED_FROM,
    TIDIED_AFTER,
    TOOL_WORDS_KEPT,
    WORD_TOOLS_KEPT,
    WORDS_KEPT,
    LearnedWord,
    LearnedWords,
    caller_mark,
    words_learned,
    words_within_bounds,
)
from portico.errors import UpstreamError
from portico.search.groups_and_doubt import LEARNED_PART, LEARNED_SHARE, STRONG, USAGE_SHARE, settle
from portico.search.learned_words import HINT_LENGTH, hints, read_said, strengths, with_learned, words_searched
from portico.testing import FakeApplication, definition, make_test_app, tool

NOW = 20_600 * DAY_SECONDS + 3_600.0
ANA, BEN, CLEO, DAN = (Caller(name=name, surface="test") for name in ("ana", "ben", "cleo", "dan"))
CALLERS = (ANA, BEN, CLEO)
REPORT, INVOICE, MAIL = ToolId("erp", "run_job_17"), ToolId("erp", "list_invoices"), ToolId("mail", "send")


def make(**parts: object) -> FakeApplication:
    servers = {
        "erp": [
            definition("run_job_17", "Runs the monthly closing of the books."),
            definition("list_invoices", "List all invoices of a customer."),
        ],
        "mail": [definition("send", "Send a mail message to somebody.", to="string")],
        "git": [definition("create_issue", "Create a new issue in a repository.", title="string")],
    }
    return make_test_app(servers, **parts)


async def used(application: FakeApplication, caller: Caller, query: str, name: str, times: int = 1) -> None:
    """Search, and then call what the search has shown."""
    for _ in range(times):
        application.gateway.executor.search_rank.remember(
            caller, [application.gateway.view(caller).tool(name).id], query=query
        )
        await application.gateway.call(caller, Call(tool=name, arguments={}))


def found(application: FakeApplication, caller: Caller, text: str) -> list[Hit]:
    findings = application.gateway.search_hits(caller, Query(text=text), nearest=False)
    return list(findings.hits)


def handles(hits: list[Hit]) -> list[str]:
    return [hit.handle for hit in hits]


def learned(*rows: tuple[ToolId, str, str, int], at: float = NOW) -> LearnedWords:
    """Words that were used so many times at one moment, each a tool, a query and a caller."""
    calls = [
        Invocation(
            tool=tool, spelled="", caller=caller, surface="", outcome=Outcome.DONE, seconds=0.1, at=at, words=said
        )
        for tool, query, caller, times in rows
        for said in [words_searched(query)] * times
    ]
    return LearnedWords(words_learned(calls, NOW), now=NOW)


@pytest.mark.requirement("P-LEARNED")
async def test_words_that_were_searched_become_words_for_the_tool_that_was_called_then() -> None:
    application = make()
    assert not found(application, ANA, "monday ritual")
    assert handles(found(application, ANA, "monthly closing of the books monday ritual")) == ["erp.run_job_17"]
    for _ in range(3):
        found(application, ANA, "monthly closing monday ritual")
        await application.gateway.call(ANA, Call(tool="erp.run_job_17", arguments={}))
    (hit,) = found(application, ANA, "monday ritual")
    assert hit.handle == "erp.run_job_17"
    assert sum(hit.why.values()) == pytest.approx(hit.score)
    assert hit.why.keys() == {LEARNED_PART, "usage"}
    assert "erp.run_job_17" in application.gateway.search(ANA, Query(text="monday ritual")).text


@pytest.mark.requirement("P-LEARNED")
async def test_a_call_that_failed_or_came_without_a_search_teaches_nothing() -> None:
    application = make()
    application.provider("erp").returns("run_job_17", {"content": [], "isError": True})
    await used(application, ANA, "monday ritual", "erp.run_job_17", 5)
    application.provider("erp").returns("run_job_17", {"content": []})
    await application.gateway.call(ANA, Call(tool="erp.run_job_17", arguments={}))
    application.provider("erp").fails(UpstreamError("erp.run_job_17", rpc_code=-1, message="no"))
    with pytest.raises(UpstreamError):
        await used(application, ANA, "monday ritual", "erp.run_job_17")
    assert len(application.gateway.executor.journal.learned()) == 0


@pytest.mark.requirement("P-LEARNED-PRIVATE")
async def test_what_one_caller_taught_is_found_by_that_caller_alone() -> None:
    application = make()
    await used(application, ANA, "monday ritual", "erp.run_job_17", 50)
    assert handles(found(application, ANA, "monday ritual")) == ["erp.run_job_17"]
    for query in ("monday ritual", "send a monday mail", "list invoices", "ritual"):
        asked = application.gateway.hits(BEN, Query(text=query))
        assert not asked.learned
        assert all(LEARNED_PART not in hit.why for hit in asked.hits)
    answer = application.gateway.search(BEN, Query(text="monday ritual")).text
    assert "no tool" in answer.lower(), answer
    assert (await application.admin.usage_report(caller=BEN)).learned == ()
    assert {line.word for line in (await application.admin.usage_report(caller=ANA)).learned} == {"monday", "ritual"}
    assert hints(application.gateway.executor.journal.learned(), application.gateway.view(ANA).tools, NOW) == {}


@pytest.mark.requirement("P-LEARNED-PRIVATE")
async def test_what_three_callers_taught_counts_for_everybody() -> None:
    application = make()
    for number, caller in enumerate(CALLERS, 1):
        assert not application.gateway.hits(DAN, Query(text="monday ritual")).fits
        await used(application, caller, "monday ritual", "erp.run_job_17", 2)
        lines = (await application.admin.usage_report(caller=DAN)).learned
        assert bool(lines) == (number == SHARED_FROM)
    assert handles(found(application, DAN, "monday ritual")) == ["erp.run_job_17"]
    assert {(line.word, line.tool, line.uses, line.callers, line.is_shared) for line in lines} == {
        ("monday", REPORT, 6, 3, True),
        ("ritual", REPORT, 6, 3, True),
    }


@pytest.mark.requirement("P-LEARNED-PRIVATE")
def test_clients_of_one_name_are_one_caller_however_many_there_are() -> None:
    known = learned(*[(REPORT, "ritual", Caller(name="local", client=f"c{n}").name, 1) for n in range(9)])
    assert known.of("ritual", "other", NOW) == {}
    assert known.of("ritual", "local", NOW).keys() == {REPORT}


@pytest.mark.requirement("P-LEARNED-PRIVATE")
def test_a_spelling_is_shown_only_where_enough_callers_used_it() -> None:
    shown = learned((REPORT, "invoices", "a", 1), (REPORT, "invoicing", "b", 1), (REPORT, "invoiced", "c", 1))
    (line,) = shown.lines("d", 10, NOW)
    assert line.word == read_said("invoices").words[0][0]
    shown = learned(*[(REPORT, "invoices", caller, 1) for caller in "abc"])
    assert [line.word for line in shown.lines("d", 10, NOW)] == ["invoices"]


LITERALS = [
    'find "acme secret"',
    "find 'acme secret'",
    "find `acme secret`",
    "find “acme secret”",
    'find "acme secret',
    "find 'acme secret",
    "find acme/secret",
    "find /srv/acme/secret",
    "find C:\\acme\\secret",
    "find https://acme.example/secret?x=secret",
    "find www.acme.example",
    "find secret@acme.example",
    "find acme.secret",
    "find acme_secret",
    "find acmeSecret",
    "find aCmE",
    "find 4711",
    "find +49-171-4711",
    "find secret42acme",
    "find sk-acmesecretacme",
    "find eyJacmesecret",
    "find password=acme",
    "find password: acme",
    "find api-key 'acme'",
    "find #acme:secret",
    "find acmeacmeacmeacmeacmeacmeacme",
]


@pytest.mark.requirement("P-LEARNED-PRIVATE")
@pytest.mark.parametrize("query", LITERALS)
def test_literals_are_never_learned(query: str) -> None:
    assert {spelled for _, spelled in words_searched(query)} <= {"find", "api", "key"}


@pytest.mark.requirement("P-LEARNED-PRIVATE")
def test_the_value_of_a_secret_is_not_learned_but_words_about_secrets_are() -> None:
    assert [spelled for _, spelled in words_searched("my password is swordfish, log in")] == ["log"]
    assert [spelled for _, spelled in words_searched("reset the password of a user")] == ["reset", "password", "user"]


@pytest.mark.requirement("P-LEARNED-PRIVATE")
@given(st.text(max_size=40))
def test_nothing_that_is_quoted_is_learned(secret: str) -> None:
    quoted = secret.replace('"', "")
    assert [spelled for _, spelled in words_searched(f'open "{quoted}" now')] in (["open", "now"], ["open"])


def test_plain_words_of_any_alphabet_are_learned() -> None:
    spelled = [spelled for _, spelled in words_searched("Send the Q report (PDF) to Müller, e-mail! отчёт")]
    assert spelled == ["send", "report", "pdf", "müller", "mail", "отчёт"]


def test_a_need_teaches_its_own_words_alone() -> None:
    query = 'send the report to the team and then create a ticket "secret plan'
    assert [spelled for _, spelled in words_searched(query, "create a ticket secret pl")] == ["create", "ticket"]


@pytest.mark.requirement("P-LEARNED-BOUNDED")
def test_a_query_that_tells_a_story_teaches_nothing() -> None:
    many = " ".join(f"{letter}word" for letter in "abcdefghijklmn")
    assert words_searched(many) == ()
    assert words_searched("word " * 100) == ()


@pytest.mark.requirement("P-LEARNED-BOUNDED")
def test_what_is_learned_fades() -> None:
    known = learned((REPORT, "ritual", "a", 8))
    assert known.of("ritual", "a", NOW)[REPORT] == pytest.approx(8)
    assert known.of("ritual", "a", NOW + HALF_LIFE)[REPORT] == pytest.approx(4)
    assert learned((REPORT, "ritual", "a", 8), at=NOW - HALF_LIFE).of("ritual", "a", NOW)[REPORT] == pytest.approx(4)
    assert len(learned((REPORT, "ritual", "a", 1), at=NOW - 6 * HALF_LIFE)) == 0
    assert learned((REPORT, "ritual", "a", 1), at=1e11).of("ritual", "a", NOW)[REPORT] == pytest.approx(1)


@pytest.mark.requirement("P-LEARNED-BOUNDED")
def test_callers_whose_uses_have_faded_are_no_longer_counted() -> None:
    old = learned((REPORT, "ritual", "a", 1), (REPORT, "ritual", "b", 1), at=NOW - 6 * HALF_LIFE)
    assert len(old) == 0
    rows = [(REPORT, "ritual", caller, 1) for caller in "abc"]
    assert learned(*rows).of("ritual", "d", NOW).keys() == {REPORT}


def word(n: int, *, caller: str = "a", tool: int | None = None, weight: float = 1e6) -> LearnedWord:
    id = ToolId("s", f"t{n if tool is None else tool}")
    return LearnedWord(tool=id, word=f"w{n}", caller=caller, spelled=f"w{n}", uses=1, weight=weight)


@pytest.mark.requirement("P-LEARNED-BOUNDED")
def test_words_are_bounded_by_tool_by_caller_and_in_all() -> None:
    one_tool = words_within_bounds([word(n, tool=1) for n in range(100)], NOW)
    assert len(one_tool) == TOOL_WORDS_KEPT
    one_word = words_within_bounds([replace(word(n), word="w") for n in range(100)], NOW)
    assert len(one_word) == WORD_TOOLS_KEPT
    one_caller = words_within_bounds([word(n) for n in range(5_000)], NOW)
    assert len(one_caller) == CALLER_WORDS_KEPT
    many = [word(n, caller=f"c{n % 20}") for n in range(20_000)]
    assert len(words_within_bounds(many, NOW)) == WORDS_KEPT
    heavy = word(1, caller="kept", weight=1e9)
    assert heavy in words_within_bounds([*many, heavy], NOW)


@pytest.mark.requirement("P-LEARNED-BOUNDED")
def test_a_flood_of_words_stays_within_bounds_and_pushes_out_nothing_of_others() -> None:
    known = learned((REPORT, "ritual", "ana", 2))
    for start in range(0, 4_000, 100):
        known.add([word(n, caller=caller_mark("flood")) for n in range(start, start + 100)], NOW)
        assert len(known) <= CALLER_WORDS_KEPT + TIDIED_AFTER + 100
    assert known.of("ritual", "ana", NOW).keys() == {REPORT}
    known.add([word(n, caller=caller_mark("flood"), tool=1) for n in range(9_000, 9_000 + TIDIED_AFTER)], NOW)
    assert len(known) <= CALLER_WORDS_KEPT + 1


def strong(application: FakeApplication, text: str, known: LearnedWords, caller: str = "ana") -> dict[ToolId, float]:
    return strengths(text, known, caller, application.gateway.view(ANA).visible, NOW)


def test_a_word_that_is_used_for_many_tools_says_little_of_each() -> None:
    application = make()
    known = learned((REPORT, "run", "ana", 9), (INVOICE, "run", "ana", 9), (MAIL, "run", "ana", 9))
    assert max(strong(application, "run", known).values()) < STRONG
    known = learned((REPORT, "run", "ana", 9))
    assert strong(application, "run", known)[REPORT] > STRONG
    assert strong(application, "run the k8s report job", known)[REPORT] < STRONG, "its other words were never learned"


@given(
    st.lists(st.tuples(st.sampled_from([REPORT, INVOICE, MAIL]), st.sampled_from("abc"), st.integers(1, 500))),
)
def test_no_two_tools_are_strong_at_once(rows: list[tuple[ToolId, str, int]]) -> None:
    names = {"a": "alpha", "b": "beta", "c": "gamma"}
    known = learned(*[(tool, names[letter], "ana", times) for tool, letter, times in rows])
    found = strengths("alpha beta gamma", known, "ana", {REPORT, INVOICE, MAIL}, NOW)
    assert sum(found.values()) < 1
    assert sum(strength >= STRONG for strength in found.values()) <= 1


@pytest.mark.requirement("P-LEARNED-PRIVATE", "T17")
def test_tools_that_a_caller_does_not_see_leave_no_trace() -> None:
    known = learned((REPORT, "run", "ana", 9), (MAIL, "run", "ana", 900))
    assert strengths("run", known, "ana", {REPORT}, NOW) == strengths(
        "run", learned((REPORT, "run", "ana", 9)), "ana", {REPORT}, NOW
    )


TOOLS: list[Tool] = [tool(definition(f"t{number}")) for number in range(6)]


@pytest.mark.requirement("P-LEARNED-GENTLE", "P-EXPLAIN")
@given(
    st.lists(st.floats(0.01, 200).map(lambda score: round(score, 4)), max_size=6),
    st.dictionaries(st.integers(0, 5), st.floats(0, 1)),
)
def test_no_words_lift_a_hit_over_one_that_is_plainly_better(scores: list[float], learned: dict[int, float]) -> None:
    hits = [
        Hit(tool=t, score=score, why={"told": score})
        for t, score in zip(TOOLS, sorted(scores, reverse=True), strict=False)
    ]
    ordered = settle(hits, {}, {TOOLS[n].id: strength for n, strength in learned.items()})
    before = {hit.tool.id: hit.score for hit in hits}
    for earlier, later in pairwise(ordered):
        assert before[later.tool.id] <= before[earlier.tool.id] * (1 + LEARNED_SHARE) + 0.001
    for hit in ordered:
        assert sum(hit.why.values()) == pytest.approx(hit.score, abs=2e-4)


@pytest.mark.requirement("P-LEARNED-GENTLE")
def test_a_tool_that_is_brought_in_stands_behind_what_fits_plainly_better() -> None:
    tools = {t.id: t for t in TOOLS}
    hits = tuple(Hit(tool=t, score=score) for t, score in zip(TOOLS, (0.9, 0.6, 0.3), strict=False))
    brought = with_learned(Findings(hits=hits, fits=True), {TOOLS[5].id: 0.9}, tools, size=538, limit=5)
    assert [hit.name for hit in brought.hits] == ["t0", "t1", "t5", "t2"]
    raised = with_learned(Findings(hits=hits, fits=True), {TOOLS[2].id: 0.9}, tools, size=538, limit=5)
    assert [(hit.name, hit.score) for hit in raised.hits][2] == ("t2", brought.hits[2].score)
    assert raised.hits[2].why[LEARNED_PART] == pytest.approx(brought.hits[2].score - 0.3)
    weak = with_learned(Findings(hits=hits[2:], fits=True, weak=True), {TOOLS[5].id: 0.9}, tools, size=538, limit=5)
    assert ([hit.name for hit in weak.hits], weak.weak) == (["t5", "t2"], False)
    little = with_learned(Findings(hits=hits, fits=True), {TOOLS[5].id: 0.4}, tools, size=538, limit=5)
    assert little.hits == hits
    assert LEARNED_SHARE > USAGE_SHARE


@pytest.mark.requirement("P-LEARNED-GENTLE", "T38")
async def test_an_attacker_who_calls_his_own_tool_often_does_not_reach_the_first_place() -> None:
    application = make()
    attackers = [Caller(name=f"m{n}", surface="test") for n in range(10)]
    for attacker in attackers:
        for query in ("create issue", "list invoices of a customer", "send mail message", "monday"):
            await used(application, attacker, query, "erp.run_job_17", 30)
    expected = {
        "create a new issue": "git.create_issue",
        "list invoices": "erp.list_invoices",
        "send a mail": "mail.send",
        "create an issue in a repository": "git.create_issue",
    }
    for query, handle in expected.items():
        assert handles(found(application, DAN, query))[0] == handle
    assert not found(application, DAN, "translate a poem"), "words that he did not use bring nothing"


async def test_a_cursor_leads_on_although_a_call_between_two_pages_taught_words() -> None:
    application = make_test_app({"s": [definition(f"list_{n}", "List all things.") for n in range(30)]})
    first = application.gateway.search(ANA, Query(text="list things"))
    shown = {card.handle for card in first.cards}
    for _ in range(2):
        application.gateway.search(ANA, Query(text="list things"))
        await application.gateway.call(ANA, Call(tool=first.cards[2].handle, arguments={}))
    cursor = first.next.split('"cursor": "')[1].split('"')[0]
    second = application.gateway.search(ANA, Query(text="list things", cursor=cursor))
    assert "is not of this list" not in second.text
    assert not shown & {card.handle for card in second.cards}


@pytest.mark.requirement("P-LEARNED-OFF")
async def test_where_it_is_switched_off_nothing_is_learned_and_nothing_used() -> None:
    application = make(search=SearchSettings(learning=False))
    found(application, ANA, "monthly closing monday ritual")
    await application.gateway.call(ANA, Call(tool="erp.run_job_17", arguments={}))
    assert len(application.gateway.executor.journal.learned()) == 0
    application.gateway.executor.journal.learned().add(
        words_learned(
            [
                Invocation(
                    tool=REPORT,
                    spelled="",
                    caller="ana",
                    surface="",
                    outcome=Outcome.DONE,
                    seconds=0.1,
                    at=NOW,
                    words=words_searched("monday ritual"),
                )
            ]
            * 9,
            NOW,
        ),
        NOW,
    )
    assert not found(application, ANA, "monday ritual")


@pytest.mark.requirement("P-LEARNED-OFF")
async def test_what_was_learned_can_be_forgotten() -> None:
    application = make()
    await used(application, ANA, "monday ritual", "erp.run_job_17", 3)
    assert await application.admin.forget_learned() == 2
    assert await application.admin.forget_learned() == 0
    assert not found(application, ANA, "monday ritual")


def test_hints_are_words_that_a_tool_does_not_have_in_the_order_of_the_alphabet() -> None:
    application = make()
    said = "zebra ritual books closing monday apple " + " ".join(f"{letter * 12}" for letter in "bcdefgh")
    rows = [(REPORT, query, caller, 1) for query in (said[:150], "monday ritual") for caller in "abc"]
    found = hints(learned(*rows), application.gateway.view(ANA).tools, NOW)
    assert found.keys() == {REPORT}
    told = found[REPORT].split()
    assert told == sorted(told)
    assert {"monday", "ritual"} <= set(told)
    assert not {"books", "closing"} & set(told), "its description says these"
    assert len(found[REPORT]) <= HINT_LENGTH
