"""Commands that wait show how far they are; servers that are not known yet are asked first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from portico.errors import CallError, PorticoError

from .desk import Options
from .output import fail, problems, warn

if TYPE_CHECKING:
    from portico.house import House

Value = TypeVar("Value")
OnDone = Callable[[str, CallError | None], None]


def in_house(
    options: Options, work: Callable[[House], Coroutine[Any, Any, Value]], *, as_json: bool, complete: bool = True
) -> Value:
    """Open the house, ask servers that are not known when `complete`, do the work, close.

    Every error of ours ends the command with its message and its exit code; there is no traceback.
    """

    async def run() -> Value:
        async with options.desk.open_house(options.config) as house:
            problems(house.problems)
            if complete and house.unknown:
                await _complete(house)
            return await work(house)

    try:
        return anyio.run(run)
    except PorticoError as error:
        raise fail(error, as_json=as_json) from error
    except BaseExceptionGroup as group:
        ours = first_of_ours(group)
        if ours is None:
            raise
        raise fail(ours, as_json=as_json) from group


async def _complete(house: House) -> None:
    """Ask the servers that nothing is known of, but for those that failed a moment ago: they would again.

    The command that saw them fail has said so; from then on `doctor` and `list` do.
    """
    await ask(house, house.unknown - house.admin.intake.failures.keys())


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> PorticoError | None:
    """The error of ours inside a group, if there is one."""
    for inner in group.exceptions:
        if isinstance(inner, PorticoError):
            return inner
        if isinstance(inner, BaseExceptionGroup) and (found := first_of_ours(inner)):
            return found
    return None


async def ask(
    house: House, servers: set[str], *, tell: bool = True, on_done: OnDone | None = None
) -> dict[str, CallError | None]:
    """Ask servers for their definitions; failures are returned and, with `tell`, said.

    A progress bar shows how far it is, unless `on_done` is called for each server as it answers.
    """
    outcomes: dict[str, CallError | None] = {}
    with progress(0 if on_done else len(servers), "Asking servers") as advance:

        def done(server: str, failure: CallError | None) -> None:
            outcomes[server] = failure
            (on_done(server, failure) if on_done else advance(server))

        await house.admin.refresh(servers, done)
    for server, failure in sorted(outcomes.items()):
        if failure is not None and tell:
            warn(f"{server}: {'; '.join(failure.details) or failure}; next: portico doctor {server}")
    return outcomes


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr where someone is watching, nothing where nobody is."""
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # loaded only where a bar is drawn: every command would pay for it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{label}: {name}")
