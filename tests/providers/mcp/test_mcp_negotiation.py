"""Finding out which revision a server speaks."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from upstream_world import Upstreams, said, use

from portico.domain.server import Timeouts
from portico.errors import UpstreamGone
from portico.providers.mcp import connect as negotiation

pytestmark = pytest.mark.anyio


def methods(upstreams: Upstreams) -> list[str]:
    return [m["method"] for m in upstreams.logged() if "method" in m]


@pytest.mark.requirement("F49")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_handshake_revision_is_accepted(upstreams: Upstreams, version: str) -> None:
    provider = upstreams.stdio(protocol=version)
    offering = await provider.offer()
    assert offering.protocol == version
    assert (offering.title, offering.version, offering.description) == ("Scripted", "1.2", "does as told")
    assert offering.instructions == "be good"
    assert methods(upstreams)[:3] == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.requirement("F49")
@pytest.mark.parametrize("era", ["modern", "dual"])
async def test_modern_server_is_recognised_by_the_probe(upstreams: Upstreams, era: str) -> None:
    provider = upstreams.stdio(era=era)
    offering = await provider.offer()
    assert (offering.protocol, offering.title, offering.instructions) == ("2026-07-28", "Scripted", "be good")
    assert "initialize" not in methods(upstreams)
    await use(provider, "echo", a=1)
    meta = said(await use(provider, "seen"))[-1]["params"]["_meta"]
    assert meta == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "portico", "title": "Portico", "version": "9.9"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }


async def test_handshake_requests_carry_no_envelope(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo", a=1)
    assert "_meta" not in said(await use(provider, "seen"))[-1]["params"]


async def test_server_that_ignores_the_probe_is_usable_within_its_bound(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert negotiation.PROBE <= 2
    monkeypatch.setattr(negotiation, "PROBE", 0.3)
    provider = upstreams.stdio(probe="ignore", timeouts=Timeouts(start=300, call=60, total=60, idle=0))
    with anyio.fail_after(10):
        assert (await provider.offer()).protocol == "2025-11-25"


async def test_server_that_exits_at_the_probe_is_started_again_without_it(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(probe="exit")
    assert (await provider.offer()).protocol == "2025-11-25"
    assert len(upstreams.spawned()) == 2
    assert methods(upstreams).count("server/discover") == 1


async def test_era_is_remembered_for_the_next_start(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo")
    with pytest.raises(UpstreamGone):
        await use(provider, "kill")
    await use(provider, "echo")
    assert methods(upstreams).count("server/discover") == 1
    assert methods(upstreams).count("initialize") == 2


async def test_known_protocol_saves_the_probe(upstreams: Upstreams) -> None:
    await use(upstreams.provide(upstreams.spec(), protocol="2025-06-18"), "echo")
    assert "server/discover" not in methods(upstreams)


@pytest.mark.parametrize("hint", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_wrong_memory_of_the_era_does_no_harm(upstreams: Upstreams, hint: str, era: str) -> None:
    provider = upstreams.provide(upstreams.spec(era=era), protocol=hint)
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_slow_start_leads_to_no_wrong_verdict(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr(negotiation, "PROBE", 0.2)
    offering = await upstreams.stdio(era=era, start_delay=0.6).offer()
    assert offering.protocol == ("2026-07-28" if era == "modern" else "2025-11-25")


async def test_discovery_without_a_modern_revision_means_handshake(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(era="dual", supported=["2025-06-18"])
    assert (await provider.offer()).protocol == "2025-11-25"


@pytest.mark.parametrize(
    "error", [[-32601, "x"], [-32602, "x"], [-32000, "x"], [-32022, "x"], [-32022, "x", {"supported": ["2025-06-18"]}]]
)
async def test_any_error_to_the_probe_leads_to_the_handshake(upstreams: Upstreams, error: list[Any]) -> None:
    provider = upstreams.stdio(era="dual", discover_error=error)
    assert (await provider.offer()).protocol == "2025-11-25"


async def test_unknown_revision_in_the_handshake_is_named(upstreams: Upstreams) -> None:
    with pytest.raises(UpstreamGone, match="'1999-01-01', which is not known here"):
        await upstreams.stdio(protocol="1999-01-01").offer()


async def test_server_with_only_unknown_modern_revisions_is_named(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(era="modern", discover_error=[-32022, "no", {"supported": ["2031-01-01"]}])
    with pytest.raises(UpstreamGone, match="2031-01-01, which is not known here"):
        await provider.offer()


@pytest.mark.requirement("F01")
async def test_silent_server_fails_at_the_start_limit(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(mute=True, timeouts=Timeouts(start=0.9, call=60, total=60, idle=0))
    with anyio.fail_after(10), pytest.raises(UpstreamGone, match=r"handshake within 0\.9 s"):
        await provider.offer()
