"""What the documentation site needs beside the pages of `docs/`, which stay as they are read on GitHub.

MkDocs calls the functions `on_...` of this file: see `hooks` in `mkdocs.yml`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import portico

DOCS = Path(__file__).resolve().parents[1] / "docs"
API = "reference/api.md"
"""The page that exists on the site only: GitHub does not show docstrings."""

_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Replace the patterns of the navigation by the pages that they match."""
    config["nav"] = expand(config["nav"])
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the API reference."""
    from mkdocs.structure.files import File  # only `make docs` installs it

    files.append(File.generated(config, API, content=api_page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to files outside `docs/` to the repository."""
    return link_to_repository(markdown, page.file.src_uri, config["repo_url"])


def expand(nav: Any) -> Any:
    """A navigation with every pattern replaced by the pages that it matches, in order."""
    if isinstance(nav, dict):
        return {title: expand(inner) for title, inner in nav.items()}
    if isinstance(nav, list):
        return [page for inner in nav for page in (_matching(inner) if isinstance(inner, str) else [expand(inner)])]
    return nav


def api_page() -> str:
    """One section for each public name."""
    names = "\n\n".join(f"::: portico.{name}" for name in portico.__all__)
    return f"# API\n\nWhat `from portico import ...` gives. [Library](library.md) shows it at work.\n\n{names}\n"


def link_to_repository(markdown: str, page: str, repository: str) -> str:
    """The text of a page, with the address of the repository where a link leaves `docs/`."""

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[1]))
        return link[0] if target.startswith("docs/") else f"]({repository}/blob/main/{target}"

    return _LINK.sub(replaced, markdown)


def _matching(pattern: str) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob(pattern))
