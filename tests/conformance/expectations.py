"""Which failures are expected, and why; an expectation that no longer fails is a failure too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.conformance.suite import Outcome

FILE = Path(__file__).with_name("expected-failures.yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A failure that is expected: a whole scenario, or one check of it."""

    scenario: str
    reason: str
    check: str | None = None
    suites: tuple[str, ...] = ()
    """Empty for all."""
    eras: tuple[str, ...] = ()

    def concerns(self, outcome: Outcome) -> bool:
        """Whether it speaks about this outcome."""
        return (
            outcome.scenario == self.scenario
            and (not self.suites or outcome.suite in self.suites)
            and (not self.eras or outcome.era in self.eras)
        )

    def excuses(self, outcome: Outcome, check: str) -> bool:
        """Whether this check of this outcome may fail."""
        return self.concerns(outcome) and self.check in (None, check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An outcome, judged."""

    outcome: Outcome
    unexpected: dict[str, str]
    excused: dict[str, str]
    """Check -> reason."""
    stale: tuple[str, ...]
    """Expectations that did not come true."""

    @property
    def good(self) -> bool:
        """Whether everything was as expected."""
        return not self.unexpected and not self.stale

    @property
    def word(self) -> str:
        """The verdict for a table."""
        if self.unexpected:
            return f"FAIL {len(self.unexpected)}"
        if self.stale:
            return "STALE"
        if self.excused:
            return "expected"
        # A scenario in which nothing succeeded has shown nothing, even if nothing failed.
        return f"pass {self.outcome.passed}" if self.outcome.passed else "warn"


def load(target: str) -> list[Expected]:
    """The expectations for a target, `direct` or `gateway`."""
    entries = yaml.safe_load(FILE.read_text(encoding="utf-8")).get(target) or []
    return [
        Expected(
            scenario=entry["scenario"],
            reason=entry["reason"],
            check=entry.get("check"),
            suites=tuple(map(str, entry.get("suites", ()))),
            eras=tuple(map(str, entry.get("eras", ()))),
        )
        for entry in entries
    ]


def judge(outcomes: Iterable[Outcome], expected: Sequence[Expected]) -> list[Verdict]:
    """Compare what happened with what was expected."""
    return [_judge(outcome, expected) for outcome in outcomes]


def _judge(outcome: Outcome, expected: Sequence[Expected]) -> Verdict:
    excused: dict[str, str] = {}
    unexpected: dict[str, str] = {}
    for check, message in outcome.failures.items():
        excuse = next((entry for entry in expected if entry.excuses(outcome, check)), None)
        if excuse:
            excused[check] = excuse.reason
        else:
            unexpected[check] = message
    stale = [
        f"{entry.scenario}{f':{entry.check}' if entry.check else ''}"
        for entry in expected
        if entry.concerns(outcome) and not any(entry.excuses(outcome, check) for check in outcome.failures)
    ]
    return Verdict(outcome=outcome, unexpected=unexpected, excused=excused, stale=tuple(stale))
