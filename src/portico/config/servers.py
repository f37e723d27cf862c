"""Server and database entries become specifications, or problems that say how to mend them."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from portico.documents.document import Document
from portico.documents.values_with_positions import TreePath
from portico.domain.server import (
    ClientSessionLimits,
    DatabaseSpec,
    Isolation,
    ServerLabels,
    ServerLimits,
    ServerSpec,
    Timeouts,
    ToolFilter,
    Transport,
)
from portico.domain.tool import Effect, ToolOverride, WrittenAt
from portico.errors import ConfigError

from .clients import Dialect, normalise
from .reader import SECONDS, Fields, Kind, choice, is_address, number, suggest, whole, words
from .settings import SERVER, absolute, is_meant
from .variables_and_masking import Variables, read_env_file

KNOWN = (
    "command args env cwd url headers type transport enabled disabled alias description category tools timeouts timeout"
    " result_tokens envFile answer_values overrides sessions"
    " calls_at_once queue breaker run_as container"
).split()
"""The fields of a server entry."""

TOLERATED = frozenset(
    "autoApprove alwaysAllow trust gallery version oauth auth authProviderType note icon source settings dev sandbox"
    " sandboxEnabled required name id scopes instructions bundled display_name watchPaths".split()
)
"""Fields that clients keep for themselves; Portico leaves them alone."""

_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}
TIMEOUTS: Mapping[str, Kind] = {"start": SECONDS, "call": SECONDS, "total": SECONDS, "idle": number()}
BREAKER: Mapping[str, Kind] = {"failures": whole(0, 1_000), "cooldown_s": SECONDS}
CONTAINER: Mapping[str, Kind] = {"image": Fields.text, "network": Fields.text, "volumes": words}
_MILLISECONDS = 1000
"""Some clients write timeouts in milliseconds; nobody waits for a quarter of an hour by intent."""
_NAME_LIMIT = 128
_PUBLIC_VARIABLES = frozenset("HOME USER LOGNAME PATH PWD SHELL LANG TMPDIR HOSTNAME TERM".split())
LEAST_TOKENS, MOST_TOKENS = 500, 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOutcome:
    """A specification, problems, or a specification with remarks: the result of reading one entry."""

    spec: ServerSpec | None
    problems: tuple[ConfigError, ...] = ()


def read_server(
    name: str, entry: Any, *, document: Document, path: TreePath, variables: Variables, dialect: Dialect = "portico"
) -> EntryOutcome:
    """Translate one raw entry, with numbers and switches as they were spelled.

    No message ever shows a value of `env`, `headers`, `args` or `url`.
    """
    refusal, fix = _refuse_name(name), "Give the server a short, plain name."
    if not refusal and not isinstance(entry, dict):
        refusal, fix = "a server must be a table", "Write a table with command and args, or with url."
    if refusal:
        return EntryOutcome(spec=None, problems=(document.error(refusal, path, fix=fix),))
    normal = normalise(entry, dialect)
    variables = replace(variables, used={})  # of this server alone
    fields = Fields(normal.entry, document=document, path=path, variables=variables, moved=normal.moved)
    enabled = _enabled(fields)
    if not enabled:
        fields.variables = replace(variables, lenient=True)
    _report_unknown(fields, is_ours=dialect == "portico")
    if from_file := _from_file(fields):  # what the environment says counts more
        fields.variables = replace(fields.variables, environ={**from_file, **fields.variables.environ})
    spec = _server(name, fields, enabled, from_file)
    return EntryOutcome(spec=spec if fields.is_usable else None, problems=tuple(fields.problems))


def _refuse_name(name: str) -> str:
    if not name.strip():
        return "a server needs a name"
    if len(name) > _NAME_LIMIT:
        return f"the server's name is longer than {_NAME_LIMIT} characters"
    return "" if name.isprintable() else "the server's name holds a control character"


def _enabled(fields: Fields) -> bool:
    enabled, disabled = fields.switch("enabled"), fields.switch("disabled")
    if enabled is not None and disabled is not None and enabled == disabled:
        fields.report("enabled and disabled contradict each other", "disabled", fix="Keep one of the two.")
    return enabled is not False and disabled is not True


def _report_unknown(fields: Fields, *, is_ours: bool) -> None:
    """Name fields that nobody reads; in a client's own file, only those that restrict something."""
    for key in fields.table:
        if key in KNOWN or key in TOLERATED or key.startswith(("x-", "_", "$")):
            continue
        is_restriction = is_meant(key, SERVER)
        if is_ours or is_restriction:
            fix = "Write tools: {allow: [...], deny: [...]}." if is_restriction else suggest(key, KNOWN)
            # A misspelt `tools` or `enabled` would open what it was meant to close.
            fatal = is_restriction or fix.startswith("Did you mean")
            fields.report("this field is not known", key, fix=fix, fatal=fatal)


def _server(name: str, fields: Fields, enabled: bool, from_file: Mapping[str, str]) -> ServerSpec:
    isolation = _isolation(fields)
    command, args = _command_line(fields)
    url = _url(fields)
    overrides = _overrides(fields)
    # A folder or the name of a user is not secret.
    secrets = {
        name: value
        for name, value in fields.variables.used.items()
        if name not in _PUBLIC_VARIABLES and not value.startswith(("/", "~", "./", "../"))
    }
    labels = ServerLabels(
        alias=fields.text("alias").strip(),
        description=fields.text("description"),
        category=fields.text("category").strip(),
        overrides=overrides,
    )
    return ServerSpec(
        name=name,
        transport=_transport(fields, command, url),
        command=command,
        args=args,
        env=_environment(fields, from_file),
        cwd=_folder(fields),
        url=url,
        headers=_headers(fields),
        secrets=secrets,
        enabled=enabled,
        labels=labels,
        tools=ToolFilter(**fields.given("tools", {"allow": Fields.texts, "deny": Fields.texts})),
        timeouts=_timeouts(fields),
        limits=_limits(fields),
        isolation=isolation,
    )


def _transport(fields: Fields, command: str, url: str) -> Transport:
    has_command, has_url = (fields.table.get(field) is not None for field in ("command", "url"))
    has_command = has_command or _is_contained(fields)
    if has_command and has_url:
        fields.report("a server has either a command or a url, not both", "url", fix="Delete one of the two.")
    elif not has_command and not has_url:
        fields.report("a server needs a command or a url", fix="Write command and args, or url.")
    declared = _declared(fields)
    if declared is None:
        return "stdio" if has_command else "sse" if _ends_with_sse(url) else "http"
    if has_command != has_url and (declared == "stdio") != has_command:
        wanted = "command" if declared == "stdio" else "url"
        field = "type" if fields.table.get("type") is not None else "transport"
        fields.report(f"this type of server needs a {wanted}", field, fix="Delete the type, or correct it.")
    return declared


def _is_contained(fields: Fields) -> bool:
    """Whether the server is started in a container, whose image may have a command of its own."""
    return fields.table.get("container") is not None


def _declared(fields: Fields) -> Transport | None:
    found = set[Transport]()
    for field in ("type", "transport"):
        word = fields.text(field).casefold()
        if word and word not in _TRANSPORTS:
            fields.report("this is not a transport", field, fix=suggest(word, ("stdio", "http", "sse")))
        elif word:
            found.add(_TRANSPORTS[word])
    if len(found) > 1:
        fields.report("type and transport contradict each other", "transport", fix="Keep one of the two.")
    return next(iter(found), None)


def _ends_with_sse(url: str) -> bool:
    try:
        return urlsplit(url).path.rstrip("/").endswith("/sse")
    except ValueError:
        return False


def _command_line(fields: Fields) -> tuple[str, tuple[str, ...]]:
    if fields.table.get("command") is None:
        if fields.table.get("args") and not _is_contained(fields):
            fields.report("args belong to a command, and there is none", "args", fix="Add command, or delete args.")
        return "", fields.texts("args") if _is_contained(fields) else ()
    command, args, before = fields.text("command").strip(), fields.texts("args"), len(fields.problems)
    if not command:
        if len(fields.problems) == before and fields.is_usable:
            fields.report("the command is empty", "command", fix="Write the program to start, such as npx.")
        return "", args
    written = os.fspath(absolute(command, fields.variables.environ, fields.variables.folder))
    if not args and " " in command and not os.path.exists(written):
        return _split(fields, command)
    if _is_contained(fields):
        return command, args  # its paths are those of the image
    # Only what names a folder is a path; a bare word is looked up in PATH. A path is relative to `cwd`, or else to the
    # config: in whatever folder Portico is started, it must not mean a program that lies there.
    is_local = bool(os.path.dirname(command)) and fields.table.get("cwd") is None
    return (written if command.startswith("~") or is_local else command), args


def _split(fields: Fields, command: str) -> tuple[str, tuple[str, ...]]:
    try:
        first, *rest = shlex.split(command)
    except ValueError:
        fix = "Write command and a list of args."
        fields.report("the command has a quote that is never closed", "command", fix=fix)
        return "", ()
    return first, tuple(rest)


def _url(fields: Fields) -> str:
    url = fields.text("url").strip()
    if fields.table.get("url") is None or (not url and not fields.is_usable):
        return ""
    if not is_address(url):
        fields.report("this is not an http or https address", "url", fix="Write it as https://host/mcp.")
    return url


def _environment(fields: Fields, from_file: Mapping[str, str]) -> dict[str, str]:
    """The variables of `env`, and below them those of the file of `envFile`."""
    env = {**from_file, **fields.pairs("env")}
    for name in env:
        if not name or "=" in name or "\0" in name:
            fields.report("this is not a variable's name", "env", name, fix='Write the variable as NAME: "value".')
    return env


def _from_file(fields: Fields) -> dict[str, str]:
    name = fields.text("envFile").strip()
    if not name:
        return {}
    file = absolute(name, fields.variables.environ, fields.variables.folder)
    fields.variables.files.add(file)
    try:
        return read_env_file(file)
    except ConfigError as error:
        line = f" (line {error.line})" if error.line else ""
        fields.report(f"{error.problem}{line}", "envFile", fix=error.fix, fatal=not fields.variables.lenient)
        return {}


def _headers(fields: Fields) -> dict[str, str]:
    headers = fields.pairs("headers")
    for name, value in headers.items():
        if not name or not name.isascii() or any(sign.isspace() or sign == ":" for sign in name):
            fields.report("this is not a header's name", "headers", name, fix='Write it as Authorization: "value".')
        if any(sign in value for sign in "\r\n"):
            fields.report("a header cannot hold a line break", "headers", name, fix="Write the value on one line.")
    return headers


def _folder(fields: Fields) -> str | None:
    cwd = fields.text("cwd")
    if _is_contained(fields):
        return cwd or None
    return os.fspath(absolute(cwd, fields.variables.environ, fields.variables.folder)) if cwd else None


def _timeouts(fields: Fields) -> Timeouts:
    given = fields.given("timeouts", TIMEOUTS)
    plain = _plain_timeout(fields, "timeout")
    if plain is not None:
        given.setdefault("call", plain)
    # A longer wait for one call is pointless when the whole call may not take that long.
    if "call" in given:
        given.setdefault("total", max(given["call"], Timeouts().total))
    return Timeouts(**given)


_SHARING = ("shared", "per_client")
_WRITE_SHARING = "Write sessions: per_client, or sessions: {per: client, limit: 8}."
SESSIONS: Mapping[str, Kind] = {"per": choice(("client",)), "limit": whole(1, 1_000), "idle_s": number()}
"""The fields of `sessions`, where it is a table."""


def _client_sessions(fields: Fields) -> ClientSessionLimits | None:
    """The bounds of sessions for each client; None where one is shared.

    What cannot be read is fatal: clients that are meant to be apart must not share.
    """
    written = fields.table.get("sessions")
    if isinstance(written, dict):
        given = fields.given("sessions", SESSIONS)
        if "per" not in written:
            fields.report("this table does not say whose the sessions are", "sessions", fix=_WRITE_SHARING)
        return ClientSessionLimits(most=given.get("limit", 0), idle=given.get("idle_s"))
    word = fields.word("sessions")
    if word not in (None, *_SHARING):
        fields.report("this is neither `shared` nor `per_client`", "sessions", fix=_WRITE_SHARING)
    return ClientSessionLimits() if word == "per_client" else None


_LIMITS: Mapping[str, Kind] = {
    "calls_at_once": whole(1, 10_000),
    "queue": whole(0, 100_000),
    "result_tokens": whole(LEAST_TOKENS, MOST_TOKENS),
    "answer_values": whole(1_000, 50_000_000),
}


def _limits(fields: Fields) -> ServerLimits:
    given = {key: found for key, read in _LIMITS.items() if (found := read(fields, key)) is not None}
    return ServerLimits(client_sessions=_client_sessions(fields), **given, **fields.given("breaker", BREAKER))


_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}|\d{1,10}(:\d{1,10})?")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,255}")
_NETWORK = re.compile(r"[A-Za-z0-9][\w.:-]{0,127}")


def _isolation(fields: Fields) -> Isolation:
    """The user and the container of a server's process; one that cannot be used leaves the server out."""
    run_as, container = fields.word("run_as"), fields.table.get("container")
    if not isinstance(container, dict) and container is not None:
        given: dict[str, Any] = {"image": fields.text("container")}
    else:
        given = fields.given("container", CONTAINER)
    image, network = given.get("image", "").strip(), given.get("network", "").strip()
    if run_as is not None and not _USER.fullmatch(run_as):
        fields.report("this is not a user", "run_as", fix="Write the name of a user, or numbers as in 1000:1000.")
    if container is not None and not _IMAGE.fullmatch(image):
        fields.report("this is not an image", "container", fix="Write it as in container: ghcr.io/owner/server:1.2.")
    if network and not _NETWORK.fullmatch(network):
        fields.report("this is not a network", "container", "network", fix="Write its name, such as none.")
    for key in ("run_as", "container"):
        if fields.table.get(key) is not None and fields.table.get("url") is not None:
            fields.report("this is for a server that is started, not for one with a url", key, fix="Delete it.")
    if run_as and image:
        fields.report("a container has users of its own", "run_as", fix="Delete it, or the container.")
    return Isolation(run_as=run_as or "", image=image, network=network, volumes=given.get("volumes", ()))


def _plain_timeout(fields: Fields, *path: str) -> float | None:
    """A timeout as clients write it."""
    plain = fields.number(*path, above=0)
    return plain / 1000 if plain is not None and plain > _MILLISECONDS else plain


_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_EFFECTS = tuple(map(str, Effect))
_CATEGORY_LENGTH, _TITLE_LENGTH, _DESCRIPTION_LENGTH = 64, 200, 8_000
OVERRIDE: Mapping[str, Kind] = {
    "name": lambda fields, *path: _tool_name(fields, *path),
    "title": lambda fields, *path: _said(fields, *path, longest=_TITLE_LENGTH),
    "description": lambda fields, *path: _said(fields, *path, longest=_DESCRIPTION_LENGTH),
    "category": lambda fields, *path: _said(fields, *path, longest=_CATEGORY_LENGTH),
    "tags": lambda fields, *path: words(fields, *path) if fields.value(*path) is not None else None,
    "effect": lambda fields, *path: Effect(word) if (word := choice(_EFFECTS)(fields, *path)) else None,
    "defaults": lambda fields, *path: _values(fields, *path),
    "hidden": lambda fields, *path: _values(fields, *path),
    "result_tokens": whole(LEAST_TOKENS, MOST_TOKENS),
    "timeout": _plain_timeout,
    "idempotent": Fields.switch,
    "enabled": Fields.switch,
}
"""The fields of an override of one tool."""
_CLOSING = ("hidden", "enabled")
"""Those that take something away from agents: without them, they would get what they are not meant to have."""


def _overrides(fields: Fields) -> dict[str, ToolOverride]:
    """The overrides of a server's tools; what is wrong with one is reported, and the server is used all the same."""
    table = fields.table.get("overrides")
    if not isinstance(table, dict):
        if table is not None:
            fix = "Write the tools by their names, each with what is to be changed."
            fields.report("this must be a table", "overrides", fix=fix, fatal=False)
        return {}
    found: dict[str, ToolOverride] = {}
    named: dict[str, str] = {}
    for tool in table:
        own = fields.below("overrides", tool)
        found[tool] = _override(own)
        fields.problems += own.problems
        name = found[tool].name
        if name and named.setdefault(name, tool) != tool:
            fix = f"Choose another name for one of them; {tool!r} keeps its own until then."
            problem = f"{named[name]!r} is given this name too"
            fields.report(problem, "overrides", tool, "name", fix=fix, fatal=False)
            found[tool] = replace(found[tool], name="")
    return found


def _override(fields: Fields) -> ToolOverride:
    """One override; a tool is switched off when a field that takes something away cannot be used."""
    if not isinstance(fields.table, dict):
        fix = f"Use some of: {', '.join(OVERRIDE)}. The tool is left out until then."
        fields.report("an override must be a table", fix=fix)
        return ToolOverride(enabled=False, written=_written(fields, {}))
    given: dict[str, Any] = {}
    failed = _unknown_in_override(fields)
    for key, read in OVERRIDE.items():
        before, value = len(fields.problems), read(fields, key)
        if len(fields.problems) > before:
            failed.append(key)
        elif value is not None:
            given[key] = value
    if any(key in _CLOSING or is_meant(key, _CLOSING) for key in failed):
        fields.report("this tool is left out, for it may show what it should not", fix="Mend what is said of it.")
        given["enabled"] = False
    for name in sorted(given.get("hidden", {}).keys() & given.get("defaults", {}).keys()):
        fields.report("this parameter is hidden as well", "defaults", name, fix="Delete one; the hidden value is sent.")
        del given["defaults"][name]
    return ToolOverride(**given, written=_written(fields, fields.table), mark=_mark_of(fields.table))


def _unknown_in_override(fields: Fields) -> list[str]:
    unknown = [key for key in fields.table if key not in OVERRIDE and not key.startswith(("x-", "$"))]
    for key in unknown:
        fields.report("this key is not known", key, fix=suggest(key, OVERRIDE))
    return unknown


def _written(fields: Fields, table: Mapping[str, Any]) -> WrittenAt:
    """The places of an override and of all that it holds."""
    inner = [(key, name) for key in ("defaults", "hidden") if isinstance(table.get(key), dict) for name in table[key]]
    where, line = fields.written()
    lines = {".".join(path): fields.written(*path)[1] for path in (*((key,) for key in table), *inner)}
    return WrittenAt(file=str(fields.document.file), where=where, lines={"": line, **lines})


def _mark_of(table: Mapping[str, Any]) -> str:
    """A mark that changes with what is written, but for values that may be secret."""
    hidden = table.get("hidden")
    said = {**table, "hidden": sorted(hidden) if isinstance(hidden, dict) else ""}
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _tool_name(fields: Fields, *path: str) -> str | None:
    name = fields.text(*path).strip()
    if name and not _TOOL_NAME.fullmatch(name):
        fields.report("this cannot be a tool's name", *path, fix="Write up to 128 letters, digits and the signs _ - .")
    return name or None


def _said(fields: Fields, *path: str, longest: int) -> str | None:
    if fields.value(*path) is None:
        return None
    text = fields.text(*path).strip()
    if len(text) > longest or (longest < _DESCRIPTION_LENGTH and not text.isprintable()):
        fields.report("this is too long, or more than a line", *path, fix=f"Write at most {longest:,} letters.")
    return text


def _values(fields: Fields, *path: str) -> dict[str, Any] | None:
    """Values of parameters, of any kind that JSON has; no message shows one."""
    written = fields.value(*path)
    if written is not None and not isinstance(written, dict):
        fields.report("this must be a table of parameters and values", *path, fix="Write it as {parameter: value}.")
    if not isinstance(written, dict):
        return None
    found: dict[str, Any] = fields.data(*path)
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError):
        fields.report("a value here is no JSON", *path, fix="Write texts, numbers, true, false, null, lists or tables.")
    return found


_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///", re.IGNORECASE)
_DATABASE: Mapping[str, Kind] = {
    # Looks at a registry would otherwise follow each other without a pause.
    "refresh_s": number(least=0.1),
    "registry_override": Fields.switch,
    "writes": Fields.switch,
    "allow_superuser": Fields.switch,
    "rows": whole(1, 100_000),
    "bytes": whole(1_000, 10_000_000),
    "seconds": lambda fields, *path: _call_seconds(fields, *path),
}
DATABASE_KEYS = ("url", "registry", "role", "roles", *_DATABASE)
"""The fields of a database."""
MOST_SECONDS = 3_600
"""Of one call; databases keep their limits in small numbers."""


def read_databases(top: Fields) -> tuple[DatabaseSpec, ...]:
    """The databases that can be used; what is wrong with the others is reported, and never shows a URL."""
    table = top.table.get("databases")
    if isinstance(table, dict):
        return tuple(_usable_databases(top, table))
    if table is not None:
        fix = "Write a name for each database, with its url and registry below it."
        top.report("the databases must be a table", "databases", fix=fix)
    return ()


def _usable_databases(top: Fields, table: Mapping[str, Any]) -> Iterator[DatabaseSpec]:
    for name, entry in table.items():
        path = ("databases", name)
        if _refuse_name(name):
            top.report("this cannot be a database's name", *path, fix="Give it a short, plain name.")
        elif not isinstance(entry, dict):
            top.report("a database must be a table", *path, fix=f"Use some of: {', '.join(DATABASE_KEYS)}.")
        else:
            fields = top.below(*path)
            spec = _database(name, fields)
            top.problems += fields.problems
            if fields.is_usable:
                yield spec


def _database(name: str, fields: Fields) -> DatabaseSpec:
    fields.refuse_unknown(DATABASE_KEYS)
    url, registry = _database_url(fields), fields.text("registry").strip()
    if not registry and fields.is_usable:
        fix = "Name the database or schema that holds the registry, such as mcp."
        fields.report("a database needs a registry", "registry", fix=fix)
    return DatabaseSpec(
        name=name,
        url=url,
        registry=registry,
        role=fields.text("role").strip(),
        roles={caller: role for caller, role in fields.pairs("roles").items() if role},
        file=str(fields.document.file),
        line=fields.document.line(("databases", name)),
        **{key: found for key, read in _DATABASE.items() if (found := read(fields, key)) is not None},
    )


def _call_seconds(fields: Fields, *path: str) -> float | None:
    found = fields.number(*path, above=0)
    if found is not None and found > MOST_SECONDS:
        fields.report("this is longer than a call may take", *path, fix=f"Write at most {MOST_SECONDS}.")
    return found


def _database_url(fields: Fields) -> str:
    """A URL as it is; the file of SQLite is one beside the config."""
    text = fields.text("url").strip()
    if not text and fields.is_usable:
        fix = "Write sqlite:///file.db or postgresql://user@host/database."
        fields.report("a database needs a url", "url", fix=fix)
    match = _SQLITE.match(text)
    if not match:
        return text
    name, mark, query = text[match.end() :].partition("?")
    file = absolute(name, fields.variables.environ, fields.document.file.absolute().parent)
    return f"sqlite:///{file}{mark}{query}" if name else text
