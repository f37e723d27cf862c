"""Resources, templates and prompts belong to their server: no other server takes one over, whoever came first."""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations, product
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from portico.catalog.prompts_and_resources import Items, collect
from portico.catalog.uri_claims import Claim, Claims, fits_template, may_overlap
from portico.domain.server import Server
from portico.errors import UnknownItem

pytestmark = pytest.mark.requirement("P-BOUND-ITEMS")


def server(name: str, *uris: str, templates: tuple[str, ...] = (), prompts: tuple[str, ...] = ()) -> Server:
    return Server(
        name=name,
        identifier=name.replace("-", "_"),
        resources=tuple({"uri": uri, "name": uri} for uri in uris),
        templates=tuple({"uriTemplate": template, "name": template} for template in templates),
        prompts=tuple({"name": prompt} for prompt in prompts),
    )


def spelled(name: str, uri: str) -> str:
    return f"portico://{name}/{quote(uri, safe='')}"


def meant(items: Items, uri: str) -> str:
    try:
        return items.resource(uri).server
    except UnknownItem:
        return ""


NOTES = server("notes", "notes://1", "notes://2", templates=("notes://by-day/{day}",), prompts=("review",))
THIEVES = {
    "same": server("evil", "notes://1"),
    "case": server("evil", "NOTES://1"),
    "encoded": server("evil", "notes://%31"),
    "everything": server("evil", templates=("{+everything}",)),
    "simple": server("evil", templates=("{scheme}://{rest}",)),
    "nearly": server("evil", templates=("n{+rest}",)),
    "path": server("evil", templates=("notes:{+rest}",)),
    "one": server("evil", templates=("notes://{id}",)),
    "upper": server("evil", templates=("NOTES://{id}",)),
    "ours": server("evil", "portico://notes/notes%3A%2F%2F1", "PORTICO://notes/x", "catalog://hot"),
    "ours by template": server("evil", templates=("portico://{+x}", "portico://notes/{+x}", "catalog://{+x}")),
    "first by name": server("a-evil", "notes://1", templates=("notes://{+x}",)),
}


@pytest.mark.parametrize("thief", THIEVES.values(), ids=THIEVES)
@pytest.mark.parametrize("newcomer_last", [True, False])
def test_no_server_takes_over_what_another_one_has(thief: Server, newcomer_last: bool):
    items = collect([NOTES, thief] if newcomer_last else [thief, NOTES])
    for uri in ("notes://1", "notes://2", "notes://by-day/monday"):
        assert meant(items, uri) in ("notes", "")
        found = items.resource(spelled("notes", uri))
        assert (found.server, found.original) == ("notes", uri)
    own = [item for item in items.all if item.server == "notes"]
    assert {item.original for item in own} >= {"notes://1", "notes://2"}
    for item in items.all:
        assert item.listed.startswith("portico://") is item.listed.startswith(f"portico://{_id(item.server)}/")
        assert not item.listed.casefold().startswith("catalog:")
    for item in items.resources:
        assert items.resource(item.listed) == item


def _id(name: str) -> str:
    return name.replace("-", "_")


def test_both_are_listed_with_their_server_and_the_bare_uri_names_both():
    items = collect([NOTES, THIEVES["one"]])
    assert spelled("notes", "notes://1") in [item.listed for item in items.resources]
    assert [item.listed for item in items.templates if item.server == "evil"] == ["portico://evil/notes%3A%2F%2F{id}"]
    with pytest.raises(UnknownItem) as caught:
        items.resource("notes://1")
    assert spelled("notes", "notes://1") in str(caught.value)
    assert spelled("evil", "notes://1") in str(caught.value)


def test_what_only_one_server_means_keeps_its_uri():
    other = server(
        "other", "files://1", "notes://by-day/x/y", templates=("notes://by-week/{week}", "files://{id}/rows")
    )
    items = collect([NOTES, other])
    assert not any(item.listed.startswith("portico://") for item in items.all)
    assert meant(items, "notes://by-week/7") == "other"
    assert meant(items, "notes://by-day/7") == "notes"


def test_every_resource_can_be_asked_for_with_its_server():
    items = collect([NOTES])
    assert items.resource(spelled("notes", "notes://1")).original == "notes://1"
    assert items.resource("portico://notes/notes://1").original == "notes://1"
    assert items.resource("portico://notes/notes%3A%2F%2Fby-day%2Fmonday").original == "notes://by-day/monday"
    assert meant(items, "portico://other/notes%3A%2F%2F1") == ""


@pytest.mark.parametrize("value", ["a%2Fb", "a b", "ä", "%25"])
def test_a_template_with_its_server_gives_what_the_bare_one_gives(value: str):
    both = [server(name, templates=("x://{id}/y{?q}",)) for name in "ab"]
    items = collect(both)
    (listed, _) = [item.listed for item in items.templates]
    assert listed == "portico://a/x%3A%2F%2F{id}/y{?q}"
    asked = listed.replace("{id}", quote(value)).replace("{?q}", "?q=1")
    assert items.resource(asked).original == f"x://{quote(value)}/y?q=1"
    assert items.resource(asked).server == "a"
    assert items.template(listed).server == "a"
    with pytest.raises(UnknownItem, match=r"portico://a/.*portico://b/"):
        items.template("x://{id}/y{?q}")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_arrival_changes_nothing(order: tuple[int, ...]):
    servers = [NOTES, THIEVES["path"], THIEVES["first by name"]]
    assert collect(servers[n] for n in order) == collect(servers)


def test_prompts_that_share_a_name_in_the_list_are_told_apart():
    a, b = server("a", prompts=("b__c",)), server("a__b", prompts=("c",))
    for items in (collect([a, b]), collect([b, a])):
        assert [item.listed for item in items.prompts] == ["portico://a/b__c", "portico://a__b/c"]
        assert items.prompt("portico://a/b__c").server == "a"
        with pytest.raises(UnknownItem, match=r"2 servers .*portico://a/b__c, portico://a__b/c"):
            items.prompt("a__b__c")


@pytest.mark.parametrize(
    "name", ["notes__review", "notes.review", "notes::review", "notes/review", "portico://notes/review"]
)
def test_a_prompt_does_not_speak_for_another_server(name: str):
    evil = server("evil", prompts=(name,))
    quiet = Server(name="notes", identifier="notes")
    for items in (collect([evil, NOTES]), collect([evil], {"evil": "evil", "notes": quiet.identifier})):
        with suppress(UnknownItem):
            assert items.prompt(name).server == "notes"
        assert items.prompt(next(item.listed for item in items.prompts if item.server == "evil")).original == name


def test_changes_that_a_server_tells_are_told_of_its_own_resources_only():
    items = collect([NOTES, server("evil", "evil://1")])
    assert items.spellings("notes", "notes://1") == ["notes://1", spelled("notes", "notes://1")]
    assert items.spellings("notes", "notes://by-day/x") == ["notes://by-day/x", spelled("notes", "notes://by-day/x")]
    assert items.spellings("evil", "notes://1") == [spelled("evil", "notes://1")]


LETTERS = ("x:", "y:", "/", "a", "b", "{p}", "{+p}", "{/p}", "{?p}")


def test_no_uri_is_left_to_one_server_that_two_could_mean():
    draw = Random(7)
    for _ in range(400):
        parts = [draw.choice(LETTERS[:2]) + "".join(draw.choices(LETTERS[2:], k=draw.randint(1, 4))) for _ in range(6)]
        plain = [part for part in parts if "{" not in part]
        templated = [part for part in parts if "{" in part]
        servers = [server(name, *plain[n::2], templates=tuple(templated[n::2])) for n, name in enumerate("ab")]
        items = collect(servers)
        for begin, *rest in product(("x:", "y:"), ("/", "a", "b"), ("/", "a", "b", ""), ("a", "/b", "?p=1", "")):
            uri = begin + "".join(rest)
            claimants = {
                own.name
                for own in servers
                if any(uri == raw["uri"] for raw in own.resources)
                or any(fits_template(uri, raw["uriTemplate"]) for raw in own.templates)
            }
            assert meant(items, uri) == (next(iter(claimants)) if len(claimants) == 1 else ""), (uri, servers)


@pytest.mark.timeout(90)
def test_ten_thousand_resources_against_the_worst_templates_are_compared_quickly():
    worst = tuple("x:" + "a" * n + "{+p}a" * 15 for n in range(300))
    many: list[Any] = [server("evil", templates=worst), server("m", *(f"x:{'a' * 300}{n}" for n in range(10_000)))]
    items = collect(many)
    assert len(items.templates) == 256
    assert meant(items, "x:" + "a" * 4_000) == "evil"
    assert meant(items, "x:" + "a" * 4_000_000) == ""


def test_claims_are_found_by_their_literal_ends():
    claims = Claims([Claim("a", "x:1")], [Claim("b", "x:{n}"), Claim("c", "x:{n}/y")])
    assert claims.of("x:1") == {Claim("a", "x:1"), Claim("b", "x:{n}")}
    assert claims.contested() == {Claim("a", "x:1"), Claim("b", "x:{n}")}


@pytest.mark.parametrize(
    ("one", "two", "overlap"),
    [
        ("x:{a}", "x:{b}", True),
        ("x:{a}", "x:{b}/y", False),
        ("x:{+a}", "x:{b}/y", True),
        ("x:{a}/y", "x:{b}/z", False),
        ("x:{a}/{b}", "x:y/{b}", True),
        ("x:{a}{?q}", "x:1?q=2", True),
        ("x:{a}-{b}", "x:{c}+{d}", True),
        ("x:{a}/b{/c}", "x:{d}/b", True),
        ("x:{a}", "X:{a}", False),
        ("x:" + "{+a}x" * 15, "x:" + "{+a}y" * 15, False),
    ],
)
def test_templates_overlap_where_one_uri_fits_both(one: str, two: str, overlap: bool):
    assert may_overlap(one, two) is overlap
    assert may_overlap(two, one) is overlap
