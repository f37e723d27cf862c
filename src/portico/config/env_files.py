"""Files of variables that a server entry names with `envFile`: `NAME=value` on each line, as editors read them."""

from __future__ import annotations

import re
from pathlib import Path

from portico.errors import ConfigError

from .documents import read_text

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r"""(?P<quote>["'])(?P<text>.*?)(?<!\\)(?P=quote)\s*(?:#.*)?$""")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}


def read_env_file(file: Path) -> dict[str, str]:
    """The variables of a file; comments and empty lines are left out. No message ever shows a value.

    Raises:
        ConfigError: the file cannot be read, or a line is not `NAME=value`.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            fix = "Write NAME=value on each line."
            raise ConfigError("this line is not a variable", file=str(file), line=number, fix=fix)
        found[match["name"]] = _value(match["value"])
    return found


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text.strip())
    if quoted is None:
        return _COMMENT.sub("", text).strip()
    if quoted["quote"] == "'":
        return quoted["text"]
    return re.sub(r"\\[nt\"\\]", lambda found: _ESCAPES[found[0]], quoted["text"])
