"""An embedder that also reads Russian, which neither the words of a tool nor the shipped table do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence

from portico.testing import FakeEmbedder, definition

from .embedding_server import Handler

TOOLS = [
    definition("forecast", "weather tomorrow"),
    definition("send_invoice", "Bill a customer", customer="string"),
    definition("resize", "Shrink a picture", width="integer"),
]
TEXTS = [
    "forecast: weather tomorrow",
    "send_invoice: Bill a customer (customer)",
    "resize: Shrink a picture (width)",
]
"""What an embedder is given of them."""
QUERY = "погода завтра"
_WORD = re.compile(r"[^\W_]+")
_ENGLISH = {"погода": "weather", "завтра": "tomorrow"}


class Polyglot(FakeEmbedder):
    """Texts are close when they share words, of whichever language."""

    def __init__(self, dimensions: int = 512) -> None:
        super().__init__(dimensions=dimensions)

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self.asked += texts
        if self._failure is not None:
            raise self._failure
        return [self._vector(" ".join(_ENGLISH.get(word, word) for word in _WORD.findall(text))) for text in texts]


class Held(Polyglot):
    """Lets requests arrive, but not return, until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived, self.released = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self.arrived.set()
        assert self.released.wait(10)
        return super().embed(texts)


def speaks(handler: Handler, texts: list[str]) -> None:
    """The same over HTTP."""
    rows = [{"index": number, "embedding": vector} for number, vector in enumerate(Polyglot().embed(texts))]
    handler.send(200, json.dumps({"data": rows}).encode())
