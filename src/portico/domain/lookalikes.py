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
        return text.strip().lower()
    parts = normalize("NFKD", normalize("NFKC", visible(text).translate(_TABLE)).translate(_TABLE))
    plain = "".join(letter for letter in parts if category(letter) != "Mn")
    return plain.translate(_TABLE).casefold().translate(_TABLE).strip()


def is_mixed(text: str) -> bool:
    """Whether a text has letters of more than one script."""
    return len({name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()}) > 1


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
