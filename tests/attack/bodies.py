"""Bodies that are hardly JSON-RPC, or hardly JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.attack.suite import Attempt, Suite, flaw
from tests.attack.target import Target

SURFACES = ("discover", "static", "search", "capabilities", "gateway")
ODD: tuple[Any, ...] = (None, True, 0, -1, 2**70, 1e308, "", "\x00", "\ud800", [], {}, [[]], {"": {}}, "x" * 5_000)
METHODS = (
    "initialize tools/list tools/call prompts/get resources/read completion/complete logging/setLevel ping"
    " server/discover subscriptions/listen notifications/cancelled notifications/progress rpc.x"
).split()


class Bodies(Suite):
    """Mutations of messages, and texts that are deep, long, or of the wrong letters."""

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Bodies to every surface, with a session and without one."""
        kinds = {kind.__name__.strip("_"): kind for kind in (_mutated, _odd, _deep, _large, _letters, _batch)}
        target.talk.call("discover", "search_tools", {"query": "x"})
        while True:
            kind = chance.choice(sorted(kinds))
            surface = chance.choice(SURFACES)
            headers = target.talk.headers("discover") if chance.random() < 0.6 else {}
            if headers:
                surface = "discover"
            reply = target.talk.post(surface, kinds[kind](chance), **headers)
            yield Attempt(kind, flaw(reply))


def _request(chance: Random) -> dict[str, Any]:
    params: dict[str, Any] = {
        "name": chance.choice(["victim__plain", "call_tool", "search_tools", "describe_tools", "read_result"]),
        "arguments": {"query": "x", "name": "victim.plain", "arguments": {}, "names": ["victim.plain"], "id": "r_x"},
        "uri": "catalog://hot",
        "_meta": {"progressToken": chance.choice([1, "t"])},
    }
    return {"jsonrpc": "2.0", "id": chance.randint(1, 99), "method": chance.choice(METHODS), "params": params}


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _mutated(chance: Random) -> bytes:
    """A message with some bytes changed, lost or doubled."""
    data = bytearray(_encode(_request(chance)))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        change: Callable[[], Any] = chance.choice(
            [
                lambda at=at: data.__setitem__(at, chance.randrange(256)),
                lambda at=at: data.__delitem__(slice(at, at + chance.randint(1, 9))),
                lambda at=at: data.extend(data[at : at + 50]),
            ]
        )
        change()
        if not data:
            break
    return bytes(data)


def _odd(chance: Random) -> bytes:
    """A message in which one value is of another kind."""
    message = _request(chance)
    place = chance.choice([message, message["params"], message["params"]["arguments"]])
    place[chance.choice(sorted(place))] = chance.choice(ODD)
    if message.get("method") == "subscriptions/listen":
        message["method"] = "ping"  # a stream that stays open is no answer to wait for
    return _encode(message)


def _deep(chance: Random) -> bytes:
    """Arguments that are nested very deeply."""
    levels = int(10 ** chance.uniform(2, 5.3))
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
    core = chance.choice([b"1", b""]) if opening == b"[" else b"1"
    value = opening * levels + core + closing * levels
    name = chance.choice([b"victim__plain", b"search_tools", b"call_tool", b"echo"])
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{"text":' % name
    return head + value + b"}}}"


def _large(chance: Random) -> bytes:
    """Very many small values, up to the limit of a body and above it."""
    size = int(10 ** chance.uniform(4, 6.8))
    unit = chance.choice([b"{},", b"[],", b"0,", b'"",', b'{"a":1},', b'"\\u0000",'])
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"victim__echo","arguments":{"text":['
    return head + unit * (size // len(unit)) + b"0]}}}"


def _letters(chance: Random) -> bytes:
    """Bytes that are no UTF-8, numbers that are none, keys that come twice."""
    parts = [
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"NaN",
        b"-Infinity",
        b"1" * 5_000,
        b"1e999",
        b'"\\ud800"',
        b'"\x00"',
        b"/**/",
    ]
    inside = b",".join(chance.choice(parts) for _ in range(chance.randint(1, 5)))
    twice = b'"name":"victim__plain","name":"search_tools",' if chance.random() < 0.3 else b'"name":"victim__echo",'
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{'
        + twice
        + b'"arguments":{"text":['
        + inside
        + b"]}}}"
    )


def _batch(chance: Random) -> bytes:
    return _encode([_request(chance) for _ in range(chance.randint(0, 300))])
