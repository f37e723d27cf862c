"""Those who hold a place until they are told to leave it."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from portico.execution.executor import FairLimiter


@dataclass
class Crowd:
    """Remembers the order in which places were given."""

    begun: list[str] = field(default_factory=list)
    _gates: dict[str, anyio.Event] = field(default_factory=dict)
    _is_open: bool = False

    async def hold(self, limiter: FairLimiter, client: str, name: str) -> None:
        """Hold a place until it is released."""
        async with limiter.turn(client, name):
            self.begun.append(name)
            if not self._is_open:
                await self._gates.setdefault(name, anyio.Event()).wait()

    async def until(self, number: int) -> None:
        """Wait until so many have had a place."""
        while len(self.begun) < number:
            await anyio.lowlevel.checkpoint()

    def release(self, name: str) -> None:
        """Let one go."""
        self._gates[name].set()

    def release_all(self) -> None:
        """Let everybody go, also those to come."""
        self._is_open = True
        for gate in self._gates.values():
            gate.set()
