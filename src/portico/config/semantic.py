"""The `semantic` table: which embedder search may use."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from .documents import Document
from .fields import Fields, is_address, meant
from .settings import QUESTION_SECONDS, Semantic

KEYS = ("url", "model", "key", "timeout_s")
LONGEST_SECONDS = 30.0


def read_semantic(top: Fields, document: Document) -> Semantic | None:
    """The embedder that a config asks for; None when it asks for none, or for one that cannot be used.

    No message ever shows a key or an address.
    """
    table = top.table.get("semantic")
    if table is None:
        return None
    if not isinstance(table, dict):
        top.report("this must be a table", "semantic", fix=f"Write it as a table with some of: {', '.join(KEYS)}.")
        return None
    fields = Fields(table, document=document, path=("semantic",), variables=top.variables)
    for key in table:
        if key not in KEYS:
            fields.report("this key is not known", key, fix=meant(key, KEYS))
    url = _url(fields)
    found = Semantic(
        model=_model(fields, document, is_local=not url),
        url=url,
        key=_key(fields),
        timeout_s=_timeout(fields),
        line=document.line(("semantic", "model")),
    )
    top.problems += fields.problems
    return found if fields.is_usable else None


def _url(fields: Fields) -> str:
    url = fields.text("url").strip()
    if not url:
        if fields.table.get("url") is not None and fields.is_usable:
            fields.report("this is empty", "url", fix="Write the address, or delete the line for a local model.")
        return ""
    if not is_address(url) or not url.isascii():
        fields.report("this is not an http or https address", "url", fix="Write it as https://host/v1.")
    elif "@" in urlsplit(url).netloc:
        fields.report("this address holds a user or a password", "url", fix="Write the key under key.")
    return url


def _model(fields: Fields, document: Document, *, is_local: bool) -> str:
    model = fields.text("model").strip()
    if not model and fields.is_usable:
        fix = "Write the model's name, such as text-embedding-3-small, or the folder of a local model."
        fields.report("a model is needed", *(["model"] if "model" in fields.table else []), fix=fix)
    if is_local and model.startswith((".", "/", "~")):
        return str((document.file.absolute().parent / Path(model).expanduser()).resolve())
    return model


def _key(fields: Fields) -> str:
    key = fields.text("key").strip()
    if key and fields.table.get("url") is None:
        fields.report("a key is for an endpoint, and there is no url", "key", fix="Write the url, or delete the key.")
    if not key.isascii() or not key.isprintable() or " " in key:
        fix = "Write the key alone, without Bearer, spaces or line breaks."
        fields.report("this key cannot be sent in a header", "key", fix=fix)
    return key


def _timeout(fields: Fields) -> float:
    seconds = fields.number("timeout_s", above=0)
    if seconds is not None and seconds > LONGEST_SECONDS:
        fix = "Write seconds, such as 0.8: every search may wait this long."
        fields.report(f"this must be at most {LONGEST_SECONDS:g}", "timeout_s", fix=fix)
        return LONGEST_SECONDS
    return QUESTION_SECONDS if seconds is None else seconds
