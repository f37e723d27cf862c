"""Turning documentation into plain sentences: markup out, first sentence apart from the rest."""

import html
import re

LONGEST = 600
"""Characters of a description that are kept."""

FEWEST_WORDS, MOST_WORDS = 3, 40

_TAG = re.compile(r"<[^>]{1,200}>")
_ROLE = re.compile(r":[a-z][\w:+-]*:`~?\.?([^`<]*?)(?:\s*<[^`>]*>)?`", re.I)
_LINK = re.compile(r"!?\[([^\]]{1,120})\]\([^)]*\)|`([^`<]{1,120})\s*<[^`>]*>`_{0,2}")
_ADDRESS = re.compile(r"https?://\S+")
_FIELD = re.compile(r":(?:param|parameter|arg|keyword|ivar|returns?|rtype|type|raises|vartype)\b\s*([^:\n]*):")
_UNDERLINE = re.compile(r"^\s*[-=~^*#]{3,}\s*$", re.M)
_DOCTEST = re.compile(r"^\s*(?:>>>|\.\.\.|In \[|Out\[).*$", re.M)
_DIRECTIVE = re.compile(r"^\s*\.\. [\w-]+::.*$|^\s*\.\. _.*$", re.M)
_MARKS = re.compile(r"[`*|]{1,3}|\\+(?=\W|$)|~(?=\w+\.)")
_SHORTHAND = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|Inc|No|St|Dr|al|resp)\.$", re.I)
_END = re.compile(r"[.!?](?=\s+[A-Z\"'(\[{<0-9]|\s*$)|[.。](?=\s*$)")
_SKIPPED = re.compile(
    r"(?:see |todo|fixme|tests? (?:that|for|if|the)|deprecated|internal|inherit|overrid|constructor|init |same as"
    r"|initiali[sz]e (?:self|the class|a new)|alias|wrapper|not implemented|do not|don't|note:|warning|usage:|example"
    r"|parameters?\b|args?:|returns?:|this (?:method|function|class) (?:is|was|has|should) |:|@|\$|\.\.|abstract"
    r"|implement|required by|called |callback|hook |async|decorat|whether |if (?:you|this|the|not|true|set)|used |like "
    r"|raise |default|logic |when |you |given |description:|context manager|proxy|helper |dummy|noop|no-op)",
    re.I,
)
_CODE = re.compile(r"[{}=<>\\|]|->|\(\)\s*\(|_{2}|::|\w+\(.*\)\s*$")


def plain(text: str) -> str:
    """Return the text without markup, keeping paragraphs as blank lines."""
    text = html.unescape(_TAG.sub(" ", re.sub(r"</?(?:p|li|ul|ol|br|div|note|h\d)\b[^>]*>", "\n\n", text)))
    text = re.sub(r"\s*# noqa.*", "", text)
    for pattern in (_UNDERLINE, _DOCTEST, _DIRECTIVE):
        text = pattern.sub("", text)
    text = _ROLE.sub(lambda match: match[1].rsplit(".", 1)[-1], text)
    text = _LINK.sub(lambda match: match[1] or match[2], text)
    text = _FIELD.sub(lambda match: f" {match[1].split()[-1]}: " if match[1].split() else " Returns: ", text)
    return _MARKS.sub("", _ADDRESS.sub("", text)).strip()


def split_first(text: str) -> tuple[str, str]:
    """Return the first sentence of plain text, and the rest trimmed to what a description may hold."""
    paragraphs = re.split(r"\n\s*\n", text, maxsplit=1)
    lead, rest = " ".join(paragraphs[0].split()), " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""
    for match in _END.finditer(lead):
        if not _SHORTHAND.search(lead[: match.end()]):
            return lead[: match.end()], shorten(f"{lead[match.end() :].strip()} {rest}".strip())
    return lead, shorten(rest)


def shorten(text: str) -> str:
    """Cut a text at the last word that fits a description."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0]


def asks(sentence: str) -> bool:
    """Tell whether a sentence can stand for a request: English words, of a sensible number, and no code."""
    words = sentence.split()
    if not FEWEST_WORDS <= len(words) <= MOST_WORDS or _SKIPPED.match(sentence) or _CODE.search(sentence):
        return False
    letters = sum(character.isascii() and (character.isalpha() or character == " ") for character in sentence)
    return letters >= 0.85 * len(sentence) and max(map(len, words)) <= 40
