"""What those who run a gateway see: doctors that speak at once, failures that are told once, values to complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.testing import definition

from .shell import TINY, Shell


def tiny(*names: str) -> dict[str, object]:
    return {"command": sys.executable, "args": [str(TINY), json.dumps([definition(name) for name in names])]}


@pytest.mark.requirement("P-DOCTOR")
def test_doctor_prints_each_server_as_it_is_done_when_piped(shell: Shell) -> None:
    gate = shell.home / "gate"
    os.mkfifo(gate)
    slow = tiny("late")
    code = f"import os, sys; open({str(gate)!r}).read(); os.execv(sys.executable, [sys.executable, *{slow['args']!r}])"
    shell.configure(
        json.dumps({"servers": {"slow": {"command": sys.executable, "args": ["-c", code]}, "a": tiny("x")}})
    )
    doctor = subprocess.Popen(
        [sys.executable, "-m", "portico", "doctor"],
        cwd=shell.home,
        env={"PATH": os.environ["PATH"], "HOME": str(shell.home), "PORTICO_HOME": str(shell.home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert doctor.stdout is not None
    with doctor:
        first = doctor.stdout.readline()
        assert first.startswith("ok  a: 1 tools"), "the other one cannot have answered yet"
        gate.write_text("go")
        rest = doctor.stdout.read()
    assert "ok  slow: 1 tools" in rest
    assert "2 of 2 servers are well." in rest


@pytest.mark.requirement("P-DOCTOR")
def test_doctor_counts_servers_with_variables_that_are_not_set(shell: Shell) -> None:
    secret = {**tiny("y"), "env": {"TOKEN": "${NOT_SET_HERE}"}}
    shell.configure(json.dumps({"servers": {"a": tiny("x"), "secret": secret}}))
    done = shell.run("doctor")
    assert done.code == 3
    assert "1 of 2 servers are well." in done.out
    assert " x  secret: cannot be used" in done.out
    assert "the variable NOT_SET_HERE is not set" in done.out
    row = next(row for row in shell.run("doctor", "--json").json if row.get("name") == "secret")
    assert (row["ok"], row["state"]) == (False, "refused")
    assert "0 of 1 servers are well." in shell.run("doctor", "secret").out


@pytest.mark.requirement("P-DOCTOR")
def test_a_failing_server_is_told_once_and_by_the_doctor(shell: Shell) -> None:
    shell.configure(json.dumps({"servers": {"a": tiny("x"), "broken": {"command": "no-such-program-anywhere"}}}))
    assert "no-such-program-anywhere" in shell.run("search", "x").err
    for words in (("search", "x"), ("describe", "a.x"), ("call", "a.x"), ("tokens",)):
        assert "broken" not in shell.run(*words).err, words
    assert "broken  failed" in shell.run("list").out
    done = shell.run("doctor")
    assert (done.code, "no-such-program-anywhere" in done.out) == (6, True)


@pytest.mark.requirement("P-DOCTOR")
@pytest.mark.parametrize(
    "text",
    ["servers: [a, b]", "servers: text", "mcpServers: [1]", "servers: {a: {comand: x}, b: {}}", "servers: {a: []}"],
)
@pytest.mark.parametrize("words", [("serve", "--stdio"), ("list",), ("doctor",)], ids="-".join)
def test_servers_of_which_none_can_be_used_end_the_start(shell: Shell, text: str, words: tuple[str, ...]) -> None:
    file = shell.configure(f"{text}\n")
    done = shell.run(*words)
    assert done.code == 3
    assert str(file) in done.err


@pytest.mark.requirement("P-CLI-ADD")
@pytest.mark.parametrize(
    ("given", "header"),
    [
        ("Authorization: Bearer a=b", {"Authorization": "Bearer a=b"}),
        ("Authorization=Bearer a:b", {"Authorization": "Bearer a:b"}),
        ("X-Key:v", {"X-Key": "v"}),
    ],
)
def test_a_header_is_given_as_curl_takes_it(shell: Shell, given: str, header: dict[str, str]) -> None:
    shell.configure("servers: {}\n")
    assert shell.run("add", "docs", "https://h/mcp", "-H", given).code == 0
    written = shell.run("list", "--json")
    assert written.code == 0
    text = (shell.home / "portico.yaml").read_text()
    assert all(f"{name}: {value}" in text.replace('"', "").replace("'", "") for name, value in header.items())


@pytest.mark.requirement("P-CLI-ADD")
def test_a_header_without_a_value_is_refused(shell: Shell) -> None:
    assert shell.run("add", "docs", "https://h/mcp", "-H", "nothing").code == 2


@pytest.fixture
def own(shell: Shell) -> Shell:
    (shell.home / "tools.py").write_text(
        'def handle_greet(name: str):\n    """Greet somebody by name."""\n    return name\n\n\n'
        'def handle_shared(name: str):\n    """Share something."""\n    return name\n'
    )
    shell.configure(json.dumps({"python": ["tools.py"], "servers": {"other": tiny("shared")}}))
    assert shell.run("refresh").code == 0
    return shell


@pytest.mark.requirement("P-CLI-BARE-NAMES")
def test_tools_of_our_own_are_shown_by_their_bare_names(own: Shell) -> None:
    for words in (("search", "greet somebody"), ("describe", "greet"), ("list", "local")):
        text = own.run(*words).out
        assert "greet" in text
        assert "_local.greet" not in text, words
    assert "local " in own.run("list").out
    assert "_local" not in own.run("list").out
    assert own.run("call", "greet", "name=Ana").out.strip().endswith("Ana")
    assert own.run("search", "greet somebody", "--json").json[0]["handle"] == "_local.greet"


def completed(shell: Shell, line: str) -> list[str]:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("portico"))],
        cwd=shell.home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(shell.home),
            "PORTICO_HOME": str(shell.home),
            "_PORTICO_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.requirement("P-COMPLETION")
def test_servers_and_tools_are_completed(own: Shell, tmp_path: Path) -> None:
    assert completed(own, "portico call gre") == ["greet"]
    assert completed(own, "portico describe oth") == ["other.shared"]
    assert completed(own, "portico doctor ") == ["local", "other"]
    assert completed(own, "portico list o") == ["other"]
    own.configure("servers: [\n")
    assert completed(own, "portico call gre") == []
