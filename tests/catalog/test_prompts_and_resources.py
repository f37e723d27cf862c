"""Prompts and resources of many servers under one roof: told apart, never merged."""

from __future__ import annotations

import pytest

from portico.catalog.prompts_and_resources import collect
from portico.catalog.uri_claims import fits_template
from portico.domain.server import Server
from portico.errors import UnknownItem

A = Server(
    name="a",
    identifier="a",
    prompts=({"name": "greet"}, {"name": 5}, {"title": "nameless"}),
    resources=({"uri": "file:///x"}, {"uri": "file:///x"}),
    templates=({"uriTemplate": "db://{table}/rows"},),
)
B = Server(name="b", identifier="b", prompts=({"name": "greet"}, {"name": "part"}), resources=({"uri": "file:///x"},))


def test_prompts_are_listed_per_server_and_found_by_either_name() -> None:
    items = collect([B, A])
    assert [item.listed for item in items.prompts] == ["a__greet", "b__greet", "b__part"]
    assert items.prompt("b__greet").server == "b"
    assert items.prompt("part").original == "part"
    with pytest.raises(UnknownItem, match="2 servers have a prompt of that name: a__greet, b__greet"):
        items.prompt("greet")


def test_a_uri_that_two_servers_share_is_told_apart() -> None:
    items = collect([A, B])
    listed = ["portico://a/file%3A%2F%2F%2Fx", "portico://b/file%3A%2F%2F%2Fx"]
    assert [item.listed for item in items.resources] == listed
    for server, uri in zip("ab", listed, strict=True):
        assert (items.resource(uri).server, items.resource(uri).original) == (server, "file:///x")
    with pytest.raises(UnknownItem, match=r"2 servers could mean it: portico://a/[^ ]* or portico://b/"):
        items.resource("file:///x")


def test_a_resource_is_found_by_the_template_it_fits() -> None:
    items = collect([A, B])
    assert items.resource("db://users/rows").server == "a"
    assert items.template("db://{table}/rows").server == "a"
    with pytest.raises(UnknownItem):
        items.resource("db://users/other/rows")


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("x://{a}", "x://1", True),
        ("x://{a}", "x://", False),
        ("x://{a}", "x://1/2", False),
        ("x://{+a}", "x://1/2", True),
        ("x://{a}-{b}.txt", "x://1-2-3.txt", True),
        ("x://{a}/y{?q}", "x://1/y?q=2", True),
        ("x://{a}/y{?q}", "x://1/y", True),
        ("x://a.b", "x://aXb", False),
        ("x://{a}{b}", "x://1", False),
        ("", "", True),
    ],
)
def test_templates_are_read_as_the_rfc_says(template: str, uri: str, fits: bool) -> None:
    assert fits_template(uri, template) is fits


@pytest.mark.requirement("P-NO-SLOW-PATTERNS")
@pytest.mark.timeout(90)
def test_no_template_makes_matching_slow() -> None:
    assert not fits_template("x" * 2_000 + "!", "{+a}x" * 40)


@pytest.mark.timeout(90)
def test_two_hundred_thousand_resources_are_collected_quickly() -> None:
    many = Server(name="m", identifier="m", resources=tuple({"uri": f"file:///{n}"} for n in range(200_000)))
    assert len(collect([many]).resources) == 200_000
