"""A server whose tools are functions of this process."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread
import orjson

from portico.domain.call import OnProgress
from portico.domain.caller import Caller
from portico.domain.server import Health, Offering, State
from portico.errors import Sent, UnknownTool, UpstreamError, UpstreamTimeout

Runner = Callable[[str, Mapping[str, Any]], Any | Awaitable[Any]]
"""Tool name and arguments -> a value or a whole result object; may be async."""


@dataclass(slots=True, kw_only=True)
class LocalProvider:
    """Offers definitions and runs them through one function each."""

    server: str
    source: str = "local"
    fingerprint: str = ""
    timeout: float = 60.0
    _definitions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _runners: dict[str, Runner] = field(default_factory=dict)

    def add(self, definition: Mapping[str, Any], run: Runner) -> None:
        """Offer one more tool, or another one under the same name."""
        name = definition.get("name") if isinstance(definition, Mapping) else None
        key = name if isinstance(name, str) and name else f"(no name {len(self._definitions)})"
        self._definitions[key] = definition
        self._runners[key] = run

    def remove(self, name: str) -> bool:
        """Offer a tool no longer; says whether there was one."""
        self._runners.pop(name, None)
        return self._definitions.pop(name, None) is not None

    def offering(self) -> Offering:
        """All definitions; nothing has to be asked."""
        return Offering(server=self.server, tools=tuple(self._definitions.values()))

    def health(self) -> Health:
        """Functions of this process are always there."""
        return Health(state=State.RUNNING)

    async def offer(self) -> Offering:
        """All definitions."""
        return self.offering()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        on_progress: OnProgress | None,
        answers: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
    ) -> Mapping[str, Any]:
        """Run the function; what it raises is the tool's own error."""
        run = self._runners.get(name)
        if run is None:
            raise UnknownTool(f"{self.server}.{name}")
        try:
            with anyio.move_on_after(self.timeout):
                return as_result(await _run(run, name, arguments))
        except Exception as error:  # noqa: BLE001  a user's function may raise anything, and it is the tool's answer
            text = f"{type(error).__name__}: {error}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        detail = f"no result after {self.timeout:g} s"
        raise UpstreamTimeout(f"{self.server}.{name}", details=(detail,), sent=Sent.UNKNOWN)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Functions have no prompts and no resources."""
        raise UpstreamError(self.server, rpc_code=-32601, message=f"{method} is not offered")

    async def aclose(self) -> None:
        """Nothing was started."""


def as_result(value: Any) -> Mapping[str, Any]:
    """A function's value as a result object; a whole result object is passed on as it is."""
    if isinstance(value, Mapping) and isinstance(value.get("content"), list):
        return value
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    plain = orjson.loads(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
    structured = plain if isinstance(plain, dict) else {"result": plain}
    text = orjson.dumps(plain).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}


async def _run(run: Runner, name: str, arguments: Mapping[str, Any]) -> Any:
    """Async functions run in the loop, others in a worker thread that is left behind when time is up."""
    if inspect.iscoroutinefunction(run):
        return await run(name, arguments)
    value = await anyio.to_thread.run_sync(run, name, arguments, abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value
