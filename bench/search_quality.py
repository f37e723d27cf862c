"""How well the right tools are found: Portico beside plain rankings, on the same sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

import numpy as np
from bench.peers import PeerUnavailable, fastmcp_python
from bench.retrieval import DEPTH, RetrievalSet, by_server, figures
from bench.search_catalogue import edition_of
from bench.search_peers import PlainBM25, worker

from portico import Catalog
from portico.search.index import ToolIndex, build_index
from portico.search.word_vectors import pack, shipped_table

Runs = list[list[str]]
Quality = dict[str, dict[str, dict[str, float]]]


def measure(sets: Sequence[RetrievalSet], skipped: dict[str, str], *, peers: bool) -> Quality:
    """The figures of each ranking on each set."""
    rankings: dict[str, Callable[[RetrievalSet], Runs]] = {
        "Portico": _portico,
        "Portico, words only": _words_only,
        "plain BM25": _plain,
        **({"FastMCP BM25": _fastmcp} if peers else {}),
    }
    found: Quality = {}
    for name, rank in rankings.items():
        try:
            found[name] = {one.name: _rounded(figures(one.questions, rank(one))) for one in sets}
        except PeerUnavailable as reason:
            skipped[f"quality of {name}"] = str(reason)
    return found


def table(found: Quality, trained: Set[str]) -> str:
    """One row for each ranking, one column for each set; the mean of all, and of those without a training split."""
    sets = list(next(iter(found.values())))
    unseen = [name for name in sets if name not in trained]
    means = {"mean": sets, **({"mean without *": unseen} if trained and unseen else {})}
    titles = [f"{name}*" if name in trained else name for name in sets]
    lines = [f"| nDCG@10 / R@5 / R@1 | {' | '.join([*titles, *means])} |", "|---|" + "---:|" * (len(sets) + len(means))]
    for name, rows in found.items():
        cells = [*rows.values(), *(_mean([rows[one] for one in names]) for names in means.values())]
        lines.append(f"| {name} | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {figure: sum(row[figure] for row in rows) / len(rows) for figure in rows[0]}


def _cell(row: dict[str, float]) -> str:
    return " / ".join(f"{value:.3f}" for value in row.values())


def _rounded(row: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in row.items()}


def _portico(one: RetrievalSet) -> Runs:
    """Through the library, as anyone would use it."""
    catalog = Catalog()
    for server, definitions in by_server(one.tools).items():
        catalog.add_tools(server, definitions, lambda name, arguments: None)
    if catalog.rejected:
        print(f"{one.name}: {len(catalog.rejected)} definitions were refused")
    ids = _ids(one)
    return [
        [ids[hit.tool.id.server, hit.tool.id.name] for hit in catalog.search(question.text, limit=DEPTH)]
        for question in one.questions
    ]


def _words_only(one: RetrievalSet) -> Runs:
    """The same index with a table that knows the same words but means nothing by them."""
    snapshot = edition_of(by_server(one.tools))
    whole, known = build_index(snapshot, None), shipped_table()
    mute = replace(known, numbers=np.zeros_like(known.numbers))
    nothing = pack(np.zeros((len(whole.tools), known.dims), dtype=np.float32))
    index, visible, ids = ToolIndex(whole.tools, whole.postings, nothing, mute), frozenset(snapshot.tools), _ids(one)
    found = (index.query(question.text, within=visible, limit=DEPTH) for question in one.questions)
    return [[ids[hit.tool.id.server, hit.tool.id.name] for hit in findings.hits] for findings in found]


def _plain(one: RetrievalSet) -> Runs:
    """Names and descriptions, lowercase words, no stemming."""
    index = PlainBM25([f"{tool.definition['name']} {tool.definition['description']}" for tool in one.tools])
    return [[one.tools[number].id for number in index.rank(question.text, DEPTH)] for question in one.questions]


def _fastmcp(one: RetrievalSet) -> Runs:
    """What FastMCP's search transform ranks by, with names prefixed as its proxy does."""
    documents = [{**tool.definition, "name": f"{tool.server}_{tool.definition['name']}"} for tool in one.tools]
    with worker(fastmcp_python(), "fastmcp", documents, [question.text for question in one.questions]) as peer:
        return [[one.tools[number].id for number in run] for run in peer.rank()]


def _ids(one: RetrievalSet) -> dict[tuple[str, str], str]:
    return {(tool.server, tool.definition["name"]): tool.id for tool in one.tools}
