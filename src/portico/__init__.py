"""Portico: one catalog in front of every tool.

Importing the package does nothing and loads nothing; a name is loaded when it is first used.
"""

import sys

_IS_PROGRAM = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] in ("portico", "-mportico")
if _IS_PROGRAM and not sys.flags.safe_path and not sys.flags.isolated:
    # `python -m portico` has the working directory first in the path: a module that lies there must not be imported.
    del sys.path[0]

from importlib import import_module  # noqa: E402 - only from the path as it is now
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from portico.domain.call import Result as Result
    from portico.domain.search_answers import Disclosure as Disclosure
    from portico.domain.search_answers import Hit as Hit
    from portico.errors import CallError as CallError
    from portico.errors import PorticoError as PorticoError
    from portico.library import Catalog as Catalog
    from portico.providers.python.decorator_and_injection import Connection as Connection
    from portico.providers.python.decorator_and_injection import RequestContext as RequestContext
    from portico.providers.python.decorator_and_injection import tool as tool
    from portico.server.embedded import Settings as Settings
    from portico.server.embedded import create_mcp_app as create_mcp_app

_HOMES = {
    "CallError": "portico.errors",
    "Catalog": "portico.library",
    "Connection": "portico.providers.python.decorator_and_injection",
    "Disclosure": "portico.domain.search_answers",
    "Hit": "portico.domain.search_answers",
    "PorticoError": "portico.errors",
    "RequestContext": "portico.providers.python.decorator_and_injection",
    "Result": "portico.domain.call",
    "Settings": "portico.server.embedded",
    "create_mcp_app": "portico.server.embedded",
    "tool": "portico.providers.python.decorator_and_injection",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
