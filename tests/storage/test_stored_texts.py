"""Texts as databases take them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from portico.storage.database_interface import KEY_BYTES, clean, key

ANY_TEXT = st.text(st.characters(), max_size=50).flatmap(lambda text: st.sampled_from([text, text * 40, text * 41]))


@given(ANY_TEXT)
def test_a_clean_text_can_be_stored_and_is_no_longer_than_asked(text: str) -> None:
    found = clean(text, 60)
    assert "\0" not in found.encode().decode()
    assert len(found) <= 60
    assert clean(found, 60) == found


@given(ANY_TEXT)
def test_a_key_can_be_stored_and_indexed(text: str) -> None:
    assert "\0" not in key(text)
    assert len(key(text).encode()) <= KEY_BYTES


@given(st.lists(ANY_TEXT, unique=True, max_size=5))
def test_two_names_never_become_one_key(names: list[str]) -> None:
    assert len({key(name) for name in names}) == len(names)


def test_what_can_be_stored_stays_as_it_is() -> None:
    for name in ("", "find_symbol", "données ✓", "🚪" * 300, "t" * 1_200):
        assert key(name) == name
    assert key("t" * 1_201) != key("t" * 1_202)
    assert key("a\0") not in (key("a\ufffd"), key("a\ud800"), "a\ufffd")
