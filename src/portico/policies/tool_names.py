"""Names of tools as filters compare them: a tool that is spelled another way is still the same tool.

`deny` looks at every spelling, in letters that case, separators, accents, invisible signs and look-alikes make no
difference to. `allow` looks at the original name alone, as it is: a looser look would let more through.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache

from portico.domain.names import identifier
from portico.domain.server import ToolFilter

_SEPARATORS = ("::", "__", ".", "/", ":")
"""What stands between a server and a tool in one of the spellings."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CLASS = re.compile(r"\[[^\]]+\]")
_OTHER = re.compile(r"[^a-z0-9*?]+")
_INVISIBLE = frozenset({"Mn", "Cf", "Cc"})
_LOOK_ALIKES = str.maketrans(
    "аеорсухкмнтвіјѕһԁԛԝɡıοαεικνρτυχωβł",
    "aeopcyxkmhtbijshdqwgioaeiknptuxwbl",
)


@lru_cache(maxsize=20_000)
def permits_tool(filter: ToolFilter, server: str, name: str, handle: str = "") -> bool:
    """Whether a filter lets a tool through; deny wins, an empty allow means all."""
    if filter.deny and _is_denied(filter.deny, server, name, handle):
        return False
    return not filter.allow or any(fnmatchcase(name, glob) for glob in filter.allow)


def _is_denied(globs: Iterable[str], server: str, name: str, handle: str) -> bool:
    alias, _, shown = handle.partition(".")
    names = dict.fromkeys((name, identifier(name), shown or name))
    folded = {form for spelling in names for form in folds(spelling)}
    servers = {form for spelling in (server, alias or server) for form in folds(spelling)}
    return any(
        any(fnmatchcase(spelling, part) for spelling in names)
        or any(fnmatchcase(spelling, form) for form in folds(part) for spelling in folded)
        for glob in globs
        for part in _without_server(glob, servers)
    )


def _without_server(glob: str, servers: Iterable[str]) -> Iterator[str]:
    """A glob as it is, and without the server before it where it names this one, as in `github.delete_*`."""
    yield glob
    for separator in _SEPARATORS:
        before, found, after = glob.removeprefix("/").partition(separator)
        if found and after and not set(folds(before)).isdisjoint(servers):
            yield after


@lru_cache(maxsize=50_000)
def folds(text: str) -> tuple[str, ...]:
    """The forms in which a name or a glob is compared: with its words run together as written, and told apart."""
    shown = "".join(
        sign for sign in unicodedata.normalize("NFKD", text) if unicodedata.category(sign) not in _INVISIBLE
    )
    return tuple(dict.fromkeys(_folded(form) for form in (shown, _HUMP.sub("_", shown))))


def _folded(text: str) -> str:
    """Small letters and digits with one underscore between words; classes of a glob stay as they are."""
    parts, at = list[str](), 0
    lower = text.casefold().translate(_LOOK_ALIKES)
    for found in _CLASS.finditer(lower):
        parts += (_OTHER.sub("_", lower[at : found.start()]), found.group())
        at = found.end()
    return "".join((*parts, _OTHER.sub("_", lower[at:])))
