"""Calls to real child processes."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from scripted_results import RICH
from upstream_world import Upstreams, said, use

from portico.domain.call import START_WAIT
from portico.domain.server import CallLimits, ServerSpec, State, Timeouts
from portico.errors import Sent, UpstreamError, UpstreamGone, UpstreamTimeout

pytestmark = pytest.mark.anyio
PATIENT = Timeouts(start=60, call=60, total=60, idle=0)


async def test_result_passes_unchanged(upstreams: Upstreams) -> None:
    assert await use(upstreams.stdio(), "rich") == RICH


async def test_arguments_and_meta_arrive_as_given(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    arguments = {"é": [1, 2.5, None, {"deep": "☃"}], "huge": 2**70}
    await provider.call("echo", arguments, meta={"vendor/trace": "t1"}, on_progress=None)
    sent = said(await use(provider, "seen"))[-2]["params"]
    assert sent == {"name": "echo", "arguments": arguments, "_meta": {"vendor/trace": "t1"}}


async def test_json_rpc_error_keeps_code_message_and_data(upstreams: Upstreams) -> None:
    with pytest.raises(UpstreamError) as caught:
        await use(upstreams.stdio(), "rpc_error")
    error = caught.value
    assert (error.rpc_code, error.message, error.data, error.sent) == (
        -32055,
        "no such moon",
        {"moon": 3},
        Sent.ANSWERED,
    )


async def test_other_requests_pass_through(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    params = {"uri": "x://1"}
    assert await provider.request("resources/read", params) == {"asked": params, "method": "resources/read"}


async def test_input_required_result_passes_unchanged(upstreams: Upstreams) -> None:
    result = await use(upstreams.stdio(era="modern"), "input_required")
    assert result == {"resultType": "input_required", "requestState": "s1", "inputRequests": {"q": {"method": "x"}}}


@pytest.mark.requirement("T16")
async def test_concurrent_calls_get_their_own_answers(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    found: dict[int, Any] = {}

    async def one(number: int) -> None:
        found[number] = said(await use(provider, "echo", n=number))

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(one, number)
    assert found == {number: {"n": number} for number in range(200)}


@pytest.mark.requirement("F20")
@pytest.mark.parametrize("as_text", [False, True])
async def test_unknown_duplicate_and_odd_ids_are_ignored(upstreams: Upstreams, as_text: bool) -> None:
    provider = upstreams.stdio()
    for _ in range(20):
        assert said(await use(provider, "odd_ids", as_text=as_text)) == "right"


@pytest.mark.requirement("F04")
async def test_junk_on_stdout_is_skipped_and_warned_of_once(
    upstreams: Upstreams, caplog: pytest.LogCaptureFixture
) -> None:
    junk = [
        "\ufeff\n",
        "Starting server v1\r\n",
        "\n",
        "   \n",
        "{broken\n",
        "[1,2\n",
        "null\n",
        "42\n",
        "\r50%\r",
    ] * 12
    provider = upstreams.stdio(junk=junk)
    with caplog.at_level(logging.WARNING):
        assert len((await provider.offer()).tools) == 2
        assert said(await use(provider, "echo", a=1)) == {"a": 1}
    assert len([r for r in caplog.records if "no MCP message" in r.message]) == 1


@pytest.mark.requirement("F04")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":ID,"result":{"ok":1}}\r\n', {"ok": 1}),
        (b'Loading 99%\r{"jsonrpc":"2.0","id":ID,"result":{"ok":2}}\n', {"ok": 2}),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"t":"\xff\xfe"}}\n', {"t": "\ufffd\ufffd"}),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"t":"\\ud800"}}\n', {"t": "?"}),
        (b'[{"jsonrpc":"2.0","id":ID,"result":{"batch":1}}]\n', {"batch": 1}),
        (b'{"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}\n', {"a": 2}),
    ],
)
async def test_untidy_answers_are_understood(upstreams: Upstreams, line: bytes, expected: Any) -> None:
    assert await use(upstreams.stdio(), "raw", hex=line.hex()) == expected


@pytest.mark.requirement("F21")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}\n',
        b'{"jsonrpc":"2.0","id":ID,"result":[1]}\n',
        b'{"jsonrpc":"2.0","id":ID}\n',
        b'{"jsonrpc":"2.0","id":ID,"error":"plain text"}\n',
        b'{"jsonrpc":"2.0","id":ID,"error":{"code":"x"}}\n',
    ],
)
async def test_unusable_answers_are_typed_errors_at_once(upstreams: Upstreams, line: bytes) -> None:
    provider = upstreams.stdio()
    with pytest.raises((UpstreamGone, UpstreamError)) as caught:
        await use(provider, "raw", hex=line.hex())
    assert caught.value.sent is Sent.ANSWERED
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


async def test_progress_is_forwarded_in_order_before_the_result(upstreams: Upstreams) -> None:
    heard: list[Any] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    with anyio.fail_after(10):
        result = await upstreams.stdio().call(
            "progress", {"steps": 3}, meta={"progressToken": "x"}, on_progress=on_progress
        )
    assert said(result) == "token given"
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_no_progress_is_asked_for_when_nobody_listens(upstreams: Upstreams) -> None:
    assert said(await use(upstreams.stdio(), "progress", steps=1)) == "token missing"


@pytest.mark.requirement("T51")
async def test_progress_flood_neither_grows_nor_blocks(upstreams: Upstreams) -> None:
    heard: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    with anyio.fail_after(20):
        await upstreams.stdio().call("progress", {"steps": 5000}, meta={}, on_progress=on_progress)
    assert heard[-1] == 5000
    assert heard == sorted(heard)


async def _ignore(done: float, total: float | None, message: str | None) -> None:
    return None


async def test_call_times_out_and_is_cancelled_at_the_server(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=0.3, total=60, idle=0))
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout) as caught:
        await use(provider, "hang")
    assert caught.value.sent is Sent.UNKNOWN
    assert "timeouts.call" in str(caught.value)
    call, cancelled, _ = said(await use(provider, "seen"))[-3:]
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == call["id"]


@pytest.mark.requirement("F18")
async def test_progress_starts_the_idle_timer_again(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=0.5, total=20, idle=0))
    with anyio.fail_after(10):
        await provider.call("progress", {"steps": 5, "gap": 0.2}, meta={}, on_progress=_ignore)


@pytest.mark.requirement("F18")
async def test_total_caps_a_call_that_makes_progress_for_ever(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=0.5, total=1.0, idle=0))
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout, match=r"timeouts\.total"):
        await provider.call("progress", {"steps": 1_000, "gap": 0.1, "endless": True}, meta={}, on_progress=_ignore)


@pytest.mark.requirement("F45")
@pytest.mark.timeout(90)
async def test_cancelled_caller_cancels_at_the_server(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=PATIENT)
    async with anyio.create_task_group() as group:
        group.start_soon(_call_and_hang, provider)
        await upstreams.news.wait_for(notices=1)
        group.cancel_scope.cancel()
    last = said(await use(provider, "seen"))
    assert "notifications/cancelled" in [message.get("method") for message in last]
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


async def _call_and_hang(provider: Any) -> None:
    await use(provider, "hang", then="hanging")


async def test_abandoned_handshake_is_not_cancelled(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(mute=True, timeouts=Timeouts(start=0.6, call=1, total=1, idle=0))
    with pytest.raises(UpstreamGone):
        await provider.offer()
    assert [m["method"] for m in upstreams.logged() if "method" in m] == ["server/discover", "initialize"]


@pytest.mark.requirement("T52")
async def test_servers_requests_are_answered_and_unsupported_ones_refused(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "ask")
    replies = {m["id"]: m for m in said(await use(provider, "seen")) if "method" not in m}
    assert replies["q0"]["result"] == {}
    assert [replies[f"q{n}"]["error"]["code"] for n in (1, 2, 3)] == [-32601] * 3
    initialize = next(m for m in upstreams.logged() if m.get("method") == "initialize")
    assert initialize["params"]["capabilities"].keys() == {"elicitation", "roots", "sampling"}


@pytest.mark.requirement("F02")
async def test_missing_command_is_named_with_a_remedy(upstreams: Upstreams) -> None:
    provider = upstreams.provide(
        ServerSpec(name="s", transport="stdio", command="no-such-command-here", timeouts=PATIENT)
    )
    with anyio.fail_after(10), pytest.raises(UpstreamGone) as caught:
        await provider.offer()
    assert caught.value.sent is Sent.NOTHING
    assert "'no-such-command-here' was not found" in str(caught.value)
    assert "check PATH or the `command` field" in str(caught.value)
    assert provider.health().state is State.FAILED


async def test_command_is_looked_for_in_the_childs_path(upstreams: Upstreams, tmp_path: Path) -> None:
    program = tmp_path / "my-server"
    program.write_text('#!/bin/sh\necho started with "$1" >&2\nexit 7\n')
    program.chmod(0o755)
    spec = ServerSpec(
        name="s", transport="stdio", command="my-server", args=("a;b $HOME",), env={"PATH": str(tmp_path)}
    )
    with pytest.raises(UpstreamGone, match=r"started with a;b \$HOME"):
        await upstreams.provide(spec).offer()


async def test_missing_working_directory_is_named(upstreams: Upstreams) -> None:
    spec = ServerSpec(name="s", transport="stdio", command="sh", cwd="/no/such/folder")
    with pytest.raises(UpstreamGone, match="'/no/such/folder' does not exist"):
        await upstreams.provide(spec).offer()


async def test_file_without_permission_is_named(upstreams: Upstreams, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("no")
    spec = ServerSpec(name="s", transport="stdio", command="./script", cwd=str(tmp_path))
    with pytest.raises(UpstreamGone, match="is not an executable file"):
        await upstreams.provide(spec).offer()


@pytest.mark.requirement("F02")
async def test_child_that_exits_at_once_is_noticed_with_its_last_words(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(exit_at_start=3, words="config file is missing", timeouts=PATIENT)
    with anyio.fail_after(10), pytest.raises(UpstreamGone) as caught:
        await provider.offer()
    assert caught.value.sent is Sent.NOTHING
    assert "exited with code 3" in str(caught.value)
    assert "config file is missing" in str(caught.value)
    health = provider.health()
    assert (health.state, health.pid) == (State.FAILED, None)
    assert "config file is missing" in health.stderr


@pytest.mark.requirement("T44")
async def test_secrets_are_not_repeated_from_stderr(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(exit_at_start=3, words="bad token s3cr3t-canary", env={"TOKEN": "s3cr3t-canary"})
    with pytest.raises(UpstreamGone) as caught:
        await provider.offer()
    assert "s3cr3t-canary" not in str(caught.value) + provider.health().stderr + provider.health().reason
    assert "[TOKEN]" in str(caught.value)


@pytest.mark.requirement("F06")
@pytest.mark.parametrize(("tool", "ending"), [("die", "exited with code 1"), ("kill", "ended by SIGKILL")])
async def test_death_in_a_call_is_reported_and_the_next_call_works(
    upstreams: Upstreams, tool: str, ending: str
) -> None:
    provider = upstreams.stdio(timeouts=PATIENT)
    await use(provider, "echo")
    with anyio.fail_after(10), pytest.raises(UpstreamGone, match=ending) as caught:
        await use(provider, tool)
    assert caught.value.sent is Sent.UNKNOWN
    assert said(await use(provider, "echo", a=1)) == {"a": 1}
    assert len(upstreams.spawned()) == 2
    assert [m["params"]["name"] for m in upstreams.logged() if m.get("method") == "tools/call"].count(tool) == 1


async def test_call_after_a_death_while_unused_works(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo")
    pid = provider.health().pid
    assert pid is not None
    os.kill(pid, 9)
    for _ in range(3):
        assert said(await _until_it_works(provider)) == {"a": 1}
    assert len(upstreams.spawned()) == 2


async def _until_it_works(provider: Any) -> Any:
    # The death may be noticed just before or just after the call is written; both are honest.
    try:
        return await use(provider, "echo", a=1)
    except UpstreamGone:
        return await use(provider, "echo", a=1)


@pytest.mark.requirement("T50")
async def test_line_beyond_the_limit_fails_the_server_with_a_reason(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    with pytest.raises(UpstreamGone, match="more than 64 MiB"):
        await use(provider, "long_line", mib=70)
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


async def test_large_answer_within_the_limit_arrives(upstreams: Upstreams) -> None:
    result = await use(upstreams.stdio(), "big_answer", size=8_000_000)
    assert len(result["content"][0]["text"]) == 8_000_000


@pytest.mark.requirement("F05")
async def test_stderr_is_drained_and_only_its_end_is_kept(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    assert said(await use(provider, "stderr", mib=20)) == "written"
    assert len(provider.health().stderr) <= 4096
    await use(provider, "echo")
    assert provider.health().stderr.endswith("the end\n")


@pytest.mark.requirement("T43", "T48")
async def test_child_sees_only_the_allowed_environment(upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTICO_SECRET", "canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    found = said(await use(upstreams.stdio(env={"DECLARED": "yes"}), "environment"))
    base = {
        "PATH",
        "HOME",
        "LANG",
        "TERM",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "TZ",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
    }
    base |= {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "DECLARED"}
    assert {name for name in found if not name.startswith("LC_")} <= base
    assert found["DECLARED"] == "yes"
    assert found["LC_ALL"] == "C.UTF-8"
    assert found["HTTPS_PROXY"] == "http://proxy:1"


@pytest.mark.requirement("T49")
async def test_child_inherits_no_descriptors(upstreams: Upstreams) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    try:
        assert said(await use(upstreams.stdio(), "descriptors")) == [0, 1, 2]
    finally:
        os.close(reading)
        os.close(writing)


async def test_child_that_does_not_read_costs_a_timeout_and_not_memory(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=0.4, total=5, idle=0))
    await use(provider, "stop_reading")
    outcomes = []
    for _ in range(3):
        with pytest.raises(UpstreamTimeout) as caught:
            await use(provider, "echo", filler="x" * 300_000)
        outcomes.append(caught.value.sent)
    assert outcomes[0] is Sent.UNKNOWN
    assert outcomes[-1] is Sent.NOTHING


async def test_answer_with_too_many_values_fails_its_call_alone(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    line = b'{"jsonrpc":"2.0","id":ID,"result":{"a":[' + b"{}," * 600_000 + b"0]}}\n"
    await use(provider, "echo")
    with pytest.raises(UpstreamGone, match="more than 500,000 values"):
        await use(provider, "raw", hex=line.hex())
    assert said(await use(provider, "echo", a=1)) == {"a": 1}
    assert len(upstreams.spawned()) == 1


async def test_more_values_can_be_allowed(upstreams: Upstreams) -> None:
    provider = upstreams.provide(replace(upstreams.spec(), limits=CallLimits(answer_values=2_000_000)))
    line = b'{"jsonrpc":"2.0","id":ID,"result":{"a":[' + b"{}," * 600_000 + b"0]}}\n"
    assert len((await use(provider, "raw", hex=line.hex()))["a"]) == 600_001


async def test_long_text_with_many_commas_is_one_value(upstreams: Upstreams) -> None:
    text = ('{"a": [1, 2, "\\u00e9"]}, ' * 100_000)[: 3 << 20]
    result = await use(upstreams.stdio(), "echo", text=text)
    assert said(result) == {"text": text}


async def test_the_wait_for_a_start_is_counted_apart_from_the_call(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=PATIENT)
    START_WAIT.set(0.0)
    await use(provider, "echo")
    assert START_WAIT.get() > 0
    START_WAIT.set(0.0)
    await use(provider, "echo")
    assert START_WAIT.get() == 0
