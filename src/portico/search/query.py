"""Reads a query: its words, typos and synonyms, the products it names, and the several things it may ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .languages import in_english
from .word_vectors import Mask, Vector, WordVectors
from .words_and_postings import (
    NAME_MARK,
    QUERY_LIMIT,
    SYNONYMS,
    Numbers,
    Postings,
    Values,
    is_english,
    query_words,
    spelled_words,
    stem_of,
)

SHORTEST = 3  # letters from which on a word may be misspelled; of that length, only by a letter that was left out
LONGEST = 24
CANDIDATES = 6
_BUCKETS = 1 << 15


class NearWords:
    """Finds words by the letters they share, three at a time."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = sorted(filter(_may_be_misspelled, words))
        letters = np.zeros((len(self._words), LONGEST + 2), dtype=np.uint8)
        packed = np.array([f"^{word}$" for word in self._words], dtype=f"S{LONGEST + 2}")
        if len(packed):
            letters[:] = packed.view(np.uint8).reshape(len(packed), -1)
        codes = _codes(letters)
        rows, places = np.nonzero(letters[:, 2:])
        found = codes[rows, places]
        order = np.argsort(found, kind="stable")
        self._rows = rows[order].astype(np.int32)
        self._starts = np.searchsorted(found[order], np.arange(_BUCKETS + 1))
        self._lengths = np.count_nonzero(letters, axis=1) - 2

    def near(self, word: str) -> list[str]:
        """Words within one slip of the pen (two for long words), or that begin with this one; the nearest first."""
        if not _may_be_misspelled(word):
            return []
        ranked = []
        for other in self._candidates(word):
            slips = distance(word, other, 1 if len(word) < 8 else 2)
            if slips is not None and len(word) + len(other) > 2 * SHORTEST:
                ranked.append((slips, other))
            elif len(word) > SHORTEST and other.startswith(word):
                ranked.append((2, other))
        return [other for _, other in sorted(ranked)[:2]]

    def _candidates(self, word: str) -> Iterator[str]:
        letters = np.frombuffer(f"^{word}$".encode(), dtype=np.uint8)
        codes = _codes(letters[None, :])[0]
        sharing = np.concatenate([self._rows[self._starts[code] : self._starts[code + 1]] for code in codes])
        if not len(sharing):
            return
        shared = np.bincount(sharing, minlength=len(self._words))
        alike = 2 * shared / (self._lengths + len(word))
        for place in np.argsort(-alike, kind="stable")[:CANDIDATES]:
            if alike[place] >= 0.3:
                yield self._words[place]


def _may_be_misspelled(word: str) -> bool:
    """Numbers may not: another number is another thing."""
    return SHORTEST <= len(word) <= LONGEST and word.isascii() and word.isalpha()


def distance(one: str, other: str, most: int) -> int | None:
    """How many letters were missed, added, changed or swapped, if no more than `most`."""
    if abs(len(one) - len(other)) > most:
        return None
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return None
    return row[-1] if row[-1] <= most else None


def _codes(letters: NDArray[np.uint8]) -> NDArray[np.int64]:
    wide = letters.astype(np.int64)
    codes: NDArray[np.int64] = (wide[:, :-2] * 961 + wide[:, 1:-1] * 31 + wide[:, 2:]) % _BUCKETS
    return codes


MOST_NEEDS = 6
MOST_READ = 400  # parts of a long query whose words are looked at
MOST_COMPARED = 16  # of these, parts that are compared with the tools
SHORTEST_NEED = 2  # words that a need has at least; fewer belong to the need before
LONG_QUERY = 40  # words from which on each sentence is taken as a need of its own
SEEN = 300  # characters in which a part shows whether it has words enough

_STEP = re.compile(
    r";\s+|\n+(?:\s*(?:[-*•]|\d+[.)])\s+)?"
    r"|[,.]?\s+(?:and\s+)?(?:then|after\s+that|afterwards|finally|lastly|additionally)\b,?\s*"
    r"|[,.]\s+(?:and\s+)?(?:next|also)\b,?\s+"
    r"|,?\s+(?:and\s+also|as\s+well\s+as)\s+",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"[;\n]|\b(?:and|then|after\s+that|afterwards|finally|lastly|additionally|next|also|as\s+well\s+as)\b",
    re.IGNORECASE,
)
"""What a query has that asks for several things, unless it is a long one."""
_LONE_WORD = re.compile(r"(?<![\w/.@:-])[^\W\d_]{3,40}(?![\w/@-]|[.:]\w)")
"""A word that is no part of a name, a path or an address."""
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']{3,}'(?!\w)|`[^`]*`")
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
_AND = re.compile(r",?\s+and\s+(?=([a-z]+)\b)", re.IGNORECASE)
_ACTIONS = frozenset(
    "add analyze append approve archive assign attach book buy calculate call cancel check clear click close commit"
    " compare compress compute convert copy count create crop decrypt delete deploy describe disable download draft"
    " draw edit email enable encrypt execute export extract fetch fill find generate get give import insert install"
    " invite list look make merge message move navigate notify open order pay plot post print publish purchase push"
    " query read recommend record reject remove rename replace reply report reserve resize restart retrieve return"
    " rotate run save scan schedule search select send set share show sort start stop store submit subscribe suggest"
    " summarize tell transfer translate turn update upload validate verify visualize watch write".split()
)


def needs(query: str) -> list[str]:
    """The several things that a query may ask for, in its order; one element when it is a single one.

    Of a long one, each sentence may be a request or talk around it: all of them are given.
    """
    query = query[:QUERY_LIMIT]
    is_long = query.count(" ") >= LONG_QUERY
    if not is_long and not _SEVERAL.search(query):
        return [query]
    query = "\n".join(" ".join(line.split()) for line in query.splitlines())
    shape = _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), query)
    spans = list(_between(_STEP, shape, (0, len(shape))))
    if is_long:
        spans = [sentence for span in spans for sentence in _between(_SENTENCE, shape, span)]
    parts = [query[start:end] for span in spans for start, end in _actions(shape, span)]
    return _with_enough(parts)[: MOST_READ if is_long else MOST_NEEDS]


def _between(pattern: re.Pattern[str], text: str, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """What lies between the matches of a pattern."""
    start, end = span
    for match in pattern.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


def _actions(text: str, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Split at "and" where an action follows that is more than one word."""
    start, end = span
    for match in _AND.finditer(text, start, end):
        before, after = text[start : match.start()], text[match.end() : end]
        if match[1].lower() in _ACTIONS and _is_enough(before) and _is_enough(after):
            yield start, match.start()
            start = match.end()
    yield start, end


def _with_enough(parts: list[str]) -> list[str]:
    """The parts; one with too few words joins the one before it."""
    found: list[str] = []
    for part in parts:
        if found and not _is_enough(part):
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
    if len(found) > 1 and not _is_enough(found[0]):
        found[:2] = [f"{found[0]} {found[1]}"]
    return found


def _asked(text: str) -> float:
    """More than 1 for a sentence that asks for something, less for one that tells of what was.

    A request begins with an action, as a question or with a wish.
    """
    text = text.strip()
    if text.endswith("?") or _WISH.match(text) or _first_word(text) in _ACTIONS:
        return ASKED
    return TOLD if _TALE.match(text) or _PAST.search(text[:SEEN]) else 1.0


def _first_word(text: str) -> str:
    return text[:SEEN].split(maxsplit=1)[0].strip(",.:").lower() if text.strip() else ""


_WISH = re.compile(
    r"(?:please|can|could|would|will you|i(?:'d| would)? (?:need|want|like|have)|i'm (?:looking|trying)|help|how|what"
    r"|which|where|when|who|is there|are there|we (?:need|want|have to)|let's|now|my (?:task|goal|question))\b",
    re.IGNORECASE,
)


_TALE = re.compile(
    r"(?:i|we|he|she|they|it|you|my|our|his|her|their|the|this|that|there|some|many|most|everybody|everyone|nobody|someone"
    r"|yesterday|today|anyway|by the way|just|actually|also|so|but|and)\b(?!\s+(?:need|want|must|should|have to))",
    re.IGNORECASE,
)
_PAST = re.compile(r"\b(?:was|were|had|went|said|did|been|became|got|came|left|felt|knew|thought)\b", re.IGNORECASE)


def _is_enough(text: str) -> bool:
    return len(spelled_words(text[:SEEN])) >= SHORTEST_NEED


PRODUCTS = frozenset(
    """
    salesforce hubspot pipedrive zoho zendesk freshdesk servicenow intercom paypal adyen quickbooks xero odoo shopify
    woocommerce magento bamboohr workday jira asana trello clickup todoist basecamp smartsheet youtrack redmine
    slack discord telegram whatsapp mattermost zulip gmail mailchimp mailgun sendgrid twilio vonage webex calendly
    twitter linkedin reddit facebook instagram tiktok youtube bluesky mastodon wechat github gitlab bitbucket gitea
    mysql mariadb redis snowflake bigquery databricks dynamodb firestore supabase airtable neo4j pinecone qdrant
    kubernetes docker terraform ansible jenkins circleci grafana prometheus datadog pagerduty opsgenie splunk sentry
    cloudflare vercel netlify heroku digitalocean dropbox onedrive sharepoint figma canva photoshop spotify tableau
    powerbi looker mixpanel posthog kaggle huggingface confluence evernote okta auth0 zapier airbnb netflix uber
    """.split()
)
"""Names that mean a product and nothing else; words of everyday English are left out."""


NEAR_WEIGHT = 0.7  # what a misspelled word counts
SYNONYM_LEAST = 0.015  # the share of a query's weight below which a synonym is left out
PROMISING = 6  # words of a part that tell whether tools might answer it
ASKED = 1.6  # how much more a sentence that asks for something is looked at than one that tells something
TOLD = 0.6  # and how much less one that tells of something
MOST_UNMATCHED = 5  # words that are named which no tool has
CORRECTED = 4  # unknown words of a query for which near ones are looked for


class QueryTerm(NamedTuple):
    """A word that some tools have, with its share of all that the query says."""

    word: str
    share: float
    tools: Numbers
    values: Values

    def value_in(self, tool: int) -> float:
        """What the word adds to the score of a tool."""
        place = int(np.searchsorted(self.tools, tool))
        if place < len(self.tools) and self.tools[place] == tool:
            return float(self.values[place]) * self.share
        return 0.0


class QueryPart(NamedTuple):
    """One thing that is asked for."""

    text: str
    terms: tuple[QueryTerm, ...]
    vector: Vector
    mass: float  # what all of its words tell together
    is_elsewhere: bool = False  # whether it names a product that no tool knows
    spelled: tuple[str, ...] = ()  # the words that tell something, as they were typed
    asks: bool = False  # whether one of them is an action
    asked: float = 1.0  # more than 1 where it asks for something and does not tell it
    parts: int = 0  # how many parts the query has, where it is so long that most of it may be talk

    def by_words(self, size: int) -> Vector:
        """The share of the query that each tool has in words: 1 would be all of it, in its name."""
        if not self.terms:
            return np.zeros(size, dtype=np.float32)
        tools = np.concatenate([term.tools for term in self.terms])
        values = np.concatenate([term.values for term in self.terms])
        shares = np.array([term.share for term in self.terms], dtype=np.float32)
        values *= np.repeat(shares, [len(term.tools) for term in self.terms])
        return np.bincount(tools, weights=values, minlength=size).astype(np.float32)


class QueryReader:
    """Reads queries for one snapshot's tools, as far as a caller may see them: others leave no trace in a score."""

    def __init__(self, postings: Postings, table: WordVectors, within: Mask | None) -> None:
        self.postings = postings
        self.table = table
        self._counts = postings.counts(within)
        size = postings.size if within is None else int(np.count_nonzero(within))
        counts = np.arange(size + 1)
        self._told: list[float] = np.log1p((size - counts + 0.5) / (counts + 0.5)).tolist()
        """How much a word tells that so many tools have."""
        self._translated = ("", "")  # the last query in another language, and what it says in English

    def read(self, text: str) -> list[QueryPart]:
        """What is asked for, one need or several; of a long query, the parts that tools may answer."""
        text = self._told_in_english(text)
        parts = needs(text)
        count = len(parts) if text.count(" ") >= LONG_QUERY else 0
        if len(parts) > MOST_NEEDS:
            promise = [self._promise(part) for part in parts]
            best = sorted(range(len(parts)), key=lambda place: -promise[place])[:MOST_COMPARED]
            parts = [parts[place] for place in sorted(best)]
        return [self._need(part)._replace(parts=count, asked=_asked(part)) for part in parts]

    def _promise(self, text: str) -> float:
        """How much some tool might answer a part of a long query, by its words alone, and by whether it asks at all."""
        weights = [self._told[count] if (count := self._count(stem_of(word))) else 0.0 for word in spelled_words(text)]
        known = sorted(weights, reverse=True)[:PROMISING]
        return sum(known) * _asked(text)

    def _need(self, text: str) -> QueryPart:
        spelled = query_words(as_creating(text))
        stems: dict[str, float] = {}
        for word, weight in spelled.items():
            stemmed = stem_of(word)
            if stems.get(stemmed, 0.0) < weight:
                stems[stemmed] = weight
        weights, mass = self._weigh(stems, spelled)
        terms = tuple(QueryTerm(word, weight / mass, *self.postings.of(word)) for word, weight in weights.items())
        is_elsewhere = any(word in PRODUCTS and not self._count(stem_of(word)) for word in spelled)
        said = tuple(word for word, weight in spelled.items() if weight == 1.0)
        asks = any(word in _ACTIONS for word in said)
        return QueryPart(text, terms, self.table.of_query(spelled), mass, is_elsewhere, said, asks)

    def unmatched(self, text: str) -> tuple[str, ...]:
        """The words of a query that no tool has, as they were typed, in their order."""
        found = []
        for word in dict.fromkeys(_LONE_WORD.findall(self._told_in_english(text)[:QUERY_LIMIT])):
            stemmed = stem_of(plain := word.lower())
            is_known = not stemmed or self._count(stemmed) or plain not in query_words(plain)
            if not is_known and (plain in PRODUCTS or not self._near_words.near(stemmed)):
                found.append(word)
            if len(found) == MOST_UNMATCHED:
                break
        return tuple(found)

    def _weigh(self, stems: Mapping[str, float], spelled: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Each word that tools have with its weight, and the weight of the whole query, unknown words included."""
        weights: dict[str, float] = {}
        mass = 0.0
        unknown = []
        for word, weight in stems.items():
            count = self._count(word)
            told = weight * self._told[count]
            mass += told
            if count:
                weights[word] = told
            elif weight == 1.0:
                unknown.append(word)
        mass -= self._add_near(unknown[:CORRECTED], spelled, weights)
        self._add_synonyms(stems, weights, least=SYNONYM_LEAST * mass)
        return weights, max(mass, 1e-9)

    def _add_near(self, unknown: list[str], spelled: Mapping[str, float], weights: dict[str, float]) -> float:
        """Take an unknown word for those that look like it, unless it is a word in its own right.

        Returns by how much the query weighs less, now that its words are known to be common ones.
        """
        if not unknown:
            return 0.0
        less = 0.0
        sensible = {stem_of(word) for word in spelled if word in self.table.words}
        for word in unknown:
            near = self._near_words.near(word) if word not in sensible else []
            for other in near:
                told = NEAR_WEIGHT * self._told[self._count(other)]
                weights[other] = max(weights.get(other, 0.0), told)
            if near:
                less += self._told[0] - self._told[self._count(near[0])]
        return less

    def _add_synonyms(self, stems: Mapping[str, float], weights: dict[str, float], least: float) -> None:
        """Words that mean nearly the same, unless they are so common that they would tell nothing."""
        for word, weight in stems.items():
            for other, share in SYNONYMS.get(word, _NONE).items() if weight == 1.0 else ():
                count = self._count(other)
                if count and other not in stems:
                    told = share * self._told[count]
                    if told >= least:
                        weights[other] = max(weights.get(other, 0.0), told)

    def _told_in_english(self, text: str) -> str:
        """A query in English words; what has none stays as it was typed, and so does a query in English."""
        text, is_known = text[:QUERY_LIMIT], self.table.words.__contains__
        if is_english(text, is_known):
            return text
        known, english = self._translated
        if known != text:
            english = in_english(text, is_known, lambda word: self._count(stem_of(word)) > 0) or text
            self._translated = (text, english)
        return english

    def _count(self, word: str) -> int:
        """How many tools have a word."""
        number = self.postings.words.get(word, len(self._counts))
        return self._counts[number] if number < len(self._counts) else 0

    @cached_property
    def _near_words(self) -> NearWords:
        words = list(self.postings.words)
        return NearWords([word for word in words if not word.startswith(NAME_MARK) and self._count(word)])


def as_creating(text: str) -> str:
    """A request to open a new issue, in the word that tools use for it: what is open already is another matter."""
    return _OPENING.sub("create", text, count=1)


_OPENED = "issue|ticket|bug|defect|incident|case|pull request|merge request|pr|mr"
_OPENING = re.compile(rf"\b(?:open|file|raise|log)\b(?= +(?:an?|another|new) .{{0,40}}\b(?:{_OPENED})\b)", re.I)
_NONE: Mapping[str, float] = {}
