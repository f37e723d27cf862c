"""Writes `constraints.txt`: the name and version of every package of this environment, and no address.

Run by `make constraints` in the environment that `make setup` has made; what Portico itself is, and what installs
packages, is left out.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "constraints.txt"
LEFT_OUT = {"portico", "pip", "setuptools", "wheel"}
HEAD = """\
# The versions with which Portico was last developed and tested: Python {python} on {platform}.
# Written by `make constraints`. To install exactly these: make setup CONSTRAINTS=constraints.txt
"""


def installed() -> dict[str, str]:
    """Every package of this environment by its normalised name."""
    found = {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version for one in distributions()}
    return {name: found[name] for name in sorted(found.keys() - LEFT_OUT)}


def write(file: Path = FILE) -> int:
    """Write the file, and say how many packages are in it."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [f"{name}=={version}\n" for name, version in installed().items()]
    file.write_text(HEAD.format(python=python, platform=sys.platform) + "".join(lines), encoding="utf-8")
    return len(lines)


if __name__ == "__main__":
    print(f"{FILE.name}: {write()} packages")
