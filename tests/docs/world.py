"""Homes with sample servers, in which what the docs show is done and compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from portico.config import load_settings
from tests.attack.talk import Talk
from tests.docs.blocks import ALL
from tests.processes import inherited

BIN = Path(sys.executable).parent
BROKEN = {"command": "no-such-command"}
SECONDS = 120
END = "\x01"
"""Stands behind the output of each command."""
SERVED = """(: > ~/served; COMMAND >> ~/served 2>&1 & pid=$!
while kill -0 $pid 2> /dev/null && ! grep -q '^portico: serving' ~/served; do sleep 0.1; done
kill $pid 2> /dev/null; wait $pid; code=$?; cat ~/served; exit $code)"""
"""Runs a gateway until it says that it serves."""
VARIABLES = {"DOCS_TOKEN": "t", "OPENAI_API_KEY": "k", "PASSWORD": "p", "DATABASE_URL": "sqlite"}
VOLATILE = (
    (re.compile(r"\b\d[\d,.]* ?ms\b"), "N ms"),
    (re.compile(r'"\d+:[0-9a-f]{6}"'), '"N:N"'),
    (re.compile(r"\br_[\w-]{16}"), "r_ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:8421"),
    (re.compile(r" --port 0\b"), ""),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass
class Home:
    """The home folder of somebody, below a folder of the tests."""

    root: Path
    files: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The home itself."""
        return self.root / "home" / "ana"

    @property
    def project(self) -> Path:
        """Where commands are run."""
        return self.folder / "project"

    @property
    def environ(self) -> dict[str, str]:
        """Nothing of ours but the way to the programs."""
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**inherited(), "HOME": str(self.folder), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "200"}

    def configure(self, servers: tuple[str, ...]) -> None:
        """Write the config that the docs speak of."""
        entries = {
            name: BROKEN
            if name == "broken"
            else {"command": "python", "args": ["-m", f"portico.samples.{name.replace('-', '_')}"]}
            for name in servers
        }
        file = self.folder / ".config" / "portico" / "portico.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        self.project.mkdir(parents=True, exist_ok=True)
        if servers != ("nothing",):
            file.write_text(json.dumps({"servers": entries}))

    def put(self, name: str, text: str) -> None:
        """Write a file of a page."""
        path = self.folder / name[2:] if name.startswith("~/") else self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the shell; both kinds of output in one."""
        return subprocess.run(
            ["bash", "-c", script],
            env=self.environ,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def local(self, command: str) -> str:
        """A command whose paths are those of this home."""
        return command.replace("/home/ana/", f"{self.folder}/")

    def plain(self, text: str) -> str:
        """A text without what differs from run to run and from machine to machine."""
        text = text.replace(str(self.root), "").replace(str(BIN / "portico"), "/home/ana/.local/bin/portico")
        for pattern, instead in VOLATILE:
            text = pattern.sub(instead, text)
        return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Homes:
    """Makes homes; what the sample servers offer is learned once for all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._learned: Path | None = None
        self._count = 0

    def make(self, servers: tuple[str, ...]) -> Home:
        """A home of its own with these servers."""
        self._count += 1
        home = Home(self._folder / str(self._count))
        if servers != ("nothing",):
            shutil.copytree(self._learn(), home.root)
        home.configure(servers)
        if "broken" in servers:
            home.run("portico refresh broken")
        return home

    def _learn(self) -> Path:
        """A home in which every sample server was asked; the others are copies of it, with configs of their own."""
        if self._learned is None:
            first = Home(self._folder / "learned")
            first.configure(tuple(ALL.split()))
            first.run("portico refresh")
            self._learned = first.root
        return self._learned


def conversation(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with what it prints; a here-document belongs to its command."""
    command, printed, until = "", list[str](), ""
    for line in text.splitlines():
        if until:
            command += "\n" + line
            until = "" if line.strip() == until else until
        elif line.startswith("$ "):
            if command:
                yield command, "\n".join(printed)
            command, printed = line[2:], []
            here = re.search(r"<<-?'?(\w+)'?", command)
            until = here[1] if here else ""
        else:
            printed.append(line)
    yield command, "\n".join(printed)


def transcript(home: Home, text: str) -> list[tuple[str, str, str]]:
    """Each command of a console block, what the docs say it prints, and what it prints."""
    told = list(conversation(text))
    steps = [f"{bounded(home.local(command))}\n__code=$?; printf '\\n{END}'; (exit $__code)" for command, _ in told]
    printed = home.run("\n".join(steps)).stdout.split(f"\n{END}")
    return [(command, home.plain(said), home.plain(real)) for (command, said), real in zip(told, printed, strict=False)]


def bounded(command: str) -> str:
    """A gateway that would go on for ever is stopped; it takes a free port, so that others keep theirs."""
    if "portico serve" not in command:
        return command
    before, _, after = command.partition("portico serve")
    return SERVED.replace("COMMAND", f"{before}portico serve --port 0{after}")


def expected(said: str) -> re.Pattern[str]:
    """What is shown as a pattern: `...` stands for anything, on a line of its own for any lines."""
    return re.compile("".join(map(_pattern, said.split("\n"))))


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    return ".*?".join(map(re.escape, line.split("..."))) + "\n"


def matches(said: str, real: str) -> bool:
    """Whether what is printed is what is shown."""
    return expected(said).fullmatch(real + "\n") is not None


@contextmanager
def serving(home: Home) -> Iterator[Talk]:
    """A gateway over a home."""
    said = home.root / "said"
    command = [str(BIN / "portico"), "serve", "--port", "0"]
    with said.open("w") as log:
        process = subprocess.Popen(command, env=home.environ, cwd=home.project, stderr=log)
    try:
        yield Talk(_port(process, said))
    finally:
        process.terminate()
        process.wait(30)


def _port(process: subprocess.Popen[bytes], said: Path) -> int:
    """The port that a gateway says it serves on."""
    while not (found := re.search(r"^portico: serving \S+:(\d+)/", said.read_text(), re.MULTILINE)):
        assert process.poll() is None, said.read_text()
        time.sleep(0.05)
    return int(found[1])


class Gateways:
    """Gateways that are started once for all blocks with the same servers."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._open = ExitStack()
        self._known: dict[tuple[str, ...], tuple[Home, Talk]] = {}

    def find(self, servers: tuple[str, ...]) -> tuple[Home, Talk]:
        """A home with these servers, and a client of its gateway."""
        if servers not in self._known:
            home = self._homes.make(servers)
            self._known[servers] = home, self._open.enter_context(serving(home))
        return self._known[servers]

    def close(self) -> None:
        """Stop them all."""
        self._open.close()


def settings_of(home: Home, text: str) -> list[str]:
    """What is wrong with a text as a config."""
    file = home.project / "documented.yaml"
    file.write_text(text)
    return [str(problem) for problem in load_settings(str(file), home.environ | VARIABLES, home.project).problems]
