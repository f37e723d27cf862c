"""Text from outside: made printable, fenced, redacted, and told apart from our own."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from unicodedata import category, normalize
from unicodedata import name as letter_name
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from .server import ServerSpec

_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_CONTROL = re.compile(f"[{_UNSEEN}]")
_CONTROL_OR_BREAK = re.compile(f"[{_UNSEEN}\n\t]")
_SPELLED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Text of any number of lines in which nothing but letters, line breaks and tabs is left."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub("\ufffd", text)


def on_one_line(text: str) -> str:
    """The same on one line: a break is spelled out, so that nothing after it can pose as a line of ours."""
    if text.isprintable() and text.isascii():
        return text
    return _CONTROL_OR_BREAK.sub(lambda found: _SPELLED.get(found[0], "\ufffd"), text)


def spelled_out(json: str) -> str:
    """JSON in which such signs are escapes: a program reads the same, and a terminal obeys nothing."""
    return _CONTROL.sub(lambda found: _escape(ord(found[0])), json)


def _escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


FENCE = "| "
"""Begins every line of foreign text that has lines of its own."""

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that count as printable, and show nothing."""
_SENTENCE = re.compile(r"(?!error |connection failed|local |result\b|nothing |none$)[^\W\d_][^:\[]*\Z", re.I)
"""One line of prose: it begins with a letter, has no label and no tag, and begins as none of ours does."""
_LABELLED = 80
"""Characters of a line in which a label would stand."""


def visible(text: str) -> str:
    """Text without control characters, marks of direction and whatever else shows nothing; also without line ends."""
    if text.isascii() and text.isprintable():
        return text
    return _BLANK.sub("", "".join(filter(str.isprintable, text)))


def one_line(text: str) -> str:
    """Foreign text that stands within a line of ours."""
    return visible(" ".join(text.split()))


def fence(text: str) -> str:
    """Foreign text with lines of its own, each behind the fence; nothing where it says nothing.

    A single line of plain prose, as most descriptions are, needs no fence.
    """
    lines = _lines(text)
    if len(lines) == 1 and _SENTENCE.match(lines[0][:_LABELLED]):
        return lines[0]
    return _behind(FENCE, lines)


def detail(text: str) -> str:
    """One thing that an error tells, in which foreign text may stand: its further lines are fenced."""
    first, *others = _lines(text) or [""]
    return "\n".join([first, _behind(f"  {FENCE}", others)]) if any(others) else first


def json_text(text: str) -> str:
    """JSON on one line, with what shows nothing spelled out: a program reads the same, a reader sees all of it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isprintable() and not _BLANK.match(letter) else _spelled(letter) for letter in text)


def _lines(text: str) -> list[str]:
    return [visible(line.expandtabs(4)).rstrip() for line in text.strip().splitlines()]


def _behind(prefix: str, lines: list[str]) -> str:
    return "\n".join(f"{prefix}{line}".rstrip() for line in lines) if any(lines) else ""


def _spelled(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


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


MARK = "[portico]"
"""The first line of every block that we add; a line of a tool's text that begins so is put behind the fence."""
ORIGIN = "portico/origin"
"""The key in `_meta` that tells programs whose a block is; only our own blocks have it."""
_RESERVED = "portico/"
_WORD = MARK.strip("[]")
_LETTERS = 64
"""Characters of a line that are looked at: nobody would look for the mark behind more of them."""
_ERROR_LENGTH = 1_000
_ERROR = re.compile(r"\W*error\s+[a-z_]{4,30}\s+for\b.*?;\s*(?:nothing|the call) was sent")
"""The first line of an error of ours."""


class OwnBlock(dict[str, Any]):
    """A content block that we wrote; no JSON from outside becomes one."""


def own_block(text: str, *, marked: bool = True) -> OwnBlock:
    """A text block of ours; in a result that may also hold a tool's text it begins with the mark."""
    return OwnBlock(type="text", text=f"{MARK}\n{text}" if marked else text, _meta={ORIGIN: "gateway"})


def attributed(raw: Mapping[str, Any], content: Sequence[Any]) -> dict[str, Any]:
    """A tool's result with this content, in which nothing can be taken for ours."""
    found = {**raw, "content": told_apart(content)} if content else dict(raw)
    if "_meta" in found and _is_marked(found["_meta"]):
        found["_meta"] = _unmarked(found["_meta"])
    return found


def told_apart(content: Sequence[Any]) -> Sequence[Any]:
    """Content in which no block of a tool can be taken for one of ours; the same object where none could."""
    for block in content:
        if type(block) is not OwnBlock and _poses(block):
            return [own if type(own) is OwnBlock else _mended(own) for own in content]
    return content


def _poses(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    text = block.get("text")
    if isinstance(text, str) and may_pose(text):
        return True
    if "_meta" in block and _is_marked(block["_meta"]):
        return True
    return "resource" in block and _poses(block["resource"])


def may_pose(text: str) -> bool:
    """Whether a text may have a line that looks like one of ours; quick where it has none."""
    if text.isascii():
        low = text.lower()
        is_worth_it = _WORD in low or ("error" in low and " was sent" in low)
    else:
        is_worth_it = _CANDIDATE.search(text) is not None
    return is_worth_it and any(map(_is_posing, text.splitlines()))


def unposed(text: str) -> str:
    """A text with every line behind the fence that looks like one of ours."""
    lines = text.splitlines(keepends=True)
    return "".join(f"{FENCE}{line}" if _is_posing(line) else line for line in lines)


def _is_posing(line: str) -> bool:
    begin = skeleton(line[:_LETTERS])
    if _MARKED.match(begin):
        return True
    return "error" in begin and _ERROR.match(skeleton(line[:_ERROR_LENGTH])) is not None


_OPENING = r"[\[({<\u2045\u2768-\u2775\u27e6-\u27ef\u3008-\u301b\uff08\uff3b\uff5b]"
_MARKED = re.compile(rf"[^\w\n]*{_OPENING}\s*{_WORD}\s*[^\w\s\"',/.-]")
"""The mark between brackets of any kind, at the beginning of a line or behind signs alone."""
_CANDIDATE = re.compile(
    rf"(?:^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])[^\w\n]*(?:{_OPENING}|\w{{5}}[^\w\n]+\w{{4,30}}[^\w\n]+\w{{3}}[^\w\n])",
    re.M,
)
"""The beginning of a line that is worth a closer look."""


def _mended(block: Any) -> Any:
    if not _poses(block):
        return block
    found = dict(block)
    if isinstance(found.get("text"), str):
        found["text"] = unposed(found["text"])
    if _is_marked(found.get("_meta")):
        found["_meta"] = _unmarked(found["_meta"])
    if "resource" in found:
        found["resource"] = _mended(found["resource"])
    return found


def _is_marked(meta: object) -> bool:
    return isinstance(meta, Mapping) and any(map(_is_reserved, meta))


def _unmarked(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if not _is_reserved(key)}


def _is_reserved(key: object) -> bool:
    return str(key).strip().casefold().startswith(_RESERVED)


LEAST = 6
"""Letters of the shortest value that is masked: shorter ones are words that occur everywhere."""
PARTS = 10_000
"""Values of foreign data that are looked at; what is beyond is left out."""

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
    for value in (*spec.env.values(), *spec.headers.values()):
        yield from _of_url("url", value)


def certain_secrets_of(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """Those of them that are secret beyond doubt; other values of variables may be ordinary words."""
    ordinary = {value for name, value in spec.env.items() if not SECRET_NAME.search(name) and not TOKEN.search(value)}
    yield from ((name, value) for name, value in secrets_of(spec) if value not in ordinary)


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
