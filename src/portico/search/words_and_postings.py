"""Texts become stemmed words; the fields of a tool that are searched; and the postings: which tools have a word."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from portico.domain.tool import Tool

STOP_WORDS = frozenset(
    "a an the of to in on at by for from with without and or is are be was were been it its this that these those as if"
    " into onto over under about i me my we our you your he she they them their his her can could would should will"
    " may might must do does did please want need like how what which who when where there here then than so just also"
    " some any all each every no not only via using use used".split()
)

_IDENTIFIER = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_ACCENTS = "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u036f"
_OTHER_LETTERS = re.compile(
    rf"[A-Z]+(?=[A-Z][a-z])|[A-Za-z]{{0,59}}[{_ACCENTS}][A-Za-z{_ACCENTS}]*|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+"
)
"""The same beyond ASCII: an accent does not tear its word, and another alphabet does not swallow a Latin one."""
_LITERAL = re.compile(
    r"https?://\S+|\"[^\"]*\"|(?<!\w)'[^']{3,}'(?!\w)|`[^`]*`|(?<![\w./-])(?:[\w.-]*/){2,}[\w.-]*|\b\d[\d.,:-]*\b"
)
_CONTRACTION = re.compile(r"(?<=\w)['\u2019](?:s|re|ve|ll|d|m)\b|\b\w+n['\u2019]t\b", re.IGNORECASE)
LITERAL_WEIGHT = 0.3
PATH_WEIGHT = 0.05  # what a word of a path or URL counts: it names a thing, and hardly ever what to do with it
WORD_LENGTH = 60  # letters of a word that are compared, so that no text can fill the memory with its words
QUERY_LIMIT = 20_000  # characters of a query that are read; the rest cannot change what it asks for


def pieces(text: str) -> list[str]:
    """The words of a text as they stand there, identifiers split."""
    return (_IDENTIFIER if text.isascii() else _OTHER_LETTERS).findall(text)


def stems(found: list[str]) -> list[str]:
    """The stems of words, without the common ones."""
    return [word for raw in found if (word := _STEMS[raw])]


def words(text: str) -> list[str]:
    """The stemmed words of a text, in order."""
    return stems(pieces(text))


@lru_cache(16_384)
def name_words(name: str) -> frozenset[str]:
    """The stemmed words of a tool's name, remembered: hits are compared by them again and again."""
    return frozenset(words(name))


def spelled(raw: str) -> str:
    """A word in small letters; empty for a common one and for a number."""
    word = raw[:WORD_LENGTH].lower()
    return "" if word in STOP_WORDS or word.isdigit() else word


def spelled_words(text: str) -> list[str]:
    """The words of a text in small letters; common words and numbers are left out."""
    return [word for raw in pieces(text) if (word := spelled(raw))]


def is_english(text: str, is_known: Callable[[str], bool]) -> bool:
    """Whether a query shows at once that it is English, by the words that are known of it."""
    if not text.isascii() and _CHARACTERS.search(text):
        return False
    found = _LETTERS.findall(text[:LANGUAGE_SEEN].lower())
    unknown = sum(not is_known(word) for word in found)
    short = sum(len(word) < SHORT_WORD and word not in STOP_WORDS for word in found)
    return not unknown or unknown + short <= 2 * sum(word in _ENGLISH_ONLY for word in found)


LANGUAGE_SEEN = 2_000  # characters of a query in which its language shows
SHORT_WORD = 5  # letters from which on a common word of another language is none of the vocabulary
_ENGLISH_ONLY = STOP_WORDS - set("a an as he i in me on or so was will".split())
_CHARACTERS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def query_words(text: str) -> dict[str, float]:
    """Each word of a query once, as spelled, with its weight; quoted strings, paths, URLs and numbers count less."""
    text = text[:QUERY_LIMIT]
    literals = _LITERAL.findall(text)
    weights = dict.fromkeys(_query_words(_LITERAL.sub(" ", text) if literals else text), 1.0)
    for literal in sorted(literals, key=_is_path):
        for word in _query_words(literal):
            weights.setdefault(word, PATH_WEIGHT if _is_path(literal) else LITERAL_WEIGHT)
    return weights


def _is_path(literal: str) -> bool:
    return "/" in literal


def _query_words(text: str) -> Iterator[str]:
    found = (raw[:WORD_LENGTH].lower() for raw in pieces(_CONTRACTION.sub("", text)))
    return (word for word in found if word not in STOP_WORDS)


class _Stems(dict[str, str]):
    """Each word as it was written, with its stem or nothing for a common one; a look-up costs no call of ours."""

    def __missing__(self, raw: str) -> str:
        word = unicodedata.normalize("NFC", raw[:WORD_LENGTH]).lower()
        found = "" if word in STOP_WORDS else stem(word)
        if len(self) >= REMEMBERED:
            self.clear()
        if len(raw) <= WORD_LENGTH:
            self[raw] = found
        return found


_STEMS = _Stems()
REMEMBERED = 65_536


def stem_of(word: str) -> str:
    """The stem of one word, remembered; empty for a common one."""
    return _STEMS[word]


def stem(word: str) -> str:
    """A light stem: plural, -ing, -ed and -er endings go, enough for tool descriptions."""
    if (known := _IRREGULAR.get(word)) is not None:
        return known
    for ending, shortest, replacement in _BY_LAST_LETTER.get(word[-1:], ()):
        if word.endswith(ending) and len(word) - len(ending) >= shortest:
            return _undouble(word[: -len(ending)] + replacement)
    return _undouble(word)


_IRREGULAR = {word: word for word in ("alias", "bias", "canvas", "embed", "hundred", "news")} | {"menus": "menu"}
"""Words that only look as if they had an ending, and one that looks as if it had none."""
_ENDINGS = (
    ("ations", 3, "at"),
    ("ation", 3, "at"),
    ("ies", 2, "y"),
    ("sses", 2, "ss"),
    ("ches", 2, "ch"),
    ("shes", 2, "sh"),
    ("xes", 2, "x"),
    ("erings", 4, ""),
    ("ering", 4, ""),
    ("oring", 5, ""),
    ("ings", 3, ""),
    ("ing", 3, ""),
    ("ied", 2, "y"),
    ("eed", 1, "eed"),
    ("ered", 4, ""),
    ("ored", 5, ""),
    ("ed", 3, ""),
    ("ors", 4, ""),
    ("ers", 4, ""),
    ("or", 4, ""),
    ("er", 4, ""),
    ("es", 3, ""),
    ("ss", 1, "ss"),
    ("us", 3, "us"),
    ("s", 3, ""),
    ("ie", 3, "y"),
    ("e", 3, ""),
)
_BY_LAST_LETTER = {
    letter: tuple(row for row in _ENDINGS if row[0][-1] == letter) for letter in {row[0][-1] for row in _ENDINGS}
}


def _undouble(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouslz":
        return word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


ACTION_WEIGHT = 0.15
THING_WEIGHT = 0.4
SHORT_FORM_WEIGHT = 0.7

_ACTIONS = """
create add new make insert generate open
delete remove drop erase clear destroy discard
get fetch retrieve read show view display obtain
list enumerate browse
search find lookup query locate discover
update edit modify change alter patch set adjust
send post publish share deliver submit
run execute launch start invoke trigger perform
stop cancel abort terminate halt kill end
calculate compute determine evaluate
check verify validate test confirm
convert transform translate
move rename relocate
copy duplicate clone
download save export
upload import
book reserve schedule
buy purchase order
compare diff difference
merge combine join concatenate
recommend suggest
chart plot graph visualize
undo revert restore rollback
"""
_THINGS = """
picture image photo
folder directory
bug issue ticket defect
mail email
document file
user account member person people
movie film
song music track
price cost rate
job task
webpage website site page link
row record entry
column field attribute
forecast weather
location place address
node entity
relation relationship
history log changelog
fact observation
note memo
comment feedback remark
spreadsheet workbook excel
sheet worksheet
slide presentation deck
meeting appointment event
folder path
screenshot capture
chat conversation thread
shell terminal command
customer client
employee staff
login signin authenticate
vector embedding
crawl scrape
webpage url
company business organization
stock share ticker
flight airfare
hotel accommodation
recipe meal
"""
_SHORT_FORMS = """
repo repository
db database
dir directory
env environment
config configuration
msg message
img image
doc document
docs documentation
auth authentication
temp temperature
app application
info information
param parameter
pic picture
org organization
admin administrator
stats statistics
dev development
prod production
calc calculate
del delete
num number
gh github
gl gitlab
k8s kubernetes kubectl
pg postgres postgresql
mongo mongodb
docx word
xlsx excel
pptx powerpoint
js javascript
ts typescript
py python
tz timezone
cal calendar
addr address
desc description
img screenshot
fs filesystem
gdrive drive
calc calculator
tx transaction
btc bitcoin
eth ethereum
loc location
attr attribute
val value
id identifier
ctx context
wx weather
"""


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        group = [stem(word) for word in line.split()]
        yield from ((one, other) for one in group for other in group if one != other)


def _table() -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for text, weight in ((_ACTIONS, ACTION_WEIGHT), (_THINGS, THING_WEIGHT), (_SHORT_FORMS, SHORT_FORM_WEIGHT)):
        for one, other in _pairs(text):
            found.setdefault(one, {})[other] = weight
    return found


SYNONYMS = _table()  # the stem of each word with the stems that mean nearly the same, and how much they count beside it


@lru_cache(REMEMBERED)
def action_and_thing(name: str) -> tuple[str, str]:
    """What a tool does, by its name, as one word for all words of that kind, and the thing that it does it to."""
    found = words(name)
    actions = [kind for word in found if (kind := _KINDS.get(word))]
    things = [word for word in found if word not in _KINDS and not word.isdigit()]
    return actions[0] if actions else "", things[-1] if things else ""


_KINDS = {stem(word): line.split()[0] for line in _ACTIONS.split("\n") for word in line.split()}
_READING = ("list", "search", "download", "open")  # these ways to read are told apart by nobody who names a tool
_KINDS |= {word: "get" for word, kind in _KINDS.items() if kind in _READING}

DETAIL_LIMIT = 20_000
"""Characters of parameter text that are read from one tool, so that no schema can buy itself a place."""
CHOICES_READ = 50
NAME_MARK = "="  # begins a whole name among the words, where no word can begin with it
HANDLE_MARK = "@"  # begins another spelling of a name, such as its handle

_PUNCTUATION = re.compile(r"\W")


def fields(tool: Tool) -> dict[str, str]:
    """The texts of a tool's fields."""
    details = " ".join(text for schema in tool.properties.values() for text in _texts(schema))
    purpose, rest = split_description(tool.description)
    category = "" if tool.category in ("misc", tool.id.server) else tool.category
    return {
        "name": f"{tool.name} {tool.title}",
        "shelf": " ".join((tool.id.server, category, *tool.tags)),
        "purpose": purpose,
        "description": rest,
        "parameters": " ".join(tool.properties)[:DETAIL_LIMIT],
        "details": details[:DETAIL_LIMIT],
    }


def split_description(text: str) -> tuple[str, str]:
    """What a tool is for, which is its first sentence or the beginning of a long one, and what else is said of it."""
    first = _FIRST_WORDS.match(text)
    if first is None:
        return "", ""
    end = _END_OF_SENTENCE.search(first[0])
    at = end.end() if end else first.end()
    return text[:at], text[at:]


PURPOSE_LENGTH = 400  # characters of a description in which two tools are compared; they are remembered


@lru_cache(16_384)
def purpose_words(beginning: str) -> frozenset[str]:
    """The stemmed words of what a tool is for, by the beginning of its description."""
    return frozenset(words(split_description(beginning)[0]))


_FIRST_WORDS = re.compile(r"\s*\S+(?:\s+\S+){0,29}")
_END_OF_SENTENCE = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?](?=\s)|[\u3002\uff01\uff1f]|(?<=\S)\s*\n\s*\n")


def read(tool: Tool) -> dict[str, list[str]]:
    """The words of a tool's fields as they stand there."""
    return {field: pieces(text) for field, text in fields(tool).items()}


def document(tool: Tool, found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The stems of each field's words, and the whole names."""
    return {**{field: stems(listed) for field, listed in found.items()}, "whole": _marks(tool)}


def _marks(tool: Tool) -> list[str]:
    """The whole names of a tool, its initials, and its words without their order."""
    name, found = compact(tool.name), pieces(tool.name)
    others = {compact(spelling) for spelling in (tool.handle, tool.listed, str(tool.id))} - {name}
    initials = "".join(piece[0] for piece in found)
    spelled = [NAME_MARK + name if name else "", *(HANDLE_MARK + other for other in sorted(others) if other)]
    return [*filter(None, spelled), initials_mark(initials), order_mark(found)]


def initials_mark(letters: str) -> str:
    """The word that only tools have whose names have these initials."""
    return "^" + letters.casefold()


def order_mark(found: list[str]) -> str:
    """The word that only tools have whose names have just these words, in whatever order."""
    return "&" + " ".join(sorted(stem_of(piece) or piece.lower() for piece in found))


def plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())


def compact(name: str) -> str:
    """A name without regard to case, punctuation and where its words end."""
    return plain(name).replace("_", "")


def _texts(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    description = schema.get("description")
    if isinstance(description, str):
        yield description
    choices = schema.get("enum")
    if isinstance(choices, list):
        yield from (choice for choice in choices[:CHOICES_READ] if isinstance(choice, str))
    inner = schema.get("properties")
    if isinstance(inner, dict):
        yield from (str(name) for name in inner)


Numbers = NDArray[np.int32]
Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Field:
    """How much a field counts, how much its length is held against it, and how long such a text usually is."""

    weight: float
    length_norm: float
    usual: float


FIELDS: Mapping[str, Field] = {
    "name": Field(3.0, 0.3, 3),
    "shelf": Field(1.0, 0.2, 1.5),
    "purpose": Field(1.0, 0.6, 12),
    "description": Field(0.5, 0.6, 20),
    "parameters": Field(0.6, 0.6, 4),
    "details": Field(0.3, 0.7, 30),
    "whole": Field(1.0, 0.0, 1),
}
"""BM25F with usual lengths instead of the catalog's own: what a word says of a tool does not change with the rest."""
SATURATION = 1.2
LEFTOVERS = 4_096  # words up to which nothing is tidied away

Document = Mapping[str, Sequence[str]]  # the words of each field of a tool, as often as they stand there


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The tools of each word one after the other, by number, with the value of the word there."""

    words: dict[str, int]
    """Grows from snapshot to snapshot; an older one ignores the words that came after it, and most are in use."""
    starts: NDArray[np.int64]
    tools: Numbers
    values: Values
    size: int  # how many tools there are
    places: list[int] = field(init=False)  # the starts again: a list gives out single numbers faster

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", self.starts.tolist())

    def of(self, word: str) -> tuple[Numbers, Values]:
        """The tools that have a word, in ascending order, and its value in each."""
        number = self.words.get(word, len(self.places))
        if number >= len(self.places) - 1:
            return _NO_TOOLS, _NO_VALUES
        start, end = self.places[number], self.places[number + 1]
        return self.tools[start:end], self.values[start:end]

    def counts(self, within: NDArray[np.bool_] | None) -> list[int]:
        """How many of some tools have each word, by the word's number; None stands for all tools."""
        passed = self.starts if within is None else np.concatenate(([0], np.cumsum(within[self.tools])))[self.starts]
        found: list[int] = np.diff(passed).tolist()
        return found

    def changed(self, kept: NDArray[np.bool_], documents: Iterable[Document]) -> Postings:
        """Without the tools that are gone, and with new ones numbered after those that stay."""
        renumbered = np.cumsum(kept, dtype=np.int32) - 1
        stays = kept[self.tools]
        word = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))[stays]
        old = _Triples(word, renumbered[self.tools[stays]], self.values[stays])
        first = int(np.count_nonzero(kept))
        found = _arranged(self.words, old, *_triples(documents, self.words, first))
        return found._tidied() if len(found.words) > LEFTOVERS else found

    def _tidied(self) -> Postings:
        """The same, without words that no tool has any more, where these are most of them."""
        counts = np.diff(self.starts)
        if 2 * np.count_nonzero(counts) > len(counts):
            return self
        words = [word for word, number in self.words.items() if counts[number]]
        starts = np.concatenate(([0], np.cumsum(counts[counts > 0])))
        return Postings(dict(zip(words, range(len(words)), strict=True)), starts, self.tools, self.values, self.size)


@dataclass(frozen=True, slots=True)
class _Triples:
    """Words, tools and values, sorted by word and then by tool."""

    words: Numbers
    tools: Numbers
    values: Values


def post(documents: Iterable[Document]) -> Postings:
    """The postings of some tools, numbered in their order."""
    words: dict[str, int] = {}
    nothing = _Triples(_NO_TOOLS, _NO_TOOLS, _NO_VALUES)
    return _arranged(words, nothing, *_triples(documents, words, 0))


def _triples(documents: Iterable[Document], words: dict[str, int], first: int) -> tuple[_Triples, int]:
    """Every word of every new tool once, with its value, and how many tools there are now.

    A word says more in a name than in details, and is diluted by longer texts. Documents are read one by one, and are
    not kept.
    """
    numbers = array("i")
    lengths = array("q")
    units = array("d")
    for document in documents:
        for name, shape in FIELDS.items():
            found = document[name]
            lengths.append(len(found))
            units.append(shape.weight / (1 - shape.length_norm + shape.length_norm * len(found) / shape.usual))
            numbers.extend([words.setdefault(word, len(words)) for word in found])
    size = len(lengths) // len(FIELDS) + first
    return _valued(np.array(numbers, dtype=np.int64), np.array(lengths), np.array(units), first, size), size


def _valued(
    numbers: NDArray[np.int64], counts: NDArray[np.int64], units: NDArray[np.float64], first: int, size: int
) -> _Triples:
    """The words of fields, one after the other, become one value for each word and tool."""
    tools = np.repeat(np.arange(first, size, dtype=np.int64), counts.reshape(-1, len(FIELDS)).sum(axis=1))
    span = size + 1
    keys = numbers * span + tools
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = np.flatnonzero(np.diff(keys, prepend=-1)) if len(keys) else np.zeros(0, dtype=np.int64)
    weights = np.repeat(units, counts)[order]
    summed = np.add.reduceat(weights, begins) if len(keys) else weights
    values = (summed / (SATURATION + summed)).astype(np.float32)
    return _Triples((keys[begins] // span).astype(np.int32), (keys[begins] % span).astype(np.int32), values)


def _arranged(words: dict[str, int], old: _Triples, new: _Triples, size: int) -> Postings:
    """Both together: a word's new tools follow its old ones, so nothing has to be sorted again."""
    old_counts = np.bincount(old.words, minlength=len(words))
    new_counts = np.bincount(new.words, minlength=len(words))
    starts = np.concatenate(([0], np.cumsum(old_counts + new_counts)))
    old_places = np.arange(len(old.words)) + (np.cumsum(new_counts) - new_counts)[old.words]
    new_places = np.arange(len(new.words)) + np.cumsum(old_counts)[new.words]
    tools = np.empty(len(old.words) + len(new.words), dtype=np.int32)
    values = np.empty(len(tools), dtype=np.float32)
    tools[old_places], tools[new_places] = old.tools, new.tools
    values[old_places], values[new_places] = old.values, new.values
    return Postings(words, starts, tools, values, size)


_NO_TOOLS: Numbers = np.zeros(0, dtype=np.int32)
_NO_VALUES: Values = np.zeros(0, dtype=np.float32)
