"""Texts become stemmed words, and words that mean nearly the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

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
PATH_WEIGHT = 0.1
"""What a word of a path or URL counts: it names a thing, and hardly ever what to do with it."""
WORD_LENGTH = 60
"""Letters of a word that are compared, so that no text can fill the memory with its words."""
QUERY_LIMIT = 4_000
"""Characters of a query that are read; the rest cannot change what it asks for."""


def pieces(text: str) -> list[str]:
    """The words of a text as they stand there, identifiers split."""
    return (_IDENTIFIER if text.isascii() else _OTHER_LETTERS).findall(text)


def stems(found: list[str]) -> list[str]:
    """The stems of words, without the common ones."""
    return [word for raw in found if (word := _STEMS[raw])]


def words(text: str) -> list[str]:
    """The stemmed words of a text, in order."""
    return stems(pieces(text))


def spelled(raw: str) -> str:
    """A word in small letters; empty for a common one and for a number."""
    word = raw[:WORD_LENGTH].lower()
    return "" if word in STOP_WORDS or word.isdigit() else word


def spelled_words(text: str) -> list[str]:
    """The words of a text in small letters; common words and numbers are left out."""
    return [word for raw in pieces(text) if (word := spelled(raw))]


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


SYNONYMS = _table()
"""The stem of each word with the stems that mean nearly the same, and how much they count beside it."""
