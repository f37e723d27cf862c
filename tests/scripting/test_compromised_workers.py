"""A worker that was taken over can say what it likes: the gateway keeps to its limits."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest

from portico.domain.call import Script, ScriptLimits
from portico.scripting.engine import LATE, LOST, ScriptRun, start_frame
from portico.scripting.protocol import BadFrame, FrameSplitter, dump_json, load_object, pack
from portico.scripting.worker_pool import HELD, Worker
from tests.scripting.fake_api import BOUND, FakeApi

LIMITS = ScriptLimits(seconds=5, memory_mb=32, calls=3, in_flight=2, output_bytes=1_000, printed_bytes=10)


@asynccontextmanager
async def taken_over(
    limits: ScriptLimits = LIMITS,
) -> AsyncIterator[tuple[ScriptRun, socket.socket, FakeApi, list[str]]]:
    """A run, and the worker's end of its wire in our hands."""
    ours, theirs = socket.socketpair()
    worker, fake, ended = Worker(1), FakeApi(), []
    await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
    with theirs:
        theirs.setblocking(False)
        yield ScriptRun(worker, Script(source="", limits=limits), fake), theirs, fake, ended
    worker.close()
    await anyio.lowlevel.checkpoint()


def frame(**fields: object) -> bytes:
    """A frame as a worker sends it."""
    return pack(json.dumps(fields).encode())


async def said(*frames: bytes, limits: ScriptLimits = LIMITS) -> tuple[object, ScriptRun, FakeApi]:
    """What comes of a worker that says this and is gone."""
    async with taken_over(limits) as (run, wire, fake, ended):
        for one in frames:
            wire.send(one)
        wire.shutdown(socket.SHUT_WR)
        with anyio.fail_after(BOUND):
            last = await run.converse(start_frame(Script(source=""), []), lambda: ended.append("ended"))
        assert ended == ["ended"]
        return last, run, fake


@pytest.mark.parametrize(
    "nonsense",
    [
        pack(b"not json"),
        pack(b"[]"),
        pack(b"{}"),
        pack(b'{"kind":"unknown"}'),
        pack(b'{"kind":["done"]}'),
        pack(b'{"kind":"print"}'),
        pack(b'{"kind":"print","text":5}'),
        pack(b'{"kind":"call","id":1}'),
        pack(b'{"kind":"call","id":"1","server":"s","tool":"t","arguments":{}}'),
        pack(b'{"kind":"call","id":true,"server":"s","tool":"t","arguments":{}}'),
        pack(b'{"kind":"call","server":"s","tool":"t","arguments":{}}'),
        pack(b'{"exact":true,"kind":"print","text":NaN}'),
        pack(b'{"exact":true,' + b"[" * 100_000),
        pack(b'{"a":' * 2_000),
        pack(b"\xff\xfe"),
        pack(b""),
        b"\xff\xff\xff\xff",
        b"\x00\x20\x00\x00" + b"x" * 100,
        frame(kind="done", value="x" * 100_000),
    ],
)
async def test_nonsense_ends_the_run_and_is_not_used(nonsense: bytes):
    last, run, fake = await said(nonsense, frame(kind="done", value="after that"))
    assert last is LOST
    assert run._worker.has_misbehaved
    assert fake.calls == []


async def test_calls_beyond_the_limit_are_not_made_and_end_the_run():
    calls = [frame(kind="call", id=n, server="calculator", tool="echo", arguments={}) for n in range(10)]
    last, run, fake = await said(*calls, frame(kind="ask", id=11, question="search", arguments={}))
    assert (last, run._worker.has_misbehaved) == (LOST, True)
    assert len(fake.calls) <= 3
    assert fake.questions == []


async def test_an_endless_error_is_reported_in_part():
    """A worker that does not read must not fill the gateway's memory with what its calls did wrong."""
    async with taken_over() as (run, wire, _, ended):
        wire.send(frame(kind="call", id=1, server="calculator", tool="fail", arguments={"why": "x" * 100_000}))
        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run.converse, b"{}", lambda: ended.append("ended"))
                told = b""
                while b'"id":1' not in told:
                    with suppress(BlockingIOError):
                        told += wire.recv(1_000_000)
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
    assert len(told) < 30_000


async def test_printed_text_is_cut_at_its_limit():
    _, run, _ = await said(*[frame(kind="print", text="äää")] * 5, frame(kind="done"))
    assert run.printed == "äääää"


async def test_a_value_is_taken_with_all_its_digits():
    last, _, _ = await said(pack(b'{"exact":true,"kind":"done","value":123456789012345678901234567890}'))
    assert last["value"] == 123456789012345678901234567890


async def test_a_silent_worker_is_ended_by_the_clock():
    async with taken_over(ScriptLimits(seconds=0.05)) as (run, _, _, ended):
        last = await run.converse(b"{}", lambda: ended.append("ended"))
    assert (last, ended) == (LATE, ["ended"])


async def test_a_worker_that_talks_faster_than_it_is_heard_has_to_wait():
    async with taken_over() as (run, wire, *_):
        worker = run._worker
        worker.allow(100_000)
        with anyio.fail_after(BOUND):
            while worker._transport.is_reading():
                with suppress(BlockingIOError):
                    wire.send(pack(b"x" * 60_000))
                await anyio.lowlevel.checkpoint()
        assert worker._held <= HELD + 400_000


def test_frames_come_whole_however_they_are_cut():
    bodies = [b"", b"a", b"b" * 70_000, b"c"]
    data = b"".join(pack(body) for body in bodies)
    for step in (1, 3, 1_000, len(data)):
        got: list[bytes] = []
        splitter = FrameSplitter(100_000, got.append)
        for start in range(0, len(data), step):
            splitter.feed(data[start : start + step])
        assert got == bodies


def test_a_frame_beyond_the_limit_is_refused_before_it_is_read():
    with pytest.raises(BadFrame):
        FrameSplitter(10, print).feed(pack(b"x" * 11)[:5])


@pytest.mark.requirement("F50")
@pytest.mark.parametrize("value", [2**64, -(2**70), "\ud800", {"k": ["\udfff", 2**63]}, 1.0, -0.0, None, "\x00"])
def test_every_json_value_can_be_framed(value: object):
    body = dump_json({"exact": True, "v": value})
    assert load_object(body)["v"] == value


@pytest.mark.parametrize("value", [{1}, object(), [b"x"]])
def test_what_is_no_json_is_refused(value: object):
    with pytest.raises(ValueError, match="not JSON serializable"):
        dump_json(value)
