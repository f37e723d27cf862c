"""The official suite: installed from npm, run as it comes, its results read back."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.packages import CACHE, install_node, install_npm, node

SUITES: Mapping[str, tuple[str, ...]] = {
    "0.1.16": ("2025-11-25",),
    "0.2.0-alpha.12": ("2025-11-25", "2026-07-28"),
}
"""Version of the suite -> the protocol revisions to run it at."""

_TIMEOUT_S = 600
_FOLDER = re.compile(r"server-(?P<scenario>.+?)-\d{4}-\d{2}-\d{2}T[\d-]+Z")


class SuiteFailed(Exception):
    """The suite itself did not run to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one scenario of one suite gave at one revision."""

    suite: str
    era: str
    scenario: str
    passed: int
    failures: Mapping[str, str] = field(default_factory=dict)
    """Check -> message."""
    warnings: Mapping[str, str] = field(default_factory=dict)


def install(version: str) -> Path:
    """Install one version of the suite and return its script.

    Raises:
        FleetUnavailable: the registries cannot be reached.
    """
    install_node()
    place = CACHE / "conformance" / version
    install_npm(place, f"@modelcontextprotocol/conformance@{version}")
    return place / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


def run(version: str, era: str, url: str, only: str | None) -> list[Outcome]:
    """Run a suite at a revision against a server, all scenarios or only one.

    Raises:
        SuiteFailed: it gave no results; the message has its last words.
    """
    chosen = ["--scenario", only] if only else ["--suite", "all"]
    with tempfile.TemporaryDirectory() as folder:
        command = [str(node()), str(install(version)), "server", "--url", url, "--spec-version", era, *chosen]
        done = subprocess.run([*command, "-o", folder], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        outcomes = [_read(version, era, path) for path in sorted(Path(folder).glob("*/checks.json"))]
    # A scenario that this version or revision does not have is no failure when it was asked for by name.
    if not outcomes and not only:
        raise SuiteFailed(f"suite {version} at {era} gave no results: {(done.stderr or done.stdout)[-2000:]}")
    return outcomes


def _read(version: str, era: str, path: Path) -> Outcome:
    found = _FOLDER.fullmatch(path.parent.name)
    if not found:
        raise SuiteFailed(f"suite {version} wrote its results to {path.parent.name!r}, which is not understood")
    checks = json.loads(path.read_text(encoding="utf-8"))
    told: dict[str, dict[str, str]] = {"FAILURE": {}, "WARNING": {}}
    for check in checks:
        if check["status"] in told:
            told[check["status"]][check["id"]] = check.get("errorMessage") or check.get("description", "")
    return Outcome(
        suite=version,
        era=era,
        scenario=found["scenario"],
        passed=sum(check["status"] == "SUCCESS" for check in checks),
        failures=told["FAILURE"],
        warnings=told["WARNING"],
    )
