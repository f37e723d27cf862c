"""The commands call, run, refresh and doctor."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from portico.domain.call import Call, Caller, Result, Sandbox
from portico.domain.overview import Checkup, ServerReport
from portico.domain.server import State
from portico.errors import CallError, ConfigError, Refused, UnknownServer
from portico.protocols import MeaningSource

from .browse_commands import Json, report_data
from .context import Exit, complete_server, complete_tool, options
from .output import ask, data, in_app, say, warn

if TYPE_CHECKING:
    from portico.application import Application


OFF = "scripts are switched off: set `scripts: {enabled: true}` in the config"


def run(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="A file with Lua in it, or - for standard input.")],
    arg: Annotated[
        list[str] | None, typer.Option("--arg", help="key=text or key:=JSON; the script finds them in `args`.")
    ] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.001, help="Seconds that it may take.")] = None,
    as_json: Json = False,
) -> None:
    """Run a Lua script that calls tools."""
    source, given = _source(file), _arguments(arg or [])

    async def work(application: Application) -> Result:
        if application.scripts is None:
            raise Refused("the script", details=(OFF,))
        return await application.scripts.run(CALLER, source, given, seconds=timeout, whole=True)

    result = in_app(options(ctx), work, as_json=as_json)
    if as_json:
        data(result.raw)
    else:
        print_result(result, with_notes=True)


def _source(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise typer.BadParameter(f"{file!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file!r} is no text in UTF-8; a script is source, never bytecode") from error
    # As Lua's own command does; the number of every line stays what it is.
    return f"--{text}" if text.startswith("#") else text


def _arguments(pairs: list[str]) -> dict[str, Any]:
    """`key=text`, or `key:=JSON` for anything else."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.rstrip(":"):
            raise typer.BadParameter(f"{pair!r} is not key=text or key:=JSON")
        found[key.removesuffix(":")] = _json(pair, value) if key.endswith(":") else value
    return found


def _json(pair: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{pair!r} has no JSON after := ({error})") from error


CALLER = Caller(surface="cli")
STDERR_LINES = 8
"""Lines of what a failing server wrote that `doctor` shows."""


def call(
    ctx: typer.Context,
    tool: Annotated[str, typer.Argument(help="The tool, in any spelling.", autocompletion=complete_tool)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="key=value ..., a JSON object, @FILE with one, or - for standard input."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Call a tool."""
    given = read_arguments(arguments or [])

    async def work(application: Application) -> Result:
        return await application.gateway.call(CALLER, Call(tool=tool, arguments=given.values, whole=True))

    result = in_app(options(ctx), work, as_json=as_json)
    if as_json:
        data(result.raw)
    else:
        print_result(result, with_notes=not given.untyped)
    if result.is_error:
        raise typer.Exit(Exit.FAILED)


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

    outcomes, reports = in_app(options(ctx), work, as_json=as_json, complete=False)
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
        asked = wanted - set(application.admin.disabled)

        def show(server: str, failure: CallError | None) -> None:
            if not as_json:
                _print_checkup(application.admin.report(server), failure)

        return DoctorFindings(
            outcomes=await ask(application, asked, tell=False, on_done=show),
            reports=[r for r in application.admin.reports() if not servers or r.name in wanted],
            refused={name: told for name, told in application.refused.items() if not servers or name in servers},
            embedder=await _examined(application.meanings) if application.meanings and not servers else None,
            checkup=await application.admin.checkup() if not servers else None,
            sandbox=await application.scripts.examine() if application.scripts and not servers else None,
            problems=len(application.problems),
        )

    found = in_app(options(ctx), work, as_json=as_json, complete=False)
    if as_json:
        data(_findings_data(found))
    else:
        _print_findings(found)
    if not found.failed and found.has_config_problem:
        raise typer.Exit(Exit.CONFIG)
    if found.failed or (found.embedder and not found.embedder.is_well):
        raise typer.Exit(Exit.UPSTREAM)


def _print_findings(found: DoctorFindings) -> None:
    """Print what was not printed while servers were asked."""
    for report in found.reports:
        if report.name not in found.outcomes:
            _print_checkup(report, None)
    for name, told in found.refused.items():
        _print_refused(name, told)
    if found.embedder:
        say(f"{'ok' if found.embedder.is_well else 'x':>2}  embedder {found.embedder.name}: {found.embedder.state}")
    if found.checkup:
        _print_store(found.checkup)
    if found.sandbox:
        say(f"{'x' if found.sandbox.problem else 'ok':>2}  scripts: {found.sandbox.state}")
    count = len(found.outcomes) + len(found.refused)
    say(f"{len(found.outcomes) - len(found.failed)} of {count} servers are well.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFindings:
    """What a doctor has found."""

    outcomes: dict[str, CallError | None]
    reports: list[ServerReport]
    refused: Mapping[str, tuple[ConfigError, ...]]
    """Servers of the config that cannot be used, such as one with a variable that is not set."""
    embedder: EmbedderStatus | None
    checkup: Checkup | None
    sandbox: Sandbox | None
    """What holds scripts in; None where they are switched off."""
    problems: int
    """Parts of the config that are not in force."""

    @property
    def has_config_problem(self) -> bool:
        """Whether something other than a server has to be mended."""
        is_unwell = (self.checkup and self.checkup.problem) or (self.sandbox and self.sandbox.problem)
        return bool(self.problems or is_unwell)

    @property
    def failed(self) -> dict[str, CallError]:
        """The servers that could not be asked."""
        return {name: error for name, error in self.outcomes.items() if error is not None}


@dataclass(frozen=True, slots=True)
class EmbedderStatus:
    """How the embedder is doing, once it has been asked."""

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


def _print_store(checkup: Checkup) -> None:
    say(f"{'x' if checkup.problem else 'ok':>2}  store {checkup.store}: journal {checkup.journal}")
    if checkup.problem:
        say(f"      {checkup.problem}")
    if checkup.losses.dropped or checkup.losses.lost:
        dropped, lost = checkup.losses.dropped, checkup.losses.lost
        say(f"      not in the journal: {dropped:,} entries dropped by a full buffer, {lost:,} lost with their process")


async def _examined(meanings: MeaningSource) -> EmbedderStatus:
    state = await anyio.to_thread.run_sync(meanings.check)
    return EmbedderStatus(meanings.name, state, not meanings.is_away)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments from the command line; those from key=value are text until the executor gives them their types."""

    values: dict[str, Any]
    untyped: bool = False


def read_arguments(given: list[str]) -> Arguments:
    """Read pairs, a JSON object, a file or standard input."""
    if len(given) == 1 and "=" not in given[0].split("{", 1)[0]:
        return Arguments(_object(given[0]))
    found: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not key=value; or give one JSON object, @FILE or -")
        found[key] = value
    return Arguments(found, untyped=True)


def _object(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise typer.BadParameter("JSON that is nested too deep") from error
    except OSError as error:
        raise typer.BadParameter(f"{text!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"not a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter("the arguments must be a JSON object, such as '{\"key\": 1}'")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


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


def print_result(result: Result, *, with_notes: bool) -> None:
    """Print what a tool or a script returned, for people."""
    for block in result.content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            say(str(block.get("text", "")))
        elif kind in ("image", "audio"):
            say(f"[{kind} {block.get('mimeType', '')}, {len(str(block.get('data', ''))) * 3 // 4:,} bytes; see --json]")
        elif kind == "resource_link":
            say(f"[resource {block.get('uri', '')}]")
        elif kind == "resource" and isinstance(block.get("resource"), dict):
            resource = block["resource"]
            say(str(resource.get("text", f"[resource {resource.get('uri', '')}; see --json]")))
    if not result.content and result.structured is not None:
        say(json.dumps(result.structured, indent=2, ensure_ascii=False))
    for note in result.notes if with_notes else ():
        warn(f"note: {note}")


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
    advice = _advice(report, failure)
    if advice:
        say(f"      next: {advice}")


def _last_words(report: ServerReport) -> list[str]:
    """The end of what a server wrote to stderr: for its operator, and for nobody else."""
    return [line.strip() for line in report.health.stderr.splitlines() if line.strip()][-STDERR_LINES:]


def _print_refused(name: str, problems: tuple[ConfigError, ...]) -> None:
    say(f" x  {name}: cannot be used")
    for problem in problems:
        say(f"      {problem.where}: {problem.problem}. {problem.fix}")
    say(f"      next: {_mend(name)}")


def _mend(name: str) -> str:
    return f"mend its entry in the config, then: portico doctor {name}"


def _advice(report: ServerReport, failure: CallError | None) -> str:
    if failure is not None:
        return f"mend what is said above, then: portico doctor {report.name}"
    if report.health.state is State.DISABLED:
        return "set enabled: true in the config to use it"
    return ""
