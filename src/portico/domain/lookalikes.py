"""Names that look like others: letters of other scripts, wide and mathematical forms, and what shows nothing.

The rule is that of UTS 39, with a table of our own: two texts look alike when their skeletons are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from unicodedata import category, name, normalize

from portico.fencing import visible

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
        return text.lower()
    parts = normalize("NFKD", normalize("NFKC", visible(text).translate(_TABLE)).translate(_TABLE))
    plain = "".join(letter for letter in parts if category(letter) != "Mn")
    return plain.translate(_TABLE).casefold().translate(_TABLE)


def is_mixed(text: str) -> bool:
    """Whether a text has letters of more than one script."""
    return len({name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()}) > 1


def imitations(names: Iterable[str], known: Iterable[str]) -> Mapping[str, str]:
    """The names that look like another of them or like a known one, each with the one that it looks like.

    Plain letters count as the original, then letters of one script; names in plain letters are no imitations.
    """
    given = list(names)
    originals: dict[str, str] = {}
    for one in [*filter(str.isascii, known), *sorted(given, key=_strangeness)]:
        originals.setdefault(skeleton(one), one)
    looked_up = ((one, originals[skeleton(one)]) for one in given if not one.isascii())
    return {one: like for one, like in looked_up if one != like and _strangeness(like) < _strangeness(one)}


def _strangeness(text: str) -> int:
    if text.isascii():
        return 0
    return 2 if is_mixed(text) or normalize("NFKC", text) != text else 1
