"""Secrets are kept in files and never shown: one rule for entries, diffs and listings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from portico.documents.document import Document
from portico.documents.values_with_positions import Node
from portico.text.redaction import ASSIGNMENT, ENV_FLAGS, SECRET_NAME, TOKEN

MASK = "***"

_PRIVATE_TABLES = frozenset("env environment headers http_headers requestInit".split())
_NOT_SECRET = frozenset({"bearer_token_env_var", "env_http_headers", "env_vars"})
_DEFAULT = re.compile(r"(\$\{[A-Za-z_:][A-Za-z0-9_:]*?:-)[^}]+\}")
_ONLY_REFERENCES = re.compile(r"(?:(?:Bearer|Basic|Token)\s+)?(?:\$\{[^}]*\}|\$[A-Za-z_]\w*|\s)+", re.IGNORECASE)
_USER_INFO = re.compile(r"(://)[^/@\s]+@")
_QUERY_VALUE = re.compile(r"([?&;][^=&#\s]+=)[^&#\s]+")


def mask(entry: Any) -> Any:
    """An entry, or any part of a config, with every secret it may hold replaced by `***`; references stay readable."""
    return _masked(entry, "")


def masked_text(document: Document) -> str:
    """A document's text with the secrets masked where they stand."""
    changes = list(_changes(document.root, mask(document.data)))
    if document.format != "json":
        return _masked_words(document.text, [node.value for node, _ in changes])
    text = document.text
    for node, shown in sorted(changes, key=lambda change: -change[0].start):
        text = text[: node.start] + json.dumps(shown, ensure_ascii=False) + text[node.end :]
    return text


def _masked(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        if key in _PRIVATE_TABLES:
            return {name: _hidden(item) for name, item in value.items()}
        return {name: _masked(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return _arguments(value) if key in ("args", "command") else [_masked(item, key) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if SECRET_NAME.search(key) and key not in _NOT_SECRET:
        return _hidden(value)
    return _text(value) if isinstance(value, str) else value


def _arguments(values: Any) -> list[Any]:
    shown, before = list[Any](), ""
    for value in values:
        shown.append(_argument(value, before) if isinstance(value, str) else _masked(value, ""))
        before = value if isinstance(value, str) else ""
    return shown


def _argument(value: str, before: str) -> str:
    found = ASSIGNMENT.fullmatch(value)
    if found and (before in ENV_FLAGS or SECRET_NAME.search(found["name"])):
        return found["name"] + found["sign"] + _hidden_text(found["value"])
    is_flag = before.startswith("-") and "=" not in before and not value.startswith("-")
    return _hidden_text(value) if is_flag and SECRET_NAME.search(before.lstrip("-")) else _text(value)


def _hidden(value: Any) -> Any:
    """The part that may be shown of a value that is secret by its place."""
    if isinstance(value, Mapping):
        return {name: _hidden(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    return value if value is None or value == "" else _hidden_text(str(value))


def _hidden_text(value: str) -> str:
    shown = _DEFAULT.sub(rf"\1{MASK}}}", value)
    return shown if _ONLY_REFERENCES.fullmatch(shown) else MASK


def _text(value: str) -> str:
    shown = _DEFAULT.sub(rf"\1{MASK}}}", value)
    if "://" in shown:
        shown = _QUERY_VALUE.sub(rf"\1{MASK}", _USER_INFO.sub(rf"\1{MASK}@", shown))
    return TOKEN.sub(MASK, shown)


def _changes(node: Node, shown: Any) -> Iterator[tuple[Node, Any]]:
    if node.members is not None:
        seen = set[str]()
        for member in node.members:
            # The second of two equal keys is not in the data; hide it whole.
            is_second = member.key in seen
            seen.add(member.key)
            yield from _changes(member.node, _all_hidden(member.node) if is_second else shown[member.key])
    elif node.items is not None:
        for item, item_shown in zip(node.items, shown, strict=True):
            yield from _changes(item, item_shown)
    elif node.value != shown:
        yield node, shown


def _all_hidden(node: Node) -> Any:
    """The shape of a value with every scalar hidden."""
    if node.members is not None:
        return {member.key: _all_hidden(member.node) for member in node.members}
    return [_all_hidden(item) for item in node.items] if node.items is not None else MASK


def _masked_words(text: str, values: list[Any]) -> str:
    for value in sorted((str(value) for value in values), key=len, reverse=True):
        for written in (json.dumps(value, ensure_ascii=False), f"'{value}'"):
            text = text.replace(written, f'"{MASK}"')
        if len(value) >= 8:
            text = text.replace(value, MASK)
    return text
