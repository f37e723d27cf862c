"""Runs the official conformance suite, both versions in both eras: `python tests/conformance/run.py [--direct]`.

Without `--direct` the suite talks to the gateway, with the fixture behind it. Exits with 1 on a failure that is not in
`expected-failures.yml`, and on an entry there that no longer fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance import expectations, suite, targets
from tests.conformance.expectations import Verdict
from tests.fleet.packages import CACHE, FleetUnavailable

_NOT_RUN = 2


def main() -> int:
    """Run, print the table, write the summary."""
    options = _options()
    target = "direct" if options.direct else "gateway"
    try:
        outcomes = _run(target, options.only)
    except (FleetUnavailable, suite.SuiteFailed, targets.TargetFailed) as error:
        print(f"the conformance suite did not run: {error}", file=sys.stderr)
        return _NOT_RUN
    verdicts = expectations.judge(outcomes, expectations.load(target))
    print(_table(verdicts))
    print(_remarks(verdicts))
    _write(options.json or CACHE / "conformance" / f"{target}.json", target, verdicts)
    return 0 if verdicts and all(verdict.good for verdict in verdicts) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--direct", action="store_true", help="test the fixture itself, without the gateway")
    parser.add_argument("--only", metavar="SCENARIO", help="run one scenario only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the summary")
    return parser.parse_args()


def _run(target: str, only: str | None) -> list[suite.Outcome]:
    for version in suite.SUITES:
        suite.install(version)
    with targets.direct() if target == "direct" else targets.gateway() as url:
        return [
            outcome
            for version, eras in suite.SUITES.items()
            for era in eras
            for outcome in suite.run(version, era, url, only)
        ]


def _table(verdicts: Sequence[Verdict]) -> str:
    columns = [(version, era) for version, eras in suite.SUITES.items() for era in eras]
    cells = {(v.outcome.scenario, v.outcome.suite, v.outcome.era): v.word for v in verdicts}
    heads = [f"{version} @ {era}" for version, era in columns]
    lines = [_row("scenario", heads), _row("-" * 48, ["-" * len(head) for head in heads])]
    for scenario in dict.fromkeys(verdict.outcome.scenario for verdict in verdicts):
        words = [cells.get((scenario, *column), "") for column in columns]
        lines.append(_row(scenario, [word.ljust(len(head)) for word, head in zip(words, heads, strict=True)]))
    return "\n".join(lines)


def _row(first: str, rest: Sequence[str]) -> str:
    return f"{first:48} {'  '.join(rest)}".rstrip()


def _remarks(verdicts: Sequence[Verdict]) -> str:
    """Every failure, expectation and warning on a line of its own, then the counts."""
    lines = []
    for verdict in verdicts:
        where = f"{verdict.outcome.suite} @ {verdict.outcome.era} {verdict.outcome.scenario}"
        lines += [f"FAIL      {where}:{check}: {message}" for check, message in verdict.unexpected.items()]
        lines += [f"STALE     {where}: {entry} is expected to fail and does not" for entry in verdict.stale]
        lines += [f"expected  {where}:{check}: {reason}" for check, reason in verdict.excused.items()]
        lines += [f"warning   {where}:{check}: {message}" for check, message in verdict.outcome.warnings.items()]
    return "\n".join(["", *lines, "", *_counts(verdicts)])


def _counts(verdicts: Sequence[Verdict]) -> list[str]:
    found = []
    for version, eras in suite.SUITES.items():
        for era in eras:
            ran = [v for v in verdicts if (v.outcome.suite, v.outcome.era) == (version, era)]
            passed = sum(not v.outcome.failures for v in ran)
            checks = sum(v.outcome.passed for v in ran)
            failing = sum(len(v.outcome.failures) for v in ran)
            found.append(
                f"{version} @ {era}: {passed} of {len(ran)} scenarios pass, {checks} checks pass, {failing} fail,"
                f" {sum(len(v.excused) for v in ran)} of them expected"
            )
    return found


def _write(path: Path, target: str, verdicts: Sequence[Verdict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    summary = {
        "target": target,
        "good": all(verdict.good for verdict in verdicts),
        "scenarios": [{**asdict(verdict), "word": verdict.word} for verdict in verdicts],
    }
    path.write_text(json.dumps(summary, indent=2))


if __name__ == "__main__":
    sys.exit(main())
