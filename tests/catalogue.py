"""A large catalogue that looks like the real ones, for tests of size: the same seed gives the same tools."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Definition = dict[str, Any]
Schema = dict[str, Any]

FLEET_VARIABLE = "PORTICO_FLEET_DEFINITIONS"
"""Names a file with the definitions of real servers, for those who have one."""

_DOMAINS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "code": ("source code hosting", ("repository", "branch", "pull_request", "commit", "release", "code_review")),
    "issues": ("issue tracking", ("issue", "sprint", "epic", "backlog_item", "worklog", "board")),
    "chat": ("team chat", ("channel", "message", "thread", "reaction", "user_group", "reminder")),
    "mail": ("e-mail", ("message", "mailbox", "label", "draft", "attachment", "filter_rule")),
    "calendar": ("calendars", ("event", "meeting_room", "attendee", "free_slot", "recurring_event", "calendar")),
    "files": ("file storage", ("file", "folder", "share_link", "file_version", "permission", "upload_session")),
    "database": ("SQL databases", ("table", "query", "index", "schema", "view", "stored_procedure")),
    "cloud": ("cloud infrastructure", ("instance", "load_balancer", "security_group", "volume", "snapshot", "subnet")),
    "cluster": ("container clusters", ("pod", "deployment", "namespace", "config_map", "node", "ingress")),
    "monitoring": ("monitoring", ("alert", "dashboard", "metric", "log_stream", "incident", "trace")),
    "crm": ("customer relations", ("contact", "lead", "opportunity", "account", "campaign", "pipeline_stage")),
    "billing": ("billing", ("invoice", "subscription", "payment", "refund", "coupon", "price_plan")),
    "docs": ("wikis and documents", ("page", "document", "comment", "template", "space", "revision")),
    "browser": ("browser automation", ("tab", "form_field", "screenshot", "cookie", "network_request", "element")),
    "maps": ("maps and travel", ("route", "place", "geocode", "distance_matrix", "elevation", "timezone")),
    "people": ("human resources", ("employee", "leave_request", "payslip", "job_opening", "candidate", "review_cycle")),
    "shop": ("e-commerce", ("product", "order", "shipment", "inventory_item", "customer", "discount_code")),
    "search": (
        "search and retrieval",
        ("collection", "vector", "document_chunk", "synonym_set", "ranking_rule", "facet"),
    ),
    "media": ("images and video", ("image", "video", "transcript", "thumbnail", "caption_track", "playlist")),
    "security": ("security", ("vulnerability", "secret", "access_token", "audit_entry", "policy", "certificate")),
}

_VERBS: Mapping[str, tuple[str, Mapping[str, bool]]] = {
    "get": ("Get one {noun} by its identifier", {"readOnlyHint": True}),
    "list": ("List the {nouns} that you can see", {"readOnlyHint": True}),
    "search": ("Search {nouns} by text and filters", {"readOnlyHint": True}),
    "count": ("Count the {nouns} that match a filter", {"readOnlyHint": True}),
    "export": ("Export {nouns} to a file", {"readOnlyHint": True}),
    "create": ("Create a new {noun}", {"readOnlyHint": False, "destructiveHint": False}),
    "update": ("Update fields of an existing {noun}", {"readOnlyHint": False, "idempotentHint": True}),
    "copy": ("Make a copy of a {noun}", {"readOnlyHint": False, "destructiveHint": False}),
    "move": ("Move a {noun} to another place", {"readOnlyHint": False, "idempotentHint": True}),
    "assign": ("Assign a {noun} to a person or team", {"readOnlyHint": False, "idempotentHint": True}),
    "archive": ("Archive a {noun} so that it is hidden but kept", {"readOnlyHint": False, "idempotentHint": True}),
    "delete": ("Delete a {noun} for good", {"readOnlyHint": False, "destructiveHint": True}),
    "validate": ("Check a {noun} without saving it", {"readOnlyHint": True}),
    "watch": ("Watch a {noun} and report what changes", {"readOnlyHint": False}),
    "compare": ("Compare two {nouns} and show the differences", {"readOnlyHint": True}),
}

_REMARKS = (
    "Results come in pages; pass the cursor of the last page to get the next one.",
    "You need write access to the {domain} workspace.",
    "Returns the {noun} with all of its fields.",
    "Use this when the user mentions a {noun} by name rather than by identifier.",
    "Large results are shortened unless the limit is set.",
    "Fails when the {noun} is locked by someone else.",
    "Times are in UTC and written as ISO 8601.",
    "This is slower than it looks: prefer one call with many identifiers over many calls.",
)

_ENUMS = (
    ("open", "closed", "all"),
    ("asc", "desc"),
    ("low", "medium", "high", "urgent"),
    ("json", "csv", "markdown"),
    ("private", "internal", "public"),
    ("created", "updated", "name", "size"),
)


def _text(rng: random.Random, noun: str) -> Schema:
    about = rng.choice(("Identifier", "Name", "Title", "Free text", "Owner", "Path", "Reason"))
    return {"type": "string", "description": f"{about} of the {noun}"}


def _choice(rng: random.Random, noun: str) -> Schema:
    values = rng.choice(_ENUMS)
    return {"type": "string", "enum": list(values), "default": values[0], "description": f"Which {noun} values to use"}


def _number(rng: random.Random, noun: str) -> Schema:
    top = rng.choice((10, 50, 100, 1000))
    return {"type": "integer", "minimum": 1, "maximum": top, "default": top // 2, "description": f"Most {noun} entries"}


def _flag(rng: random.Random, noun: str) -> Schema:
    return {"type": "boolean", "default": rng.random() < 0.5, "description": f"Whether to include the {noun} history"}


def _list(rng: random.Random, noun: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": f"Labels or identifiers of the {noun}"}


def _nested(rng: random.Random, noun: str) -> Schema:
    makers = rng.choices((_text, _choice, _number, _flag, _list), k=rng.randint(2, 4))
    inner = {f"{noun}_{index}" if index else "field": make(rng, noun) for index, make in enumerate(makers)}
    return {
        "type": "object",
        "properties": inner,
        "required": ["field"],
        "additionalProperties": False,
        "description": f"Conditions on the {noun}, all of which must hold",
    }


_PARAMETERS: Mapping[str, Callable[[random.Random, str], Schema]] = {
    "id": _text,
    "name": _text,
    "query": _text,
    "owner": _text,
    "description": _text,
    "since": lambda rng, noun: {
        "type": "string",
        "format": "date-time",
        "description": f"Only {noun} changes after this",
    },
    "limit": _number,
    "page_size": _number,
    "sort": _choice,
    "state": _choice,
    "format": _choice,
    "labels": _list,
    "ids": _list,
    "filter": _nested,
    "options": _nested,
    "target": lambda rng, noun: {
        "anyOf": [{"type": "string"}, {"type": "integer"}],
        "description": f"Where the {noun} goes",
    },
    "dry_run": _flag,
    "include_archived": _flag,
    "notify": _flag,
    "weight": lambda rng, noun: {"type": "number", "description": f"Weight of the {noun} between 0 and 1"},
}


def generate(
    servers: int = 100, tools: int = 2000, seed: int = 7, tokens: int | None = None
) -> dict[str, list[Definition]]:
    """Make a catalogue: server name -> tool definitions as `tools/list` would give them.

    With `tokens`, descriptions are made longer until the whole comes near that many (it can only grow).
    """
    if not 0 < servers <= tools:
        raise ValueError(f"cannot spread {tools} tools over {servers} servers")
    rng = random.Random(seed)
    names = [_server_name(index) for index in range(servers)]
    shares = _shares(rng, servers, tools)
    found = {
        name: _server_tools(rng, index, share) for index, (name, share) in enumerate(zip(names, shares, strict=True))
    }
    if tokens:
        _lengthen(rng, found, tokens)
    return found


def count_tokens(definitions: Mapping[str, list[Definition]]) -> int:
    """Estimate the tokens of a catalogue as compact JSON; within about 3 % of o200k on real definitions."""
    return round(sum(_tokens(tool) for listed in definitions.values() for tool in listed))


def load_fleet(path: str | Path | None = None) -> dict[str, list[Definition]] | None:
    """Read the definitions of real servers from a file, by argument or environment; None when neither names one."""
    chosen = path or os.environ.get(FLEET_VARIABLE)
    if not chosen:
        return None
    recorded = json.loads(Path(chosen).read_text(encoding="utf-8"))
    return {server: entry["tools"] for server, entry in recorded.items()}


def _server_name(index: int) -> str:
    domain = list(_DOMAINS)[index % len(_DOMAINS)]
    return domain if index < len(_DOMAINS) else f"{domain}-{index // len(_DOMAINS) + 1}"


def _shares(rng: random.Random, servers: int, tools: int) -> list[int]:
    """Sizes like those of real servers: many small ones, a few very large."""
    weights = [rng.lognormvariate(0, 0.8) for _ in range(servers)]
    shares = [1 + int((tools - servers) * weight / sum(weights)) for weight in weights]
    for index in range(tools - sum(shares)):
        shares[index % servers] += 1
    return shares


def _server_tools(rng: random.Random, server: int, count: int) -> list[Definition]:
    domain, nouns = _DOMAINS[list(_DOMAINS)[server % len(_DOMAINS)]]
    pairs = [(verb, noun) for noun in nouns for verb in _VERBS]
    rng.shuffle(pairs)
    # A server with more tools than pairs has variants, as real ones do (`get_issue`, `get_issue_v2`).
    style = rng.choice(("{verb}_{noun}", "{verb}-{noun}", "{noun}_{verb}"))
    found = []
    for number in range(count):
        (verb, noun), variant = pairs[number % len(pairs)], number // len(pairs)
        name = style.format(verb=verb, noun=noun) + (f"_v{variant + 1}" if variant else "")
        found.append(_tool(rng, name=name, verb=verb, noun=noun.replace("_", " "), domain=domain))
    return found


def _tool(rng: random.Random, *, name: str, verb: str, noun: str, domain: str) -> Definition:
    sentence, annotations = _VERBS[verb]
    remarks = rng.sample(_REMARKS, k=rng.choice((0, 0, 1, 1, 2, 3)))
    first = sentence.format(noun=noun, nouns=_plural(noun))
    description = " ".join([f"{first} in {domain}.", *(remark.format(noun=noun, domain=domain) for remark in remarks)])
    tool: Definition = {"name": name, "description": description, "inputSchema": _schema(rng, noun)}
    if rng.random() < 0.6:
        tool["annotations"] = {"title": name.replace("_", " ").replace("-", " ").capitalize(), **annotations}
    return tool


def _schema(rng: random.Random, noun: str) -> Schema:
    count = min(12, int(rng.expovariate(1 / 4)))
    chosen = rng.sample(list(_PARAMETERS), k=count)
    properties = {name: _PARAMETERS[name](rng, noun) for name in chosen}
    required = [name for name in chosen if "default" not in properties[name]][: rng.randint(0, 3)]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _lengthen(rng: random.Random, definitions: Mapping[str, list[Definition]], tokens: int) -> None:
    flat = [tool for listed in definitions.values() for tool in listed]
    missing = tokens - count_tokens(definitions)
    while missing > 0:
        tool, remark = rng.choice(flat), rng.choice(_REMARKS).format(noun="item", domain="same")
        tool["description"] += f" {remark}"
        missing -= round(len(_WORDS.findall(remark)) * 0.965)


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")


_WORDS = re.compile(r"[A-Za-z]{1,7}|\d{1,3}|[^\sA-Za-z\d]+")


def _tokens(tool: Definition) -> float:
    return len(_WORDS.findall(json.dumps(tool, separators=(",", ":"), ensure_ascii=False))) * 0.965
