"""Small MCP servers that come with Portico, so that a first look needs no other program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mcp.types import ToolAnnotations

SAMPLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "calculator": ("portico.samples.calculator", "A simple calculator server"),
        "data-server": ("portico.samples.data_server", "Provides data access tools"),
        "tracker": ("portico.samples.tracker", "Tracks issues, comments and sprints of a small team"),
        "notes": ("portico.samples.notes", "Keeps short notes with tags and links between them"),
        "calendar": ("portico.samples.calendar", "Schedules meetings and finds free time"),
        "text-tools": ("portico.samples.text_tools", "Searches, compares and reshapes text"),
    }
)
"""Name in the config -> (module to run with `python -m`, what it says about itself)."""

__all__ = ["SAMPLES"]


READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
"""Looks and changes nothing."""

ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
"""Makes something new on every call."""

UPDATE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
"""Brings something into a state; once is as good as twice."""

DESTROY = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
"""Takes something away that cannot be had back."""
