"""A model of the BERT family with two layers, small enough to be written by a test."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, INNER, LAYERS, HEADS, POSITIONS = 8, 12, 2, 2, 9
PIECES = "[PAD] [UNK] [CLS] [SEP] read mail file ##s ##box a cafe , 読".split()
ENDS = ("query", "key", "value")


def shapes() -> dict[str, tuple[int, ...]]:
    """The numbers that such a model has."""
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(PIECES), WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        **_both("embeddings.LayerNorm", WIDTH),
    }
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        for end in ENDS:
            found |= _both(f"{layer}.attention.self.{end}", WIDTH, WIDTH)
        found |= _both(f"{layer}.attention.output.dense", WIDTH, WIDTH) | _both(
            f"{layer}.attention.output.LayerNorm", WIDTH
        )
        found |= _both(f"{layer}.intermediate.dense", INNER, WIDTH) | _both(f"{layer}.output.dense", WIDTH, INNER)
        found |= _both(f"{layer}.output.LayerNorm", WIDTH)
    return found


def write(folder: Path, *, kind: str = "<f4", pooling: dict[str, Any] | None = None, **config: Any) -> Path:
    """A folder with the files that sentence-transformers would write."""
    said = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "vocab_size": len(PIECES),
        "layer_norm_eps": 1e-12,
        **config,
    }
    vocab = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = {
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab},
    }
    files = {
        "config.json": said,
        "tokenizer.json": tokenizer,
        "1_Pooling/config.json": pooling or {"pooling_mode": "mean"},
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(_safetensors(kind))
    return folder


def _both(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _safetensors(kind: str) -> bytes:
    """Numbers that look like chance and are the same everywhere."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for number, (name, shape) in enumerate(shapes().items()):
        numbers = np.sin(np.arange(1, prod(shape) + 1) * (number + 1.7)).astype(kind).tobytes()
        header[name] = {
            "dtype": {"<f4": "F32", "<f2": "F16"}[kind],
            "shape": shape,
            "data_offsets": [len(content), len(content) + len(numbers)],
        }
        content += numbers
    told = json.dumps(header).encode()
    return len(told).to_bytes(8, "little") + told + content
