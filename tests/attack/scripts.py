"""Scripts that mean to get out, to stay, or to cost the gateway more than themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.suite import LIMITS, Attempt, Suite, flaw, stdio_server
from tests.attack.target import Target
from tests.scripting.escape_scripts import ATTEMPTS
from tests.scripting.exhaustion_scripts import DENIALS

WRAPPINGS = (
    "{}",
    "return (function() {} end)()",
    "return coroutine.wrap(function() {} end)()",
    "local ok, found = pcall(function() {} end) if ok then return found end return false",
    "return load({quoted})()",
    "do {} end",
)
COSTLY = (
    "local t = {{}} for i = 1, {n} do t['k' .. i] = i end calculator.plain(t):await()",
    "for i = 1, 90 do pcall(function() calculator.plain({{ ['k' .. i] = i }}):await() end) end",
    "local t = {{}} for i = 1, {n} do t[i] = {{ a = i }} end return t",
    "error(('x'):rep({n}))",
    "for i = 1, {n} do print(i) end",
    "return _gateway.search_tools({{ query = ('word '):rep({n}) }})",
)


class ScriptRunner(Suite):
    """Known escapes in new wrappings, known denials, and calls that are costly to refuse."""

    def config(self, home: Path) -> dict[str, Any]:
        """The server that the known scripts name."""
        return {"servers": {"calculator": stdio_server(home)}, "scripts": LIMITS}

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Mostly escapes, because they are soon over."""
        while True:
            kind = chance.choices(["an escape", "a denial", "a costly call"], [12, 1, 3])[0]
            if kind == "an escape":
                name = chance.choice(sorted(ATTEMPTS))
                yield Attempt(kind, self._tried(target, name, _wrapped(chance, ATTEMPTS[name])))
                continue
            source = DENIALS[chance.choice(sorted(DENIALS))][1]
            if kind == "a costly call":
                source = chance.choice(COSTLY).format(n=int(10 ** chance.uniform(2, 4.7)))
            yield Attempt(kind, flaw(target.talk.call("discover", "run_script", {"script": source})))

    def _tried(self, target: Target, name: str, source: str) -> str:
        reply = target.talk.call("discover", "run_script", {"script": source})
        is_true = reply.text.strip().split("\n")[:1] == ["true"]
        return f"escape: {name}" if is_true else flaw(reply)


def _wrapped(chance: Random, source: str) -> str:
    wrapping = chance.choice(WRAPPINGS)
    if "{quoted}" in wrapping:
        return wrapping.replace("{quoted}", json.dumps(source, ensure_ascii=False))
    return wrapping.replace("{}", source)
