"""What a search says of its own answer: `python bench/doubt.py [--retrieval DIR] [--fleet FILE]`.

Requests whose tool is there, the same with their tools taken out, and requests from another world, at several
thresholds: how often an answer is shown, shown as weak, or refused. Prints Markdown tables and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.retrieval import Question, RetrievalSet, generated_set, read_sets
from bench.search_catalogue import SMALL, Catalogues

from portico import Catalog
from portico.domain.search_answers import Findings
from portico.domain.tool import ToolId
from portico.search import groups_and_doubt as ranking

QUERIES = 300
REFUSED = (0.16, 0.19, 0.22, 0.25, 0.28, 0.32)
DOUBTED = (0.28, 0.31, 0.34, 0.37, 0.40, 0.45)
TOP = 5
OTHER_WORLD = """
knit a sweater for my grandson
mow the lawn behind the house
how long do I boil an egg
sharpen the kitchen knives
braid my daughter's hair
teach my dog to sit
which wine goes with lamb
change the oil of a tractor
prune the apple trees in winter
fold a paper crane
repair a leaking tap in the bathroom
iron my shirts for the wedding
the best way to remove red wine stains
tie a bowline knot
wash the windows of the greenhouse
build a sandcastle that lasts
how to stop hiccups
milk the goats before sunrise
tune the strings of my violin
paint the fence in a dark green
plant tulips along the path
bake a rye bread with sourdough
polish the silver spoons
grow tomatoes on a balcony
sew a button on a coat
train for a marathon without injuries
clean the chimney before autumn
carve a pumpkin for the children
shear a sheep
play the accordion with both hands
whistle with two fingers
catch trout in a mountain stream
what to wear at a funeral
braise short ribs in the oven
lay tiles on an uneven floor
learn to juggle five balls
unclog the kitchen sink
wax my skis for cold snow
brew beer in the garage
massage a stiff neck
feed a stray kitten
hang a heavy mirror on drywall
smoke a side of salmon
patch the hole in my bicycle tyre
pick the ripest melon at the market
soothe a teething baby
dance the tango with my wife
keep bees on a roof
split firewood with an axe
pitch a tent in the wind
""".strip().split("\n")

Row = dict[str, float]


def main() -> None:
    """Measure and print."""
    options = _options()
    sets = read_sets(Path(options.retrieval)) if options.retrieval else [generated_set()]
    fleet = Catalogues(options.fleet, None).of(SMALL)
    found = {one.name: _curves(one, options.queries) for one in sets}
    print(f"\nRequests whose tool is among the first {TOP}, and the same with their tools taken out\n")
    print(_table(found), flush=True)
    strange = _strange(fleet)
    print(f"\n{len(OTHER_WORLD)} requests from another world, {sum(map(len, fleet.values())):,} tools\n")
    print(_strange_table(strange), flush=True)
    print(json.dumps({"bench": "doubt", "sets": found, "other world": strange}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retrieval", default=os.environ.get("PORTICO_RETRIEVAL_SETS"), help="a folder of sets")
    parser.add_argument("--fleet", default=os.environ.get("PORTICO_FLEET_DEFINITIONS"), help="real definitions")
    parser.add_argument("--queries", type=int, default=QUERIES, help="at most, of each set")
    return parser.parse_args()


def _filled(servers: Mapping[str, Sequence[Mapping[str, object]]]) -> Catalog:
    catalog = Catalog()
    for server, tools in servers.items():
        catalog.add_tools(server, tools, lambda name, arguments: None)
    return catalog


def _curves(one: RetrievalSet, count: int) -> dict[str, Row]:
    """For each pair of thresholds, the shares of right answers in doubt, and of missing tools that are noticed."""
    servers: dict[str, list[Mapping[str, object]]] = {}
    for tool in one.tools:
        servers.setdefault(tool.server, []).append(tool.definition)
    catalog = _filled(servers)
    ids = {tool.id: ToolId(tool.server, tool.definition["name"]) for tool in one.tools}
    questions = random.Random(5).sample(list(one.questions), k=min(count, len(one.questions)))
    found: dict[str, Row] = {}
    for refused, doubted in zip(REFUSED, DOUBTED, strict=True):
        ranking.REFUSED, ranking.DOUBTED = refused, doubted
        found[f"{refused} / {doubted}"] = _row(catalog, questions, ids)
    return found


def _row(catalog: Catalog, questions: Sequence[Question], ids: Mapping[str, ToolId]) -> Row:
    everything = frozenset(catalog.gateway.snapshot.tools)
    index = catalog.gateway.publisher.current.index
    right: list[Findings] = []
    without: list[Findings] = []
    for question in questions:
        wanted = {ids[id] for need in question.needs for id in need}
        answer = index.query(question.text, within=everything, limit=TOP)
        if any(hit.tool.id in wanted for hit in answer.hits):
            right.append(answer)
        without.append(index.query(question.text, within=everything - wanted, limit=TOP))
    return {
        "hidden": _share(right, lambda one: not one.fits),
        "right and weak": _share(right, lambda one: one.fits and one.weak),
        "taken out: refused": _share(without, lambda one: not one.fits),
        "taken out: refused or weak": _share(without, lambda one: not one.fits or one.weak),
    }


def _share(answers: Sequence[Findings], holds: Callable[[Findings], bool]) -> float:
    return round(sum(map(holds, answers)) / max(len(answers), 1), 4)


def _strange(fleet: Mapping[str, Sequence[Mapping[str, object]]]) -> dict[str, Row]:
    catalog = _filled(fleet)
    found: dict[str, Row] = {}
    for refused, doubted in zip(REFUSED, DOUBTED, strict=True):
        ranking.REFUSED, ranking.DOUBTED = refused, doubted
        answers = [catalog.search(text) for text in OTHER_WORLD]
        found[f"{refused} / {doubted}"] = {
            "refused": sum(not one.fits for one in answers) / len(answers),
            "refused or weak": sum(not one.fits or one.weak for one in answers) / len(answers),
        }
    return found


def _table(found: Mapping[str, Mapping[str, Row]]) -> str:
    lines = ["| refused below / weak below | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for pair in next(iter(found.values())):
        cells = [" / ".join(f"{value:.1%}" for value in own[pair].values()) for own in found.values()]
        lines.append(f"| {pair} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "Each cell: right but hidden / right but weak / taken out, refused / ... or weak."])


def _strange_table(found: Mapping[str, Row]) -> str:
    lines = ["| refused below / weak below | refused | refused or weak |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {pair} | {row['refused']:.0%} | {row['refused or weak']:.0%} |" for pair, row in found.items())]
    )


if __name__ == "__main__":
    main()
