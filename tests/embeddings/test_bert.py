"""Models that numpy runs: the same numbers as sentence-transformers has, without it and without a network."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from portico.errors import EmbedderAway
from portico.search.embeddings.local import (
    PUBLISHED,
    SHIPPED,
    BertModel,
    LocalModel,
    WordPieces,
    is_installed,
    missing_package,
    opened,
    shipped_archive,
)
from tests.surfaces.cli.shell import Shell

from . import tiny_bert
from .polyglot import TOOLS

pytestmark = pytest.mark.requirement("P-SEMANTIC-OFFLINE")
REFERENCE = json.loads(Path(__file__).with_name("minilm.json").read_text(encoding="utf-8"))["vectors"]
TEXT = "Read a MAILbox"
MEAN = [-0.0298551, 1.8390824, -0.0683106, 0.0562813, 0.2723871, 0.1745640, 0.6395230, -1.4941231]
FIRST = [-0.0528447, 1.8450893, -0.0645124, 0.0655935, 0.2746075, 0.1661022, 0.6350539, -1.5079083]
"""What PyTorch answers for that text and the tiny model: the mean of all pieces, and the first piece alone."""

with_model = pytest.mark.skipif(
    shipped_archive(SHIPPED) is None, reason="the extra is not installed: pip install 'portico[semantic]'"
)
without_torch = pytest.mark.skipif(is_installed(), reason="sentence-transformers is here, and runs folders itself")

ALONE = """
import sys
def watch(event, arguments):
    if event.startswith("socket."):
        sys.exit("it uses a network")
sys.addaudithook(watch)
from portico.search.embeddings.local import opened
print(opened(sys.argv[1])(["a text"]).shape, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("made", "expected", "within"),
    [
        ({}, MEAN, 1e-5),
        ({"pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}}, MEAN, 1e-5),
        ({"pooling": {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}}, FIRST, 1e-5),
        ({"pooling": {"pooling_mode": "cls"}}, FIRST, 1e-5),
        ({"kind": "<f2"}, MEAN, 5e-3),
    ],
)
@without_torch
def test_a_folder_answers_what_pytorch_answers(
    tmp_path: Path, made: dict[str, Any], expected: list[float], within: float
) -> None:
    local = LocalModel(str(tiny_bert.write(tmp_path, **made)))
    assert np.allclose(local.embed([TEXT]), [expected], atol=within)
    local.close()


def test_a_text_means_the_same_alone_and_among_others(tmp_path: Path) -> None:
    model = BertModel(tiny_bert.write(tmp_path))
    assert np.array_equal(model.read(["file", TEXT, ""])[1], model.read([TEXT])[0])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Mailboxs", "mail ##box ##s"),
        ("  a,file\t\n", "a , file"),
        ("CAFÉ cafe\u0301 ca\u200bfe\x00", "cafe cafe cafe"),
        ("a読a", "a 読 a"),
        ("readme mail", "[UNK] mail"),
        ("s", "[UNK]"),
        ("", ""),
        ("mail" + "s" * 97, "[UNK]"),
        ("a a a a a a a a a a a", "a a a a a a a"),
    ],
)
def test_words_are_cut_as_the_model_has_learnt_them(text: str, pieces: str) -> None:
    known = {piece: number for number, piece in enumerate(tiny_bert.PIECES)}
    read = WordPieces(known, tiny_bert.POSITIONS).read(text)
    assert [tiny_bert.PIECES[number] for number in read] == ["[CLS]", *pieces.split(), "[SEP]"]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"model_type": "xlm-roberta"}, "its model is xlm-roberta, which only sentence-transformers can run"),
        ({"hidden_act": "relu"}, "its activation is relu"),
        ({"position_embedding_type": "relative_key"}, "its kind of positions is relative_key"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, "its pooling is pooling_mode_max_tokens"),
    ],
)
@without_torch
def test_a_folder_of_another_kind_is_refused_and_not_misread(tmp_path: Path, made: dict[str, Any], words: str) -> None:
    local = LocalModel(str(tiny_bert.write(tmp_path, **made)))
    with pytest.raises(EmbedderAway, match=words):
        local.embed([TEXT])


@without_torch
def test_a_folder_without_a_model_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(EmbedderAway, match=r"there is no config\.json in"):
        LocalModel(str(tmp_path / "nothing")).embed([TEXT])


def test_a_model_with_a_further_step_is_refused(tmp_path: Path) -> None:
    steps = [{"type": f"sentence_transformers.models.{step}"} for step in ("Transformer", "Pooling", "Dense")]
    tiny_bert.write(tmp_path).joinpath("modules.json").write_text(json.dumps(steps))
    with pytest.raises(ValueError, match="its last step is Dense"):
        BertModel(tmp_path)


def test_weights_that_are_not_those_published_are_not_used(tmp_path: Path) -> None:
    tiny_bert.write(tmp_path)
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            archive.write(tmp_path / name, name)
    packed = zipfile.Path(tmp_path / "model.zip")
    assert np.allclose(BertModel(packed).read([TEXT]), [MEAN], atol=1e-5)
    with pytest.raises(ValueError, match="its weights are not those that were published"):
        BertModel(packed, published=PUBLISHED)


def test_what_a_model_needs_is_known_without_loading_it() -> None:
    folder, other = missing_package("/models/small"), missing_package("some/other-model")
    assert folder is None
    assert is_installed() or (other is not None and other.package == "sentence-transformers")


@with_model
@pytest.mark.parametrize("name", [SHIPPED, f"sentence-transformers/{SHIPPED}"])
def test_the_model_of_the_extra_answers_what_sentence_transformers_answers(name: str) -> None:
    expected = np.array([np.frombuffer(base64.b64decode(numbers), "<f2") for numbers in REFERENCE.values()], np.float32)
    found = opened(name)(list(REFERENCE))
    cosines = (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.9999


@with_model
def test_the_model_of_the_extra_needs_no_network_and_no_pytorch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, SHIPPED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("(1, 384) False\n", "")


@with_model
def test_a_config_of_one_line_finds_by_meaning(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    tiny = json.loads(shell.serve_tiny(TOOLS).read_text(encoding="utf-8"))
    shell.configure(json.dumps(tiny | {"semantic": {"model": SHIPPED, "timeout_s": 20}}))
    told = shell.run("doctor").out
    assert f"ok  embedder {SHIPPED} on this machine: ready 3/3" in told
    hit = shell.run("search", "do I need an umbrella on Sunday", "--json", "--explain").json[0]
    assert (hit["name"], "semantic" in hit["why"]) == ("forecast", True)
