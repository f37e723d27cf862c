"""What comes from outside leaves no control character and no line of its own in logs and on the terminal."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest

from portico.errors import UpstreamGone
from portico.surfaces.cli.output_and_logs import PrintableRecord, error_text, table
from portico.testing import definition

from .shell import Shell

EVIL = "\x1b[31mred\x1b]0;t\x07\x9b2J\rover\nportico: all is well"


def written(level: int, message: str, *given: object, error: Exception | None = None, format: str = "") -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(format or "portico: %(message)s"))
    info = (type(error), error, error.__traceback__) if error else None
    handler.handle(PrintableRecord("x", level, "x.py", 1, message, given, info))
    return stream.getvalue()


@pytest.mark.requirement("T28")
@pytest.mark.requirement("P-CLI-NO-CONTROL")
@pytest.mark.parametrize("format", ["", "%(asctime)s %(levelname)s %(message)s"])
def test_a_record_is_one_line_whatever_it_is_told_with(format: str) -> None:
    for text in (written(30, EVIL, format=format), written(30, "a server said %s", EVIL, format=format)):
        assert text.count("\n") == 1
        assert "\x1b" not in text
        assert "\\nportico: all is well" in text


@pytest.mark.requirement("P-CLI-NO-CONTROL")
def test_a_traceback_cannot_pose_as_a_record() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        text = written(40, "failed", error=error)
    first, *others = text.splitlines()
    assert first == "portico: failed"
    assert others
    assert all(line.startswith("  | ") for line in others)
    assert not any(sign in text for sign in "\x1b\x07\x9b\r")


@pytest.mark.requirement("P-CLI-NO-CONTROL")
@pytest.mark.parametrize(
    "words", [("\x1b[31mx",), ("list", "--\x1b[31m"), ("call", EVIL), ("describe", EVIL), ("--config", EVIL, "list")]
)
def test_what_was_typed_is_said_without_its_signs(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.run(*words)  # which looks for control characters itself
    assert done.code in (2, 3, 4)
    assert "\nportico: all is well" not in done.err


@pytest.mark.requirement("P-CLI-NO-CONTROL")
def test_details_and_cells_have_no_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    error = UpstreamGone("s.tool", details=("it said\nnext: portico call evil",))
    assert "\nnext: portico call evil" not in error_text(error)
    table(("NAME",), [("a\nb",)])
    assert capsys.readouterr().out.splitlines() == ["NAME", "a\\nb"]


@pytest.mark.requirement("T28")
@pytest.mark.requirement("P-CLI-NO-CONTROL")
def test_a_hostile_server_leaves_no_raw_sign_in_the_log_or_the_terminal(shell: Shell) -> None:
    code = f"import sys; sys.stderr.write({EVIL!r} * 3); sys.exit(1)"
    entry = {"command": sys.executable, "args": ["-c", code]}
    shell.serve_tiny([{**definition("evil", EVIL), "title": EVIL}], dead=entry)
    for words in (("doctor",), ("list", "-v"), ("list",), ("search", "evil"), ("describe", "evil"), ("refresh",)):
        done = shell.run(*words)
        assert "\nportico: all is well" not in done.err, words
    done = subprocess.run(
        [sys.executable, "-m", "portico", "serve", "--stdio"],
        cwd=shell.home,
        env={"HOME": str(shell.home), "PORTICO_HOME": str(shell.home)},
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert not any(sign in done.stderr for sign in (b"\x1b", b"\x07", b"\xc2\x9b", b"\r"))
