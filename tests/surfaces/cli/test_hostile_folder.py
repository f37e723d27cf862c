"""A folder that somebody else filled: no command starts, imports, reads as config or changes anything in it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from portico.surfaces.cli.app import app
from tests.processes import inherited

PORTICO = [str(Path(sys.executable).with_name("portico"))]
MODULE = [sys.executable, "-m", "portico"]
GIVEN = {
    "query": ["evil"],
    "tools": ["evil.tool"],
    "tool": ["evil.tool"],
    "file": ["-"],
    "name": ["evil"],
    "target": ["http://127.0.0.1:9/mcp"],
    "client": ["claude-code"],
    "what": ["evil"],
    "where": ["sqlite:///evil.db"],
    "user": ["evil"],
}
"""What stands for each required argument; a command with another one is a new command, and gets a word."""
OPTIONS = {("serve",): ["--stdio"], ("demo",): ["--once"], ("registry", "init"): ["--print"], ("registry", "add"): []}
SHADOWS = "typer click anyio orjson mcp lupa numpy sqlalchemy yaml logging json typing evil_tools sitecustomize".split()


def commands() -> Iterator[tuple[str, ...]]:
    """Every command of the command line, from the application itself, so that a new one is covered as well."""

    def tier_answers(command: typer.core.TyperGroup, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if command.invoke_without_command and path:
            yield path
        for name, inner in command.commands.items():
            if isinstance(inner, typer.core.TyperGroup):
                yield from tier_answers(inner, (*path, name))
            else:
                required = [p.name for p in inner.params if p.param_type_name == "argument" and p.required]
                words = [word for name_ in required for word in GIVEN.get(str(name_), ["evil"])]
                yield (*path, name, *OPTIONS.get((*path, name), []), *words)

    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    return tier_answers(root, ())


class Hostile:
    """A hostile folder, a home of its own, and a place outside both where traces would show."""

    def __init__(self, root: Path) -> None:
        self.folder, self.home, self.marks = root / "clone", root / "home", root / "marks"
        for place in (self.folder, self.home, self.marks):
            place.mkdir()
        self._fill()
        self.before = self.listing()

    def listing(self) -> dict[str, tuple[bytes, int]]:
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    def code(self, name: str) -> str:
        return f"open({str(self.marks / name)!r}, 'w').close()\n"

    def _fill(self) -> None:
        marks = self.marks
        shell = f"{{command: /bin/sh, args: [-c, 'touch {marks}/server']}}"
        config = (
            f"servers:\n  evil: {shell}\n  here: {{command: ./evil.sh}}\n"
            "python: [evil_tools, tools.py]\nhooks: [guard.py]\nyaml: ['*.yml']\nstore: sqlite:///diary.txt\n"
            "databases: {shop: {url: 'sqlite:///shop.db', registry: mcp}}\nprofiles: profiles.yml\n"
        )
        for name in ("portico.yaml", "portico.yml"):
            (self.folder / name).write_text(config)
        (self.folder / "portico.json").write_text(
            json.dumps({"servers": {"evil": {"command": "/bin/sh", "args": ["-c", f"touch {marks}/json"]}}})
        )
        (self.folder / ".mcp.json").write_text(
            json.dumps({"mcpServers": {"evil": {"command": "/bin/sh", "args": ["-c", f"touch {marks}/mcpjson"]}}})
        )
        for name in (*SHADOWS, "tools", "guard"):
            (self.folder / f"{name}.py").write_text(self.code(name))
        (self.folder / "evil.sh").write_text(f"#!/bin/sh\ntouch {marks}/relative\n")
        (self.folder / "evil.sh").chmod(0o755)
        (self.folder / "tool.yml").write_text(f"evil: {{type: command, command: [touch, {marks}/yaml]}}\n")
        (self.folder / "profiles.yml").write_text("base: {tool: ['.*']}\n")
        (self.folder / ".env").write_text(f"PORTICO_CONFIG={self.folder}/portico.yaml\n")
        (self.folder / "diary.txt").write_text("Dear diary\n" * 100)
        with sqlite3.connect(self.folder / "shop.db") as database:
            database.execute("CREATE TABLE orders (id INTEGER)")
        database.close()

    def run(
        self, *words: str, program: list[str] = PORTICO, stdin: str = "return 1"
    ) -> subprocess.CompletedProcess[str]:
        keep = inherited("PATH", "SYSTEMROOT")
        return subprocess.run(
            [*program, *words],
            cwd=self.folder,
            env={**keep, "HOME": str(self.home)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def traces(self) -> list[str]:
        after = self.listing()
        changed = [name for name in {*self.before, *after} if self.before.get(name) != after.get(name)]
        return [*sorted(path.name for path in self.marks.iterdir()), *sorted(changed)]


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


@pytest.mark.requirement("P-TRUST")
@pytest.mark.parametrize("words", [*commands()], ids="-".join)
def test_no_command_leaves_a_trace_in_a_hostile_folder(hostile: Hostile, words: tuple[str, ...]) -> None:
    done = hostile.run(*words, stdin="")
    assert hostile.traces() == [], done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.requirement("P-TRUST")
@pytest.mark.parametrize("words", [("list",), ("serve", "--stdio"), ("run", "-"), ("doctor",)], ids="-".join)
def test_run_as_a_module_nothing_is_imported_from_the_folder(hostile: Hostile, words: tuple[str, ...]) -> None:
    hostile.run(*words, program=MODULE)
    assert hostile.traces() == []


@pytest.mark.requirement("P-TRUST")
def test_the_file_is_named_once_with_what_to_do_and_the_users_own_config_is_used(hostile: Hostile) -> None:
    own = hostile.home / ".config" / "portico" / "portico.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("servers: {mine: {command: nothing-of-that-name, enabled: false}}\n")
    done = hostile.run("list")
    assert "mine" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "portico.yaml" in line]
    assert len(lines) == 1
    file = hostile.folder / "portico.yaml"
    assert f"{file} was found in the working directory, is not trusted and is ignored" in lines[0]
    assert lines[0].endswith(f"run: portico trust {file}")


@pytest.mark.requirement("P-TRUST")
def test_add_in_a_hostile_folder_writes_to_the_users_own_config(hostile: Hostile) -> None:
    hostile.run("add", "docs", "http://127.0.0.1:9/mcp")
    assert "docs" in (hostile.home / ".config/portico/portico.yaml").read_text()
    assert hostile.traces() == []


@pytest.mark.requirement("P-TRUST")
def test_a_file_of_profiles_in_the_folder_does_not_replace_one_that_comes_along(hostile: Hostile) -> None:
    done = hostile.run("serve", "--stdio", "--profile", "base", stdin="")
    assert f"{hostile.folder / 'profiles.yml'} was found in the working directory, is not trusted" in done.stderr


@pytest.mark.requirement("P-TRUST")
def test_install_names_the_config_by_its_full_path_and_keeps_modules_of_the_folder_out(hostile: Hostile) -> None:
    done = hostile.run("install", "cursor")
    entry = (hostile.home / ".cursor" / "mcp.json").read_text()
    config = hostile.home / ".config" / "portico" / "portico.yaml"
    assert f'"--config", "{config}", "serve", "--stdio"' in " ".join(entry.split()), done.stderr
    assert config.exists()
    assert hostile.traces() == []


@pytest.mark.requirement("P-TRUST")
def test_an_import_brings_in_a_clones_servers_only_when_it_is_told_to(hostile: Hostile) -> None:
    (hostile.home / ".claude.json").write_text('{"mcpServers": {"mine": {"command": "x"}}}')
    config = hostile.home / ".config" / "portico" / "portico.yaml"
    done = hostile.run("import", "claude-code", "--write")
    assert "evil: skip (it is of this folder; add --project to bring it in)" in done.stdout
    assert "evil" not in config.read_text()
    assert "mine" in config.read_text()
    hostile.run("import", "claude-code", "--project", "--write")
    assert "evil" in config.read_text()
    config.unlink()
    hostile.run("import", ".mcp.json", "--write")
    assert "evil" in config.read_text()


@pytest.mark.requirement("P-TRUST")
def test_packaged_tools_leave_the_folder_out_of_the_path(hostile: Hostile) -> None:
    code = (
        "import os, sys; sys.path[:] = [path for path in sys.path if path];"
        "from portico.wiring import build, settings_for;"
        "house = build(settings_for(None, profile='base'));"
        "print(len(house.gateway.snapshot.tools) > 5, any(path.startswith(os.getcwd()) for path in sys.path))"
    )
    done = hostile.run(program=[sys.executable, "-P", "-c", code])
    assert done.stdout.split() == ["True", "False"], done.stderr
    assert hostile.traces() == []
