"""How servers and tools are spelled: identifiers, names in `tools/list` that never collide, and look-alikes."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, islice, takewhile
from typing import TypeVar
from unicodedata import category, normalize
from unicodedata import name as letter_name

from portico.domain.tool import ToolId
from portico.text.untrusted import visible

K = TypeVar("K", str, tuple[str, str])

LUA_KEYWORDS = frozenset(
    "and break do else elseif end false for function goto if in local nil not or repeat return then true"
    " until while".split()
)
"""Reserved words of Lua 5.4: no handle part may be one, so that every handle is also a script expression."""

LUA_GLOBALS = frozenset(
    "_G _VERSION assert collectgarbage coroutine debug dofile error getmetatable io ipairs load loadfile math next os"
    " package pairs pcall print rawequal rawget rawlen rawset require select setmetatable string table tonumber"
    " tostring type utf8 warn xpcall args array await_all base64 json null servers".split()
)
"""Names that scripts already have; a server of that name would hide one of them."""

META_TOOLS = frozenset(
    "search_tools describe_tools call_tool read_result run_script search_tool execute_tool".split()
    + "capabilities tool_schema read_resource get_prompt".split()
    + "list_servers list_server_tools tool_details inspect_tool_response execute".split()
)
"""Identifiers of the tools that are the surfaces' own."""

RESERVED_SERVERS = LUA_GLOBALS | META_TOOLS | {"result", "_gateway", "category"}
"""What no server's identifier may be; `category` is a path segment of the REST surface."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_UNLISTABLE = re.compile(r"[^A-Za-z0-9_.-]")
LISTED_LIMIT = 128


def identifier(name: str) -> str:
    """Spell a name so that Lua, Python and every client accept it as one word."""
    safe = _UNSAFE.sub("_", name)
    if not safe:
        return "_unnamed"
    return f"_{safe}" if safe[0].isdigit() or safe in LUA_KEYWORDS else safe


def listable(name: str) -> str:
    """Spell a name within the letters that MCP allows in `tools/list`."""
    return _UNLISTABLE.sub("_", name) or "_unnamed"


def server_identifier(name: str) -> str:
    """Spell a server's name; reserved words are moved out of the way with a leading underscore."""
    safe = identifier(name)
    return f"_{safe}" if safe in RESERVED_SERVERS else safe


SEPARATORS = ("::", "__", "/", ".")  # what may stand between a server and a tool


def splits(text: str, longest: int) -> Iterator[tuple[str, str]]:
    """Every reading of a text as a server, a separator and a name; `longest` is how long a server's name can be."""
    for separator in SEPARATORS:
        start = text.find(separator, 1)
        while 0 < start <= longest:
            yield text[:start], text[start + len(separator) :]
            start = text.find(separator, start + 1)


class Owners:
    """The names that belong to servers and to us: no tool of another server is meant by them, or by a look-alike."""

    __slots__ = ("_longest", "_ordered", "_servers")

    def __init__(self, identifiers: Mapping[str, str]) -> None:
        self._servers: dict[str, set[str]] = {}
        for name, own in identifiers.items():
            for spelling in {skeleton(name), skeleton(own)}:
                self._servers.setdefault(spelling, set()).add(name)
        self._longest = max(map(len, self._servers), default=0)
        self._ordered = sorted(self._servers)

    def begins_another(self, spelling: str, own: str) -> bool:
        """Whether the name of another server begins with a spelling."""
        text = skeleton(spelling)
        place = bisect_right(self._ordered, text)
        longer = takewhile(lambda name: name.startswith(text), islice(self._ordered, place, None))
        return any(own not in self._servers[name] for name in longer)

    def is_reserved(self, spelling: str, known: Container[str]) -> bool:
        """Whether a spelling is a meta-tool's name, or begins with a server of which nothing is known."""
        text = skeleton(spelling)
        return _is_meta(text) or any(name not in known for name, _ in self._named(text))

    def speaks_for_another(self, spelling: str, own: str) -> bool:
        """Whether a name is or begins as another server's names do: `github__review` of a server that is not github."""
        text = skeleton(spelling)
        if _is_meta(text) or own not in self._servers.get(text, {own}):
            return True
        longest = max(
            (begin for begin, _ in splits(text, self._longest) if begin in self._servers), key=len, default=""
        )
        return bool(longest) and own not in self._servers[longest]

    def joined(self, spelling: str, own: str) -> Iterator[tuple[str, str]]:
        """The readings of a name as another server and a tool of it with one underscore between."""
        text = skeleton(spelling)
        start = text.find("_", 1)
        while 0 < start <= self._longest:
            yield from ((name, text[start + 1 :]) for name in self._servers.get(text[:start], ()) if name != own)
            start = text.find("_", start + 1)

    def _named(self, text: str) -> Iterator[tuple[str, str]]:
        for begin, rest in splits(text, self._longest):
            yield from ((name, rest) for name in self._servers.get(begin, ()))


def _is_meta(folded: str) -> bool:
    return identifier(folded) in META_TOOLS


def distinct(spelled: Iterable[tuple[K, str]], taken: Container[str] = (), wanted: Container[str] = ()) -> dict[K, str]:
    """Give each (original, wanted) pair a spelling of its own, in sorted order of the originals.

    The first original keeps what it wanted, unless it is taken; the next ones get `_2`, `_3`. A suffix never runs into
    a spelling that somebody else wanted, here or in `wanted`, so the outcome does not depend on the order of arrival.
    """
    pairs = sorted(spelled)
    here = {spelling for _, spelling in pairs}
    if not taken and len(here) == len(pairs):
        return dict(pairs)
    used: set[str] = set()
    chosen: dict[K, str] = {}
    following: dict[str, int] = {}  # where the count of a spelling stands, so that many collisions stay cheap
    for original, spelling in pairs:
        candidate, number = spelling, following.get(spelling, 2)
        while (
            candidate in used
            or candidate in taken
            or (candidate != spelling and (candidate in here or candidate in wanted))
        ):
            candidate, number = f"{spelling}_{number}", number + 1
        used.add(candidate)
        following[spelling] = number
        chosen[original] = candidate
    return chosen


BARE = frozenset({"local", "database"})  # the sources whose tools are listed without their server


def name_servers(aliases: Mapping[str, str]) -> dict[str, str]:
    """Identifiers for servers; `aliases` maps each configured name to its alias, or to an empty string."""
    return distinct((name, server_identifier(alias or name)) for name, alias in aliases.items())


def name_tools(names: Iterable[str]) -> dict[str, str]:
    """Identifiers for the tools of one server, in sorted order of their names."""
    return distinct((name, identifier(name)) for name in names)


class PlainHandles:
    """Handles that follow from names alone, so that no snapshot is needed to tell them: where no two are spelled alike.

    Names that were given back are still counted, which only means that a snapshot is asked.
    """

    def __init__(self) -> None:
        self._servers: dict[str, set[str]] = {}
        self._tools: dict[tuple[str, str], set[str]] = {}

    def add(self, id: ToolId) -> None:
        """Note a tool."""
        self._servers.setdefault(server_identifier(id.server), set()).add(id.server)
        self._tools.setdefault((id.server, identifier(id.name)), set()).add(id.name)

    def find(self, id: ToolId) -> str:
        """The handle of a tool that was added; empty where other names have a say in it."""
        server, tool = server_identifier(id.server), identifier(id.name)
        is_alone = len(self._servers[server]) == len(self._tools[id.server, tool]) == 1
        return f"{server}.{tool}" if is_alone and not strangeness(id.name) else ""


def wish_names(server: str, names: Iterable[str], source: str) -> dict[str, str]:
    """The name that each tool of a server has in `tools/list`, unless another tool wants it too.

    A tool of our own or of a registry is listed bare, unless a surface lists a tool of its own under that name.
    """
    prefix = f"{listable(server)}__"
    return {name: _wish(prefix, ToolId(server, name), source) for name in names}


def prefixed(server: str, name: str) -> str:
    """The name in `tools/list` that tells the server too."""
    return _fitted(f"{listable(server)}__{listable(name)}", ToolId(server, name))


class Apart:
    """Names in `tools/list` that speak for no other server; worked out again only for servers that have changed."""

    def __init__(self) -> None:
        self._identifiers: Mapping[str, str] = {}
        self._owners = Owners({})
        self._known: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def of(
        self, wishes: Mapping[str, Mapping[str, str]], identifiers: Mapping[str, str]
    ) -> dict[str, Mapping[str, str]]:
        """The names of every server's tools, by server."""
        if identifiers != self._identifiers:
            self._identifiers, self._owners, self._known = identifiers, Owners(identifiers), {}
        known = self._known
        self._known = {
            server: known[server]
            if server in known and known[server][0] is own
            else (own, spell_apart(server, own, self._owners))
            for server, own in wishes.items()
        }
        return {server: found for server, (_, found) in self._known.items()}


def spell_apart(server: str, wishes: Mapping[str, str], owners: Owners) -> Mapping[str, str]:
    """The same names, but for those that would speak for another server, which say whose they really are."""
    begin = f"{listable(server)}__"
    if all(wish.startswith(begin) for wish in wishes.values()) and not owners.begins_another(listable(server), server):
        return wishes
    foreign = {name for name, wish in wishes.items() if owners.speaks_for_another(wish, server)}
    if not foreign:
        return wishes
    return {name: _marked(server, name, wish) if name in foreign else wish for name, wish in wishes.items()}


def _marked(server: str, name: str, wish: str) -> str:
    spelled = wish if wish.startswith(f"{listable(server)}__") else prefixed(server, name)
    return f"{spelled[: LISTED_LIMIT - 21]}_{_hash(ToolId(server, name))}"


def tell_apart(wishes: Mapping[str, Mapping[str, str]], handles: Container[str]) -> dict[str, dict[str, str]]:
    """Other names, by server and tool, for those that cannot be listed as they wish.

    Two tools are never listed under one name, and none under the handle of any tool. Only a contested wish is looked
    at again: which suffix it leads to depends on those who share it, and on what all others want.
    """
    wanted = Counter(chain.from_iterable(own.values() for own in wishes.values()))
    contested = {wish for wish, count in wanted.items() if count > 1 or ("." in wish and wish in handles)}
    shared = {
        (server, name): wish
        for server, own in (wishes.items() if contested else ())
        for name, wish in own.items()
        if wish in contested
    }
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (server, name), listed in distinct(shared.items(), taken=handles, wanted=wanted).items():
        if listed != shared[server, name]:
            found[server][name] = listed
    return found


class Handles:
    """Every handle there is, known by its two halves: a server's identifier, and one among its tools' identifiers."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Mapping[str, Container[str]]) -> None:
        self._tools = tools

    def __contains__(self, spelling: object) -> bool:
        server, _, tool = str(spelling).partition(".")
        return tool in self._tools.get(server, ())


def _wish(prefix: str, id: ToolId, source: str) -> str:
    bare = listable(id.name)
    if source in BARE and identifier(bare) not in META_TOOLS:
        return _fitted(bare, id)
    return _fitted(prefix + bare, id)


def _fitted(spelling: str, id: ToolId) -> str:
    """A name over the limit is cut and marked with a hash of the whole, so that no cut merges two tools."""
    room = LISTED_LIMIT - 8  # for the `_2` of a collision
    if len(spelling) <= room:
        return spelling
    return f"{spelling[: room - 13]}_{_hash(id)}"


def _hash(id: ToolId) -> str:
    return hashlib.sha256(f"{id.server}\0{id.name}".encode()).hexdigest()[:12]


_ALIKE = {
    "a": "аɑαᴀⱥӑӓꭺꓮᎪ∀",
    "b": "ЬьвʙᏏЪƅɓҍꓐВΒβßᛒ",
    "c": "сϲᴄⅽꮯꓚСϹᏟ¢ƈҫ",
    "d": "ԁɗᏧⅾꓒđðᎠꓓժ",
    "e": "еҽɛєҿᴇεΕЕꭼꓰᎬⴹɇ℮ә℈ǝ",
    "f": "ſƒꞙϝքꜰꓝẝ",
    "g": "ɡցᶃɢԍցǥɠᏀᏻꓖ",
    "h": "һհʜнНΗᏂꓧᎻԋћђɦ",
    "i": "іιɩıӏΙІЇїϊᎥⅰꓲɪ¡יⵏꙇ",
    "j": "јϳʝЈᎫꓙɉյ",
    "k": "κкĸᴋКΚⲔꓗᏦҝқҟӄƙ",
    "l": "ⅼӀ∣ⵏǀꓡᏞ⏽łƖɫʟℓІו׀ןا١۱",
    "m": "мМΜᴍⅿꓟᎷϺɱ",
    "n": "ոռпηΝɴꓠηńƞŋᴎ",
    "o": "оοσօ०੦ဝᴏОΟՕѲѳθөøꓳⲞⵔ๐໐٥۵ס○◦ߋ〇ɵ0",
    "p": "рρϱΡРᴘⲢꓑᏢƥ⍴",
    "q": "ԛգզɋʠⵕ",
    "r": "гᴦꭇꮁⲅʀгƦᎡꓣɍ",
    "s": "ѕꜱƽꮪЅՏᏚꓢʂ§ȿ",
    "t": "тτᴛТΤꓔᎢⲦƭŧʈ†",
    "u": "υսᴜꞟʋцՍꓴᑌμɥų",
    "v": "ѵνᴠⅴѴᏙꓦ∨٧۷ט",
    "w": "ѡաԝᴡɯШшщωᎳꓪ₩ѿ",
    "x": "хχ×ⅹХΧꓫᕁ᙮ҳ⨯",
    "y": "уγүʏყУΥҮꓬᎩўƴɏ¥",
    "z": "ᴢΖꓜᏃƶʐȥɀ",
    "_": "ˍ‗﹍﹎﹏",
    "-": "‐‑‒–—―−⁃➖ー一",
    ".": "․·‧・。٠۰•",
    "/": "∕⁄╱⧸",
    ":": "ː∶᛬：׃։",
    "[": "❲〔⟦【「『⁅",
    "]": "❳〕⟧】」』⁆",
    "1": "１",
    "2": "ƨϩ",
    "3": "ЗзӡɜƷȝ",
    "4": "Ꮞ",
    "6": "бᏮ",
    "8": "৪Ȣȣ",
}
"""Letters of other scripts by the plain one that they look like."""

_TABLE = {ord(letter): plain for plain, letters in _ALIKE.items() for letter in letters if not letter.isascii()}


def skeleton(text: str) -> str:
    """What a text looks like, in plain letters of one case."""
    if text.isascii():
        return text.strip().lower()
    parts = normalize("NFKD", normalize("NFKC", visible(text).translate(_TABLE)).translate(_TABLE))
    plain = "".join(letter for letter in parts if category(letter) != "Mn")
    return plain.translate(_TABLE).casefold().translate(_TABLE).strip()


def is_mixed(text: str) -> bool:
    """Whether a text has letters of more than one script."""
    return len({letter_name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()}) > 1


def imitations(names: Mapping[str, Iterable[str]], known: Iterable[str]) -> dict[str, dict[str, str]]:
    """By server, the names that look like another name or like a known one, each with the one that it looks like.

    Plain letters count as the original, then letters of one script. Within a server, blanks at an end tell names apart.
    """
    given = {server: list(own) for server, own in names.items()}
    originals: dict[str, tuple[int, str, str]] = {skeleton(one): (0, one, "") for one in known if one.isascii()}
    for server, own in given.items():
        for one in own:
            row = (strangeness(one), one, server)
            originals[skeleton(one)] = min(originals.get(skeleton(one), row), row)
    found: dict[str, dict[str, str]] = {}
    for server, own in given.items():
        for one in filter(strangeness, own):
            rank, like, whose = originals[skeleton(one)]
            if rank < strangeness(one) and (whose != server or not one.isascii()):
                found.setdefault(server, {})[one] = like
    return found


def strangeness(text: str) -> int:
    """How far a name is from plain letters: 0 has nothing but them."""
    if text.isascii():
        return 0 if text == text.strip() else 3
    return 2 if is_mixed(text) or normalize("NFKC", text) != text else 1
