"""Text tools: count, search, compare and reshape text."""

from __future__ import annotations

import base64
import difflib
import hashlib
import re
import textwrap
import unicodedata
from collections import Counter
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from portico.samples import READ

Text = Annotated[str, Field(max_length=200_000, description="The text to work on")]
Case = Literal["lower", "upper", "title", "snake", "kebab", "camel"]
Codec = Literal["base64", "hex"]


class Count(BaseModel):
    """How long a text is."""

    characters: int
    words: int
    lines: int
    sentences: int


class Line(BaseModel):
    """A line that matched."""

    number: int
    text: str


server = MCPServer(
    "text-tools",
    title="Text tools",
    version="1.0.0",
    description="Searches, compares and reshapes text",
    log_level="WARNING",
)


@server.tool(annotations=READ)
def count_text(text: Text) -> Count:
    """Count the characters, words, lines and sentences of a text."""
    sentences = len(re.findall(r"[.!?]+(?:\s|$)", text))
    return Count(characters=len(text), words=len(text.split()), lines=len(text.splitlines()), sentences=sentences)


@server.tool(annotations=READ)
def find_lines(
    text: Text,
    needle: Annotated[str, Field(min_length=1, description="Words to look for, taken literally")],
    ignore_case: Annotated[bool, Field(description="Treat capitals and small letters alike")] = True,
    limit: Annotated[int, Field(ge=1, le=1000, description="Most lines to return")] = 50,
) -> list[Line]:
    """Find the lines of a text that contain some words, with their line numbers."""
    wanted = needle.casefold() if ignore_case else needle
    lines = enumerate(text.splitlines(), start=1)
    found = (Line(number=n, text=line) for n, line in lines if wanted in (line.casefold() if ignore_case else line))
    return [line for line, _ in zip(found, range(limit), strict=False)]


@server.tool(annotations=READ)
def replace_text(
    text: Text,
    replacements: Annotated[dict[str, str], Field(description="What to replace -> what to put there, in this order")],
) -> str:
    """Replace pieces of a text, each one literally and everywhere it occurs."""
    for old, new in replacements.items():
        if not old:
            raise ToolError("nothing was replaced: an empty piece of text occurs everywhere")
        text = text.replace(old, new)
    return text


@server.tool(annotations=READ)
def compare_texts(
    before: Annotated[str, Field(description="The old text")],
    after: Annotated[str, Field(description="The new text")],
    context: Annotated[int, Field(ge=0, le=20, description="Unchanged lines to show around each change")] = 3,
) -> str:
    """Compare two texts and return a unified diff, or say that they are the same."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=context)
    return "\n".join(lines) or "no differences"


@server.tool(annotations=READ)
def change_case(text: Text, case: Annotated[Case, Field(description="The case to change to")]) -> str:
    """Change the case of a text; snake, kebab and camel also join its words."""
    if case in ("lower", "upper", "title"):
        return str(getattr(text, case)())
    without_accents = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", without_accents)]
    if case == "camel":
        return "".join(words[:1] + [word.capitalize() for word in words[1:]])
    return ("_" if case == "snake" else "-").join(words)


@server.tool(annotations=READ)
def wrap_text(
    text: Text,
    width: Annotated[int, Field(ge=10, le=400, description="Longest line, in characters")] = 80,
    indent: Annotated[str, Field(max_length=20, description="What to put before every line")] = "",
) -> str:
    """Break the paragraphs of a text into lines of a given width."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(
        textwrap.fill(" ".join(p.split()), width, initial_indent=indent, subsequent_indent=indent) for p in paragraphs
    )


@server.tool(annotations=READ)
def frequent_words(
    text: Text,
    limit: Annotated[int, Field(ge=1, le=200, description="Most words to return")] = 10,
    shortest: Annotated[int, Field(ge=1, le=20, description="Leave out words with fewer letters")] = 4,
) -> dict[str, int]:
    """List the most frequent words of a text with how often they occur."""
    words = (word for word in re.findall(r"\w+", text.lower()) if len(word) >= shortest)
    return dict(Counter(words).most_common(limit))


@server.tool(annotations=READ)
def digest_text(
    text: Text,
    algorithm: Annotated[Literal["sha256", "sha512", "blake2b"], Field(description="Hash function")] = "sha256",
    encoding: Annotated[Codec, Field(description="How to write the digest")] = "hex",
) -> str:
    """Compute a cryptographic digest of a text in UTF-8."""
    digest = hashlib.new(algorithm, text.encode()).digest()
    return digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()


if __name__ == "__main__":
    server.run()
