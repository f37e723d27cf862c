"""The pure parts: codec, events, headers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.errors import Sent
from portico.providers.mcp.message_limits_and_errors import (
    Bounds,
    EventParser,
    ExchangeFault,
    GarbledMessage,
    JsonCounter,
    ServerSentEvent,
    add_envelope,
    answered_id,
    decode,
    encode,
    public_url,
)
from portico.providers.mcp.stdio import child_environment
from portico.providers.mcp.streamable_http import header_maps, header_value, param_headers

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
@settings(deadline=None)
def test_what_is_encoded_is_decoded_the_same(value: Any) -> None:
    line = encode({"jsonrpc": "2.0", "v": value})
    assert line.count(b"\n") == 1
    assert decode(line) == {"jsonrpc": "2.0", "v": value}


@pytest.mark.requirement("F21")
@given(st.binary())
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_or_are_garbled(data: bytes) -> None:
    try:
        decode(data)
    except GarbledMessage:
        return


@pytest.mark.requirement("F21")
@given(JSON, st.data())
@settings(deadline=None)
def test_mutated_messages_never_crash(value: Any, data: st.DataObject) -> None:
    line = bytearray(encode({"jsonrpc": "2.0", "id": 1, "result": value}))
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(line))
    except GarbledMessage:
        return


@pytest.mark.parametrize("text", ['{"a":NaN}', '{"a":Infinity}', '{"a":1' + "0" * 5000 + "}", "[" * 100_000])
def test_what_no_surface_could_write_is_garbled(text: str) -> None:
    with pytest.raises(GarbledMessage):
        decode(text.encode())


def test_garbled_answer_keeps_its_id() -> None:
    with pytest.raises(GarbledMessage) as caught:
        decode(b'{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}')
    assert caught.value.id == 7


@given(
    st.lists(st.tuples(st.sampled_from(["message", "endpoint"]), st.text("ab:\u2028é ", max_size=8)), max_size=5),
    st.data(),
)
def test_events_are_the_same_however_the_stream_is_cut(events: list[tuple[str, str]], data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    stream = "".join(
        f"event: {name}{ending}data: {text}{ending}: note{ending}{ending}" for name, text in events
    ).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parser, found = EventParser(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:stop])
    assert [(e.name, e.data.decode()) for e in found] == events


def test_line_ending_that_is_cut_in_two_is_one_ending() -> None:
    parser = EventParser()
    chunks = (b"event: endpoint\r", b"", b"\ndata: x\r", b"\n\r", b"\n")
    assert [event for chunk in chunks for event in parser.feed(chunk)] == [ServerSentEvent("endpoint", b"x")]


def test_event_fields() -> None:
    parser = EventParser()
    found = parser.feed(b"id: 7\nretry: 1500\nevent: x\ndata: one\ndata:two\nunknown: y\n\ndata\n\nevent: empty\n\n")
    assert found == [ServerSentEvent("x", b"one\ntwo", "7"), ServerSentEvent("message", b"", "7")]
    assert parser.retry == 1.5


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 50, b"data: xxxxxxxxxx\n" * 5])
def test_event_beyond_the_limit_is_refused(chunk: bytes) -> None:
    with pytest.raises(ExchangeFault):
        EventParser(Bounds(40)).feed(chunk)


@given(st.text())
@settings(deadline=None)
def test_header_values_survive_the_sdk_codec(value: str) -> None:
    from mcp.shared.inbound import decode_header_value, encode_header_value

    value = value.encode("utf-8", "replace").decode()
    assert header_value(value) == encode_header_value(value)
    assert decode_header_value(header_value(value)) == value


@pytest.mark.requirement("T36")
def test_declared_headers_follow_the_sdk_rule() -> None:
    from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "deep": {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Deep-Id"}}},
            "plain": {"type": "string"},
        },
    }
    arguments = {"region": " x", "count": 3, "dry": True, "deep": {"id": "é"}, "plain": "no"}
    maps = header_maps([{"name": "t", "inputSchema": schema}, {"name": "u", "inputSchema": {"type": "object"}}, {}])
    assert maps == {"t": x_mcp_header_map(schema)}
    assert param_headers(maps["t"], arguments) == mcp_param_headers(x_mcp_header_map(schema), arguments)
    assert param_headers(maps["t"], {"region": None, "deep": "flat"}) == {}


@pytest.mark.requirement("T36")
@pytest.mark.parametrize("bad", [{"type": "number"}, {"type": ["string"]}, {}])
def test_headers_on_other_types_are_not_mirrored(bad: dict[str, Any]) -> None:
    schema = {"properties": {"a": {**bad, "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "B:\n"}}}
    assert header_maps([{"name": "t", "inputSchema": schema}]) == {}


def test_envelope_and_token_join_the_callers_meta() -> None:
    params = {"name": "x", "_meta": {"mine": 1, "progressToken": "theirs"}}
    assert add_envelope(params, {"e": 2}, 5)["_meta"] == {"mine": 1, "e": 2, "progressToken": 5}
    assert json.dumps(params) == '{"name": "x", "_meta": {"mine": 1, "progressToken": "theirs"}}'
    plain: dict[str, Any] = {"name": "x"}
    assert add_envelope(plain, {}, None) is plain


def test_callers_envelope_wins_and_is_kept_from_servers_without_one() -> None:
    key = "io.modelcontextprotocol/clientCapabilities"
    params = {"_meta": {key: {"sampling": {}}, "mine": 1}}
    assert add_envelope(params, {key: {}}, None)["_meta"] == {key: {"sampling": {}}, "mine": 1}
    assert add_envelope(params, {}, None)["_meta"] == {"mine": 1}


@pytest.mark.requirement("T43")
def test_environment_is_the_frozen_list_and_what_is_declared() -> None:
    ours = {"PATH": "/bin", "SECRET": "1", "LC_TIME": "C", "no_proxy": "x", "SHELL": "() { evil; }", "LD_PRELOAD": "x"}
    assert child_environment({"A": "1", "PATH": "/p"}, ours) == {
        "PATH": "/p",
        "LC_TIME": "C",
        "no_proxy": "x",
        "A": "1",
    }


def test_shown_addresses_have_no_secrets() -> None:
    assert public_url("https://user:pass@host:8/p?token=x#y") == "https://host:8/p"
    assert ExchangeFault("a", "b").sent is Sent.NOTHING


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\{[,:é', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('k"\\{[,', max_size=4), inner, max_size=4),
    max_leaves=20,
)


def places(value: Any) -> int:
    """Containers, and the commas between their items."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(places, inner))


@given(JSON_VALUES, st.data())
def test_values_are_counted_outside_of_strings_however_the_text_is_cut(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    counter = JsonCounter()
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        counter.feed(text[start:stop])
    assert counter.values == places(value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"id":8', 7),
        (b'{"id": "7", "jsonrpc":"2.0","result":[[[', 7),
        (b'{"result":{"content":[{"id":3}]},"id":7,"jsonrpc":"2.0"}', 7),
        (b'{"jsonrpc":"2.0","result":{"id":8', None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":8}}', None),
    ],
)
def test_id_of_an_answer_is_seen_without_parsing_it(data: bytes, expected: int | None) -> None:
    assert answered_id(data) == expected


def test_event_of_empty_lines_is_refused() -> None:
    parser = EventParser()
    parser.feed(b"data:\n" * 100_000)
    with pytest.raises(ExchangeFault, match="100,000 lines"):
        parser.feed(b"data:\n")


def test_comments_keep_a_stream_open_for_ever() -> None:
    parser = EventParser()
    for _ in range(200):
        assert parser.feed(b": ping\n" * 1000) == []
    assert [event.data for event in parser.feed(b"data: x\n\n")] == [b"x"]
