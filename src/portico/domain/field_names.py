"""Whether the names in an object are fields, which say what a result looks like, or data, such as names of people."""

from __future__ import annotations

import re

NAME_LENGTH = 64

_DATA = re.compile(r"^\d|\d{4}|[0-9a-fA-F]{8}-|(?=.{12})(?:.*\d){3}|[A-Z0-9]{16}|@.+\.|://|^[/~]|\s.*\s")
"""What names look like that are data: numbers, dates, identifiers, addresses, paths, sentences."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PROPER = re.compile(r"[^\W\d_a-z]\w*[^\W\d_A-Z]|.*[^\W\d_\x00-\x7f].*|.*['\u2019 ].*", re.DOTALL)
"""A word with a capital, as names of people and places have; letters beyond ASCII, an apostrophe or a space."""
_BY = re.compile(r"(?:^|_)(?:by|per|for|to|of|map|dict|index|lookup|mapping)(?:_|$)|(?:By|Per|Map)(?=[A-Z]|$)")
_IRREGULAR = frozenset("people children men women staff family crew team".split())
_SINGULAR = frozenset(
    """
    address status details settings options properties stats statistics metadata news series basis analysis
    headers params args kwargs attributes fields flags features limits bounds coordinates dimensions metrics
    access class process progress success business pass
    """.split()
)
"""Words that end like a plural and often stand before an object with fields."""
_FIELDS = frozenset(
    """
    id ids uid uuid key keys name title label text body content contents description summary message messages
    note notes comment type kind format mode state status code level role group category tag tags version
    revision hash digest etag url uri href link path file filename folder directory extension mime size length
    width height depth weight count counts total totals sum mean median average avg min max minimum maximum
    first last next previous prev start end begin from to since until before after offset limit page pages
    pagesize cursor index position order rank score rating value values result results data item items row rows
    column columns field fields record records list entries entry error errors warning warnings reason detail
    details cause ok success succeeded failed failure valid invalid done active enabled disabled visible hidden
    open closed locked archived deleted draft public private default required created updated modified started
    finished completed at on by date time timestamp datetime day week month year hour minute second seconds
    minutes hours days ms duration latency elapsed timezone zone user users owner author creator assignee sender
    recipient account accounts email mail phone login username password address street city country region zip
    postal postcode lat latitude lon lng long longitude x y z top left right bottom red green blue alpha color
    colour price amount cost tax discount currency quantity unit units balance paid due host hostname port ip
    domain protocol scheme query fragment method headers request response cpu memory disk used free available
    temperature humidity pressure wind speed direction degrees celsius fahrenheit forecast condition ticker
    symbol exchange close volume high low bid ask change percent percentage ratio rate language lang locale
    encoding charset source target origin destination parent children child node nodes edges edge graph root
    number n i j k answer question hits matches match found missing more has is was can should read write delete
    create update insert add added removed remove changed unchanged lines line word words characters chars
    tokens bytes kb mb gb bits input output stdin stdout stderr exit pid full given family middle birth age
    gender sex token session expires expiry ttl scope scopes model prompt completion priority severity project
    repo repository branch commit sha issue pull merge ref base head diff patch release build job task step
    stage event events log logs metric metrics sensor device serial sku product products brand vendor supplier
    customer invoice payment shipping delivery carrier tracking stock inventory warehouse department team
    company organization org employee manager salary bank iban bic card
    """.split()
)


def is_data(name: str) -> bool:
    """Whether a name is data by its looks alone."""
    return len(name) > NAME_LENGTH or _DATA.search(name) is not None


def holds_many(name: str) -> bool:
    """Whether what stands under this name is likely to be a table by names: `balances`, `by_person`, `people`."""
    if _BY.search(name):
        return True
    words = _WORDS.findall(name)
    last = words[-1].lower() if words else ""
    if last in _IRREGULAR:
        return True
    return len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is")) and last not in _SINGULAR


def looks_proper(name: str) -> bool:
    """Whether a name looks like that of a person or a place."""
    return _PROPER.fullmatch(name) is not None


def is_field(name: str) -> bool:
    """Whether a name is made of words that fields are named with, or is too short to be anybody's."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return len(name) <= 2 or any(word in _FIELDS or word.rstrip("s") in _FIELDS for word in words)
