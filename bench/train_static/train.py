"""Train the static table: `python bench/train_static/train.py --encoder DIR --pairs FILE [--split DIR ...] --out DIR`.

Each word starts as the encoder sees it alone and is then moved, not far, so that a request comes near the tool that
answers it. The same seed on the same machine gives the same table. README.md beside this file tells the whole recipe.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
import vocabulary
from pairs import Pair, collected, training_split
from sentence_transformers import SentenceTransformer

from portico.search.word_vectors import Vocabulary
from portico.search.words_and_postings import pieces

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What was found to work; README.md has the runs that decided it."""

    words: int = 32_000
    dims: int = 256
    steps: int = 3_000
    rate: float = 5e-4
    batch: int = 512
    others: int = 512
    """Tools of other pairs that each request is also told apart from."""
    temperature: float = 0.07
    dropped: float = 0.1
    """Share of words that a text loses each time it is shown."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: {"operations": 0.2, "docstrings": 0.5, "metatool": 0.2, "sealtools": 0.1}
    )
    taught: float = 2.0
    """How much the encoder's own similarities count beside right and wrong."""
    teacher_temperature: float = 0.05
    commonness: float = 1e-3
    """Words more frequent than this begin with less weight."""
    seed: int = 1


@dataclass(slots=True)
class Bags:
    """Texts as rows of the table with a weight each, one after the other."""

    rows: torch.Tensor
    weights: torch.Tensor
    starts: torch.Tensor

    @classmethod
    def of(cls, texts: Sequence[tuple[list[int], list[float]]], device: str) -> Bags:
        """Pack texts."""
        starts = np.cumsum([0, *(len(rows) for rows, _ in texts)])
        rows = [row for text, _ in texts for row in text]
        weights = [weight for _, text in texts for weight in text]
        return cls(
            torch.tensor(rows, dtype=torch.long, device=device),
            torch.tensor(weights, dtype=torch.float32, device=device),
            torch.tensor(starts, dtype=torch.long, device=device),
        )

    def vectors(self, table: torch.Tensor, chosen: torch.Tensor, dropped: float = 0.0) -> torch.Tensor:
        """The meanings of some of the texts, each of length one."""
        begins, lengths = self.starts[chosen], self.starts[chosen + 1] - self.starts[chosen]
        offsets = torch.cumsum(lengths, 0) - lengths
        places = torch.arange(int(lengths.sum()), device=lengths.device)
        places = places + torch.repeat_interleave(begins - offsets, lengths)
        weights = self.weights[places]
        if dropped:
            weights = weights * (torch.rand_like(weights) >= dropped)
        summed = F.embedding_bag(self.rows[places], table, offsets, mode="sum", per_sample_weights=weights)
        return F.normalize(summed, dim=1)


def first_table(encoder: SentenceTransformer, words: Sequence[str], found: Counter[str], recipe: Recipe) -> Array:
    """Each word alone through the encoder, without what all words share, in fewer dimensions, common words fainter."""
    vectors = encoder.encode(list(words), batch_size=512, convert_to_numpy=True, normalize_embeddings=True)
    vectors = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, _, directions = np.linalg.svd(vectors, full_matrices=False)
    vectors = vectors @ directions[: recipe.dims].T
    total = sum(found.values()) or 1
    share = np.array([found[word] / total for word in words])
    weight = recipe.commonness / (recipe.commonness + share)
    return (vectors * weight[:, None]).astype(np.float32)


def draw(pairs: Sequence[Pair], recipe: Recipe, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Batches of pairs in the recipe's mixture; the other tools that they are told apart from come last."""
    places: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        places.setdefault(pair.family, []).append(number)
    members = {family: torch.tensor(found) for family, found in places.items()}
    total = sum(share for family, share in recipe.shares.items() if family in members)
    while True:
        parts = []
        for family, found in members.items():
            count = round(recipe.batch * recipe.shares[family] / total)
            parts.append(found[torch.randint(len(found), (count,), generator=generator)])
        parts.append(torch.randint(len(pairs), (recipe.others,), generator=generator))
        yield torch.cat(parts)


def train(
    start: Array,
    queries: Bags,
    tools: Bags,
    same: torch.Tensor,
    pairs: Sequence[Pair],
    teacher: Teacher,
    recipe: Recipe,
) -> Array:
    """Move the table so that each request comes nearest to its own tool."""
    device = queries.rows.device
    torch.manual_seed(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    table = torch.tensor(start, device=device, requires_grad=True)
    optimiser = torch.optim.Adam([table], lr=recipe.rate)
    batches = draw(pairs, recipe, generator)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * (1 - step / recipe.steps)
        chosen = next(batches).to(device)
        asked = chosen[: len(chosen) - recipe.others]
        scores = queries.vectors(table, asked, recipe.dropped) @ tools.vectors(table, chosen, recipe.dropped).T
        loss = loss_of(scores, asked, chosen, same, teacher, recipe)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return table.detach().cpu().numpy()


def loss_of(
    scores: torch.Tensor,
    asked: torch.Tensor,
    chosen: torch.Tensor,
    same: torch.Tensor,
    teacher: Teacher,
    recipe: Recipe,
) -> torch.Tensor:
    """Wrong tools must be farther than the right one, and the order of the rest is the encoder's."""
    own = torch.arange(len(asked), device=scores.device)
    twin = same[asked][:, None] == same[chosen][None, :]
    twin[own, own] = False
    logits = (scores / recipe.temperature).masked_fill(twin, -1e4)
    loss = F.cross_entropy(logits, own)
    if not recipe.taught:
        return loss
    wanted = F.softmax(teacher.queries[asked].float() @ teacher.tools[chosen].float().T / recipe.teacher_temperature, 1)
    taught = F.kl_div(F.log_softmax(scores / recipe.temperature, 1), wanted, reduction="batchmean")
    return loss + recipe.taught * taught


@dataclass(slots=True)
class Teacher:
    """What the encoder thinks of every request and every tool."""

    queries: torch.Tensor
    tools: torch.Tensor

    @classmethod
    def of(cls, encoder: SentenceTransformer, pairs: Sequence[Pair], device: str) -> Teacher:
        """Ask the encoder once for all texts."""
        texts = [pair.query for pair in pairs], [_as_text(pair.tool) for pair in pairs]
        vectors = [
            encoder.encode(list(t), batch_size=512, convert_to_tensor=True, normalize_embeddings=True).half().to(device)
            for t in texts
        ]
        return cls(*vectors)


def _as_text(tool: Mapping[str, str]) -> str:
    return f"{tool['shelf']} {tool['name']}: {tool['description'][:600]} {tool['parameters'][:200]}"


def pack(pairs: Sequence[Pair], words: Vocabulary, device: str) -> tuple[Bags, Bags, torch.Tensor]:
    """The pairs as rows of the table, and which tools are the same one."""
    asked = [words.rows(pair.query) for pair in pairs]
    queries = Bags.of([(rows, [1.0] * len(rows)) for rows in asked], device)
    tools = Bags.of([words.tool_rows({f: pieces(t) for f, t in pair.tool.items()}) for pair in pairs], device)
    numbers: dict[tuple[str, str, str], int] = {}
    keys = ((p.tool["shelf"], p.tool["name"], p.tool["description"]) for p in pairs)
    same = [numbers.setdefault(key, len(numbers)) for key in keys]
    return queries, tools, torch.tensor(same, device=device)


def quantise(table: Array) -> tuple[Array, Array]:
    """Eight bits a number, one scale a word."""
    scales = np.maximum(np.abs(table).max(axis=1), 1e-6) / 127
    return np.rint(table / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def save(folder: Path, words: Sequence[str], table: Array) -> None:
    """Write what the package reads."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers, scales = quantise(table)
    np.save(folder / "vectors.npy", numbers)
    np.save(folder / "scales.npy", scales)
    (folder / "words.txt").write_text("\n".join(words), encoding="utf-8")


def main() -> None:
    """Train and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="folder of a sentence-transformers model")
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument(
        "--split", type=Path, action="append", default=[], help="a set with tools.jsonl and train.jsonl"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    recipe = Recipe()
    encoder = SentenceTransformer(options.encoder, device=options.device)
    pairs = [*collected(options.pairs), *(pair for folder in options.split for pair in training_split(folder))]
    found = vocabulary.counts(pairs)
    words = vocabulary.choose(found, Path(options.encoder) / "vocab.txt", recipe.words)
    start = first_table(encoder, words, found, recipe)
    queries, tools, same = pack(pairs, Vocabulary(words), options.device)
    teacher = Teacher.of(encoder, pairs, options.device)
    save(options.out, words, train(start, queries, tools, same, pairs, teacher, recipe))


if __name__ == "__main__":
    main()
