"""Fetching packages from PyPI and npm once, into a folder that later runs read."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PATIENCE = 240
"""Seconds that one download may take."""


def canonical(name: str) -> str:
    """Return a package's name as wheel files spell it."""
    return re.sub(r"[-_.]+", "_", name).lower()


def fetch_wheels(names: Iterable[str], folder: Path, *, offline: bool = False) -> list[Path]:
    """Download the wheels that are not in the folder yet, and return all that are there, in the order of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(names)
    present = _wheels(folder)
    absent = [name for name in names if canonical(name) not in present and not _marker(folder, name).exists()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: _download(name, folder), [] if offline else absent))
    present = _wheels(folder)
    return [present[canonical(name)] for name in names if canonical(name) in present]


def fetch_tarball(name: str, folder: Path, *, offline: bool = False) -> Path | None:
    """Return the npm package's tarball, downloading it when it is not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.removeprefix("@").replace("/", "-")
    marker = _marker(folder, f"npm-{stem}")
    if not (found := sorted(folder.glob(f"{stem}-[0-9]*.tgz"))) and not (offline or marker.exists()):
        if not _attempt(["npm", "pack", "--silent", "--pack-destination", str(folder), name]):
            marker.touch()
        found = sorted(folder.glob(f"{stem}-[0-9]*.tgz"))
    return found[-1] if found else None


def _wheels(folder: Path) -> dict[str, Path]:
    return {canonical(path.name.split("-")[0]): path for path in sorted(folder.glob("*.whl"))}


def _marker(folder: Path, name: str) -> Path:
    return folder / f"{canonical(name)}.missing"


def _download(name: str, folder: Path) -> None:
    pip = shutil.which("pip") or "pip"
    command = [pip, "download", "-q", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "-d", str(folder), name]
    if not _attempt(command):
        _marker(folder, name).touch()


def _attempt(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
