"""Runs that the project makes itself: tasks over the generated catalogue, searched for in the words that agents use."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bench.retrieval import verb_and_noun
from tests.catalogue import Definition, generate

TASKS = 60
NEEDS = (1, 2, 3, 2)
"""How many things the tasks need, in turn."""
ASKED_AGAIN = 4
"""Each fourth need is asked for a second time in other words."""
OTHER_NAMES = 0.5
"""How often a thing is called by another name than its tools have, where there is one."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "get": ("get {noun} details", "pull up one {noun}", "read a {noun}", "what does this {noun} say"),
    "list": ("list {noun}", "what is there in the way of {noun}", "all {noun} in the workspace", "{noun} overview"),
    "search": ("search {noun}", "find {noun} by keyword", "{noun} that mention a word", "{noun} query text filter"),
    "count": ("count {noun}", "number of {noun}", "how many {noun} are there", "{noun} total"),
    "export": (
        "export {noun}",
        "download {noun} as csv",
        "get the {noun} out into a spreadsheet",
        "dump {noun} to disk",
    ),
    "create": ("create {noun}", "add {noun}", "set up a new {noun}", "{noun} for the user, a fresh one"),
    "update": ("update {noun}", "edit {noun} fields", "correct a mistake in the {noun}", "modify {noun} properties"),
    "copy": ("copy {noun}", "duplicate {noun}", "use this {noun} as a template for another one", "clone {noun}"),
    "move": ("move {noun}", "put {noun} elsewhere", "this {noun} is in the wrong place", "transfer {noun}"),
    "assign": (
        "assign {noun}",
        "hand {noun} to a colleague",
        "who takes care of the {noun}: set it",
        "{noun} set owner",
    ),
    "archive": ("archive {noun}", "hide {noun} that are done", "put {noun} away without losing it", "retire {noun}"),
    "delete": ("delete {noun}", "remove {noun} for good", "the {noun} has to go", "clean up {noun}"),
    "validate": ("validate {noun}", "check {noun} before saving", "is the {noun} correct", "dry run of {noun}"),
    "watch": ("watch {noun}", "tell me when {noun} change", "follow {noun}", "subscribe to {noun}"),
    "compare": ("compare {noun}", "{noun} diff", "what is different between these {noun}", "{noun} side by side"),
}
"""How agents say what a tool of the catalogue does."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "repository": ("repo", "code base"),
    "pull request": ("PR", "merge request"),
    "issue": ("ticket", "bug report"),
    "worklog": ("time entry", "hours worked"),
    "channel": ("chat room",),
    "message": ("mail", "chat post"),
    "mailbox": ("inbox",),
    "attachment": ("file in a mail",),
    "event": ("meeting", "appointment"),
    "attendee": ("guest", "participant"),
    "meeting room": ("conference room",),
    "folder": ("directory",),
    "permission": ("access right",),
    "share link": ("public link",),
    "stored procedure": ("database function",),
    "instance": ("virtual machine", "server"),
    "security group": ("firewall rule",),
    "volume": ("disk",),
    "pod": ("container",),
    "ingress": ("HTTP route",),
    "alert": ("alarm",),
    "incident": ("outage",),
    "lead": ("prospect",),
    "opportunity": ("deal",),
    "invoice": ("bill",),
    "refund": ("money back",),
    "coupon": ("voucher",),
    "price plan": ("tariff",),
    "revision": ("version of a page",),
    "screenshot": ("picture of the page",),
    "element": ("button",),
    "route": ("way to drive",),
    "geocode": ("coordinates of an address",),
    "employee": ("staff member",),
    "leave request": ("vacation",),
    "payslip": ("salary statement",),
    "job opening": ("vacancy",),
    "candidate": ("applicant",),
    "shipment": ("parcel",),
    "inventory item": ("stock",),
    "discount code": ("voucher",),
    "image": ("photo",),
    "video": ("clip",),
    "transcript": ("spoken text",),
    "thumbnail": ("preview picture",),
    "vulnerability": ("security hole",),
    "certificate": ("TLS cert",),
    "audit entry": ("log of who did what",),
}
"""Other names for the things that the tools are about."""

FORMS = ("{said}", "{said}", "{said} in {where}", "{where}: {said}", "tool to {said}", "I was asked: {said}")


def made_catalogue() -> dict[str, list[Definition]]:
    """The tools that the runs are over."""
    return generate(26, 538)


def made_rows(seed: int = 23) -> Iterator[dict[str, Any]]:
    """The lines of the trace, the same every time."""
    rng = random.Random(seed)
    alike: dict[tuple[str, str], list[tuple[str, Definition]]] = {}
    for server, tools in made_catalogue().items():
        for tool in tools:
            alike.setdefault(verb_and_noun(tool["name"]), []).append((server, tool))
    asked = 0
    for number in range(TASKS):
        searches, wanted = list[dict[str, Any]](), list[Any]()
        for need in rng.sample(sorted(alike), k=NEEDS[number % len(NEEDS)]):
            asked += 1
            names = [f"{server}::{tool['name']}" for server, tool in alike[need]]
            wanted.append(names if len(names) > 1 else names[0])
            queries = _queries(rng, need, _domain(alike[need][0][1]), 2 if asked % ASKED_AGAIN == 0 else 1)
            searches += [{"query": query, "wanted": [wanted[-1]]} for query in queries]
        yield {"task": f"made {number + 1}", "searches": searches, "wanted": wanted}


def _queries(rng: random.Random, need: tuple[str, str], where: str, count: int) -> Iterator[str]:
    verb, noun = need
    for said in rng.sample(WORDS[verb], k=count):
        name = rng.choice(NAMES[noun]) if noun in NAMES and rng.random() < OTHER_NAMES else noun
        yield rng.choice(FORMS).format(said=said.format(noun=name), where=where)


def _domain(tool: Definition) -> str:
    """What the description says the tool is about, at the end of its first sentence."""
    found = re.search(r" in ([^.]+)\.", tool["description"])
    return found[1] if found else "our workspace"
