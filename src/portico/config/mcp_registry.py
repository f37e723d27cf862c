"""Servers that a registry of MCP servers lists: their `server.json` read, and a config entry made of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from portico.domain.suggestions import nearest_names
from portico.errors import ConfigError
from portico.text.untrusted import one_line, visible

from .reader import is_address

RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "npm": ("npx",),
    "pypi": ("uvx",),
    "oci": ("docker", "podman"),
    "nuget": ("dnx",),
}
"""The programs that run a package of each kind; a `runtimeHint` may only choose among them."""
SUPPLIERS = {"npx": "Node.js", "uvx": "uv", "docker": "Docker or Podman", "podman": "Docker or Podman", "dnx": ".NET"}
"""What to install to have such a program."""
FIRST_START_SECONDS = 120
"""The time that a first start gets, which downloads the package."""

_META = "io.modelcontextprotocol.registry/official"
_NAME = re.compile(r"[A-Za-z0-9.-]{1,150}/[A-Za-z0-9._-]{1,150}")
_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*"),
    "pypi": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"),
    "oci": re.compile(
        r"(?P<name>[a-z0-9][a-z0-9.-]*(?::\d{1,5}(?=/))?(?:/[a-z0-9][a-z0-9._-]*)*)"
        r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@sha256:[0-9a-f]{64})?",
        re.ASCII,
    ),
    "nuget": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
}
_VERSIONS = {
    "npm": re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?", re.ASCII),
    "pypi": re.compile(r"\d[0-9A-Za-z.!+-]*", re.ASCII),
    "nuget": re.compile(r"\d+(?:\.\d+){1,3}(?:[-+][0-9A-Za-z.+-]+)?", re.ASCII),
}
_USUAL_SOURCES = frozenset({"registry.npmjs.org", "pypi.org", "api.nuget.org", "docker.io"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_LOADER = re.compile(
    r"PATH|HOME|SHELL|IFS|ENV|BASH_ENV|(?:LD|DYLD|UV|PIP|NPM_CONFIG|DOCKER|CONTAINER)_.*|NODE_(?:OPTIONS|PATH)"
    r"|PYTHON(?:PATH|HOME|STARTUP)",
    re.IGNORECASE,
)
"""Variables that decide which program runs, and where it comes from."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_PUBLIC_NAME = re.compile(r"(?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]+")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_HELD = re.compile(r"\0([^\0]+)\0")
_BRACED = re.compile(r"\{([^{}]+)\}")
_OTHER_PROGRAMS = {
    "npm": re.compile(r"-[a-z]*[cp].*|--(?:call|shell|script-shell|package|registry|prefix|userconfig|globalconfig)"),
    "pypi": re.compile(
        r"-[a-z]*[fi].*|--(?:from|index|index-url|default-index|extra-index-url|find-links|with-editable"
        r"|with-requirements|config-file|directory|project|env-file)"
    ),
    "oci": re.compile(r"--(?:entrypoint|env-file)"),
    "nuget": re.compile(r"--(?:source|add-source|configfile)"),
}
"""Options of the runtimes that would run something else, or take it from elsewhere."""
_WIDE = re.compile(
    r"--privileged|-v.*|--volume|--mount|--net|--network|--pid|--ipc|--userns|--device|--cap-add|--security-opt"
)
_PARTS, _LETTERS, _TOLD = 100, 4_096, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedValue:
    """A value that a server asks for, or that its publisher has fixed, with the variables of its template."""

    name: str
    description: str = ""
    value: str | None = None
    default: str | None = None
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_secret: bool = False
    variables: tuple[AskedValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedArgument:
    """An argument of a command line; one without a flag is told by its position."""

    value: AskedValue
    flag: str = ""
    is_switch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPackage:
    """A package that a server can be started from."""

    kind: str
    identifier: str
    version: str = ""
    hint: str = ""
    runtime_arguments: tuple[ListedArgument, ...] = ()
    arguments: tuple[ListedArgument, ...] = ()
    environment: tuple[AskedValue, ...] = ()
    refusal: str = ""
    """Why it cannot be used; empty where it can."""

    @property
    def label(self) -> str:
        """What one would call it in a list."""
        return f"{self.kind} {self.identifier}" + (f" {self.version}" if self.version else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRemote:
    """An address at which a server is already running."""

    transport: str
    url: AskedValue
    headers: tuple[AskedValue, ...] = ()
    refusal: str = ""

    @property
    def label(self) -> str:
        """What one would call it in a list."""
        return f"remote {self.url.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedServer:
    """A server as a registry lists it; every text of it is on one line and visible."""

    name: str
    version: str
    title: str = ""
    description: str = ""
    repository: str = ""
    website: str = ""
    status: str = "active"
    status_message: str = ""
    is_latest: bool = True
    packages: tuple[ListedPackage, ...] = ()
    remotes: tuple[ListedRemote, ...] = ()

    @property
    def publisher(self) -> str:
        """The namespace that the registry has found to be the publisher's."""
        return self.name.partition("/")[0]

    @property
    def short_name(self) -> str:
        """The last part of its name."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntry:
    """A config entry for a listed server, and the secrets that are kept beside the config."""

    entry: Mapping[str, Any]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values by the names of their variables, for the `envFile` of the entry."""
    remarks: tuple[str, ...] = ()


def read_list(body: Any) -> list[ListedServer]:
    """The servers of an answer of a registry, or of a file in its shape; what is no server is left out."""
    rows = body.get("servers", [body]) if isinstance(body, dict) else body
    found = (read_listed(row) for row in rows) if isinstance(rows, list) else ()
    return [server for server in found if server is not None]


def read_listed(row: Any) -> ListedServer | None:
    """One server of a registry, with or without what the registry says of it; None for anything else."""
    server = row.get("server", row) if isinstance(row, dict) else None
    if not isinstance(server, dict) or not _NAME.fullmatch(_raw(server, "name")):
        return None
    told = _table(_table(row, "_meta"), _META)
    return ListedServer(
        name=_raw(server, "name"),
        version=_told(server, "version"),
        title=_told(server, "title"),
        description=_told(server, "description"),
        repository=_told(_table(server, "repository"), "url"),
        website=_told(server, "websiteUrl"),
        status=_told(told, "status") or _told(server, "status") or "active",
        status_message=_told(told, "statusMessage"),
        is_latest=told.get("isLatest") is not False,
        packages=tuple(_package(raw) for raw in _rows(server, "packages")),
        remotes=tuple(_remote(raw) for raw in _rows(server, "remotes")),
    )


def _package(raw: Mapping[str, Any]) -> ListedPackage:
    package = ListedPackage(
        kind=_told(raw, "registryType") or "unknown",
        identifier=_told(raw, "identifier"),
        version=_told(raw, "version"),
        hint=_told(raw, "runtimeHint"),
        runtime_arguments=tuple(_argument(each, n) for n, each in enumerate(_rows(raw, "runtimeArguments"), start=1)),
        arguments=tuple(_argument(each, n) for n, each in enumerate(_rows(raw, "packageArguments"), start=1)),
        environment=tuple(_asked(each) for each in _rows(raw, "environmentVariables")),
    )
    transport = _told(_table(raw, "transport"), "type") or "stdio"
    refusals = (*_package_refusals(package, transport, _raw(raw, "registryBaseUrl")), *_hidden_letters(raw))
    return replace(package, refusal=next(iter(refusals), ""))


def _package_refusals(package: ListedPackage, transport: str, source: str) -> Iterator[str]:
    kind = package.kind
    if kind not in RUNTIMES:
        yield f"packages of the kind {kind} cannot be started by Portico; it starts {', '.join(RUNTIMES)}"
        return
    if transport != "stdio":
        yield "it is started as a web server; start it yourself, and add its address"
    if source and (not is_address(source) or urlsplit(source).hostname not in _USUAL_SOURCES):
        yield f"it is kept at {one_line(source)[:_TOLD]}, where the runtime would not look for it"
    found = _IDENTIFIERS[kind].fullmatch(package.identifier)
    if found is None:
        yield f"{package.identifier!r} is not the name of a package"
    elif kind == "oci":
        tag = found["tag"] or package.version
        if not found["digest"] and (not re.fullmatch(r"\w[\w.-]*", tag) or tag == "latest"):
            yield "it names no version of the image, which may change at any time"
    elif not _VERSIONS[kind].fullmatch(package.version):
        yield f"{package.version!r} is not one exact version"
    names = [value.name for value in package.environment]
    yield from (f"{name!r} is not a variable to set" for name in names if not _is_settable(name))


def _is_settable(name: str) -> bool:
    """Whether a variable may be set: those that decide which program runs are not the publisher's."""
    return bool(_VARIABLE.fullmatch(name)) and not _LOADER.fullmatch(name)


def _remote(raw: Mapping[str, Any]) -> ListedRemote:
    transport = _told(raw, "type")
    variables = _variables(raw)
    url = AskedValue(name="url", value=_raw(raw, "url"), is_required=True, variables=variables)
    headers = tuple(_asked(each) for each in _rows(raw, "headers"))
    refusals = list(_hidden_letters(raw))
    if transport not in ("streamable-http", "sse"):
        refusals.append(f"Portico does not speak {transport or 'an unnamed transport'}")
    refusals += [f"{header.name!r} is not the name of a header" for header in headers if not _is_header(header.name)]
    return ListedRemote(transport=transport, url=url, headers=headers, refusal=refusals[0] if refusals else "")


def _is_header(name: str) -> bool:
    return bool(_HEADER.fullmatch(name))


def _argument(raw: Mapping[str, Any], number: int) -> ListedArgument:
    flag = _raw(raw, "name") if raw.get("type") == "named" else ""
    if flag and not flag.startswith("-"):
        flag = f"--{flag}"
    name = flag.lstrip("-") or _raw(raw, "valueHint") or _raw(raw, "name") or f"argument-{number}"
    return ListedArgument(value=_asked({**raw, "name": name}), flag=flag, is_switch=raw.get("format") == "boolean")


def _asked(raw: Mapping[str, Any]) -> AskedValue:
    choices = raw.get("choices")
    return AskedValue(
        name=_raw(raw, "name"),
        description=_told(raw, "description"),
        value=_scalar(raw, "value"),
        default=_scalar(raw, "default"),
        choices=tuple(map(str, choices[:_PARTS])) if isinstance(choices, list) else (),
        is_required=raw.get("isRequired") is True,
        is_secret=raw.get("isSecret") is True,
        variables=_variables(raw),
    )


def _variables(raw: Mapping[str, Any]) -> tuple[AskedValue, ...]:
    found = list(_table(raw, "variables").items())[:_PARTS]
    # A variable of a variable would unfold without end; the format has none.
    return tuple(_asked({**inner, "name": name, "variables": None}) for name, inner in found if isinstance(inner, dict))


def _table(raw: Any, key: str) -> Mapping[str, Any]:
    found = raw.get(key) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def _rows(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = raw.get(key)
    return [row for row in found[:_PARTS] if isinstance(row, dict)] if isinstance(found, list) else []


def _raw(raw: Mapping[str, Any], key: str) -> str:
    found = raw.get(key)
    return found if isinstance(found, str) else ""


def _scalar(raw: Mapping[str, Any], key: str) -> str | None:
    found = raw.get(key)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) else None


def _told(raw: Mapping[str, Any], key: str) -> str:
    """A text for people: on one line, visible, and not too long."""
    return one_line(_raw(raw, key)[: 2 * _TOLD])[:_TOLD]


_FOR_PEOPLE = frozenset({"description", "placeholder", "postInstallInstructions"})


def _hidden_letters(raw: Any) -> Iterator[str]:
    """Why texts that would be written or run are refused: what nobody can see, nobody can confirm."""
    waiting: list[Any] = [raw]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [inner for key, inner in value.items() if key not in _FOR_PEOPLE]
            waiting += list(value)
        elif isinstance(value, list):
            if len(value) > _PARTS:
                yield f"one of its lists has more than {_PARTS} parts"
            waiting += value[:_PARTS]
        elif isinstance(value, str) and (len(value) > _LETTERS or visible(value) != value):
            yield f"one of its texts cannot be shown as it is: {one_line(value)[:60]!r}"


def choose(
    server: ListedServer, wanted: str, has_program: Callable[[str], bool]
) -> tuple[ListedPackage, str] | ListedRemote:
    """The package to start, with the program that starts it, or the address to use.

    Without a wish it is the first package whose program is there, else the first address.

    Raises:
        ConfigError: there is none that can be used here.
    """
    usable = [package for package in server.packages if not package.refusal and wanted in ("", package.kind)]
    for package in usable:
        for program in _programs(package):
            if has_program(program):
                return package, program
    remotes = [remote for remote in server.remotes if not remote.refusal and wanted in ("", "remote")]
    if remotes:
        # Streamable HTTP is the current transport; SSE was given up by the protocol.
        return min(remotes, key=lambda remote: remote.transport == "sse")
    raise _nothing_usable(server, wanted, usable)


def _programs(package: ListedPackage) -> tuple[str, ...]:
    """The programs that can run a package, the one that its publisher hints at first."""
    return tuple(sorted(RUNTIMES[package.kind], key=lambda program: program != package.hint))


def _nothing_usable(server: ListedServer, wanted: str, usable: Sequence[ListedPackage]) -> ConfigError:
    if usable:
        programs = [*dict.fromkeys(program for package in usable for program in _programs(package))]
        problem = f"{server.name} is started by {' or '.join(programs)}, which is not on the PATH"
        suppliers = dict.fromkeys(SUPPLIERS[program] for program in programs)
        return ConfigError(problem, fix=f"Install {' or '.join(suppliers)}.")
    offers: list[ListedPackage | ListedRemote] = [*server.packages, *server.remotes]
    kinds = [package.kind for package in server.packages] + (["remote"] if server.remotes else [])
    if wanted and wanted not in kinds:
        offered = ", ".join(dict.fromkeys(kinds)) or "nothing that could be installed"
        return ConfigError(f"{server.name} has no {wanted}", fix=f"It has: {offered}.")
    told = "; ".join(f"{offer.label}: {offer.refusal}" for offer in offers if offer.refusal)
    fix = "Read its own page, then: portico add NAME -- COMMAND, or portico add NAME URL."
    return ConfigError(f"nothing of {server.name} can be used: {told or 'it lists no package and no address'}", fix=fix)


def questions(chosen: ListedPackage | ListedRemote) -> tuple[AskedValue, ...]:
    """The values that somebody may give, each name once; `is_required` where nothing works without."""
    found: dict[str, AskedValue] = {}
    for asked in _all_values(chosen):
        for leaf in _leaves(asked):
            before = found.get(leaf.name)
            found[leaf.name] = leaf if before is None or leaf.is_required > before.is_required else before
    return tuple(found.values())


def _all_values(chosen: ListedPackage | ListedRemote) -> list[AskedValue]:
    if isinstance(chosen, ListedRemote):
        return [chosen.url, *chosen.headers]
    arguments = (*chosen.runtime_arguments, *chosen.arguments)
    return [*chosen.environment, *(argument.value for argument in arguments)]


def _leaves(asked: AskedValue) -> Iterator[AskedValue]:
    """The value itself where nothing is fixed, else the variables that its template has."""
    if asked.value is None:
        yield asked
    for variable in asked.variables:
        if asked.value is not None and f"{{{variable.name}}}" in asked.value:
            is_required = variable.is_required or asked.is_required
            yield replace(variable, is_required=is_required, is_secret=variable.is_secret or asked.is_secret)


def make_entry(
    chosen: tuple[ListedPackage, str] | ListedRemote,
    given: Mapping[str, Sequence[str]],
    name: str,
    *,
    is_local_list: bool = False,
) -> ListedEntry:
    """The config entry for what was chosen, with the values that were given by name.

    A value may be `${NAME}`, which refers to a variable. Other secrets are told apart from the entry.

    Raises:
        ConfigError: a value that is given cannot be used, or the command would not be the one that is shown.
    """
    filling = _Filling(given, name)
    if isinstance(chosen, ListedRemote):
        return _remote_entry(chosen, filling, is_local_list=is_local_list)
    return _package_entry(*chosen, filling)


class _Filling:
    """Values put into their places: what comes from outside is literal, and secrets become references.

    Until a text is written, a reference stands in it between two NUL, which no text from outside may hold.
    """

    def __init__(self, given: Mapping[str, Sequence[str]], name: str) -> None:
        self._given = given
        self._prefix = _variable_name(name)
        self.secrets: dict[str, str] = {}

    def texts(self, asked: AskedValue, *, is_variable: bool = False) -> list[str]:
        """The texts for one place of a config; none where it is left out."""
        if asked.value is None:
            return self._own(asked, is_variable=is_variable)
        used = {leaf.name: self._own(leaf) for leaf in _leaves(asked)}
        if not all(used.values()):
            return []
        count = max(map(len, used.values()), default=1)
        rounds = ({name: texts[min(n, len(texts) - 1)] for name, texts in used.items()} for n in range(count))
        return [_put_in(asked.value, values) for values in rounds]

    def is_from_outside(self, asked: AskedValue) -> bool:
        """Whether a text begins with what somebody gave, and not with what the publisher wrote."""
        return asked.name in self._given if asked.value is None else asked.value.startswith("{")

    def _own(self, asked: AskedValue, *, is_variable: bool = False) -> list[str]:
        given = self._given.get(asked.name)
        if given is None:
            return [] if asked.default is None else [asked.default]
        if is_variable and asked.is_secret and not _REFERENCE.fullmatch(given[-1]):
            self.secrets[asked.name] = _usable(asked, given[-1])
            return []
        return [self._given_text(asked, value) for value in given]

    def _given_text(self, asked: AskedValue, value: str) -> str:
        if _REFERENCE.fullmatch(value):
            return f"\0{value[2:-1]}\0"
        _usable(asked, value)
        if not asked.is_secret:
            return value
        variable = f"{self._prefix}_{_variable_name(asked.name)}"
        self.secrets[variable] = value
        return f"\0{variable}\0"


def _usable(asked: AskedValue, value: str) -> str:
    """A value that was given.

    Raises:
        ConfigError: it is none of the choices, or cannot be shown.
    """
    if len(value) > _LETTERS or not value.isprintable():
        fix = f"Give up to {_LETTERS} letters on one line."
        raise ConfigError(f"the value of {asked.name} is too long, or holds what nobody can see", fix=fix)
    if asked.choices and value not in asked.choices:
        raise ConfigError(f"the value of {asked.name} is not one of its choices", fix=f"{', '.join(asked.choices)}.")
    return value


def _variable_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).upper()
    return name if name[:1].isalpha() else f"_{name}"


def _put_in(template: str, values: Mapping[str, str]) -> str:
    """A template with its variables filled in; other braces stay as they are."""
    return _BRACED.sub(lambda found: values.get(found[1], found[0]), template)


def _written(text: str) -> str:
    """A text as a config writes it: what looks like a variable of ours is none, but for our references."""
    return _HELD.sub(r"${\1}", text.replace("${", "$${"))


def _package_entry(package: ListedPackage, program: str, filling: _Filling) -> ListedEntry:
    runtime = _words(package.runtime_arguments, filling, keep_flags=True)
    arguments = _words(package.arguments, filling)
    _check_runtime_words(package, runtime)
    env = {asked.name: texts[0] for asked in package.environment if (texts := filling.texts(asked, is_variable=True))}
    names = [asked.name for asked in package.environment if asked.name in env or asked.name in filling.secrets]
    command, *args = map(_written, _command(package, program, runtime, arguments, names))
    entry: dict[str, Any] = {"command": command, "args": args}
    if env:
        entry["env"] = {name: _written(text) for name, text in env.items()}
    entry["timeouts"] = {"start": FIRST_START_SECONDS}
    wide = [word for word in runtime if _WIDE.fullmatch(word.partition("=")[0])] if package.kind == "oci" else []
    remarks = (f"the container is given more of this machine: {' '.join(wide)}",) if wide else ()
    return ListedEntry(entry=entry, secrets=filling.secrets, remarks=remarks)


def _command(
    package: ListedPackage, program: str, runtime: list[str], arguments: list[str], names: list[str]
) -> list[str]:
    """The whole command line; the version is always told."""
    exact = f"{package.identifier}@{package.version}"
    if package.kind == "npm":
        return [program, "-y", *_without(runtime, {"-y", "--yes"}, package), exact, *arguments]
    if package.kind == "pypi":
        return [program, *_without(runtime, set(), package), exact, *arguments]
    if package.kind == "nuget":
        own = _without(runtime, {"--yes", "-y"}, package)
        return [program, exact, "--yes", *own, *(["--", *arguments] if arguments else [])]
    found = _IDENTIFIERS["oci"].fullmatch(package.identifier)
    is_exact = found is not None and (found["tag"] or found["digest"])
    image = package.identifier if is_exact else f"{package.identifier}:{package.version}"
    own = _without(runtime, {"run", "-i", "--interactive", "--rm", image}, package)
    variables = [word for name in names for word in ("-e", name)]
    return [program, "run", "-i", "--rm", *variables, *own, image, *arguments]


def _without(words: Sequence[str], known: set[str], package: ListedPackage) -> list[str]:
    """The runtime's arguments without those that are there anyway."""
    again = {*known, package.identifier, f"{package.identifier}@{package.version}"}
    return [word for word in words if word not in again]


def _words(arguments: Sequence[ListedArgument], filling: _Filling, *, keep_flags: bool = False) -> list[str]:
    """Arguments as words of a command line; no value that was given becomes an option."""
    words = list[str]()
    for argument in arguments:
        texts = filling.texts(argument.value)
        if keep_flags and argument.flag and not texts and not argument.value.is_required:
            words.append(argument.flag)
        is_option = filling.is_from_outside(argument.value) and any(text.startswith("-") for text in texts)
        if is_option and not argument.flag:
            problem = f"{argument.value.name} must not begin with '-': it would be taken for an option"
            raise ConfigError(problem, fix="Give it a value that begins otherwise.")
        for text in texts:
            if not argument.flag:
                words.append(text)
            elif argument.is_switch or is_option:
                words.append(f"{argument.flag}={text}")
            else:
                words += [argument.flag, text]
    return words


def _check_runtime_words(package: ListedPackage, words: Sequence[str]) -> None:
    """Refuse arguments of the runtime that would run something else than the package."""
    before = ""
    for word in _without(words, {"run"}, package):
        is_other = _OTHER_PROGRAMS[package.kind].fullmatch(word.partition("=")[0])
        if is_other or not (word.startswith("-") or before.startswith("-")):
            problem = f"its runtime is to be started with {word!r}, which could run something else than {package.label}"
            raise ConfigError(
                problem, fix="Choose another of its packages with --package, or its address with --remote."
            )
        before = word


def _remote_entry(remote: ListedRemote, filling: _Filling, *, is_local_list: bool) -> ListedEntry:
    url = next(iter(filling.texts(remote.url)), "")
    _check_address(url, is_local_list=is_local_list)
    entry: dict[str, Any] = {"type": "sse" if remote.transport == "sse" else "http", "url": _written(url)}
    headers = {header.name: _written(texts[0]) for header in remote.headers if (texts := filling.texts(header))}
    if headers:
        entry["headers"] = headers
    return ListedEntry(entry=entry, secrets=filling.secrets)


def _check_address(url: str, *, is_local_list: bool) -> None:
    """Refuse an address that is none, that is not encrypted, or that is within this network.

    A list from this machine may name such an address; one from elsewhere must not send us to our own neighbours.
    """
    by_hand = "If it is right, add it by hand: portico add NAME URL."
    plain = _HELD.sub("x", url)
    if not is_address(plain) or "@" in urlsplit(plain).netloc or "\0" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{_written(url)} is not an http or https address of a host that is shown", fix=by_hand)
    if is_local_list:
        return
    parts = urlsplit(plain)
    if parts.scheme != "https" or not has_public_name(parts.hostname or ""):
        raise ConfigError(f"{_written(url)} is not encrypted, or an address within this network", fix=by_hand)


def has_public_name(host: str) -> bool:
    """Whether a host is spelled as a name of the internet: no number, and no name of a local network."""
    plain = host.rstrip(".").casefold()
    return bool(_PUBLIC_NAME.fullmatch(plain)) and not plain.endswith((".localhost", ".local", ".internal", ".arpa"))


def local_name(server: ListedServer, taken: Sequence[str]) -> str:
    """A name for a config: the last part of the server's own, with a number where it is taken."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", server.short_name).strip("-_")[:64] or "server"
    number, name = 2, plain
    while name in taken:
        number, name = number + 1, f"{plain}-{number}"
    return name


def matching(servers: Sequence[ListedServer], words: Sequence[str]) -> list[ListedServer]:
    """The servers that have one of the words, those with more of them in their names first."""
    wanted = [word.casefold() for word in words]

    def points(server: ListedServer) -> tuple[int, int, int]:
        name, about = server.name.casefold(), f"{server.title} {server.description}".casefold()
        in_name = sum(word in name for word in wanted)
        found = sum(word in name or word in about for word in wanted)
        return found, in_name, server.status == "active"

    kept = {server.name: server for server in reversed(servers) if not wanted or points(server)[0]}
    return sorted(kept.values(), key=lambda server: ([-each for each in points(server)], server.name))


def near_servers(name: str, servers: Sequence[ListedServer]) -> list[str]:
    """The names of listed servers that resemble one, the nearest first."""
    whole = [server.name for server in servers]
    short = {server.short_name: server.name for server in servers}
    near = [
        *nearest_names(name, whole, limit=3),
        *(short[n] for n in nearest_names(name.rpartition("/")[2], list(short), limit=3)),
    ]
    return list(dict.fromkeys(near))[:3]
