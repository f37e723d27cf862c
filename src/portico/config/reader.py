"""Tables of a config file, read field by field; what does not fit is reported with its place."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from portico.documents.document import Document
from portico.documents.tree import Spelled, TreePath
from portico.domain.call import ResultLimits, ScriptLimits
from portico.domain.server import HttpLimits, HttpSettings
from portico.errors import ConfigError

from .settings import (
    JOURNALS,
    LOG_FORMATS,
    LOG_LEVELS,
    QUESTION_SECONDS,
    STORES,
    JournalSettings,
    LogSettings,
    ScriptSettings,
    Semantic,
    absolute,
)
from .variables import Variables

SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""What a switch may say."""


def is_address(url: str) -> bool:
    """Whether this is an http or https address with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not _SPACE.search(url)
    except ValueError:
        return False


_SPACE = re.compile(r"\s")


class Fields:
    """A table with the place of each of its fields; collects every problem instead of stopping at the first."""

    def __init__(
        self,
        table: Mapping[str, Any],
        *,
        document: Document,
        path: TreePath,
        variables: Variables,
        moved: Mapping[TreePath, TreePath] | None = None,
    ) -> None:
        self.table, self.variables = table, variables
        self.problems: list[ConfigError] = []
        self.is_usable = True
        self._document, self._path, self._moved = document, path, moved or {}

    def report(self, problem: str, *field: str | int, fix: str, fatal: bool = True) -> None:
        """Note a problem with one field; the table is of no use after a fatal one."""
        self.problems.append(self._document.error(problem, self._place(field), fix=fix))
        self.is_usable = self.is_usable and not fatal

    def text(self, field: str) -> str:
        """A field that is text, expanded; empty when it is absent."""
        value = self.table.get(field)
        if value is None:
            return ""
        if not isinstance(value, str) or isinstance(value, Spelled):
            self.report("this must be text", field, fix="Write one text in quotes.")
            return ""
        return self.expand(value, field)

    def texts(self, *field: str) -> tuple[str, ...]:
        """A field that is a list of texts; numbers and switches stay as they were spelled."""
        value = self._value(field)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.report("this must be a list", *field, fix='Write a list, as in ["one", "two"].')
            return ()
        return tuple(self._scalar(item, *field, index) for index, item in enumerate(value))

    def pairs(self, field: str) -> dict[str, str]:
        """A field that is a table of texts; a key without a value is left out."""
        value = self.table.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.report("this must be a table of names and texts", field, fix='Write it as {NAME: "value"}.')
            return {}
        return {key: self._scalar(item, field, key) for key, item in value.items() if item is not None}

    def inner(self, field: str, known: Iterable[str]) -> Mapping[str, Any]:
        """A field that is a table with a fixed set of keys."""
        value = self.table.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            names = ", ".join(known)
            self.report("this must be a table", field, fix=f"Write it as a table with some of: {names}.")
            return {}
        for key in value:
            if key not in known:
                self.report("this key is not known", field, key, fix=meant(key, known))
        return value

    def switch(self, field: str) -> bool | None:
        """A field that is true or false."""
        value = self.table.get(field)
        if value is None:
            return None
        found = SWITCHES.get(self.expand(value, field).casefold()) if isinstance(value, str) else None
        if found is None:
            self.report("this must be true or false", field, fix="Write true or false, without quotes.")
        return found

    def number(self, *field: str, least: float = 0, above: float | None = None) -> float | None:
        """A field that is a finite number within its bounds."""
        value = self._value(field)
        if value is None:
            return None
        found = _number(self.expand(value, *field)) if isinstance(value, str) else None
        if found is None or found < least or (above is not None and found <= above):
            bound = f"above {above:g}" if above is not None else f"of at least {least:g}"
            self.report(f"this must be a number {bound}", *field, fix="Write a plain number, such as 30.")
            return None
        return found

    def whole(self, *field: str, least: int, most: int) -> int | None:
        """A field that is a whole number within its bounds."""
        value = self._value(field)
        if value is None:
            return None
        found = _number(self.expand(value, *field)) if isinstance(value, str) else None
        if found is None or not found.is_integer() or not least <= found <= most:
            self.report("this is not a usable number", *field, fix=f"Write a whole number from {least} to {most}.")
            return None
        return int(found)

    def choice(self, *field: str, among: Iterable[str]) -> str:
        """A field that is one of a few words; empty when it is absent."""
        value = self._value(field)
        if value is None:
            return ""
        found = self.expand(value, *field).strip() if isinstance(value, str) else ""
        if found not in among:
            self.report("this word is not known here", *field, fix=meant(found, among))
            return ""
        return found

    def expand(self, value: str, *field: str | int) -> str:
        """A text with its variables in place; empty, and a problem, when one is missing."""
        try:
            text = self.variables.expand(str(value))
        except ConfigError as error:
            self.report(error.problem, *field, fix=error.fix)
            return ""
        if "\0" in text:
            self.report("this text holds a zero byte", *field, fix="Delete it.")
            return ""
        return text

    def _scalar(self, value: Any, *field: str | int) -> str:
        if isinstance(value, str):
            return self.expand(value, *field)
        self.report("this must be one text", *field, fix="Write one text in quotes.")
        return ""

    def _value(self, field: tuple[str, ...]) -> Any:
        value: Any = self.table
        for part in field:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _place(self, field: TreePath) -> TreePath:
        for length in range(len(field), 0, -1):
            if (origin := self._moved.get(field[:length])) is not None:
                return (*self._path, *origin, *field[length:])
        return (*self._path, *field)


def meant(key: str, known: Iterable[str]) -> str:
    """The fix for a name that is not known: the nearest that is, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.7)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(names)}."


def _number(text: str) -> float | None:
    try:
        found = float(text.strip())
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def read_log(fields: Fields) -> LogSettings:
    """The level and the format; empty where nothing is said."""
    fields.inner("log", ("level", "format"))
    return LogSettings(
        level=fields.choice("log", "level", among=LOG_LEVELS),
        format=fields.choice("log", "format", among=LOG_FORMATS),
    )


def read_sources(fields: Fields, key: str) -> tuple[str, ...]:
    """Modules, paths or patterns of paths, each once and in their order; what they name is looked up later."""
    found: dict[str, None] = {}
    for index, text in enumerate(fields.texts(key)):
        if text.strip():
            found[text.strip()] = None
        elif not str(fields.table[key][index] or "").strip():
            fields.report("this is empty", key, index, fix="Write a module or a path, or delete it.", fatal=False)
    return tuple(found)


RESULTS_KEYS = ("tokens", "expire_s", "memory_mb", "store_mb")
LEAST_TOKENS, MOST_TOKENS = 500, 10_000_000


def read_results(fields: Fields) -> ResultLimits:
    """The limits of results; what cannot be used is reported, and its default is in force."""
    fields.inner("results", RESULTS_KEYS)
    defaults = ResultLimits()
    expire = fields.number("results", "expire_s", above=0)
    memory = fields.whole("results", "memory_mb", least=0, most=1_000_000)
    store = fields.whole("results", "store_mb", least=0, most=1_000_000)
    return ResultLimits(
        tokens=fields.whole("results", "tokens", least=LEAST_TOKENS, most=MOST_TOKENS) or defaults.tokens,
        expire_s=defaults.expire_s if expire is None else expire,
        memory_mb=defaults.memory_mb if memory is None else memory,
        store_mb=defaults.store_mb if store is None else store,
    )


BYTES = 16_000_000
"""The most that a script may have of each; beyond it a message between the processes would be too large."""
SCRIPTS_KEYS = tuple(
    found.name for kind in (ScriptLimits, ScriptSettings) for found in fields_of(kind) if found.name != "limits"
)


def read_scripts(fields: Fields) -> ScriptSettings:
    """Whether scripts may run, and within which limits; what cannot be used is reported, and its default holds."""
    fields.inner("scripts", SCRIPTS_KEYS)
    defaults = ScriptSettings()
    most = fields.number("scripts", "max_seconds", above=0) or defaults.max_seconds
    return ScriptSettings(
        enabled=_switch(fields, "enabled", defaults.enabled),
        limits=_limits(fields, defaults.limits, most),
        max_seconds=most,
        at_once=fields.whole("scripts", "at_once", least=1, most=1_000) or defaults.at_once,
        pool=fields.whole("scripts", "pool", least=1, most=100) or defaults.pool,
        require_hardening=_switch(fields, "require_hardening", defaults.require_hardening),
    )


def _limits(fields: Fields, defaults: ScriptLimits, most: float) -> ScriptLimits:
    usual = fields.number("scripts", "seconds", above=0) or min(defaults.seconds, most)
    if usual > most:
        fix = f"Write at most {most:g}, or raise scripts.max_seconds."
        fields.report("this is more than scripts.max_seconds", "scripts", "seconds", fix=fix)
        usual = most
    return ScriptLimits(
        seconds=usual,
        cpu_seconds=fields.number("scripts", "cpu_seconds", above=0) or defaults.cpu_seconds,
        memory_mb=fields.whole("scripts", "memory_mb", least=8, most=4_096) or defaults.memory_mb,
        calls=fields.whole("scripts", "calls", least=1, most=100_000) or defaults.calls,
        in_flight=fields.whole("scripts", "in_flight", least=1, most=1_000) or defaults.in_flight,
        output_bytes=fields.whole("scripts", "output_bytes", least=100, most=BYTES) or defaults.output_bytes,
        printed_bytes=fields.whole("scripts", "printed_bytes", least=100, most=BYTES) or defaults.printed_bytes,
        source_bytes=fields.whole("scripts", "source_bytes", least=100, most=BYTES) or defaults.source_bytes,
    )


def _switch(fields: Fields, key: str, default: bool) -> bool:
    table = fields.table.get("scripts")
    value = table.get(key) if isinstance(table, dict) else None
    if value is None:
        return default
    found = SWITCHES.get(fields.expand(value, "scripts", key).strip().casefold()) if isinstance(value, str) else None
    if found is None:
        fields.report("this must be true or false", "scripts", key, fix="Write true or false, without quotes.")
    return default if found is None else found


HTTP_KEYS = tuple(
    found.name for kind in (HttpSettings, HttpLimits) for found in fields_of(kind) if found.name != "limits"
)
HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{HOST.pattern}")
_WHOLE = {
    "max_body": (1_024, 1_073_741_824),
    "max_head": (1_024, 16_777_216),
    "body_memory_mb": (1, 1_000_000),
    "connections": (1, 1_000_000),
    "requests": (1, 1_000_000),
    "streams": (1, 1_000_000),
    "sessions": (1, 1_000_000),
}


def read_http(fields: Fields) -> HttpSettings:
    """The names and limits; what cannot be used is reported, and its default holds."""
    fields.inner("http", HTTP_KEYS)
    defaults = HttpLimits()
    found: dict[str, int | float] = {}
    for name in (entry.name for entry in fields_of(HttpLimits)):
        bounds = _WHOLE.get(name)
        value = (
            fields.whole("http", name, least=bounds[0], most=bounds[1])
            if bounds
            else fields.number("http", name, above=0)
        )
        found[name] = getattr(defaults, name) if value is None else value
    return HttpSettings(
        allowed_hosts=_names(fields, "allowed_hosts", HOST, _host_fix),
        allowed_origins=_names(fields, "allowed_origins", ORIGIN, _origin_fix),
        limits=HttpLimits(**found),  # type: ignore[arg-type]
    )


def _names(fields: Fields, key: str, pattern: re.Pattern[str], fix: Callable[[str], str]) -> tuple[str, ...]:
    """The names that fit; one that does not is reported, because a request would never match it."""
    good = []
    for number, text in enumerate(fields.texts("http", key)):
        name = text.strip().lower().rstrip("/" if key == "allowed_origins" else "")
        if pattern.fullmatch(name):
            good.append(name)
        elif text:
            fields.report("this cannot be the name of a host or a page", "http", key, number, fix=fix(text))
    return tuple(good)


def _host_fix(text: str) -> str:
    if "*" in text:
        return "Write each name out: a pattern would let web pages in that pretend to be this endpoint."
    return "Write a name as clients call it, such as portico.example.com or portico.example.com:8443."


def _origin_fix(text: str) -> str:
    if "*" in text:
        return "Write each page out: a pattern would let web pages in that nobody has chosen."
    return "Write it as browsers send it, such as https://app.example.com, without a path."


JOURNAL_KEYS = ("mode", "keep_days", "buffer", "wait_s")
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
    fields.inner("journal", JOURNAL_KEYS)
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


SEMANTIC_KEYS = ("url", "model", "key", "timeout_s")
LONGEST_SECONDS = 30.0


def read_semantic(top: Fields, document: Document) -> Semantic | None:
    """The embedder that a config asks for; None when it asks for none, or for one that cannot be used.

    No message ever shows a key or an address.
    """
    table = top.table.get("semantic")
    if table is None:
        return None
    if not isinstance(table, dict):
        top.report(
            "this must be a table", "semantic", fix=f"Write it as a table with some of: {', '.join(SEMANTIC_KEYS)}."
        )
        return None
    fields = Fields(table, document=document, path=("semantic",), variables=top.variables)
    for key in table:
        if key not in SEMANTIC_KEYS:
            fields.report("this key is not known", key, fix=meant(key, SEMANTIC_KEYS))
    url = _url(fields)
    found = Semantic(
        model=_model(fields, document, is_local=not url),
        url=url,
        key=_key(fields),
        timeout_s=_timeout(fields),
        line=document.line(("semantic", "model")),
    )
    top.problems += fields.problems
    return found if fields.is_usable else None


def _url(fields: Fields) -> str:
    url = fields.text("url").strip()
    if not url:
        if fields.table.get("url") is not None and fields.is_usable:
            fields.report("this is empty", "url", fix="Write the address, or delete the line for a local model.")
        return ""
    if not is_address(url) or not url.isascii():
        fields.report("this is not an http or https address", "url", fix="Write it as https://host/v1.")
    elif "@" in urlsplit(url).netloc:
        fields.report("this address holds a user or a password", "url", fix="Write the key under key.")
    return url


def _model(fields: Fields, document: Document, *, is_local: bool) -> str:
    model = fields.text("model").strip()
    if not model and fields.is_usable:
        fix = "Write the model's name, such as text-embedding-3-small, or the folder of a local model."
        fields.report("a model is needed", *(["model"] if "model" in fields.table else []), fix=fix)
    if is_local and model.startswith((".", "/", "~")):
        return str((document.file.absolute().parent / Path(model).expanduser()).resolve())
    return model


def _key(fields: Fields) -> str:
    key = fields.text("key").strip()
    if key and fields.table.get("url") is None:
        fields.report("a key is for an endpoint, and there is no url", "key", fix="Write the url, or delete the key.")
    if not key.isascii() or not key.isprintable() or " " in key:
        fix = "Write the key alone, without Bearer, spaces or line breaks."
        fields.report("this key cannot be sent in a header", "key", fix=fix)
    return key


def _timeout(fields: Fields) -> float:
    seconds = fields.number("timeout_s", above=0)
    if seconds is not None and seconds > LONGEST_SECONDS:
        fix = "Write seconds, such as 0.8: every search may wait this long."
        fields.report(f"this must be at most {LONGEST_SECONDS:g}", "timeout_s", fix=fix)
        return LONGEST_SECONDS
    return QUESTION_SECONDS if seconds is None else seconds
