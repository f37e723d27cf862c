"""Installs what Portico is compared with, in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FASTMCP = "4.1.4"
_PLACE = Path(__file__).resolve().parents[1] / ".cache" / "bench" / f"fastmcp-{FASTMCP}"

# Run by the new environment's Python: what FastMCP needs, but any certifi. It asks for one that is newer than some
# mirrors have, and nothing here leaves this machine.
_NEEDS = """
from importlib import metadata
from pip._vendor.packaging.requirements import Requirement
for need in map(Requirement, metadata.requires("fastmcp-slim")):
    if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("client", "server")):
        extras = "[" + ",".join(sorted(need.extras)) + "]" if need.extras else ""
        print(need.name + extras + ("" if need.name == "certifi" else str(need.specifier)))
"""


class PeerUnavailable(Exception):
    """A peer could not be installed; the message says why."""


def fastmcp_python() -> Path:
    """The Python of an environment with FastMCP, which is made on first use.

    Raises:
        PeerUnavailable: the registry cannot be reached.
    """
    python, stamp = _PLACE / "bin" / "python", _PLACE.with_name(f"{_PLACE.name}.installed")
    if stamp.exists():
        return python
    shutil.rmtree(_PLACE, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(_PLACE)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--no-deps", f"fastmcp=={FASTMCP}", f"fastmcp-slim=={FASTMCP}"])
    needs = _run([str(python), "-c", _NEEDS]).split()
    _run([*pip, "uvicorn[standard]", *dict.fromkeys(needs)])
    stamp.touch()
    return python


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerUnavailable(f"FastMCP {FASTMCP} could not be installed: {done.stderr.strip()[-400:]}")
    return done.stdout
