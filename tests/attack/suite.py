"""What a suite of attacks is: a gateway's config, and attempts that follow from a seed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.talk import Reply
from tests.attack.target import HERE, Target

SECRETS = ("canary-token-51d7f0", "canary-key-9b0e22", "canary-bearer-7c41aa")
"""Given to hostile servers in their environment, arguments and headers; nobody else may ever read them."""
STDIO = HERE / "hostile_stdio.py"
LIMITS = {"seconds": 3, "max_seconds": 3, "cpu_seconds": 1, "memory_mb": 16}
BLAMES = re.compile(rb'Traceback \(most recent|File "[^"]+\.py", line \d+')


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attack that was tried."""

    kind: str
    through: str = ""
    """What got through; empty when nothing did."""


@dataclass
class Suite:
    """A named set of attacks; `attempts` carries out one after the other, for as long as it is asked for more."""

    name: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    def config(self, home: Path) -> dict[str, Any]:
        """What the gateway is configured with."""
        return {"servers": {"victim": stdio_server(home)}, "scripts": LIMITS}

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Attempts without an end, the same for the same seed."""
        raise NotImplementedError

    def aftermath(self, target: Target) -> list[str]:
        """What is found to be wrong while the gateway still runs, when all attempts are over."""
        return []

    def close(self) -> None:
        """End what was started beside the gateway."""


def stdio_server(home: Path) -> dict[str, Any]:
    """The config entry of the server over stdio, with two secrets."""
    arguments = [str(STDIO), str(home / "executions"), "--key", SECRETS[1]]
    return {"command": sys.executable, "args": arguments, "env": {"CANARY_TOKEN": SECRETS[0]}}


def flaw(reply: Reply, *, may_fail: bool = False) -> str:
    """What is wrong with any answer, whatever was asked."""
    if BLAMES.search(reply.body):
        return "a traceback in an answer"
    if any(secret.encode() in reply.body for secret in SECRETS):
        return "a secret in an answer"
    if reply.status >= 500 and reply.status != 503:
        return f"HTTP {reply.status}"
    return "" if reply.status or may_fail else "no answer"


def weighted(chance: Random, choices: Mapping[str, int]) -> str:
    """One of the choices, by its weight."""
    return chance.choices(list(choices), list(choices.values()))[0]
