"""Second forms of a query, derived without chance: the sentence as a request, or only its key words."""

import hashlib
import re
from typing import Any

Row = dict[str, Any]

VERBS = """
abort accept access acquire activate add adjust allocate analyze annotate append apply approve archive assign
associate attach authenticate authorize backup batch begin bind block book browse build bulk calculate call cancel
capture change check choose classify clean clear click clone close cluster collect combine compare compile complete
compress compute configure confirm connect construct convert copy count crawl create crop cut debug decode decrypt
define delete deliver deploy describe deregister destroy detach detect determine diff disable disassociate discover
display divide download draw drop dump duplicate edit embed enable encode encrypt end enqueue ensure estimate evaluate
examine exclude execute expand export extend extract fetch fill filter find fit flag flush follow force format forward
generate get give grant group hide identify import include index infer insert inspect install interpolate invite
invoke issue join keep kill launch link list load locate lock log look loop make map mark mask match measure merge
migrate modify monitor mount move mute navigate normalize notify obtain offer open optimize order pack parse partition
pause perform pick pin play plot poll post predict prepare preview print process produce promote provide provision
publish pull purge push put query quote raise read rebuild recognize reboot receive recommend record recover redirect
reduce refresh refund register reject release reload remove rename render reorder replace reply report request require
reserve reset resize resolve restart restore restrict resume retrieve retry return reverse revert revoke rollback
rotate round run sample save scale scan schedule score scrape scroll search select send serve set share shift show
shuffle shut sign simulate skip sleep snapshot solve sort specify split stage start stop store stream submit subscribe
suggest sum summarize suspend swap switch sync synchronize tag take tell terminate test tokenize track train
transcribe transfer transform translate transpose trigger trim truncate turn type unarchive unassign unblock undo
uninstall unlink unlock unpack unpin unregister unsubscribe untag update upgrade upload use validate verify view
visualize wait watch withdraw wrap write zip
""".split()

OPENINGS = (
    "I need to {}",
    "how do I {}",
    "can you {}",
    "I want to {}",
    "please {}",
    "help me {}",
    "{}",
    "we should {}",
    "is there a way to {}",
)
SYNONYMS = {
    "get": ("fetch", "look up", "show me", "find"),
    "retrieve": ("get", "fetch", "look up", "pull up"),
    "return": ("get", "give me", "find"),
    "fetch": ("get", "download", "pull"),
    "list": ("show all", "show me", "enumerate", "see"),
    "describe": ("show details of", "get information about", "tell me about"),
    "create": ("make", "add", "set up", "start"),
    "delete": ("remove", "get rid of", "drop"),
    "remove": ("delete", "take away", "get rid of"),
    "update": ("change", "edit", "modify"),
    "modify": ("change", "edit", "update"),
    "set": ("change", "configure"),
    "compute": ("calculate", "work out"),
    "calculate": ("compute", "work out"),
    "check": ("verify", "find out", "see"),
    "send": ("post", "deliver"),
    "search": ("look", "query"),
    "start": ("launch", "begin", "kick off"),
    "stop": ("end", "halt"),
    "add": ("put in", "insert", "attach"),
    "convert": ("turn", "transform"),
    "read": ("load", "open"),
    "write": ("save", "store"),
    "generate": ("make", "produce"),
    "display": ("show",),
    "execute": ("run",),
}
LITERALS = {
    "path": "/home/ana/report.csv",
    "file": "notes.txt",
    "filename": "budget_2024.xlsx",
    "url": "https://example.com/page",
    "email": "ana@example.com",
    "id": "4711",
    "name": "'alpha'",
    "date": "2024-05-17",
    "user": "@maria",
    "username": "jsmith",
    "city": "Lisbon",
    "query": '"quarterly revenue"',
    "text": '"hello world"',
    "title": '"Q3 planning"',
    "channel": "#general",
    "symbol": "AAPL",
    "country": "Brazil",
    "bucket": "my-bucket",
    "repository": "acme/website",
    "repo": "acme/website",
    "project": "Apollo",
    "limit": "10",
    "region": "eu-west-1",
    "address": "12 Main Street",
    "phone": "+1 555 0100",
    "language": "French",
    "currency": "EUR",
    "table": "orders",
    "database": "sales",
    "host": "10.0.0.5",
    "port": "8080",
}
STOP = set(
    """
a an the of to in on for with by from and or as at is are be was it its this that these those you your can will any all
given specified using use which if into not one more than has have where when provided such based via per each new only
returns return gets
""".split()
)

_GIVEN = re.compile(
    r"\b(?:the|a|an) (?:specified|given|provided|supplied|requested|particular|existing|current)\s+", re.I
)
_TAIL = re.compile(r"\s*\([^)]*\)|[.!?]+$")


def second_form(row: Row) -> Row | None:
    """Return another form of two pairs in five, or None."""
    draw = _draw(row)
    if draw % 10 >= 4:
        return None
    form = "keywords" if draw % 10 == 3 else "request"
    query = _keywords(row["query"]) if form == "keywords" else _request(row, draw // 10)
    return {**row, "query": query, "form": form} if query and query.lower() != row["query"].lower() else None


def _draw(row: Row) -> int:
    return int.from_bytes(hashlib.md5(f"{row['server']}|{row['name']}|{row['query']}".encode()).digest()[:6], "big")


def _keywords(sentence: str) -> str:
    words = re.findall(r"[A-Za-z][A-Za-z0-9-]+", sentence)
    kept = list(dict.fromkeys(word.lower() for word in words if word.lower() not in STOP))
    return " ".join(kept[:6]) if len(kept) >= 2 else ""


def _request(row: Row, draw: int) -> str:
    first, _, rest = _TAIL.sub("", row["query"]).partition(" ")
    if (verb := imperative(first)) is None:
        return ""
    choices = (verb, *SYNONYMS.get(verb, ()))
    rest = _GIVEN.sub(lambda _: ("my ", "the ", "a ", "this ")[draw // 7 % 4], rest)
    request = OPENINGS[draw % len(OPENINGS)].format(f"{choices[draw // 11 % len(choices)]} {rest}")
    request += _literal(row["parameters"], draw // 13)
    return f"{request} in {row['server']}" if "/" in row["source"] and draw // 17 % 3 == 0 else request


def imperative(word: str) -> str | None:
    """Return the verb that a sentence begins with, as one would command it, or None when it begins otherwise."""
    lower = word.lower()
    return next(
        (
            form
            for form in (lower, lower[:-1], lower[:-2], f"{lower[:-3]}y")
            if form in _KNOWN and _is_form(lower, form)
        ),
        None,
    )


def _is_form(word: str, verb: str) -> bool:
    return word in (verb, f"{verb}s", f"{verb}es") or (verb.endswith("y") and word == f"{verb[:-1]}ies")


def _literal(parameters: list[str], draw: int) -> str:
    """Name the value of one parameter in a third of the requests, as people do."""
    if draw % 3:
        return ""
    for parameter in parameters:
        last = re.split(r"[_\W]|(?<=[a-z])(?=[A-Z])", parameter)[-1].lower()
        if value := LITERALS.get(last):
            return f" {('for', 'with', 'using', '-')[draw // 3 % 4]} {value}"
    return ""


_KNOWN = frozenset(VERBS)
