"""A notebook: short notes with tags, and links between them."""

from __future__ import annotations

import itertools
import re
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from pydantic import BaseModel, Field

from portico.samples import ADD, DESTROY, READ, UPDATE

NoteId = Annotated[str, Field(pattern=r"^n\d+$", description="Id of a note, e.g. n1")]
Tags = Annotated[list[str], Field(description="Tags in lower case, without #")]


class Note(BaseModel):
    """A title, a text in Markdown and some tags."""

    id: str
    title: str
    text: str
    tags: list[str] = []
    links: list[str] = []


class Match(BaseModel):
    """A note that was found, and the place that matched."""

    id: str
    title: str
    excerpt: str


server = MCPServer(
    "notes",
    title="Notes",
    version="1.0.0",
    description="Keeps short notes with tags and links between them",
    log_level="WARNING",
)

_ids = itertools.count(1)
_notes: dict[str, Note] = {}


@server.tool(annotations=ADD)
def create_note(
    title: Annotated[str, Field(min_length=1, max_length=120, description="Title, one line")],
    text: Annotated[str, Field(description="The note itself, in Markdown")],
    tags: Tags = [],  # noqa: B006 - read, never changed
) -> Note:
    """Write a new note and return it with its id."""
    note = Note(id=f"n{next(_ids)}", title=title, text=text, tags=sorted(set(tags)))
    _notes[note.id] = note
    return note


@server.tool(annotations=READ)
def read_note(id: NoteId) -> Note:
    """Read one note in full."""
    return _find(id)


@server.tool(annotations=READ)
def search_notes(
    query: Annotated[str, Field(description="Words to look for in titles and texts; all of them must occur")],
    tags: Annotated[list[str], Field(description="Only notes that have all of these tags")] = [],  # noqa: B006
    limit: Annotated[int, Field(ge=1, le=50, description="Most notes to return")] = 10,
) -> list[Match]:
    """Search the notes by words and tags; each match comes with the passage around the first word."""
    words = query.lower().split()
    found = [
        Match(id=note.id, title=note.title, excerpt=_excerpt(note.text, words))
        for note in _notes.values()
        if set(tags) <= set(note.tags) and all(word in f"{note.title} {note.text}".lower() for word in words)
    ]
    return found[:limit]


@server.tool(annotations=ADD)
def append_to_note(id: NoteId, text: Annotated[str, Field(description="Text to add as a new paragraph")]) -> Note:
    """Add a paragraph at the end of a note."""
    note = _find(id)
    note.text = f"{note.text}\n\n{text}".strip()
    return note


@server.tool(annotations=UPDATE)
def tag_note(
    id: NoteId,
    add: Tags = [],  # noqa: B006
    remove: Annotated[list[str], Field(description="Tags to take off")] = [],  # noqa: B006
) -> Note:
    """Put tags on a note and take others off."""
    note = _find(id)
    note.tags = sorted({*note.tags, *add} - set(remove))
    return note


@server.tool(annotations=UPDATE)
def link_notes(source: NoteId, target: NoteId) -> Note:
    """Link one note to another and return the first."""
    note = _find(source)
    if _find(target).id not in note.links:
        note.links = [*note.links, target]
    return note


@server.tool(annotations=READ)
def list_tags() -> dict[str, int]:
    """List all tags with the number of notes that have them."""
    tags = sorted(tag for note in _notes.values() for tag in note.tags)
    return {tag: len(list(group)) for tag, group in itertools.groupby(tags)}


@server.tool(annotations=DESTROY)
def delete_note(id: NoteId) -> str:
    """Delete a note for good, with every link to it."""
    note = _find(id)
    del _notes[id]
    for other in _notes.values():
        other.links = [link for link in other.links if link != id]
    return f"deleted {note.id}: {note.title}"


@server.resource("notes://{id}", mime_type="text/markdown", description="One note as Markdown")
def note_file(id: str) -> str:
    """One note as Markdown."""
    if id not in _notes:
        raise ResourceNotFoundError(f"no note {id!r}")
    note = _notes[id]
    return f"# {note.title}\n\n{note.text}\n"


def _find(id: str) -> Note:
    if id not in _notes:
        raise ToolError(f"no note {id!r}; search_notes with an empty query lists all")
    return _notes[id]


def _excerpt(text: str, words: list[str]) -> str:
    found = re.search("|".join(map(re.escape, words)), text, re.IGNORECASE) if words else None
    start = max(0, found.start() - 40) if found else 0
    return text[start : start + 120].replace("\n", " ")


create_note("Welcome", "These notes live in memory and are gone when the server stops.", ["help"])
create_note("Release checklist", "- run the tests\n- write the changelog\n- tag the commit", ["release", "work"])
create_note("Tea", "Water at 80 degrees, two minutes.", ["home"])

if __name__ == "__main__":
    server.run()
