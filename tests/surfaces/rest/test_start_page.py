"""The page at `/`: what this is, and where everything is."""

from __future__ import annotations

import re

import pytest

from portico.config import SURFACES
from tests.surfaces.rest.rest_app import open_rest


@pytest.mark.requirement("P-START-PAGE")
@pytest.mark.parametrize(
    ("accept", "kind"), [("text/html,application/xhtml+xml", "text/html"), ("*/*", "text/plain"), ("", "text/plain")]
)
async def test_the_first_page_says_what_this_is_and_where_things_are(accept: str, kind: str):
    rest = open_rest()
    page = await rest.get("/", accept=accept)
    assert page.status == 200
    assert page.headers["content-type"].startswith(kind)
    text = page.body.decode()
    for named in ("Portico", "MCP gateway", "/openapi.json", "/livez", "docs", *(f"/mcp/{name}" for name in SURFACES)):
        assert named in text
    for path in re.findall(r"/[a-z0-9./]+(?<=[a-z])", text):
        if path.startswith(("/api", "/openapi", "/livez", "/readyz", "/metrics")):
            assert (await rest.get(path)).status == 200, path


async def test_the_first_page_can_be_asked_for_its_head_only_and_holds_no_script():
    rest = open_rest()
    head = await rest.get("/", method="HEAD", accept="text/html")
    assert (head.status, head.body) == (200, b"")
    assert "default-src 'none'" in head.headers["content-security-policy"]
    assert (await rest.get("/", method="POST")).status == 405
