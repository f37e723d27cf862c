"""Where things are remembered, and how carefully: the keys `store` and `journal`."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from .documents import Document
from .fields import Fields
from .paths import absolute
from .settings import JOURNALS, STORES, JournalSettings

KEYS = ("mode", "keep_days", "buffer", "wait_s")
_POSTGRES = re.compile(r"(?:postgres|postgresql)(?:\+\w+)?://", re.IGNORECASE)
_SQLITE = re.compile(r"sqlite://", re.IGNORECASE)
_ADVICE = "Write sqlite, memory, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE."


def read_store(fields: Fields, document: Document) -> str:
    """The store that a config asks for; empty when it asks for none. No message ever shows what was written.

    What follows `sqlite:///` is a path as it is, here and for whoever opens it: no letter of it has another meaning.

    Raises:
        ConfigError: it cannot be used; to remember things in another place than was asked for would hide them.
    """
    text = fields.text("store").strip()
    problem = "" if "store" not in fields.table or fields.table["store"] is None else _problem(text)
    if problem and fields.is_usable:
        fields.report(problem, "store", fix=_advice(problem))
    if not fields.is_usable:
        raise fields.problems[-1]
    if _POSTGRES.match(text):
        return _POSTGRES.sub("postgresql://", text, count=1)  # which driver speaks to it is not the config's choice
    if _SQLITE.match(text):
        file = absolute(text[len("sqlite:///") :], fields.variables.environ, document.file.absolute().parent)
        return f"sqlite:///{file.resolve()}"
    return text


def read_journal(fields: Fields) -> JournalSettings:
    """How the journal is kept: one word, or a table. What cannot be used is reported, and its default is in force."""
    if not isinstance(fields.table.get("journal"), dict):
        word = fields.choice("journal", among=JOURNALS)
        return JournalSettings(mode=word) if word else JournalSettings()
    fields.inner("journal", KEYS)
    defaults = JournalSettings()
    wait = fields.number("journal", "wait_s", above=0)
    return JournalSettings(
        mode=fields.choice("journal", "mode", among=JOURNALS) or defaults.mode,
        keep_days=fields.whole("journal", "keep_days", least=1, most=36_500) or defaults.keep_days,
        buffer=fields.whole("journal", "buffer", least=1, most=10_000_000) or defaults.buffer,
        wait_s=defaults.wait_s if wait is None else wait,
    )


def _problem(text: str) -> str:
    """What is wrong with a store, if anything is."""
    if text in STORES:
        return ""
    if _SQLITE.match(text):
        return "" if text[len("sqlite://") :].startswith("/") and _names_file(text) else "this names no file"
    if not _POSTGRES.match(text):
        return "this store is not known"
    try:
        parts = urlsplit(text)
        is_whole = parts.port != 0 and "@" not in parts.path and not parts.fragment and not re.search(r"\s", text)
    except ValueError:
        is_whole = False
    return "" if is_whole else "this address cannot be read"


def _names_file(text: str) -> bool:
    name = text[len("sqlite:///") :]
    return bool(name.strip("/ ")) and not name.startswith(":memory:") and not name.endswith("/")


def _advice(problem: str) -> str:
    if problem == "this names no file":
        return "Write sqlite:///FILE, with a file beside the config, or sqlite:////FOLDER/FILE; memory needs no file."
    if problem == "this address cannot be read":
        return "Write signs such as / @ : # ? % in a user or a password as %2F %40 %3A %23 %3F %25."
    return _ADVICE
