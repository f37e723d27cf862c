"""The documentation site has every page, the API of every public name, and no link that leads out of it by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from maintenance.site import API, DOCS, api_page, expand, link_to_repository

import portico
from tests.house.source import ROOT

pytestmark = pytest.mark.requirement("P-HOUSE-HABITS")

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(nav: Any) -> Iterator[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for inner in nav.values() if isinstance(nav, dict) else nav:
            yield from pages(inner)


def test_every_page_is_in_the_navigation_once():
    written = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages(expand(CONFIG["nav"]))) == sorted([*written, API])


def test_the_api_reference_has_every_public_name():
    assert [name for name in portico.__all__ if f"\n::: portico.{name}\n" not in api_page()] == []


@pytest.mark.parametrize(
    ("page", "link", "target"),
    [
        ("README.md", "../CHANGELOG.md", "https://example.com/r/blob/main/CHANGELOG.md"),
        ("guides/a.md", "../../examples/b.py", "https://example.com/r/blob/main/examples/b.py"),
        ("guides/a.md", "../limits.md#security", "../limits.md#security"),
        ("guides/a.md", "#here", "#here"),
        ("guides/a.md", "https://example.com/../..", "https://example.com/../.."),
    ],
)
def test_only_links_that_leave_the_docs_lead_to_the_repository(page: str, link: str, target: str):
    assert link_to_repository(f"see [it]({link}).", page, "https://example.com/r") == f"see [it]({target})."


def test_the_site_needs_no_font_and_no_plugin_from_elsewhere():
    assert CONFIG["theme"]["font"] is False
    assert [plugin for plugin in CONFIG["plugins"] if plugin != "search"] == [CONFIG["plugins"][1]]
    assert list(CONFIG["plugins"][1]) == ["mkdocstrings"]
    assert CONFIG["strict"] is True
