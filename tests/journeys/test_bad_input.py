"""Bad configs, bad definitions, bad calls and bad servers: a clear answer, and everything else works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.journeys.kit import SERVER, definition, serving
from tests.journeys.running import client, gateway, portico, text_of, write_config

pytestmark = pytest.mark.timeout(90)


def broken_definitions() -> list[Any]:
    looping = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    tree = {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}
    return [
        definition("good", "A tool that works", a="string"),
        {"description": "it has no name", "inputSchema": {"type": "object"}},
        {**definition("huge"), "description": "x", "inputSchema": {"type": "object", "title": "y" * 300_000}},
        {"name": "remote", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "https://example.com/x"}}}},
        {
            "name": "loop",
            "inputSchema": {"type": "object", "$defs": looping, "properties": {"x": {"$ref": "#/$defs/a"}}},
        },
        {"name": "listing", "inputSchema": ["not", "an", "object"]},
        {"name": "scalar", "inputSchema": {"type": "string"}},
        {
            "name": "tree",
            "inputSchema": {"type": "object", "$defs": tree, "properties": {"x": {"$ref": "#/$defs/node"}}},
        },
        {**definition("wordy"), "description": "long " * 20_000},
        definition("good", "The second of that name"),
        "not even an object",
    ]


@pytest.mark.requirement("P-BAD-DEFINITIONS")
def test_bad_definitions_are_refused_with_reasons_and_the_others_load(tmp_path: Path):
    write_config(tmp_path, {"messy": serving(tmp_path / "tools.json", broken_definitions())})
    checked = portico(tmp_path, "doctor", "--json")
    report = json.loads(checked.stdout)[0]
    reasons = {refusal["name"]: refusal["reason"] for refusal in report["rejected"]}
    assert "no name" in reasons["(no name)"] or "not an object" in reasons["(no name)"]
    assert "256 KB" in reasons["huge"]
    assert "remote $ref" in reasons["remote"]
    assert "lead only to each other" in reasons["loop"]
    assert "not an object" in reasons["listing"]
    assert "object of parameters" in reasons["scalar"]
    assert "second tool" in reasons["good"]
    assert report["tools"] == 3
    assert [note["name"] for note in report["notes"]] == ["wordy"]
    listed = portico(tmp_path, "list")
    assert "refused messy/remote" in listed.stderr
    described = portico(tmp_path, "describe", "messy.wordy")
    assert "[…cut, " in described.stdout
    assert portico(tmp_path, "call", "messy.good", "a=1").returncode == 0


@pytest.mark.requirement("P-BAD-CONFIG")
def test_a_half_valid_config_runs_its_good_servers_and_names_the_bad_ones(tmp_path: Path):
    good = serving(tmp_path / "tools.json", [definition("ping")])
    config = tmp_path / "portico.yaml"
    config.write_text(
        "servers:\n"
        f"  good: {json.dumps(good)}\n"
        "  typo:\n"
        "    comand: python3\n"
        "  secret:\n"
        "    command: python3\n"
        "    env: {TOKEN: '${NOT_SET_ANYWHERE}'}\n"
        "  gone:\n"
        "    command: no-such-command-anywhere\n"
    )
    listed = portico(tmp_path, "list", "--json")
    states = {server["name"]: server["state"] for server in json.loads(listed.stdout)}
    assert states["good"] in ("ready", "running")
    assert states["gone"] == "failed"
    assert f"{config}:4" in listed.stderr or f"{config}:3" in listed.stderr
    assert "command" in listed.stderr
    assert "NOT_SET_ANYWHERE" in listed.stderr
    assert "no-such-command-anywhere" in listed.stderr
    assert portico(tmp_path, "call", "good.ping").returncode == 0


@pytest.mark.requirement("P-BAD-CONFIG")
@pytest.mark.parametrize("text", ["servers: [", "\t\tx", "- a\n- b", "servers: {a: {command: x}\n", "\x00"])
def test_a_broken_config_says_file_and_line_and_never_a_traceback(tmp_path: Path, text: str):
    (tmp_path / "portico.yaml").write_text(text)
    done = portico(tmp_path, "list")
    assert done.returncode == 3
    assert "portico.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("P-NO-SHADOWING", "T31")
def test_names_that_collapse_are_told_apart_and_meta_tools_are_never_shadowed(tmp_path: Path):
    tools = [definition("a-b"), definition("a.b"), definition("search_tools"), definition("call_tool")]
    entry = serving(tmp_path / "tools.json", tools)
    write_config(tmp_path, {"x-y": entry, "x.y": entry, "result": entry})
    listed = json.loads(portico(tmp_path, "list", "--json").stdout)
    assert {s["name"]: s["identifier"] for s in listed} == {"x-y": "x_y", "x.y": "x_y_2", "result": "_result"}
    with gateway(tmp_path) as running:
        anyio.run(_check_names, running)


async def _check_names(running: Any) -> None:
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        names = [tool.name for tool in (await connected.list_tools()).tools]
        assert len(names) == len(set(names)) == 12
    async with client("http", "2026-07-28", surface="discover", running=running) as connected:
        found = text_of(await connected.call_tool("search_tools", {"query": ""}))
        assert "12 tools on 3 servers" in found
        called = await connected.call_tool("call_tool", {"name": "x_y_2.a_b_2", "arguments": {}})
        assert json.loads(text_of(called)) == {"tool": "a.b", "arguments": {}}
        own = await connected.call_tool("call_tool", {"name": "_result.search_tools", "arguments": {}})
        assert json.loads(text_of(own))["tool"] == "search_tools"
        ambiguous = await connected.call_tool("call_tool", {"name": "a-b", "arguments": {}})
        assert ambiguous.is_error
        assert "ambiguous_tool" in text_of(ambiguous)


@pytest.mark.anyio
@pytest.mark.requirement("P-ERRORS")
async def test_errors_say_what_failed_whether_anything_was_sent_and_the_next_call(tmp_path: Path):
    tools = [
        definition("die"),
        definition("sleep"),
        definition("add_label", "Add a label", issue="integer", label="string"),
    ]
    entry = serving(tmp_path / "tools.json", tools) | {"timeouts": {"call": 0.5}}
    write_config(tmp_path, {"hub": entry})
    with gateway(tmp_path) as running:
        async with client("http", "2025-11-25", surface="discover", running=running) as connected:

            async def error(name: str, **arguments: Any) -> str:
                result = await connected.call_tool("call_tool", {"name": name, "arguments": arguments})
                assert result.is_error
                return text_of(result)

            assert await error("hub.add_label", issue=7, lable="bug") == (
                "error invalid_arguments for hub.add_label; nothing was sent\n"
                "- missing: label (string)\n"
                "- unknown: lable; did you mean label (string)?\n"
                'next: call_tool({"name": "hub.add_label", "arguments": {"issue": 7, "label": "..."}})'
            )
            unknown = await error("hub.add_lable")
            assert unknown.startswith(
                "error unknown_tool for hub.add_lable; nothing was sent\n- did you mean: hub.add_label"
            )
            slow = await error("hub.sleep")
            assert slow.startswith(
                "error timed_out for hub.sleep; the call was sent; whether it took effect is unknown"
            )
            gone = await error("hub.die")
            assert gone.startswith(
                "error upstream_gone for hub.die; the call was sent; whether it took effect is unknown"
            )
            revived = await connected.call_tool(
                "call_tool", {"name": "hub.add_label", "arguments": {"issue": 1, "label": "x"}}
            )
            assert not revived.is_error, text_of(revived)


@pytest.mark.anyio
@pytest.mark.requirement("P-LENIENT")
@pytest.mark.parametrize(
    "malformed",
    [
        {"name": "HUB.Add_Label", "arguments": {"issue": 7, "label": "bug"}},
        {"name": "hub__add_label", "arguments": {"issue": 7, "label": "bug"}},
        {"name": "hub::add_label", "arguments": {"issue": 7, "label": "bug"}},
        {"name": "add_label", "arguments": {"issue": 7, "label": "bug"}},
        {"arguments": {"name": "hub.add_label", "arguments": {"issue": 7, "label": "bug"}}},
        {"name": "hub.add_label", "arguments": '{"issue": 7, "label": "bug"}'},
        {"name": "hub.add_label", "arguments": {"arguments": {"issue": 7, "label": "bug"}}},
        {"name": "call_tool", "arguments": {"name": "hub.add_label", "arguments": {"issue": 7, "label": "bug"}}},
        {"name": "hub.add_label", "issue": 7, "label": "bug"},
        {"name": "hub.add_label", "arguments": {"issue": "7", "label": "bug"}},
    ],
)
async def test_malformed_calls_are_repaired_once(tmp_path: Path, malformed: dict[str, Any]):
    entry = serving(tmp_path / "tools.json", [definition("add_label", issue="integer", label="string")])
    write_config(tmp_path, {"hub": entry})
    async with client("stdio", "2025-11-25", surface="discover", home=tmp_path) as connected:
        result = await connected.call_tool("call_tool", malformed)
    assert not result.is_error, text_of(result)
    assert json.loads(text_of(result).split("\n")[0]) == {
        "tool": "add_label",
        "arguments": {"issue": 7, "label": "bug"},
    }
    assert [line for line in text_of(result).split("\n") if line.startswith("note: ")], "what was repaired is said"


@pytest.mark.anyio
@pytest.mark.requirement("P-COMES-BACK")
async def test_a_server_that_could_not_be_asked_at_first_is_asked_again(tmp_path: Path):
    entry = serving(tmp_path / "tools.json", [definition("ping")])
    script = tmp_path / "late.py"
    script.write_text("raise SystemExit('not ready yet')")
    write_config(tmp_path, {"late": entry | {"args": [str(script), entry["args"][1]]}})
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="discover", running=running) as connected:
            missing = text_of(await connected.call_tool("call_tool", {"name": "late.ping", "arguments": {}}))
            assert missing.startswith("error unknown_tool for late.ping; nothing was sent")
            assert "the server 'late' is not available: " in missing
            assert "not ready yet" not in missing, "what a server writes to stderr is for its operator"
            assert "not available: late" in text_of(await connected.call_tool("search_tools", {"query": ""}))
            script.write_text(SERVER.read_text())
            with anyio.fail_after(30):
                found = ""
                while "late (1)" not in found:
                    found = text_of(await connected.call_tool("search_tools", {"query": ""}))
            assert not (await connected.call_tool("call_tool", {"name": "late.ping", "arguments": {}})).is_error


@pytest.mark.requirement("P-BROKEN-IS-NOT-SLOW")
def test_a_broken_server_is_not_asked_again_by_every_command(tmp_path: Path):
    starts = tmp_path / "starts"
    script = tmp_path / "broken.py"
    script.write_text(f"open({str(starts)!r}, 'a').write('x'); raise SystemExit('broken')")
    good = serving(tmp_path / "tools.json", [definition("ping")])
    write_config(tmp_path, {"good": good, "broken": {"command": good["command"], "args": [str(script)]}})
    first = portico(tmp_path, "search", "ping")
    assert first.returncode == 0
    assert "portico doctor broken" in first.stderr
    asked = len(starts.read_text())
    again = portico(tmp_path, "search", "ping")
    assert again.returncode == 0
    assert "broken" not in again.stderr, "it was told by the command that saw it fail"
    assert len(starts.read_text()) == asked
    assert portico(tmp_path, "doctor", "broken").returncode == 6
    assert len(starts.read_text()) > asked
