"""The keys `python`, `yaml` and `hooks`: where a user's own tools and hooks are."""

from __future__ import annotations

from .fields import Fields


def read_sources(fields: Fields, key: str) -> tuple[str, ...]:
    """Modules, paths or patterns of paths, each once and in their order; what they name is looked up later."""
    found: dict[str, None] = {}
    for index, text in enumerate(fields.texts(key)):
        if text.strip():
            found[text.strip()] = None
        elif not str(fields.table[key][index] or "").strip():
            fields.report("this is empty", key, index, fix="Write a module or a path, or delete it.", fatal=False)
    return tuple(found)
