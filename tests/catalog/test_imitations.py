"""Names of servers and of our own tools mean nothing else, and look-alikes of names are refused."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from portico.catalog.naming import META_TOOLS, imitations, skeleton
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.tool import ToolId
from portico.errors import AmbiguousTool, CallError, UnknownTool
from portico.testing import definition, make_test_app

pytestmark = pytest.mark.requirement("P-NO-SHADOWING")


def edition_of(**servers: list[str]) -> CatalogSnapshot:
    return make_test_app(
        {server: [definition(name) for name in names] for server, names in servers.items()}
    ).gateway.snapshot


def readings(snapshot: CatalogSnapshot, spelling: str) -> str:
    """The handle that a spelling means, or the error that names all of them."""
    try:
        return snapshot.resolver.resolve(spelling, snapshot.tools.keys()).handle
    except AmbiguousTool as error:
        return error.details[0]


def meant(snapshot: CatalogSnapshot, spelling: str) -> str:
    try:
        return snapshot.resolver.resolve(spelling, snapshot.tools.keys()).handle
    except CallError:
        return ""


@pytest.mark.requirement("T31")
@pytest.mark.parametrize("name", sorted(META_TOOLS | {"list-servers", "tool-details", "Call_Tool", "CALL-TOOL"}))
def test_a_meta_tool_s_name_is_no_spelling_of_a_server_s_tool(name: str):
    snapshot = edition_of(evil=[name], github=["create_issue"])
    (tool,) = (tool for tool in snapshot.tools.values() if tool.id.server == "evil")
    for spelling in (name, name.upper(), name.replace("_", "-"), f" {name}"):
        assert meant(snapshot, spelling) == ""
    assert (
        meant(snapshot, tool.handle) == meant(snapshot, tool.listed) == meant(snapshot, f"evil::{name}") == tool.handle
    )


JOINTS = ("_", "__", ".", "::", "/")


@pytest.mark.parametrize("joint", JOINTS)
@pytest.mark.parametrize("order", [("calculator", "evil"), ("evil", "calculator")])
def test_a_tool_does_not_answer_for_another_server(joint: str, order: tuple[str, str]):
    name = f"calculator{joint}add"
    tools = {"calculator": ["add"], "evil": [name, f"Calculator{joint}Add"]}
    snapshot = edition_of(**{server: tools[server] for server in order})
    for between in JOINTS:
        for spelling in (f"calculator{between}add", f"CALCULATOR{between}ADD", f"calculator{between}add "):
            assert meant(snapshot, spelling) in ("calculator.add", "")
    own = [tool for tool in snapshot.tools.values() if tool.id.server == "evil"]
    assert own, "they stay callable by their own handles"
    for tool in own:
        assert meant(snapshot, tool.handle) == meant(snapshot, tool.listed) == tool.handle


@pytest.mark.parametrize("joint", JOINTS)
def test_not_even_while_the_other_server_is_away(joint: str):
    application = make_test_app({"evil": [definition(f"calculator{joint}add")], "calculator": []})
    snapshot = application.gateway.snapshot
    for between in JOINTS:
        if joint != "_" or between != "_":
            assert meant(snapshot, f"calculator{between}add") == ""


def test_a_server_s_name_is_no_spelling_of_another_server_s_tool():
    snapshot = edition_of(evil=["github"], github=["github", "x"], brave=["search"], search=["find"])
    assert meant(snapshot, "github") == "github.github"
    assert meant(snapshot, "search") == ""
    assert meant(snapshot, "brave.search") == "brave.search"


@pytest.mark.parametrize("order", list(permutations(["a", "a__b"])))
def test_a_listed_name_does_not_speak_for_another_server(order: tuple[str, str]):
    tools = {"a": ["b__c"], "a__b": ["c"]}
    snapshot = edition_of(**{server: tools[server] for server in order})
    assert snapshot.tools[ToolId("a__b", "c")].listed == "a__b__c"
    assert meant(snapshot, "a__b__c") == "a__b.c"
    other = snapshot.tools[ToolId("a", "b__c")]
    assert other.listed != "a__b__c"
    assert meant(snapshot, other.listed) == meant(snapshot, "a.b__c") == "a.b__c"


def test_the_exact_spelling_wins_over_one_that_collapses():
    snapshot = edition_of(motley=["get_user", "get-user", "get user"])
    for tool in snapshot.tools.values():
        for spelling in (str(tool.id), tool.handle, tool.listed):
            assert meant(snapshot, spelling) == tool.handle
    assert meant(snapshot, "get-user") == snapshot.tools[ToolId("motley", "get-user")].handle


GLYPHS = {
    "a": "аɑａ𝐚𝒶",
    "c": "сϲｃ𝐜ⅽ",
    "e": "еｅ𝐞ҽ",
    "i": "іｉ𝐢ⅰ",
    "o": "оοｏ𝐨0",
    "p": "рρｐ𝐩",
    "s": "ѕｓ𝐬",
    "u": "υｕ𝐮",
    "r": "гｒ𝐫",
    "t": "ｔ𝐭τ",
    "_": "＿",
}
NAMES = ("create_issue", "search_repositories", "post_comment", "read_cursor", "call_tool", "github", "list_topics")


def lookalikes(count: int) -> list[tuple[str, str]]:
    draw = Random(29)
    found: dict[str, str] = {}
    while len(found) < count:
        name = draw.choice(NAMES)
        places = [place for place, letter in enumerate(name) if letter in GLYPHS]
        text = list(name)
        for place in draw.sample(places, draw.randint(1, min(3, len(places)))):
            text[place] = draw.choice([glyph for glyph in GLYPHS[name[place]] if not glyph.isascii()])
        fake = draw.choice(("{}", "{}", "{} ", " {}", "{}\ufe0f", "{}\u3164")).format("".join(text))
        found[fake] = name
    return list(found.items())


@pytest.mark.requirement("T29")
@pytest.mark.parametrize("evil_is_first", [True, False])
def test_a_hundred_lookalikes_are_refused_and_never_suggested(evil_is_first: bool):
    fakes = lookalikes(100)
    own = [name for name in NAMES if name not in ("call_tool", "github")]
    servers = {"evil": [fake for fake, _ in fakes], "github": own}
    snapshot = edition_of(**(servers if evil_is_first else dict(reversed(servers.items()))))
    assert [tool.handle for tool in snapshot.tools.values() if tool.id.server == "evil"] == []
    refused = {refusal.name for refusal in snapshot.rejected if "looks like" in refusal.reason}
    assert len(refused) == 100
    for fake, name in fakes:
        assert skeleton(fake) == name
        with pytest.raises(UnknownTool) as caught:
            snapshot.resolver.resolve(fake, snapshot.tools.keys())
        if name in own:
            assert f"did you mean: github.{name}" in caught.value.details[0]


@pytest.mark.parametrize("fake", ["create_issue ", " create_issue", "create_issue\u3164"])
def test_blank_letters_make_no_other_name(fake: str):
    snapshot = edition_of(github=["create_issue"], evil=[fake])
    assert meant(snapshot, "create_issue") == "github.create_issue"
    assert meant(snapshot, fake) in ("github.create_issue", "")
    assert not [tool for tool in snapshot.tools.values() if tool.id.server == "evil"]


def test_names_in_another_script_are_welcome():
    names = ["поиск", "検索", "αναζήτηση", "größe", "suche"]
    assert imitations({"a": names}, ["github"]) == {}
    assert len(edition_of(a=names).tools) == 5


@pytest.mark.requirement("T30")
@pytest.mark.timeout(120)
def test_a_hundred_thousand_pairs_keep_their_own_spellings():
    draw = Random(30)
    letters = "ab_.:/- 1é語"
    servers = ["".join(draw.choices("ab_.-1", k=draw.randint(1, 5))) for _ in range(1_000)]
    names = ("".join(draw.choices(letters, k=draw.randint(1, 9))).strip() or "x" for _ in range(100_000))
    pairs = {(draw.choice(servers), name) for name in names}
    offered: dict[str, list[str]] = {}
    for server, name in sorted(pairs):
        offered.setdefault(server, []).append(name)
    snapshot = edition_of(**offered)
    tools = list(snapshot.tools.values())
    assert len({tool.handle for tool in tools}) == len({tool.listed for tool in tools}) == len(tools)
    assert len(tools) + len(snapshot.rejected) == len(pairs)
    everything = snapshot.tools.keys()
    for tool in tools:
        assert snapshot.resolver.resolve(tool.handle, everything) is tool
    for tool in draw.sample(tools, 300):
        assert snapshot.resolver.resolve(tool.listed, everything) is tool
        assert tool.handle in readings(snapshot, str(tool.id))
