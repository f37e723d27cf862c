"""What is shown of an entry holds no secret, and stays readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from portico.config.variables_and_masking import mask, masked_text
from portico.documents.document import parse_document

TOKEN = "abcd1234efgh5678ijkl9012mnop"


@pytest.mark.requirement("T44")
@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ({"env": {"A": "short"}}, {"env": {"A": "***"}}),
        ({"env": {"A": 5, "B": None, "C": ""}}, {"env": {"A": "***", "B": None, "C": ""}}),
        ({"env": {"A": "${TOKEN}"}}, {"env": {"A": "${TOKEN}"}}),
        ({"env": {"A": "${TOKEN:-secret}"}}, {"env": {"A": "${TOKEN:-***}"}}),
        ({"env": {"A": "x${TOKEN}"}}, {"env": {"A": "***"}}),
        ({"headers": {"Authorization": "Bearer ${T}"}}, {"headers": {"Authorization": "Bearer ${T}"}}),
        ({"headers": {"Authorization": "Bearer abc"}}, {"headers": {"Authorization": "***"}}),
        ({"http_headers": {"X": "abc"}}, {"http_headers": {"X": "***"}}),
        ({"args": ["-y", "@scope/server-github@1.2.3"]}, {"args": ["-y", "@scope/server-github@1.2.3"]}),
        ({"args": ["--api-key", "abc"]}, {"args": ["--api-key", "***"]}),
        ({"args": ["--api-key", "${KEY}"]}, {"args": ["--api-key", "${KEY}"]}),
        ({"args": ["--token=abc"]}, {"args": ["--token=***"]}),
        ({"args": ["-e", "NAME=abc", "image"]}, {"args": ["-e", "NAME=***", "image"]}),
        ({"args": ["--header", "X-Any: abc"]}, {"args": ["--header", "X-Any: ***"]}),
        ({"args": ["postgres://me:pw@host/db?sslkey=abc"]}, {"args": ["postgres://***@host/db?sslkey=***"]}),
        ({"args": [f"x={TOKEN}"]}, {"args": ["x=***"]}),
        ({"args": ["sk-abcdefghij"]}, {"args": ["***"]}),
        ({"args": ["/srv/me/some/long/folder/of/mine/v2"]}, {"args": ["/srv/me/some/long/folder/of/mine/v2"]}),
        ({"url": f"https://h/s/{TOKEN}/mcp?key=abc&x=y"}, {"url": "https://h/s/***/mcp?key=***&x=***"}),
        ({"url": "https://example.com/mcp"}, {"url": "https://example.com/mcp"}),
        ({"apiKey": "abc", "oauth": {"clientSecret": "abc"}}, {"apiKey": "***", "oauth": {"clientSecret": "***"}}),
        ({"bearer_token_env_var": "TOKEN"}, {"bearer_token_env_var": "TOKEN"}),
        ({"command": "npx", "enabled": True, "timeout": 5}, {"command": "npx", "enabled": True, "timeout": 5}),
        ("text", "text"),
    ],
)
def test_secrets_are_masked_by_place_name_and_look(entry: Any, shown: Any) -> None:
    assert mask(entry) == shown


def test_a_text_is_masked_where_the_secrets_stand() -> None:
    text = '{ // note\n "a": {"env": {"K": "1"}, "b": "1"},\n "a": {"env": {"K": "two"}}, "c\\u0041": "1"}'
    shown = masked_text(parse_document(text, Path("c.json")))
    assert shown == '{ // note\n "a": {"env": {"K": "***"}, "b": "1"},\n "a": {"env": {"K": "***"}}, "c\\u0041": "1"}'
