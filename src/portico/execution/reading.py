"""Items become tool results: a resource that is read, a prompt that is filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from portico.domain.items import Item, Kind
from portico.errors import UpstreamError
from portico.ports import Provider

JsonObject = Mapping[str, Any]
_MEDIA = {"image/": "image", "audio/": "audio"}


async def read_item(provider: Provider, item: Item, arguments: JsonObject) -> JsonObject:
    """The result of reading one item, as a tool would return it.

    Raises:
        CallError: its server cannot be asked, or refuses.
    """
    if item.kind is Kind.PROMPT:
        own = {"arguments": dict(arguments)} if arguments else {}
        raw = await provider.request("prompts/get", {"name": item.original, **own})
        return {"content": list(_messages(item, raw))}
    raw = await provider.request("resources/read", {"uri": item.original})
    return {"content": [_block(part) for part in _listed(item, raw, "contents")]}


def document_result(item: Item) -> JsonObject:
    """A document, which we have at hand."""
    return {"content": [{"type": "text", "text": str(item.definition.get("text", ""))}]}


def _block(contents: JsonObject) -> JsonObject:
    """Contents of a resource as a content block; a model reads text best as text."""
    if isinstance(contents.get("text"), str):
        return {"type": "text", "text": contents["text"]}
    kind = next((kind for begin, kind in _MEDIA.items() if str(contents.get("mimeType")).startswith(begin)), "")
    if kind and isinstance(contents.get("blob"), str):
        return {"type": kind, "data": contents["blob"], "mimeType": contents["mimeType"]}
    return {"type": "resource", "resource": contents}


def _messages(item: Item, raw: JsonObject) -> Iterator[JsonObject]:
    """The messages of a prompt in their order, each with its role."""
    for message in _listed(item, raw, "messages"):
        content = message.get("content")
        if isinstance(content, Mapping) and isinstance(content.get("text"), str):
            yield {"type": "text", "text": f"{message.get('role', 'user')}: {content['text']}"}
        elif isinstance(content, Mapping):
            yield content


def _listed(item: Item, raw: JsonObject, key: str) -> list[JsonObject]:
    found = raw.get(key)
    if not isinstance(found, list):
        raise UpstreamError(item.listed, rpc_code=-32603, message=f"its answer has no list of {key}")
    return [part for part in found if isinstance(part, Mapping)]
