"""Asks an advisory database about the packages of `constraints.txt`: `make audit ARGS="--service osv|pypi"`.

The tool that asks (`pip-audit`) is installed into an environment of its own under `.cache`, once. Exit codes: 0 when
every package was checked and none has a known vulnerability, 1 when one has, 3 when not all could be checked, because
the tool cannot be installed or the database cannot be reached.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".cache" / "audit"
CLEAN, VULNERABLE, UNCHECKED = 0, 1, 3
SECONDS = 300
REPORT = "report.json"


def judge(report: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code for a report, and what to say.

    A package that the database did not know of was not checked: where there is no network, that is every package, and
    the tool itself calls it a success.
    """
    packages = report.get("dependencies", [])
    found = [_told(one, flaw) for one in packages for flaw in one.get("vulns", [])]
    skipped = [f"{one['name']}: {one['skip_reason']}" for one in packages if "skip_reason" in one]
    if found:
        return VULNERABLE, [*found, *skipped]
    if skipped or not packages:
        return UNCHECKED, [*skipped[:5], f"not checked: {len(skipped)} of {len(packages)} packages"]
    return CLEAN, [f"no known vulnerability in {len(packages)} packages"]


def _told(package: dict[str, Any], flaw: dict[str, Any]) -> str:
    fixed = ", ".join(flaw.get("fix_versions", [])) or "no version"
    return f"{package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}"


def ask(file: Path, service: str) -> tuple[int, list[str]]:
    """Run the tool over a constraints file."""
    command = [str(PLACE / "bin" / "pip-audit"), "--requirement", str(file), "--no-deps", "--disable-pip"]
    with TemporaryDirectory() as folder:
        report = Path(folder) / REPORT
        options = ["--vulnerability-service", service, "--format", "json", "--output", str(report)]
        try:
            done = _run([*command, "--progress-spinner", "off", *options])
        except (OSError, subprocess.TimeoutExpired) as error:
            return UNCHECKED, [f"the tool did not end: {error}"]
        if report.exists() and (text := report.read_text(encoding="utf-8")):
            return judge(json.loads(text))
    return UNCHECKED, [f"the database of {service!r} cannot be reached: {_last_line(done.stderr)}"]


def install() -> str:
    """Install the tool unless it is there; the answer is what went wrong, or nothing."""
    if (PLACE / "bin" / "pip-audit").exists():
        return ""
    venv.create(PLACE, with_pip=True, clear=True)
    done = _run([str(PLACE / "bin" / "python"), "-m", "pip", "install", "--quiet", "pip-audit>=2.10,<3"])
    return _last_line(done.stderr) if done.returncode else ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[-1][:300]


def main() -> int:
    """Install, ask, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", choices=("osv", "pypi"), default="osv", help="which advisory database is asked")
    parser.add_argument("--file", type=Path, default=ROOT / "constraints.txt", help="which packages it is asked about")
    options = parser.parse_args()
    if problem := install():
        code, lines = UNCHECKED, [f"pip-audit cannot be installed: {problem}"]
    else:
        code, lines = ask(options.file, options.service)
    print("\n".join(lines))
    if code == UNCHECKED:
        print("The audit was NOT done. Run it where an advisory database can be reached.", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
