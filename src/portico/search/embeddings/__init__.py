"""Embeddings of texts, the choice of their model, and the cache that spares it work."""

from __future__ import annotations

from portico.protocols import DefinitionStore

from .cache import Meanings
from .local import LocalModel


def open_meanings(*, store: DefinitionStore, url: str, model: str, key: str, timeout: float) -> Meanings:
    """The memory of meanings over an endpoint, or over a local model when there is no url; nothing is asked yet.

    A command that searches nothing loads no model and sends nothing, however many tools it knows.
    """
    if url:
        # Its HTTP client is loaded here: a gateway without an endpoint does not pay for it.
        from portico.search.embeddings.endpoint import Endpoint

        endpoint = Endpoint(url, model, key=key)
        return Meanings(endpoint, store, timeout=timeout, lazy=True)
    local = LocalModel(model)
    return Meanings(local, store, timeout=timeout, lazy=True, on_close=local.close)
