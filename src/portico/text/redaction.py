"""Secrets found in the config of servers, and masked in any text and JSON."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from portico.domain.server import ServerSpec

LEAST = 6  # letters of the shortest value that is masked: shorter ones are words that occur everywhere
PARTS = 10_000  # values of foreign data that are looked at; what is beyond is left out

PRIVATE_WORD = (
    r"(?:token|secret|passw|passphrase|pwd|credential|bearer|authorization|api[-_]?key|apikey|private[-_]?key)"
)
SECRET_NAME = re.compile(PRIVATE_WORD + r"|(?:^|[-_])(?:key|auth|pat)$", re.IGNORECASE)
"""What the name of a field, flag or variable looks like whose value is secret."""
TOKEN = re.compile(
    r"(?:gh[opsur]_|github_pat_|glpat-|sk-|pk-|xox[abeprs]-|AKIA|ASIA|AIza|eyJ|npm_|hf_|pypi-|ntn_|lin_api_)[\w.-]{6,}"
    r"|(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9_]{24,}(?![\w-])"
)
"""What a token looks like, wherever it stands."""
ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[\w.-]+)(?P<sign>=|:\s+)(?P<value>.+)", re.DOTALL)
ENV_FLAGS = frozenset({"-e", "--env", "-H", "--header", "--headers"})
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|Digest|ApiKey)\s+", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")


class Redactor:
    """Masks known secrets in any text, as they are and as they are usually encoded: `[NAME]` stands in their place."""

    def __init__(self, secrets: Iterable[tuple[str, str]] = ()) -> None:
        """Take pairs of a name, which may be shown, and a value, which may not."""
        self._names: dict[str, str] = {}
        for name, value in secrets:
            for form in _forms(value):
                self._names.setdefault(form, f"[{name}]")
        longest_first = sorted(self._names, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __bool__(self) -> bool:
        return self._found is not None

    def text(self, text: str) -> str:
        """A text without secrets."""
        if self._found is None:
            return text
        return self._found.sub(lambda found: self._names[found[0]], text)

    def texts(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Texts without secrets."""
        return tuple(map(self.text, texts))

    def data(self, value: Any, parts: int = PARTS) -> Any:
        """JSON without secrets, neither in its texts nor in its names; of very large data the beginning."""
        if self._found is None:
            return value
        return self._data(value, [parts], 0)

    def is_in(self, text: str) -> bool:
        """Whether there is a secret in a text."""
        return self._found is not None and self._found.search(text) is not None

    def _data(self, value: Any, left: list[int], depth: int) -> Any:
        left[0] -= 1
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if left[0] < 0 or depth > 100:
            return None
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._data(item, left, depth + 1) for name, item in value.items()}
        return [self._data(item, left, depth + 1) for item in value]


def secrets_of(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """Every value in the config of a server that may be secret, with the name of its place."""
    yield from spec.secrets.items()
    yield from spec.env.items()
    for name, value in spec.headers.items():
        yield from _of_header(name, value)
    yield from _of_url("url", spec.url)
    yield from _of_arguments(spec.args)
    yield from _hidden(spec)
    for value in (*spec.env.values(), *spec.headers.values()):
        yield from _of_url("url", value)


def certain_secrets_of(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """Those of them that are secret beyond doubt; other values of variables may be ordinary words."""
    ordinary = {value for name, value in spec.env.items() if not SECRET_NAME.search(name) and not TOKEN.search(value)}
    ordinary |= {value for name, value in _hidden(spec) if not SECRET_NAME.search(name) and not TOKEN.search(value)}
    yield from ((name, value) for name, value in secrets_of(spec) if value not in ordinary)


def _hidden(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """The texts that overrides send for parameters which nobody sees."""
    for override in spec.labels.overrides.values():
        yield from ((name, value) for name, value in override.hidden.items() if isinstance(value, str))


def _of_header(name: str, value: str) -> Iterator[tuple[str, str]]:
    """A header's value, what follows its scheme, and the two halves of a user and a password."""
    yield name, value
    if scheme := _SCHEME.match(value):
        credentials = value[scheme.end() :].strip()
        yield name, credentials
        if scheme[0].lower().startswith("basic"):
            yield from ((name, part) for part in _decoded(credentials))
    for part in re.split(r"[;,]\s*", value):
        _, sign, inner = part.partition("=")
        if sign:
            yield name, inner.strip('" ')


def _decoded(credentials: str) -> list[str]:
    try:
        pair = b64decode(credentials, validate=True).decode()
    except ValueError:
        return []
    return [pair, pair.partition(":")[2]]


def _of_url(name: str, text: str) -> Iterator[tuple[str, str]]:
    for found in _URL.findall(text) if "://" in text else ():
        try:
            parts = urlsplit(found)
            user, password = parts.username, parts.password
        except ValueError:
            continue
        if password:
            yield name, unquote(password)
        elif user:
            yield name, unquote(user)
        yield from ((name, value) for _, value in parse_qsl(parts.query))
        yield from ((name, inner) for inner in TOKEN.findall(parts.path))


def _of_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The values among arguments that are secret by the flag before them, by their name or by their looks."""
    before = ""
    for argument in arguments:
        found = ASSIGNMENT.fullmatch(argument)
        if found and (before in ENV_FLAGS or SECRET_NAME.search(found["name"])):
            yield from _of_header(found["name"].strip("-") or "args", found["value"])
        elif before.startswith("-") and "=" not in before and SECRET_NAME.search(before.strip("-")):
            yield from _of_header(before.strip("-"), argument)
        yield from _of_url("args", argument)
        yield from (("args", token) for token in TOKEN.findall(argument))
        before = argument


def _forms(value: str) -> Iterator[str]:
    """A value as it is, percent-encoded, in base64, and as JSON and `repr` write it."""
    for form in {value, value.strip()}:
        if len(form) < LEAST:
            continue
        encoded = b64encode(form.encode("utf-8", "replace")).decode().rstrip("=")
        escaped = form.encode("unicode_escape").decode()
        forms = (form, quote(form, safe=""), quote_plus(form), quote(form), encoded, escaped, form.replace('"', '\\"'))
        yield from (written for written in forms if len(written) >= LEAST)


def target_of(spec: ServerSpec) -> str:
    """How a server is reached, for people; user names, queries and arguments may hold secrets and are not shown."""
    if spec.url:
        parts = urlsplit(spec.url)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return Redactor(secrets_of(spec)).text(shown)
    count = len(spec.args)
    return spec.command + (f" (with {count} argument{'s' if count > 1 else ''})" if count else "")
