"""Foreign text is fit for a terminal and a log, whatever signs it is made of."""

from __future__ import annotations

import json
import unicodedata

import pytest

from portico.text.untrusted import on_one_line as one_line
from portico.text.untrusted import printable, spelled_out

EVERY_SIGN = "".join(map(chr, range(0x110000)))
PAYLOADS = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\x9d0;t\x9c",
    "\rover",
    "a\nb",
    "\u202eback",
    "\u2028",
    "\U000e0041",
]


@pytest.mark.requirement("P-CLI-NO-CONTROL")
def test_no_sign_that_moves_or_hides_is_left() -> None:
    left = {unicodedata.category(sign) for sign in printable(EVERY_SIGN) if sign not in "\n\t"}
    assert not left & {"Cc", "Zl", "Zp", "Cs"}
    shown = [sign for sign in one_line(EVERY_SIGN) if unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Cs")]
    assert shown == []
    assert not {"\u200b", "\u202e", "\u2066", "\ufeff", "\u061c"} & set(printable(EVERY_SIGN))


@pytest.mark.requirement("P-CLI-NO-CONTROL")
@pytest.mark.parametrize("text", PAYLOADS)
def test_json_reads_the_same_and_a_terminal_obeys_nothing(text: str) -> None:
    spelled = spelled_out(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(spelled) == {"text": text}
    assert printable(spelled) == spelled


def test_plain_text_stays_as_it_is() -> None:
    for text in ("Grüße, 東京 → 5 €", "", "a b"):
        assert one_line(text) == printable(text) == text
    assert printable("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb\r") == "a\\n\\tb\\r"
