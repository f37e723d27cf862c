"""Chooses the embedder that the settings ask for; its libraries are loaded when one is asked for, and not before."""

from __future__ import annotations

from portico.ports import MeaningSource, Store

from .local import LocalModel


def open_meanings(*, store: Store, url: str, model: str, key: str, timeout: float) -> MeaningSource:
    """The memory of meanings over an endpoint, or over a local model when there is no url; nothing is asked yet.

    A command that searches nothing loads no model and sends nothing, however many tools it knows.
    """
    # numpy and http.client take a tenth of a second to import, which a gateway without meanings does not pay.
    from .remembered import Meanings

    if url:
        from .endpoint import Endpoint

        return Meanings(Endpoint(url, model, key=key), store, timeout=timeout, lazy=True)
    local = LocalModel(model)
    return Meanings(local, store, timeout=timeout, lazy=True, on_close=local.close)
