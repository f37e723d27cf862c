"""The gateway and its clients in a bad hour, smaller than in `make chaos`, which also judges speed and memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pytest

from tests.chaos import clients, fleet, soak
from tests.chaos.watching import Verdict

pytestmark = pytest.mark.timeout(180)


def assert_all(verdicts: Sequence[Verdict]) -> None:
    """All that is no question of the machine holds."""
    assert [one for one in verdicts if not (one.holds or one.is_noisy)] == []


@pytest.mark.requirement("P-SESSION-IDLE", "F28")
def test_sessions_that_are_left_behind_end_by_the_clock_and_keep_nothing():
    assert_all(clients.sessions(100, rounds=2))


@pytest.mark.requirement("P-CLIENTS-VANISH", "F27")
def test_clients_that_vanish_leave_nothing_behind():
    assert_all(clients.vanish(240))


@pytest.mark.requirement("P-SLOW-READER", "F25")
def test_a_client_that_reads_slowly_takes_the_memory_of_its_answer_and_no_more():
    assert_all(clients.slow_reader(3.0))


@pytest.mark.chaos
@pytest.mark.requirement("P-SHED", "F26")
def test_what_is_too_much_is_told_when_to_come_again():
    assert_all(clients.overload(3.0))


@pytest.mark.chaos
@pytest.mark.requirement("P-NO-FILES", "F30")
def test_without_descriptors_calls_under_way_are_not_lost_and_it_recovers():
    assert_all(clients.descriptors())


@pytest.mark.requirement("P-PASS-CANCEL", "F45")
def test_a_call_that_a_client_cancels_or_breaks_off_ends_at_the_server():
    assert_all(clients.cancel(40))


@pytest.mark.requirement("P-DRAIN", "F08")
def test_told_to_stop_under_load_it_loses_no_call_and_leaves_no_process():
    assert_all(clients.drain(20))


@pytest.mark.chaos
@pytest.mark.requirement("P-CHAOS", "T16", "F46", "F48")
def test_faults_of_some_servers_do_not_reach_the_others_and_leave_nothing_behind():
    assert_all(fleet.run(argparse.Namespace(seconds=10.0, clients=40, seed=1)))


@pytest.mark.chaos
@pytest.mark.requirement("F29")
def test_hours_of_calls_do_not_make_it_grow():
    assert_all(soak.run(argparse.Namespace(minutes=0.2, rate=50.0)))
