"""Prompts and resources that a profile does not offer are neither listed nor given."""

from __future__ import annotations

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from portico.config.profiles import read_pattern
from portico.domain.server import Offering
from portico.domain.tool import Profile
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.static import Static
from portico.testing import make_test_app

OFFERING = Offering(
    server="fake",
    prompts=({"name": "base_explain"}, {"name": "dba_explain"}),
    resources=({"uri": "docs://one", "name": "one"}, {"uri": "file:///secret", "name": "secret"}),
    templates=({"uriTemplate": "docs://{name}", "name": "docs"}, {"uriTemplate": "file:///{name}", "name": "files"}),
)


@pytest.mark.requirement("S4-47")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_what_the_profile_does_not_offer_is_not_there(mode: str):
    patterns = {"prompt": (read_pattern("^base_"),), "resource": (read_pattern("docs://[^x]"),)}
    gateway = make_test_app({"fake": []}, profile=Profile(name="mine", **patterns)).gateway
    gateway.publisher.accept([(OFFERING, "upstream")])
    async with Client(SurfaceServer(gateway, Static(gateway), "1"), mode=mode) as connected:
        assert [prompt.name for prompt in (await connected.list_prompts()).prompts] == ["fake__base_explain"]
        assert [str(resource.uri) for resource in (await connected.list_resources()).resources] == ["docs://one"]
        templates = (await connected.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["docs://{name}"]
        for name in ("fake__dba_explain", "dba_explain", "nothing"):
            with pytest.raises(MCPError, match="no prompt of that name"):
                await connected.get_prompt(name)
        for uri in ("file:///secret", "docs://xyz", "nothing://x"):
            with pytest.raises(MCPError, match="no resource of that name"):
                await connected.read_resource(uri)
