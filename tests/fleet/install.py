"""The fleet: eight real MCP servers, pinned; `python tests/fleet/install.py` puts them under `.cache/fleet`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fleet.packages import CACHE, FleetUnavailable, install_node, install_npm, install_pypi, node, venv_bin

_AT_A_TIME = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetServer:
    """How one real server is installed, started and recognised."""

    name: str
    requirements: tuple[str, ...]
    """One npm package, or what pip installs together."""
    program: str
    """The console script, or for npm the JavaScript file inside the package."""
    npm: bool = False
    args: tuple[str, ...] = ()
    """Arguments, in which `{workspace}` stands for a folder of the test's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    needs_git: bool = False
    tools: frozenset[str]
    """Tools that the server must list; it may list more."""

    @property
    def place(self) -> Path:
        """Where it is installed."""
        return CACHE / "fleet" / self.name

    def install(self) -> None:
        """Install the server, unless it is there already.

        Raises:
            FleetUnavailable: a registry cannot be reached, or this machine lacks something.
        """
        if self.needs_git and not shutil.which("git"):
            raise FleetUnavailable(f"{self.name}: there is no git on this machine")
        if self.npm:
            install_node()
            install_npm(self.place, self.requirements[0])
        else:
            install_pypi(self.place, self.requirements)

    def entry(self, workspace: Path) -> dict[str, Any]:
        """The server's entry in a client's config, at work in a folder that is made ready for it."""
        if self.needs_git:
            _make_repository(workspace / "repo")
        args = [text.format(workspace=workspace) for text in self.args]
        env = {name: text.format(workspace=workspace) for name, text in self.env.items()}
        if not self.npm:
            return {"command": str(venv_bin(self.place, self.program)), "args": args, "env": env}
        package = self.requirements[0].rpartition("@")[0]
        return {
            "command": str(node()),
            "args": [str(self.place / "node_modules" / package / self.program), *args],
            "env": env,
        }


def _npm(name: str, tools: str, *args: str, **env: str) -> FleetServer:
    return FleetServer(
        name=name,
        npm=True,
        requirements=(f"@modelcontextprotocol/server-{name}@2026.8.31",),
        program="dist/index.js",
        args=args,
        env=env,
        tools=frozenset(tools.split()),
    )


def _pypi(name: str, requirements: str, tools: str, *args: str, needs_git: bool = False) -> FleetServer:
    return FleetServer(
        name=name,
        requirements=tuple(requirements.split()),
        program=f"mcp-server-{name}",
        args=args,
        needs_git=needs_git,
        tools=frozenset(tools.split()),
    )


_SERVERS = (
    _npm("everything", "echo get-sum get-tiny-image get-structured-content trigger-long-running-operation", "stdio"),
    _npm("filesystem", "read_text_file write_file edit_file list_directory search_files move_file", "{workspace}"),
    _npm(
        "memory", "create_entities read_graph search_nodes delete_entities", MEMORY_FILE_PATH="{workspace}/memory.jsonl"
    ),
    _npm("sequential-thinking", "sequentialthinking"),
    _pypi(
        "git",
        "mcp-server-git==2026.10.19",
        "git_status git_log git_add git_commit git_diff",
        "--repository",
        "{workspace}/repo",
        needs_git=True,
    ),
    _pypi("time", "mcp-server-time==2026.10.19", "get_current_time convert_time", "--local-timezone", "UTC"),
    _pypi(
        "sqlite",
        # Written for mcp 1.x, but its own metadata lets 2.x in.
        "mcp-server-sqlite==2025.4.25 mcp==1.30.0",
        "read_query write_query create_table list_tables describe_table",
        "--db-path",
        "{workspace}/fleet.db",
    ),
    _pypi("calculator", "mcp-server-calculator==0.2.1", "calculate"),
)
FLEET: dict[str, FleetServer] = {server.name: server for server in _SERVERS}
"""Name -> server."""


def install(names: Iterable[str] = FLEET) -> dict[str, str]:
    """Install servers, two at a time, and return those that could not be, with the reason.

    Raises:
        FleetUnavailable: none of them could be installed.
    """
    chosen = list(names)
    if any(FLEET[name].npm for name in chosen):
        install_node()
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        reasons = dict(zip(chosen, pool.map(_reason, chosen), strict=True))
    missing = {name: reason for name, reason in reasons.items() if reason}
    if len(missing) == len(chosen):
        raise FleetUnavailable("; ".join(missing.values()))
    return missing


def _reason(name: str) -> str:
    try:
        FLEET[name].install()
    except FleetUnavailable as error:
        return str(error)
    return ""


def _make_repository(folder: Path) -> None:
    if (folder / ".git").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("# A repository to look at\n")
    who = ["-c", "user.name=Fleet", "-c", "user.email=fleet@example.com", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--no-verify", "-m", "First"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)


def main() -> int:
    """Install the whole fleet and say how long it took."""
    started = time.perf_counter()
    try:
        missing = install()
    except FleetUnavailable as error:
        print(f"the fleet is not available: {error}", file=sys.stderr)
        return 1
    for name in FLEET:
        print(f"{name:20} {missing.get(name, 'ready')}")
    print(f"{time.perf_counter() - started:.1f} s")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
