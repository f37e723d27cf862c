"""A guard that cannot be loaded ends every start with code 3, whatever is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from portico import Catalog, PorticoError, Settings, create_mcp_app

from .shell import Shell

GUARDS = {
    "missing": None,
    "not python": "def on_call(:\n",
    "import error": "import nothing_of_that_name\n",
    "raises": "raise RuntimeError('no')\n",
    "exits": "raise SystemExit(0)\n",
    "empty": "",
    "misspelt": "def on_cal(caller, tool, arguments): ...\ndef on_error(*given): ...\n",
    "no function": "on_call = 5\n",
    "wrong signature": "def on_call(): ...\n",
}


@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize("guard", [*GUARDS.values()], ids=[*GUARDS])
def test_a_guard_that_cannot_be_loaded_ends_the_start(shell: Shell, guard: str | None) -> None:
    if guard is not None:
        (shell.home / "guard.py").write_text(guard)
    shell.configure("hooks: [guard.py]\n")
    done = shell.run("serve", "--stdio")
    assert done.code == 3, done.err
    assert "hooks" in done.err
    assert not done.out


@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize("command", [("serve", "--stdio"), ("list",), ("call", "x"), ("doctor",)], ids=lambda c: c[0])
def test_a_text_in_the_place_of_the_list_ends_every_command(shell: Shell, command: tuple[str, ...]) -> None:
    (shell.home / "guard.py").write_text("def on_call(caller, tool, arguments): ...\n")
    shell.configure("hooks: guard.py\n")
    done = shell.run(*command)
    assert (done.code, "hooks: this must be a list" in done.err) == (3, True)


@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize("hooks", [["missing.py"], "missing.py", {"a": "guard.py"}, [5], [[]]], ids=str)
def test_a_program_is_told_at_once(hooks: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PorticoError):
        create_mcp_app(Settings(hooks=hooks))  # type: ignore[arg-type]


@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize(
    "hooks", [["guard.py"], "guard.py", [object()], [None]], ids=["path", "text", "object", "none"]
)
def test_a_catalog_refuses_what_is_no_hook(hooks: object) -> None:
    with pytest.raises(PorticoError):
        Catalog(hooks=hooks)  # type: ignore[arg-type]
