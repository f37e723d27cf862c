"""What an operator sees: every server, how it is doing, what was refused, and the token bill."""

from __future__ import annotations

import pytest

from portico.domain.server import ServerSpec, State
from portico.errors import UnknownServer, UpstreamGone
from portico.testing import FakeHouse, definition, furnish


@pytest.fixture
def house() -> FakeHouse:
    specs = [
        ServerSpec(name="fake", transport="stdio", command="run", args=("--fast", "--token=secret")),
        ServerSpec(name="off", transport="http", url="https://user:pass@example.com/mcp?key=secret", enabled=False),
    ]
    return furnish({"fake": [definition("x"), {"name": ""}]}, specs=specs)


def test_every_server_is_reported_running_or_not(house: FakeHouse) -> None:
    fake, off = house.admin.reports()
    assert (fake.name, fake.health.state, len(fake.tools)) == ("fake", State.READY, 1)
    assert [refusal.name for refusal in fake.rejected] == ["(no name)"]
    assert (off.name, off.health.state) == ("off", State.DISABLED)


def test_a_target_shows_no_secrets(house: FakeHouse) -> None:
    run, url = (report.target for report in house.admin.reports())
    assert run.startswith("run")
    assert "example.com/mcp" in url
    assert not any(secret in run + url for secret in ("secret", "user", "pass"))


def test_a_server_that_nobody_configured_is_unknown(house: FakeHouse) -> None:
    with pytest.raises(UnknownServer, match="configured: fake"):
        house.admin.report("nobody")


async def test_a_failure_is_reported_until_it_is_over(house: FakeHouse) -> None:
    house.provider().fails(UpstreamGone("fake", details=("no such command",)))
    await house.admin.refresh()
    health = house.admin.report("fake").health
    assert (health.state, health.reason) == (State.FAILED, "no such command")
    house.provider().fails(None)
    await house.admin.refresh()
    assert house.admin.report("fake").health.state is State.READY


def test_a_server_that_was_never_asked_is_unknown_yet(house: FakeHouse) -> None:
    house.gateway.editions.withdraw("fake")
    assert house.admin.report("fake").health.state is State.UNKNOWN


def test_the_bill_adds_up(house: FakeHouse) -> None:
    bill = house.admin.bill(after=10)
    assert [(line.server, line.tools) for line in bill.lines] == [("fake", 1)]
    assert bill.before == bill.lines[0].tokens > 10
    assert bill.saved == pytest.approx(1 - 10 / bill.before)
    assert bill.counter == "estimate"


def test_an_empty_house_has_an_empty_bill() -> None:
    bill = furnish({}).admin.bill(after=100)
    assert (bill.before, bill.saved) == (0, 0.0)
