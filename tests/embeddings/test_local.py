"""A local model in its own process: played by a small program that keeps the worker's side of the conversation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from portico.errors import EmbedderAway
from portico.search.embeddings import open_meanings
from portico.search.embeddings.cache import Meanings
from portico.search.embeddings.local import LocalModel, is_installed
from portico.storage.memory import MemoryDefinitions

WORKER = """
import json, os, sys
print(json.dumps({"loaded": True}), flush=True)
for line in sys.stdin:
    texts = json.loads(line)
    if "die" in texts:
        os._exit(1)
    if "stumble" in texts:
        print(json.dumps({"error": "index out of range"}), flush=True)
    else:
        print(json.dumps({"vectors": [[len(text), len(texts), os.getpid()] for text in texts]}), flush=True)
"""


def model(tmp_path: Path, program: str = WORKER) -> LocalModel:
    file = tmp_path / "worker.py"
    file.write_text(program)
    return LocalModel("small", worker=(sys.executable, str(file)))


@pytest.mark.requirement("P-EMBEDDER-CONTRACT")
def test_texts_are_embedded_in_small_batches_by_one_process(tmp_path: Path) -> None:
    local = model(tmp_path)
    found = local.embed(["x" * n for n in range(20)])
    assert [numbers[0] for numbers in found] == list(range(20))
    assert [numbers[1] for numbers in found] == [16] * 16 + [4] * 4
    assert len({numbers[2] for numbers in [*found, *local.embed(["y"])]}) == 1
    local.close()


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    local = model(tmp_path)
    with pytest.raises(EmbedderAway, match="its process has ended"):
        local.embed(["die"])
    assert local.embed(["x"])[0][0] == 1
    local.close()
    with pytest.raises(EmbedderAway, match="it was closed"):
        local.embed(["x"])


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_a_text_that_a_model_stumbles_over_does_not_cost_the_others(tmp_path: Path) -> None:
    local = model(tmp_path)
    meanings = Meanings(local, MemoryDefinitions(), on_close=local.close)
    assert meanings.prepare(["a", "stumble", "b"]) == 2
    meanings.close()


@pytest.mark.requirement("P-EMBEDDER-AWAY")
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ('print(\'{"error": "no such file"}\')', "the model cannot be loaded: no such file"),
        ("raise SystemExit(1)", "its process has ended"),
        ("import sys; sys.stdout.write('{')", "its process has ended"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_said_so(tmp_path: Path, program: str, words: str) -> None:
    with pytest.raises(EmbedderAway, match=words):
        model(tmp_path, program).embed(["x"])


def test_a_worker_that_cannot_be_started_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(EmbedderAway, match="cannot be started: No such file"):
        LocalModel("small", worker=(str(tmp_path / "nothing"),)).embed(["x"])


@pytest.mark.requirement("P-EMBEDDER-CONFIG")
@pytest.mark.skipif(is_installed(), reason="sentence-transformers is here")
def test_without_the_package_the_install_command_is_named() -> None:
    meanings = open_meanings(store=MemoryDefinitions(), url="", model="small", key="", timeout=0.8)
    assert meanings.check() == (
        "away: sentence-transformers is not installed. Run: pip install sentence-transformers, or choose "
        "all-MiniLM-L6-v2, next try in 30 s"
    )
    meanings.close()
