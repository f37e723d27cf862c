"""Servers found in registries of MCP servers by word, and added to the config by name."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import anyio
import orjson
import typer
from yarl import URL

from portico.config import edited, find_paths, load_settings
from portico.config.clients import recognise
from portico.config.edit_and_import import add_server, server_entries
from portico.config.mcp_registry import (
    AskedValue,
    ListedEntry,
    ListedServer,
    choose,
    has_public_name,
    local_name,
    make_entry,
    matching,
    near_servers,
    questions,
    read_list,
)
from portico.config.reader import is_address, suggest
from portico.config.variables_and_masking import write_env_file
from portico.documents.document import read_document, write_atomically
from portico.errors import ConfigError, UnknownServer, UpstreamGone
from portico.providers.mcp.streamable_http import network_fault
from portico.text.untrusted import fence, one_line

from .config_commands import config_file
from .context import Exit, Json, ListedChoice, options
from .doctor_commands import doctor
from .output_and_logs import data, say, warn

SECONDS = 15.0
"""The time that one answer of a registry may take."""
MOST_BYTES = 8 * 2**20
SEARCH_SECONDS, DETAILS_SECONDS = 3_600, 86_400
"""How long an answer to a search, and one about a single server, is used without asking again."""
PAGE, PAGES, WORDS = 100, 5, 5
"""Servers of one page, and the pages and words that one search asks for."""
SEARCH_ANSWERS = 4
"""The time of so many answers is what all pages of a search may take."""
KEPT_FILES, KEPT_BYTES = 200, 32 * 2**20
_NO_LIST = "what it answers is not a list of MCP servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """An answer of a registry as it is kept: what it said, when, and the mark to ask whether it still holds."""

    body: Any
    at: float
    etag: str = ""


class AnswerFiles:
    """Answers of registries in a folder; the oldest make room, and one that cannot be read is none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, url: str) -> KeptAnswer | None:
        """The answer that is kept for an address."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            kept = orjson.loads(self._file(url).read_bytes())
            if kept["url"] == url:
                return KeptAnswer(body=kept["body"], at=float(kept["at"]), etag=str(kept["etag"]))
        return None

    def write(self, url: str, answer: KeptAnswer) -> None:
        """Keep an answer, where the folder can be written."""
        kept = {"url": url, "at": answer.at, "etag": answer.etag, "body": answer.body}
        with suppress(ConfigError, OSError):
            write_atomically(self._file(url), orjson.dumps(kept))
            self._make_room()

    def forget(self, url: str) -> None:
        """Keep nothing for an address."""
        with suppress(OSError):
            self._file(url).unlink(missing_ok=True)

    def _file(self, url: str) -> Path:
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()}.json"

    def _make_room(self) -> None:
        newest_first = sorted(((f.stat(), f) for f in self._folder.glob("*.json")), key=lambda kept: -kept[0].st_mtime)
        total = 0
        for number, (status, file) in enumerate(newest_first):
            total += status.st_size
            if number >= KEPT_FILES or total > KEPT_BYTES:
                file.unlink(missing_ok=True)


class RegistryApi:
    """A registry that speaks the HTTP API of the official one, version 0.1."""

    def __init__(self, url: str, files: AnswerFiles, tell: Callable[[str], None], *, seconds: float = SECONDS) -> None:
        self.name = re.sub(r"(?:/v0(?:\.1)?(?:/servers)?)?/*$", "", url)
        self._files, self._tell, self._seconds = files, tell, seconds
        self.is_local = not has_public_name(urlsplit(self.name).hostname or "")

    async def search(self, words: Sequence[str]) -> list[ListedServer]:
        """The newest versions of the servers whose names hold one of the words.

        Raises:
            UpstreamGone: it cannot be asked, and no earlier answer is kept.
        """
        found = list[ListedServer]()
        try:
            with anyio.fail_after(SEARCH_ANSWERS * self._seconds):
                async with self._session() as session:
                    for word in words[:WORDS]:
                        found += await self._pages(session, word)
        except TimeoutError:
            raise self._away(f"not all answers came within {SEARCH_ANSWERS * self._seconds:g} s") from None
        return found

    async def find(self, name: str, version: str) -> ListedServer | None:
        """One server by its whole name, the newest version without another wish.

        Raises:
            UpstreamGone: it cannot be asked, and no earlier answer is kept.
        """
        path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version or 'latest', safe='')}"
        async with self._session() as session:
            body = await self._get(session, path, DETAILS_SECONDS)
        if body is None:
            return None
        listed = next((server for server in read_list(body) if server.name == name), None)
        if listed is None or (version and listed.version != version):
            raise self._away("it answers with another server than the one that was asked for")
        return listed

    async def _pages(self, session: aiohttp.ClientSession, word: str) -> list[ListedServer]:
        found, cursor, seen = list[ListedServer](), "", {""}
        for _ in range(PAGES):
            asked = {"search": word, "version": "latest", "limit": str(PAGE), **({"cursor": cursor} if cursor else {})}
            body = await self._get(session, f"/v0.1/servers?{urlencode(asked)}", SEARCH_SECONDS)
            if not isinstance(body, dict) or not isinstance(body.get("servers"), list):
                raise self._away(_NO_LIST)
            found += read_list(body)
            told = body.get("metadata")
            cursor = str(told.get("nextCursor") or "") if isinstance(told, dict) else ""
            if cursor in seen or len(cursor) > 1_000:
                return found
            seen.add(cursor)
        self._tell(f"{self.name} has more servers for {word!r}; only its first {len(found)} were looked at")
        return found

    def _session(self) -> aiohttp.ClientSession:
        parts = urlsplit(self.name)
        proxy = urllib.request.getproxies().get(parts.scheme)
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            # What is packed could unfold to any size.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "portico"},
            auto_decompress=False,
            proxy=None if proxy is None or urllib.request.proxy_bypass(parts.hostname or "") else proxy,
        )

    async def _get(self, session: aiohttp.ClientSession, path: str, keep_seconds: float) -> Any:
        """What it says under a path, asked again once the kept answer is old; None where it has nothing."""
        url, now = self.name + path, time.time()
        kept = self._files.read(url)
        if kept is not None and 0 <= now - kept.at < keep_seconds:
            return kept.body
        try:
            answer = await self._ask(session, url, kept)
        except UpstreamGone as away:
            if kept is None:
                raise
            self._tell(f"{self.name}: {'; '.join(away.details)}; this is what it said {_age(now - kept.at)} ago")
            return kept.body
        if answer is None:
            self._files.forget(url)
            return None
        self._files.write(url, answer)
        return answer.body

    async def _ask(self, session: aiohttp.ClientSession, url: str, kept: KeptAnswer | None) -> KeptAnswer | None:
        headers = {"If-None-Match": kept.etag} if kept is not None and kept.etag else {}
        try:
            # A redirect could lead into this network.
            async with session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as response:
                if response.status == 304 and kept is not None:
                    return KeptAnswer(body=kept.body, at=time.time(), etag=kept.etag)
                if response.status == 404:
                    return None
                body = await self._body(response)
        except TimeoutError:
            raise self._away(f"no answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise self._away(network_fault(error, self.name).details[0]) from None
        etag = response.headers.get("ETag", "")
        return KeptAnswer(body=self._read(body), at=time.time(), etag=etag if len(etag) < 1_000 else "")

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if 300 <= response.status < 400:
            target = one_line(response.headers.get("Location", "an unnamed place"))[:300]
            raise self._away(f"it redirects to {target}, which is not followed; name that with --registry")
        if response.status != 200:
            raise self._away(f"it answered HTTP {response.status}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise self._away("its answer is compressed, which was not asked for")
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MOST_BYTES:
                raise self._away(f"its answer is larger than {MOST_BYTES // 2**20} MB")
        return bytes(body)

    def _read(self, body: bytes) -> Any:
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self._away("its answer is not JSON: there is no registry at this address") from None
        if not isinstance(found, dict):
            raise self._away(_NO_LIST)
        return found

    def _away(self, reason: str) -> UpstreamGone:
        return UpstreamGone(self.name, details=(reason,))


def _age(seconds: float) -> str:
    """A time as people say it, in its largest unit."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if (count := int(seconds // size)) > 0:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "less than a minute"


class ListFile:
    """A file with servers in the shape of a registry's answer, for machines without a network."""

    def __init__(self, file: Path) -> None:
        self.name, self.is_local = str(file), True
        self._file = file

    async def search(self, words: Sequence[str]) -> list[ListedServer]:
        """The servers that have one of the words."""
        return matching([server for server in self._servers() if server.is_latest], words)

    async def find(self, name: str, version: str) -> ListedServer | None:
        """One server by its whole name, the newest version without another wish."""
        named = [server for server in self._servers() if server.name == name]
        wanted = [server for server in named if (server.version == version if version else server.is_latest)]
        return next(iter(wanted), None)

    def _servers(self) -> list[ListedServer]:
        found = read_list(read_document(self._file).data)
        if not found:
            raise ConfigError("there are no MCP servers in it", file=self.name, fix='Write {"servers": [...]}.')
        return found


Source = RegistryApi | ListFile


def find_server(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(help="Words of the server's name.")],
    limit: Annotated[int, typer.Option(min=1, max=PAGE * PAGES, help="Servers to show.")] = 10,
    registry: Annotated[str | None, typer.Option(help="A registry's URL, or a FILE, instead of the config's.")] = None,
    as_json: Json = False,
) -> None:
    """Find servers to add, in registries of MCP servers."""
    sources = _sources(ctx, registry)
    found = anyio.run(_search, sources, [part for word in words for part in word.split()])
    usable = [(server, source) for server, source in found if server.status != "deleted"]
    shown = usable[:limit]
    if as_json:
        data([_server_data(server, source) for server, source in shown])
    for server, source in () if as_json else shown:
        _print_found(server, source if len(sources) > 1 else "")
    if not shown:
        raise UnknownServer(f"no server fits {' '.join(words)!r} in {', '.join(source.name for source in sources)}")
    if not as_json:
        if len(usable) > limit:
            say(f"{len(usable) - limit} more: --limit {min(2 * limit, PAGE * PAGES)}")
        say("next: portico add NAME, which shows what it would do")


def _sources(ctx: typer.Context, registry: str | None) -> list[Source]:
    settings = load_settings(options(ctx).config, os.environ, Path.cwd())
    files = AnswerFiles(settings.home.data / "mcp_registries")
    named = (registry,) if registry else settings.catalog.mcp_registries
    folder = Path.cwd() if registry else settings.folder
    if registry and "://" in registry and (not is_address(registry) or "@" in urlsplit(registry).netloc):
        raise typer.BadParameter("--registry takes an address without a user, or a file")
    return [
        RegistryApi(name, files, warn) if is_address(name) else ListFile(folder / Path(name).expanduser())
        for name in named
    ]


async def _search(sources: Sequence[Source], words: Sequence[str]) -> list[tuple[ListedServer, str]]:
    """What all registries have, each server as the first of them lists it."""
    where: dict[str, str] = {}
    found = list[ListedServer]()
    away = list[UpstreamGone]()
    for source in sources:
        try:
            servers = await source.search(words)
        except UpstreamGone as gone:
            away.append(gone)
            continue
        found += [server for server in servers if where.setdefault(server.name, source.name) == source.name]
    if away and len(away) == len(sources):
        raise away[0]
    for error in away:
        warn(f"{error.subject}: {'; '.join(error.details)}")
    return [(server, where[server.name]) for server in matching(found, words)]


def _print_found(server: ListedServer, source: str) -> None:
    kinds = [package.kind for package in server.packages] + (["remote"] if server.remotes else [])
    status = "" if server.status == "active" else f"  {server.status}"
    say(f"{server.name} {server.version}  {', '.join(dict.fromkeys(kinds))}{status}")
    if server.description:
        say(f"    {fence(server.description)}")
    if source:
        say(f"    from {source}")


def _server_data(server: ListedServer, source: str) -> dict[str, Any]:
    packages = [
        {"type": package.kind, "identifier": package.identifier, "version": package.version, "problem": package.refusal}
        for package in server.packages
    ]
    remotes = [
        {"type": remote.transport, "url": remote.url.value, "problem": remote.refusal} for remote in server.remotes
    ]
    return {
        "name": server.name,
        "title": server.title,
        "description": server.description,
        "version": server.version,
        "status": server.status,
        "repository": server.repository,
        "website": server.website,
        "packages": packages,
        "remotes": remotes,
        "registry": source,
    }


def add_by_name(ctx: typer.Context, choice: ListedChoice) -> None:
    """Add a server that a registry lists: show what it is and runs, ask, write it, and check it."""
    server, source = anyio.run(_find, _sources(ctx, choice.registry), choice)
    if server.status == "deleted":
        said = f": {server.status_message}" if server.status_message else ""
        raise ConfigError(f"{server.name} {server.version} was deleted from {source.name}{said}", fix="Choose another.")
    file = config_file(ctx)
    taken = _entries(file)
    name = choice.local_name or local_name(server, list(taken))
    if name in taken:
        raise ConfigError(f"a server is called {name!r} already", file=str(file), fix="Give another name with --as.")
    chosen = choose(server, choice.wanted, lambda program: shutil.which(program) is not None)
    asked = questions(chosen if not isinstance(chosen, tuple) else chosen[0])
    given = _answered(asked, choice, server)
    made = make_entry(chosen, given, name, is_local_list=source.is_local)
    _show(server, source, made, name, file)
    for other, entry in taken.items():
        if isinstance(entry, dict) and all(entry.get(key) == made.entry.get(key) for key in ("command", "args", "url")):
            warn(f"note: {other} runs the same already")
    _confirm(choice)
    _write(file, name, made)
    say(f"added {name} to {file}")
    _check(ctx, name)


def _entries(file: Path) -> dict[str, Any]:
    """The servers of the config by name.

    Raises:
        ConfigError: it is a file of a client that fills in variables of other spellings than ours.
    """
    found = server_entries(file)
    if found and recognise(read_document(file)) not in ("portico", "mcpServers"):
        fix = "Keep a portico.yaml of your own, for example with: portico import FILE --write"
        raise ConfigError("this is a client's own file, to which no server is added by name", file=str(file), fix=fix)
    return found


async def _find(sources: Sequence[Source], choice: ListedChoice) -> tuple[ListedServer, Source]:
    """The server that a name means, and the registry that has it.

    Raises:
        UnknownServer: none has it, or a short name may mean several.
    """
    name = choice.name if "/" in choice.name else await _whole_name(sources, choice)
    for source in sources:  # one that is away ends this: a later one may have another server of that name
        if (found := await source.find(name, choice.version)) is not None:
            return found, source
    versions = f" in version {choice.version}" if choice.version else ""
    near = near_servers(name, [server for server, _ in await _search(sources, [name.rpartition("/")[2]])])
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; to look for it: portico find-server {name}"
    raise UnknownServer(f"no server is called {name!r}{versions} in {_names(sources)}{hint}")


async def _whole_name(sources: Sequence[Source], choice: ListedChoice) -> str:
    found = [server for server, _ in await _search(sources, [choice.name])]
    same = [server.name for server in found if server.short_name.casefold() == choice.name.casefold()]
    if len(same) == 1 and not choice.is_confirmed:
        return same[0]
    candidates = same or near_servers(choice.name, found)
    if not candidates:
        raise UnknownServer(f"no server is called {choice.name!r} in {_names(sources)}")
    listed = " or ".join(candidates[:10])
    raise UnknownServer(f"{choice.name!r} is not the whole name of a server; say which: {listed}")


def _names(sources: Sequence[Source]) -> str:
    return ", ".join(source.name for source in sources)


def _answered(asked: Sequence[AskedValue], choice: ListedChoice, server: ListedServer) -> Mapping[str, Sequence[str]]:
    """The values for what a server asks, as they were given or are typed now.

    Raises:
        ConfigError: a value is given that nobody asks for, or one is missing and nobody is there to type it.
    """
    names = [value.name for value in asked]
    given = dict(choice.values)
    for name in given:
        if name not in names:
            raise ConfigError(f"{server.name} asks for no {name}", fix=suggest(name, names) if names else "")
    missing = [value for value in asked if value.is_required and value.default is None and value.name not in given]
    if missing and not _is_terminal():
        raise ConfigError(_missing(missing, choice, server))
    for value in missing:
        about = f" ({value.description})" if value.description else ""
        choices = f" [{', '.join(value.choices)}]" if value.choices else ""
        given[value.name] = [typer.prompt(f"{value.name}{about}{choices}", hide_input=value.is_secret, err=True)]
    return given


def _missing(missing: Sequence[AskedValue], choice: ListedChoice, server: ListedServer) -> str:
    lines = [f"{server.name} needs {len(missing)} more value{'s' if len(missing) > 1 else ''}:"]
    for value in missing:
        about = [value.description, f"one of {', '.join(value.choices)}" if value.choices else ""]
        lines.append(f"{value.name}{' (secret)' if value.is_secret else ''}: {'; '.join(filter(None, about))};")
    wanted = [f"--set {shlex.quote(f'{value.name}=VALUE')}" for value in missing]
    lines.append(f"give them: portico add {choice.name} {' '.join(wanted)}, or --set NAME alone for ${{NAME}}")
    return " ".join(lines)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def _show(server: ListedServer, source: Source, made: ListedEntry, name: str, file: Path) -> None:
    """Show all of what would be added, without leaving anything out."""
    say(f"{server.name} {server.version} ({server.status})")
    if server.description:
        say(f"  {fence(server.description)}")
    say(f"  publisher: {server.publisher}; repository: {server.repository or 'not told'}")
    say(f"  listed by: {source.name}")
    entry = made.entry
    if "url" in entry:
        say(f"  connects to: {entry['url']}")
    else:
        say(f"  runs: {shlex.join([entry['command'], *entry['args']])}")
    for table in ("env", "headers"):
        for key, value in entry.get(table, {}).items():
            say(f"  {table}: {key}={value}")
    for secret in made.secrets:
        say(f"  secret: {secret}, kept in {_secrets_file(name)}")
    say(f"  as: {name}, in {file}")
    for remark in made.remarks:
        warn(f"note: {remark}")
    if server.status != "active":
        warn(f"note: it is {server.status}{f': {server.status_message}' if server.status_message else ''}")


def _confirm(choice: ListedChoice) -> None:
    if choice.is_confirmed:
        return
    if not _is_terminal():
        warn("nothing was written; look at what it would run, then say it again with --yes")
        raise typer.Exit(Exit.USAGE)
    if not typer.confirm("Add it?", default=False, err=True):
        warn("nothing was written")
        raise typer.Exit(Exit.FAILED)


def _secrets_file(name: str) -> Path:
    """Where the secrets of a server are kept: in the user's own folder, so that no project is committed with them."""
    folder = find_paths(os.environ, Path.cwd()).config / "secrets"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    numbers: Iterator[str] = (f"{plain}{f'-{n}' if n > 1 else ''}.env" for n in range(1, 1_000))
    return next((file for each in numbers if not (file := folder / each).exists()), folder / f"{plain}.env")


def _write(file: Path, name: str, made: ListedEntry) -> None:
    entry = dict(made.entry)
    kept = _secrets_file(name) if made.secrets else None
    with edited(file, os.environ, Path.cwd()):
        if kept is not None:
            write_env_file(kept, made.secrets)
            entry["envFile"] = os.path.abspath(kept)
        try:
            add_server(file, name, entry)
        except ConfigError:
            if kept is not None:
                kept.unlink(missing_ok=True)
            raise


def _check(ctx: typer.Context, name: str) -> None:
    """Ask the new server for its tools as `portico doctor` does; it stays in the config whatever comes of it."""
    try:
        doctor(ctx, [name])
    except typer.Exit:
        say(f"{name} stays in the config; to take it out: portico remove {name}")
        raise
