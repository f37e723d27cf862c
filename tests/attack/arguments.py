"""Arguments that cost more to explain than to send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.attack.suite import Attempt, Suite, flaw
from tests.attack.target import Target

LETTERS = "abcdefghijklmnopqrstuvwxyz_"
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "x", [], {}, "9" * 400, [[]], {"a": {"b": 1}}, 10**18, "\u202e", "é")
DOORS = {"discover": "call_tool", "search": "execute_tool", "static": "", "gateway": ""}
KEYS = {"discover": "name", "search": "tool_name"}


class Arguments(Suite):
    """Wrong arguments in every size, through every surface and from a script."""

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Calls whose arguments do not fit."""
        kinds = {kind.__name__.strip("_"): kind for kind in (_unknown, _near, _wrong, _long, _nested, _listed, _slow)}
        while True:
            kind = chance.choice(sorted(kinds))
            tool, arguments = kinds[kind](chance)
            surface = chance.choice([*DOORS, "script"])
            if surface == "script":
                yield Attempt(f"{kind} in a script", _script(target, tool, arguments))
                continue
            meta = DOORS[surface]
            name, given = f"victim__{tool}", arguments
            if meta:
                name, given = meta, {KEYS[surface]: f"victim.{tool}", "arguments": arguments}
            yield Attempt(f"{kind} on {surface}", flaw(target.talk.call(surface, name, given)))


def _script(target: Target, tool: str, arguments: Any) -> str:
    text = json.dumps(json.dumps(arguments)[:200_000], ensure_ascii=False)
    source = f"local ok, found = pcall(json.decode, {text}) return pcall(function() return "
    source += f"victim.{tool}(ok and found or {{}}):await() end)"
    return flaw(target.talk.call("discover", "run_script", {"script": source}))


def _word(chance: Random, most: int = 16) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randint(1, most)))


def _many(chance: Random) -> int:
    return int(10 ** chance.uniform(1, 4.6))


def _unknown(chance: Random) -> tuple[str, Any]:
    return chance.choice(["plain", "wide", "either"]), {f"{_word(chance)}_{n}": n for n in range(_many(chance))}


def _near(chance: Random) -> tuple[str, Any]:
    """Names that are nearly those of parameters."""
    keys = (f"parametr_{chance.randint(0, 99_999):05}{_word(chance, 3)}" for _ in range(_many(chance) // 4))
    return "wide", dict.fromkeys(keys, 1)


def _wrong(chance: Random) -> tuple[str, Any]:
    return "wide", {f"parameter_{n:05}": chance.choice(WRONG) for n in range(min(5_000, _many(chance)))}


def _long(chance: Random) -> tuple[str, Any]:
    """Long names and long values."""
    size = _many(chance) * 20
    return chance.choice(["plain", "choice"]), {_word(chance) * size: "x", "owner": "y" * size, "one": "z" * size}


def _nested(chance: Random) -> tuple[str, Any]:
    value: Any = chance.choice(WRONG)
    for level in range(chance.randint(1, 200)):
        value = {f"level_{level % 45}": value, "other": []} if chance.random() < 0.7 else [value]
    return chance.choice(["deep", "either", "plain"]), {"root": value, "value": value}


def _listed(chance: Random) -> tuple[str, Any]:
    """Lists of wrong items, and of equal ones."""
    return "list", {"items": [chance.choice(WRONG) for _ in range(_many(chance))]}


def _slow(chance: Random) -> tuple[str, Any]:
    return "pattern", {"text": "a" * min(90_000, _many(chance)) + "!"}
