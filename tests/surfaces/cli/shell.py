"""A real `portico` process in a home of its own, with a tiny server that any test may give tools to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.testing import definition
from tests.processes import inherited

TINY = Path(__file__).parents[2] / "contracts" / "tiny_server.py"
HOSTILE = "Read\x1b[31m red \x1b]0;title\x07 \x9b2J \u202eback \rover\x08 the screen"
TOOLS: list[Any] = [
    {
        **definition("read_file", "Read a file.", path="string", limit="integer?"),
        "annotations": {"readOnlyHint": True},
        "_meta": {"fastmcp": {"tags": ["disk"]}},
    },
    definition(
        "send-mail", "Send a mail to somebody.", to={"type": "array", "items": {"type": "string"}}, urgent="boolean?"
    ),
    definition("fail", "Fail."),
    definition("die", "Die."),
    definition("hostile", HOSTILE),
    {"name": "broken", "inputSchema": []},
]
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """A folder, a config and the way to run commands there."""

    home: Path

    def configure(self, text: str) -> Path:
        file = self.home / "portico.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    def serve_tiny(self, tools: list[Any] = TOOLS, **others: Any) -> Path:
        entry = {"command": sys.executable, "args": [str(TINY), json.dumps(tools)]}
        return self.configure(json.dumps({"servers": {"tiny": entry, **others}}))

    def run(self, *arguments: str, stdin: str = "", **environ: str) -> Ended:
        keep = inherited("PATH", "PYTHONPATH", "SYSTEMROOT")
        done = subprocess.run(
            [sys.executable, "-m", "portico", *arguments],
            input=stdin.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=30,
            check=False,
            cwd=self.home,
            env={**keep, "HOME": str(self.home), "PORTICO_HOME": str(self.home), **environ},
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in out + err, out + err
        assert "internal error" not in out + err, out + err
        assert not _CONTROL.search(out + err), repr(out + err)
        return Ended(done.returncode, out, err)
