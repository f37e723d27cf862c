"""Texts as databases take them: no NUL, no half of a surrogate pair, and no longer than an index can hold."""

from __future__ import annotations

from hashlib import blake2b

SPELLED_LENGTH = 200
TEXT_LENGTH = 500
KEY_BYTES = 1_200
"""PostgreSQL indexes at most 2,704 bytes, and a tool's key has two names in it."""

_INSTEAD = "\ufffd"


def clean(text: str, length: int = TEXT_LENGTH) -> str:
    """The text without what a database refuses, and no longer than this."""
    if len(text) > length:
        text = text[: length - 1] + "…"
    if text.isascii():
        return text if "\0" not in text else text.replace("\0", _INSTEAD)
    return text.encode(errors="replace").decode().replace("\0", _INSTEAD) if _is_odd(text) else text


def key(name: str) -> str:
    """The name as a key: one that is too long or cannot be stored ends in a hash, so that no two become one."""
    if len(name) * 4 <= KEY_BYTES or (len(name) <= KEY_BYTES and name.isascii()):
        found = clean(name, len(name) + 1)
        if found == name:
            return found
    whole = name.encode(errors="surrogatepass")
    found = clean(name, 200 if len(whole) > KEY_BYTES else len(name) + 1)
    return name if found == name else f"{found}~{blake2b(whole, digest_size=12).hexdigest()}"


def _is_odd(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return "\0" in text
