"""For our tests and for the tests of those who build on Portico: fakes without a network, and servers that misbehave.

Importing it loads nothing; a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fakes import AGENT as AGENT
    from .fakes import FakeApplication as FakeApplication
    from .fakes import FakeEmbedder as FakeEmbedder
    from .fakes import FakeHouse as FakeHouse
    from .fakes import FakeIndex as FakeIndex
    from .fakes import FakeProvider as FakeProvider
    from .fakes import definition as definition
    from .fakes import fake_application as fake_application
    from .fakes import fake_house as fake_house
    from .fakes import furnish as furnish
    from .fakes import make_test_app as make_test_app
    from .fakes import parts_of as parts_of
    from .fakes import tool as tool
    from .faulty_server import FaultPlan as FaultPlan
    from .faulty_server import FaultyServer as FaultyServer
    from .faulty_server import PlannedFault as PlannedFault
    from .faulty_server import faulty_http as faulty_http

_FAULTY = ("PlannedFault", "FaultPlan", "FaultyServer", "faulty_http")
_FAKES = (
    *("AGENT", "FakeApplication", "FakeEmbedder", "FakeHouse", "FakeIndex", "FakeProvider", "definition"),
    *("fake_application", "fake_house", "furnish", "make_test_app", "parts_of", "tool"),
)
_HOMES = {**dict.fromkeys(_FAKES, ".fakes"), **dict.fromkeys(_FAULTY, ".faulty_server")}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
