"""A link: one open way to a server, whichever transport carries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from portico.domain.call import OnProgress

from .faults import Lost
from .protocol import MESSAGE_LIMIT, VALUES_LIMIT, Dialect

OnLost = Callable[[], None]
"""Called once when a link is of no more use."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one exchange may take, between two signs of progress and in all, and how long its answer may be."""

    idle: float = inf
    total: float = inf
    size: int = MESSAGE_LIMIT
    """Bytes of the answer."""
    values: int = VALUES_LIMIT
    """JSON values in the answer."""

    @property
    def first(self) -> float:
        """Seconds until the first sign must come."""
        return min(self.idle, self.total)


FOREVER = Patience()


class Link(Protocol):
    """Carries requests and notifications to one server until it is lost or closed."""

    fault: Lost | None
    """Why it is of no more use."""
    dialect: Dialect

    @property
    def pid(self) -> int | None:
        """The child process, where there is one."""
        ...

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], patience: Patience, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer.

        Raises:
            Fault: there is none.
        """
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send one notification."""
        ...

    async def listen(self) -> None:
        """Read what the server sends on its own, until it stops; returns at once where that needs no reading."""
        ...

    async def aclose(self) -> None:
        """Close it; bounded in time."""
        ...
