"""The source tree as the house tests see it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "portico"


@dataclass(frozen=True)
class Module:
    """One module with its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The path below `src/portico`."""
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def lines(self) -> int:
        """Lines that are not blank."""
        return sum(1 for line in self.text.splitlines() if line.strip())

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function, inner ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, text, ast.parse(text)))
    return tuple(found)


def body_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
