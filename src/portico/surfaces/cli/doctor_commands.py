"""The commands refresh and doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from portico.admin import Checkup, ServerReport
from portico.domain.call import Sandbox
from portico.domain.server import State
from portico.errors import CallError, ConfigError, UnknownServer
from portico.search.embeddings.cache import Meanings

from .context import Exit, Json, complete_server
from .output_and_logs import ask, data, in_app, say
from .tool_commands import override_lines, report_data

if TYPE_CHECKING:
    from portico.application import Application


STDERR_LINES = 8
"""Lines of what a failing server wrote that `doctor` shows."""


def refresh(
    ctx: typer.Context,
    servers: Annotated[
        list[str] | None, typer.Argument(help="Only these servers.", autocompletion=complete_server)
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask servers for their definitions again."""

    async def work(application: Application) -> tuple[dict[str, CallError | None], list[ServerReport]]:
        wanted = _named(application, servers)
        outcomes = await ask(application, wanted - set(application.admin.disabled))
        return outcomes, [application.admin.report(name) for name in sorted(wanted)]

    outcomes, reports = in_app(ctx, work, complete=False)
    if as_json:
        data([report_data(report, with_tools=False) for report in reports])
    else:
        for report in reports:
            if report.health.state is State.DISABLED:
                say(f"{report.name}: disabled; {_advice(report, None)}")
            elif outcomes.get(report.name) is None:
                say(f"{report.name}: {len(report.tools)} tools, {len(report.rejected)} refused")
    if any(outcomes.values()):
        raise typer.Exit(Exit.UPSTREAM)


def doctor(
    ctx: typer.Context,
    servers: Annotated[
        list[str] | None, typer.Argument(help="Only these servers.", autocompletion=complete_server)
    ] = None,
    as_json: Json = False,
) -> None:
    """Check each server: does it start, does it speak, how many tools, what to do next; the store; the sandbox."""

    async def work(application: Application) -> DoctorFindings:
        wanted = _named(application, servers)
        asked, meanings = wanted - set(application.admin.disabled), application.gateway.meanings

        def show(server: str, failure: CallError | None) -> None:
            if not as_json:
                _print_checkup(application.admin.report(server), failure)

        return DoctorFindings(
            outcomes=await ask(application, asked, tell=False, on_done=show),
            reports=[r for r in application.admin.reports() if not servers or r.name in wanted],
            refused={name: told for name, told in application.refused.items() if not servers or name in servers},
            embedder=await _examined(meanings) if meanings and not servers else None,
            checkup=await application.admin.checkup() if not servers else None,
            sandbox=await application.scripts.examine() if application.scripts and not servers else None,
            problems=len(application.problems),
        )

    found = in_app(ctx, work, complete=False)
    if as_json:
        data(_findings_data(found))
    else:
        _print_findings(found)
    checked = (found.checkup, found.sandbox)
    problems = found.problems or any(report.overrides.problems for report in found.reports)
    if not found.failed and (problems or any(part is not None and part.problem for part in checked)):
        raise typer.Exit(Exit.CONFIG)
    if found.failed or (found.embedder and not found.embedder.is_well):
        raise typer.Exit(Exit.UPSTREAM)


def _print_findings(found: DoctorFindings) -> None:
    """Print what was not printed while servers were asked."""
    for report in found.reports:
        if report.name not in found.outcomes:
            _print_checkup(report, None)
    for name, problems in found.refused.items():
        say(f" x  {name}: cannot be used")
        for problem in problems:
            say(f"      {problem.where}: {problem.problem}. {problem.fix}")
        say(f"      next: {_mend(name)}")
    if found.embedder:
        say(f"{'ok' if found.embedder.is_well else 'x':>2}  embedder {found.embedder.name}: {found.embedder.state}")
    if found.checkup:
        checkup, losses = found.checkup, found.checkup.losses
        say(f"{'x' if checkup.problem else 'ok':>2}  store {checkup.store}: journal {checkup.journal}")
        if checkup.problem:
            say(f"      {checkup.problem}")
        if losses.dropped or losses.lost:
            say(
                f"      not in the journal: {losses.dropped:,} entries dropped by a full buffer, "
                f"{losses.lost:,} lost with their process"
            )
    if found.sandbox:
        say(f"{'x' if found.sandbox.problem else 'ok':>2}  scripts: {found.sandbox.state}")
    count = len(found.outcomes) + len(found.refused)
    say(f"{len(found.outcomes) - len(found.failed)} of {count} servers are well.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFindings:
    """The findings of `portico doctor`."""

    outcomes: dict[str, CallError | None]
    reports: list[ServerReport]
    refused: Mapping[str, tuple[ConfigError, ...]]
    """Servers of the config that cannot be used, such as one with a variable that is not set."""
    embedder: EmbedderStatus | None
    checkup: Checkup | None
    sandbox: Sandbox | None
    """The limits that hold scripts in; None where they are switched off."""
    problems: int
    """Parts of the config that are not in force."""

    @property
    def failed(self) -> dict[str, CallError]:
        """The servers that could not be asked."""
        return {name: error for name, error in self.outcomes.items() if error is not None}


@dataclass(frozen=True, slots=True)
class EmbedderStatus:
    """The state of the embedder, once it has been asked."""

    name: str
    state: str
    is_well: bool


def _findings_data(found: DoctorFindings) -> list[dict[str, Any]]:
    failed, embedder, checkup = found.failed, found.embedder, found.checkup
    rows = [
        report_data(r, with_tools=False)
        | {"ok": r.name not in failed, "next": _advice(r, failed.get(r.name)), "stderr": _last_words(r)}
        for r in found.reports
    ]
    rows += [
        {"name": name, "state": "refused", "ok": False, "reason": "; ".join(map(str, told)), "next": _mend(name)}
        for name, told in found.refused.items()
    ]
    if embedder:
        rows.append({"embedder": embedder.name, "state": embedder.state, "ok": embedder.is_well})
    if checkup:
        rows.append(
            {
                "store": checkup.store,
                "journal": checkup.journal,
                "ok": not checkup.problem,
                "problem": checkup.problem,
                "dropped": checkup.losses.dropped,
                "lost": checkup.losses.lost,
            }
        )
    if found.sandbox:
        rows.append({"scripts": found.sandbox.state, "ok": not found.sandbox.problem})
    return rows


async def _examined(meanings: Meanings) -> EmbedderStatus:
    state = await anyio.to_thread.run_sync(meanings.check)
    return EmbedderStatus(meanings.name, state, not meanings.is_away)


def _named(application: Application, servers: list[str] | None) -> set[str]:
    """The servers that are meant, by their names or identifiers; all that are switched on when none is named."""
    if not servers:
        return set(application.admin.providers)
    known = {name: name for name in (*application.admin.providers, *application.admin.disabled, *application.refused)}
    spelled = {server.identifier: name for name, server in application.gateway.snapshot.servers.items()} | known
    unknown = [name for name in servers if name not in spelled]
    if unknown:
        raise UnknownServer(
            f"no server is called {', '.join(unknown)}; configured: {', '.join(sorted(known)) or 'none'}"
        )
    return {spelled[name] for name in servers} - application.refused.keys()


def _print_checkup(report: ServerReport, failure: CallError | None) -> None:
    disabled = report.health.state is State.DISABLED
    mark = "-" if disabled else "x" if failure else "ok"
    about = "disabled" if disabled else "" if failure else f"{len(report.tools)} tools"
    if report.server and report.server.protocol and not failure and not disabled:
        about += f", protocol {report.server.protocol}"
    say(f"{mark:>2}  {report.name}: {about}".rstrip(": "))
    for line in (
        *(failure.public_details if failure else ()),
        *(f"refused {r.name}: {r.reason}" for r in report.rejected),
    ):
        say(f"      {line}")
    for line in _last_words(report) if failure else ():
        say(f"      stderr: {line}")
    for tool in report.tools:
        for note in tool.notes:
            say(f"      {tool.id.name}: {note}")
    if report.server and report.server.limited:
        say(f"      {report.server.limited}")
    for line in override_lines(report):
        say(f"      {line}")
    advice = _advice(report, failure)
    if advice:
        say(f"      next: {advice}")


def _last_words(report: ServerReport) -> list[str]:
    """The end of what a server wrote to stderr: for its operator, and for nobody else."""
    return [line.strip() for line in report.health.stderr.splitlines() if line.strip()][-STDERR_LINES:]


def _mend(name: str) -> str:
    return f"mend its entry in the config, then: portico doctor {name}"


def _advice(report: ServerReport, failure: CallError | None) -> str:
    if failure is not None:
        return f"mend what is said above, then: portico doctor {report.name}"
    if report.health.state is State.DISABLED:
        return "set enabled: true in the config to use it"
    return ""
