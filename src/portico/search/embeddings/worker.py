"""The process that a local model runs in: reads batches of texts line by line, and writes their vectors.

It has its own process because loading a model holds Python's one lock for seconds, and nothing can end it in a thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib import import_module
from typing import Any, TextIO

import orjson

BATCH = 16
LOOKING = 0.5
"""Seconds between two looks whether the gateway is still there: a model that is being loaded reads no input."""


def main() -> None:
    """Load the model that the command line names, say so, and answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    threading.Thread(target=leave_with, args=(int(sys.argv[2]),), daemon=True).start()
    os.dup2(2, 1)  # whatever the libraries print must not stand among the answers
    try:
        # Loaded here, so that a package that is missing or broken becomes an answer.
        model = import_module("sentence_transformers").SentenceTransformer(sys.argv[1])
    except Exception as error:  # noqa: BLE001  what is wrong with a model's files comes in many shapes
        _say(answers, {"error": _first_line(error)})
        return
    _say(answers, {"loaded": True})
    for line in sys.stdin:
        _say(answers, _embedded(model, orjson.loads(line)))


def leave_with(gateway: int) -> None:
    """End this process when the gateway is no longer its parent."""
    while os.getppid() == gateway:
        time.sleep(LOOKING)
    os._exit(1)


def _embedded(model: Any, texts: list[str]) -> dict[str, Any]:
    try:
        found = model.encode(texts, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return {"vectors": found.astype("float64").tolist()}
    except Exception as error:  # noqa: BLE001  a model is somebody's code and may raise anything
        return {"error": _first_line(error)}


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(orjson.dumps(answer).decode() + "\n")
    answers.flush()


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:200]


if __name__ == "__main__":
    main()
