"""Queries in German, Spanish, French, Chinese and Japanese, put into the English words that tools use."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from .words_and_postings import STOP_WORDS, WORD_LENGTH

Words = tuple[str, ...]  # English words or phrases for one of another language, the usual one first
Knows = Callable[[str], bool]

MOST_CHOSEN = 2  # English words for one of another language, where tools have several of them
SHORTEST_PART = 3  # letters of a part of a compound
SHORTEST_STEM = 3
SEEN = 2_000  # characters of a query in which its language shows
REMEMBERED = 8_192  # words whose stems are
LONG_WORD = 7  # letters from which on hardly two languages share a stem
COMPOUND = 48  # letters of the longest word that is taken apart
_EASTERN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_RUN = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u9fff]+")
_TOKEN = re.compile(
    r"https?://\S+|\"[^\"]*\"|«[^»]{0,300}»|„[^“”]{0,300}[“”]|“[^”]{0,300}”|(?<!\w)'[^']{3,}'(?!\w)|`[^`]*`"
    r"|[\w.-]{0,60}[/@\\][^\s,;?!]*|\w+(?:\.\w+)+|\w+"
)
_WORD = re.compile(r"[^\W\d_]+")
_INSIDE = re.compile(r"[a-z][A-Z]")
_JOINED = re.compile(r"[ '’-]*")
_MARKS = re.compile(r"[\"'`’«»„“”¿¡-]+")


def in_english(text: str, is_known: Knows, is_said: Knows) -> str | None:
    """A query in the English words of tools, what has none left as it is; None if it is English or not understood.

    `is_known` tells whether a word is one of English, and `is_said` whether some tool has it.
    """
    if _EASTERN.search(text):
        return _from_characters(text, is_said)
    tokens = _tokens(text[:SEEN])
    readings = [_Reading(lexicon, tokens, is_known) for lexicon in dictionary().western]
    best = max(readings, key=lambda reading: (reading.is_sure, reading.evidence))
    if not best.is_sure:
        return None
    return (best if len(text) <= SEEN else _Reading(best.lexicon, _tokens(text), is_known)).text(text, is_said)


def fold(word: str) -> str:
    """A word in small letters without accents."""
    if word.isascii():
        return word.lower()
    letters = unicodedata.normalize("NFD", word.lower().replace("ß", "ss").replace("œ", "oe"))
    return unicodedata.normalize("NFC", "".join(letter for letter in letters if not unicodedata.combining(letter)))


def _stem(word: str, endings: Words, *, again: bool) -> str:
    """A word without its endings, the longest first."""
    while word.endswith(endings):
        ending = next((one for one in endings if word.endswith(one) and len(word) - len(one) >= SHORTEST_STEM), "")
        word = word.removesuffix(ending)
        if not again or not ending:
            break
    return word


_GERMAN = ("ern", "end", "em", "er", "en", "es", "et", "st", "e", "n", "s", "t")
_PLURAL = ("es", "s", "x")
_SPANISH = (
    *("iendo", "ando", "amos", "emos", "imos", "aron", "ieron", "adas", "ados", "idas", "idos", "ada", "ado", "ida"),
    *("ido", "ame", "ar", "er", "ir", "an", "en", "a", "e", "o"),
)
_PRONOUNS = ("melos", "melas", "melo", "mela", "noslo", "selo", "me", "nos", "los", "las", "les", "lo", "la", "le")
_FRENCH = ("issez", "issant", "ations", "ation", "antes", "ante", "ant", "ent", "ons", "ees", "ee", "er", "ez", "ir")
_FRENCH_LAST = ("re", "e")


@lru_cache(REMEMBERED)
def german_stem(word: str) -> str:
    """The stem of a German word, the same for all of its forms where these are regular."""
    return _stem(word.replace("ae", "a").replace("oe", "o").replace("ue", "u"), _GERMAN, again=True)


@lru_cache(REMEMBERED)
def spanish_stem(word: str) -> str:
    """The stem of a Spanish word."""
    stemmed = _stem(_stem(word, _PLURAL, again=False), _SPANISH, again=False)
    return re.sub("([gq])u$", lambda match: "c" if match[1] == "q" else "g", stemmed)


@lru_cache(REMEMBERED)
def french_stem(word: str) -> str:
    """The stem of a French word."""
    stemmed = _stem(_stem(word, _PLURAL[1:], again=False), _FRENCH, again=False)
    return _stem(stemmed, _FRENCH_LAST, again=False)


_PARTICLES = frozenset(
    "ab an auf aus bei durch ein fest frei heraus herunter runter hinzu hoch mit nach um vor weiter wieder zu zusammen"
    " zuruck rein raus los".split()
)
"""What a German verb may leave at the end of its sentence: lade ... hoch."""
_INNER = re.compile(rf"({'|'.join(sorted(_PARTICLES, key=len, reverse=True))})(?:zu|ge)(?=.{{3}})")


def _participle(word: str) -> str:
    """A German participle without its beginning; empty where a word is none."""
    return word.removeprefix("ge") if word.startswith("ge") and word.endswith(("t", "n")) else ""


_ENDINGS = ("lich", "keit", "heit")
"""What ends words and is none."""
_LINKS = ("", "s", "es", "n", "en", "er", "e")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words of one language that is written in Latin letters."""

    stem: Callable[[str], str]
    common: frozenset[str]
    shared: frozenset[str]  # of the common ones, those that are words of English as well
    words: Mapping[str, Words]
    stems: Mapping[str, Words]
    phrases: Mapping[Words, Words]  # by the stems of their words
    longest: int  # words in a phrase
    is_german: bool
    _found: dict[str, Words] = field(default_factory=dict)

    def find(self, word: str) -> Words:
        """The English words for a folded one; none if it is not known."""
        known = self._found.get(word)
        if known is None:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            known = self._found[word] = next(self._readings(word), ()) if len(word) <= WORD_LENGTH else ()
        return known

    def _readings(self, word: str) -> Iterator[Words]:
        """What a word may be, the surest first."""
        yield from filter(None, (self._simple(word),))
        if self.is_german:
            others = [_INNER.sub(r"\1", word, count=1) if _INNER.match(word) else "", _participle(word)]
            yield from filter(None, (self._simple(other) for other in others if len(other) > SHORTEST_STEM))
            yield from filter(None, (self._compound(word) if len(word) <= COMPOUND else (),))
        elif (bare := _stem(word, _PRONOUNS, again=False)) != word:
            yield from filter(None, (self._simple(bare),))

    def _simple(self, word: str) -> Words:
        return self.words.get(word) or self.stems.get(self.stem(word), ())

    def _compound(self, word: str) -> Words:
        """The words for the parts of a German compound, as one phrase; the last part must be known."""
        for start in range(SHORTEST_PART, len(word) - SHORTEST_PART + 1):
            last = () if word.startswith(_ENDINGS, start) else self._simple(word[start:])
            if last and (first := self._first_part(word[:start])):
                return (f"{first[0]} {last[0]}", *last)
        return ()

    def _first_part(self, part: str) -> Words:
        for link in _LINKS:
            bare = part.removesuffix(link)
            if len(bare) >= SHORTEST_PART and part.endswith(link):
                found = self.words.get(bare) or (self._compound(bare) if len(bare) > 2 * SHORTEST_PART else ())
                if found:
                    return found
        return ()


class Dictionary:
    """All that is known of other languages; each part is read when it is first needed."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        self._heads = {line.split()[0][1:]: line.split()[1:] for line in lines if line.startswith("~")}
        self._rows = [[cell.split() for cell in line.split("|")] for line in lines if "|" in line]
        self._verbs = lines.index("#") - len(self._heads)  # the verbs stand before this line, the things after it

    @cached_property
    def western(self) -> Sequence[Lexicon]:
        """The languages in Latin letters."""
        named = enumerate(_STEMS, 1)
        return [_lexicon(name, self._heads[name], _column(self._rows, place)) for place, name in named]

    @cached_property
    def chinese(self) -> Mapping[str, Words]:
        """Chinese words, in simplified characters."""
        return _column(self._rows, 4)

    @cached_property
    def japanese(self) -> Mapping[str, Words]:
        """Japanese words."""
        return {_short(word): found for word, found in _column(self._rows, 5).items()}

    @cached_property
    def lengths(self) -> Mapping[str, int]:
        """How long a Chinese or Japanese word can be that begins with a character."""
        found: dict[str, int] = {}
        for word in (*self.chinese, *self.japanese):
            found[word[0]] = max(found.get(word[0], 0), len(word))
        return found

    @cached_property
    def simplified(self) -> Mapping[int, str]:
        """The simple form of a traditional character, by its number."""
        return {ord(pair[0]): pair[1] for pair in self._heads["traditional"]}

    @cached_property
    def _english(self) -> Mapping[str, float]:
        """How much the words that others are told in say that a query is English."""
        things = {word: 0.5 for row in self._rows[self._verbs :] for word in row[0]}
        return {**things, **{word: 1.0 for row in self._rows[: self._verbs] for word in row[0]}}

    def tells_english(self, word: str) -> float:
        """How much a word of a query says that it is an English one."""
        return 2.0 if word in STOP_WORDS else self._english.get(word, 0.0)


_STEMS = {"de": german_stem, "es": spanish_stem, "fr": french_stem}


@cache
def dictionary() -> Dictionary:
    """The dictionary of the package, read when a query has a word for the first time that is not English."""
    return Dictionary(Path(__file__).with_name("table").joinpath("languages.txt").read_text(encoding="utf-8"))


def _column(rows: Sequence[list[list[str]]], place: int) -> dict[str, Words]:
    """Each word of a language with its English ones; first those of the line where it is the most usual word."""
    found: dict[str, list[tuple[int, list[str]]]] = {}
    for row in rows:
        for order, word in enumerate(row[place]):
            found.setdefault(word, []).append((order, row[0]))
    return {word: _merged(lines) for word, lines in found.items()}


def _merged(lines: list[tuple[int, list[str]]]) -> Words:
    ordered = sorted(lines, key=itemgetter(0)) if len(lines) > 1 else lines
    return tuple(dict.fromkeys(word.replace("_", " ") for _, english in ordered for word in english))


def _lexicon(name: str, common: Sequence[str], column: Mapping[str, Words]) -> Lexicon:
    words: dict[str, Words] = {}
    for word, english in column.items():
        key = " ".join(_WORD.findall(fold(word.replace("_", " "))))
        words[key] = tuple(dict.fromkeys((*words.get(key, ()), *english)))
    stem, stems = _STEMS[name], dict[str, Words]()
    phrases = {tuple(map(stem, word.split())): english for word, english in words.items() if " " in word}
    for word, english in words.items():
        if " " not in word:
            stems.setdefault(stem(word), english)
    shared = frozenset(fold(word[:-1]) for word in common if word.endswith("?"))
    known = frozenset(fold(word.rstrip("?")) for word in common)
    return Lexicon(stem, known, shared, words, stems, phrases, max(map(len, phrases)), name == "de")


class _Token(NamedTuple):
    """A part of a text that is read as one."""

    start: int
    end: int
    word: str  # folded; empty for what is no word, such as the name of a file
    is_joined: bool  # whether only a space, a hyphen or an apostrophe is before it
    is_last: bool = False  # whether a clause ends with it


def _tokens(text: str) -> list[_Token]:
    """The words of a text, and what must stay as it is: quoted strings, paths, names with marks in them."""
    found: list[_Token] = []
    for match in _TOKEN.finditer(text):
        whole, end = match[0], found[-1].end if found else 0
        word = fold(whole) if _WORD.fullmatch(whole) and not _INSIDE.search(whole) else ""
        is_joined = _JOINED.fullmatch(text, end, match.start()) is not None
        if found and (not is_joined or word in _AND):
            found[-1] = found[-1]._replace(is_last=True)
        found.append(_Token(match.start(), match.end(), word, is_joined))
    return [*found[:-1], found[-1]._replace(is_last=True)] if found else []


_AND = frozenset(("und", "oder", "and", "or"))


def _rejoined(tokens: Sequence[_Token], german: Lexicon) -> list[_Token]:
    """The words, where a German verb that lost its beginning to the end of its clause is whole again."""
    found, begin = list(tokens), 0
    for place, token in enumerate(tokens):
        if token.is_last and token.word in _PARTICLES:
            for other in range(begin, place):
                whole = token.word + tokens[other].word
                if tokens[other].word and (whole in german.words or german.stem(whole) in german.stems):
                    found[other] = found[other]._replace(word=whole)
                    found[place] = token._replace(word=min(german.common))
                    break
        if token.is_last:
            begin = place + 1
    return found


class _Unit(NamedTuple):
    """Some words that have one meaning: no English words where it is a common one, None where it is not known."""

    first: int
    end: int
    english: Words | None


class _Reading:
    """A query read as one of a language."""

    def __init__(self, lexicon: Lexicon, tokens: Sequence[_Token], is_known: Knows) -> None:
        self.lexicon = lexicon
        self._tokens = _rejoined(tokens, lexicon) if lexicon.is_german else tokens
        self._is_known = is_known
        self._units = list(self._read())
        self.evidence, self.is_sure = self._weigh()

    def text(self, text: str, is_said: Knows) -> str:
        """The query in English, as far as it is known."""
        parts, end = [], 0
        for unit in self._units:
            start = self._tokens[unit.first].start
            parts += [_MARKS.sub(" ", text[end:start]), self._told(unit, text, is_said)]
            end = self._tokens[unit.end - 1].end
        return "".join([*parts, _MARKS.sub(" ", text[end:])])

    def _told(self, unit: _Unit, text: str, is_said: Knows) -> str:
        token = self._tokens[unit.first]
        own = text[token.start : token.end]
        if unit.english is None:
            is_kept = not token.word or self._is_known(token.word) or is_said(token.word)
            return own if is_kept and own[0] not in "«„“" else f'"{own.strip("«»„“”")}"'
        if unit.end - unit.first == 1 and unit.english and not self._is_known(token.word) and is_said(token.word):
            return " ".join([own, *(word for word in _chosen(unit.english, is_said) if _all_said(word, is_said))])
        return " ".join(_chosen(unit.english, is_said))

    def _read(self) -> Iterator[_Unit]:
        place = 0
        while place < len(self._tokens):
            unit = self._unit(place)
            yield unit
            place = unit.end

    def _unit(self, place: int) -> _Unit:
        lexicon, word, tokens = self.lexicon, self._tokens[place].word, self._tokens
        most = place + 1
        while most < min(place + lexicon.longest, len(tokens)) and tokens[most].is_joined and tokens[most].word:
            most += 1
        stems = tuple(lexicon.stem(token.word) for token in tokens[place:most]) if most > place + 1 else ()
        for count in range(len(stems), 1, -1):
            if found := lexicon.phrases.get(stems[:count]):
                return _Unit(place, place + count, found)
        if not word or (word in lexicon.common and word not in lexicon.words):
            return _Unit(place, place + 1, () if word else None)
        return _Unit(place, place + 1, lexicon.find(word) or None)

    def _weigh(self) -> tuple[float, bool]:
        """How much speaks for the language, and whether that is enough to be sure.

        Without a word that only this language has, its common words must tell: two beside a word that can be told in
        English, and three where there is none.
        """
        native = known = told = against = 0.0
        for unit in self._units:
            words = [token.word for token in self._tokens[unit.first : unit.end]]
            if unit.english is None:
                against += sum(map(self._tells_english, words))
                continue
            own = sum(map(self._tells_own, words))
            native += own
            known += bool(own and unit.english)
            told += bool(unit.english)
        is_sure = native > against and (known > 0 or native > (1 if told else 2)) and (native >= 1 or not against)
        return native - against, is_sure

    def _tells_own(self, word: str) -> float:
        """How much a word says that it is one of the language and not of English; less where only its stem is known."""
        if word in self.lexicon.common:
            return word not in self.lexicon.shared
        is_surely = word in self.lexicon.words or len(word) >= LONG_WORD
        return 0.0 if self._is_known(word) else 1.0 if is_surely else 0.5

    def _tells_english(self, word: str) -> float:
        """How much a word that the language does not have says that the query is English."""
        return dictionary().tells_english(word) or (0.25 if self._is_known(word) else 0.0)


def _chosen(english: Words, is_said: Knows) -> Words:
    """Of several English words those that tools have, or else the usual one."""
    return tuple(word for word in english if _all_said(word, is_said))[:MOST_CHOSEN] or english[:1]


def _all_said(words: str, is_said: Knows) -> bool:
    return all(map(is_said, words.split()))


_PUNCTUATION = str.maketrans({"、": ", ", "。": ". ", **dict.fromkeys("「」『』《》“”", '"')})
_QUOTED = re.compile(r"(\"[^\"]*\")")
_LATIN = re.compile("[a-z]+")
_LONG_SOUND = re.compile("(?<=[\u30a1-\u30fc]{2})ー(?![\u30a1-\u30fc])")
_KATAKANA = re.compile("[\u30a1-\u30fc]")
_HIRAGANA = re.compile("[\u3041-\u309f]")
_OPEN = "~"  # ends a Japanese verb that goes on in kana
READ = 5_000  # characters of such a query that are read
_LONGEST = 13  # characters of a word in the dictionary


def _short(word: str) -> str:
    """A Japanese word without the long sound at its end, which not everybody writes."""
    return _LONG_SOUND.sub("", word)


def _from_characters(text: str, is_said: Knows) -> str | None:
    """A Chinese or Japanese query in English words, and what is not known of it left out."""
    text = _short(unicodedata.normalize("NFKC", text[:READ]).translate(_PUNCTUATION))
    parts = _QUOTED.split(text)
    runs = [run for part in parts[::2] for run in _RUN.findall(part)]
    is_japanese = _KANA.search(text) is not None
    found = {run: list(_words_of(run, is_japanese=is_japanese)) for run in runs}
    latin = (word for part in parts[::2] for word in _LATIN.findall(part.lower()))
    against = sum(map(dictionary().tells_english, latin))
    if sum(map(len, found.values())) < max(1, against) or all(map(is_said, runs)):
        return None

    def told(match: re.Match[str]) -> str:
        own = [match[0]] if is_said(match[0]) else []
        return f" {' '.join([*own, *(word for words in found[match[0]] for word in _chosen(words, is_said))])} "

    return "".join(part if place % 2 else _RUN.sub(told, part) for place, part in enumerate(parts))


def _words_of(run: str, *, is_japanese: bool) -> Iterator[Words]:
    """The English words for those that some characters are made of, the longest first."""
    known = dictionary()
    both = [(known.chinese, run.translate(known.simplified)), (known.japanese, run)]
    if is_japanese:
        both.reverse()
    place, is_after_one = 0, True
    while place < len(run):
        length, found = _longest(both, place, is_after_one=is_after_one)
        if found:
            yield found
        is_after_one = bool(found) or not _KATAKANA.match(run, place)
        place += length


def _longest(both: Sequence[tuple[Mapping[str, Words], str]], place: int, *, is_after_one: bool) -> tuple[int, Words]:
    """The longest word that begins at a place, with its length; katakana are whole words, and no part of one."""
    size, lengths = len(both[0][1]), dictionary().lengths
    longest = max(lengths.get(run[place], 0) for _, run in both)  # most characters of a hostile text begin no word
    for end in range(min(size, place + longest), place, -1):
        for number, (words, run) in enumerate(both):
            word = run[place:end]
            found = words.get(word, ()) if number == 0 or len(word) > 1 else ()
            if not found and _HIRAGANA.match(run, end):
                found = words.get(word + _OPEN, ())
            if found and (not _KATAKANA.match(word) or (is_after_one and _ends_well(both, end))):
                return end - place, found
    return 1, ()


def _ends_well(both: Sequence[tuple[Mapping[str, Words], str]], end: int) -> bool:
    """Whether katakana end here, or go on with another word."""
    run = both[0][1]
    ends = range(end + 1, min(len(run), end + _LONGEST) + 1)
    return not _KATAKANA.match(run, end) or any(text[end:last] in words for words, text in both for last in ends)
