"""Commands for tools that live in a database: make a registry, check it, add to it, grant."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.errors import CallError, ConfigError, PorticoError, UnknownServer
from portico.providers.sql.registry.registry_admin import NewParam, NewTool, RegistryOperator
from portico.providers.sql.registry.registry_rows import ObjectKind

from .context import Exit, Json, options
from .output_and_logs import ask, data, fail, first_of_ours, in_app, say, warn

if TYPE_CHECKING:
    from portico.application import Application
    from portico.providers.sql.registry.configured_registries import RegistryCheck


registry = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Tools that live in a database.")

Where = Annotated[str, typer.Option("--database", help="The database: its name in the config, or its URL.")]
Schema = Annotated[str, typer.Option(help="The schema of the registry, where a URL names the database.")]
Name = Annotated[str, typer.Argument(help="The tool's name.")]
NOT_CONFIGURED = "Add it under databases in the config, or set DATABASE_URI and MCP_PROFILE=db-registry."


class KindName(StrEnum):
    """Kinds of objects that can be registered."""

    FUNCTION = "function"
    PROCEDURE = "procedure"
    MACRO = "macro"
    TABLE = "table"
    VIEW = "view"


class DialectName(StrEnum):
    """The kinds of SQL that statements can be shown in."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"
    TERADATA = "teradata"


@registry.command()
def init(
    ctx: typer.Context,
    where: Annotated[str, typer.Argument(help="The database: its URL, or its name in the config.")],
    schema: Schema = "mcp",
    samples: Annotated[bool, typer.Option("--samples/--no-samples", help="Register a few sample tools.")] = True,
    show: Annotated[bool, typer.Option("--print", help="Only print the SQL.")] = False,
    as_json: Json = False,
) -> None:
    """Create the tables and views of a registry, and samples; what is there stays as it is."""
    operator = _operator(ctx, where, schema)
    if show:
        say(operator.script(samples=samples))
        return
    operator.init(samples=samples)
    if as_json:
        data({"registry": schema, "samples": samples})
        return
    say("The registry is there." + (" It holds sample tools." if samples else ""))
    if "://" in where:
        say(f"next: write under databases in the config: NAME: {{url: ..., registry: {schema}}}")
    else:
        say("next: portico registry check")


@registry.command()
def check(
    ctx: typer.Context,
    database: Annotated[str | None, typer.Argument(help="Only this database.")] = None,
    dialect: Annotated[DialectName | None, typer.Option(help="Show the statements of another database.")] = None,
    as_json: Json = False,
) -> None:
    """Explain each row that does not load, and show the statement that each tool would send."""

    async def work(application: Application) -> dict[str, RegistryCheck | CallError]:
        return {name: await _checked(application, name, dialect or "") for name in _names(application, database)}

    found = in_app(ctx, work, complete=False)
    if as_json:
        data([_as_data(name, one) for name, one in found.items()])
    else:
        for name, one in found.items():
            _print_unread(name, one) if isinstance(one, CallError) else _print_check(one)
    if any(isinstance(one, CallError) for one in found.values()):
        raise typer.Exit(Exit.UPSTREAM)
    if any(one.refused for one in found.values() if not isinstance(one, CallError)):
        raise typer.Exit(Exit.FAILED)


@registry.command()
def refresh(
    ctx: typer.Context,
    database: Annotated[str | None, typer.Argument(help="Only this database.")] = None,
    as_json: Json = False,
) -> None:
    """Read registries again, now; gateways that share the store or listen to the database follow."""

    async def work(application: Application) -> dict[str, int | CallError]:
        names = _names(application, database)
        outcomes = await ask(application, set(names), tell=False)
        return {name: outcomes.get(name) or await _told(application, name) for name in names}

    counts = in_app(ctx, work, complete=False)
    failed = {name: one for name, one in counts.items() if isinstance(one, CallError)}
    if as_json:
        data({name: _failure(one) if isinstance(one, CallError) else one for name, one in counts.items()})
    else:
        for name, count in counts.items():
            _print_unread(name, count) if isinstance(count, CallError) else say(f"{name}: {count} tools")
    if failed:
        raise typer.Exit(Exit.UPSTREAM)


@registry.command()
def add(
    ctx: typer.Context,
    name: Name,
    what: Annotated[str, typer.Argument(metavar="OBJECT", help="The object, as SCHEMA.NAME or NAME.")],
    where: Where = "",
    schema: Schema = "mcp",
    kind: Annotated[KindName | None, typer.Option(help="What it is; found out unless told.")] = None,
    doc: Annotated[str, typer.Option(help="What the tool does: agents choose by it.")] = "",
    tags: Annotated[str, typer.Option(help="Tags, separated by commas; the first is its category.")] = "",
    param: Annotated[list[str] | None, typer.Option(help="NAME:TYPE, with a ? behind it if optional.")] = None,
    writes: Annotated[bool | None, typer.Option("--writes/--reads", help="Whether it changes something.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Who may see it; everybody unless told.")] = None,
    database_user: Annotated[list[str] | None, typer.Option(help="Database users it is shown to.")] = None,
    as_json: Json = False,
) -> None:
    """Register an object of a database as a tool; its parameters are found out where none are told."""
    home, _, bare = what.rpartition(".")
    operator = _operator(ctx, where, schema)
    tool = NewTool(
        name=name,
        database=home,
        object=bare,
        kind=None if kind is None else ObjectKind("M" if kind in ("procedure", "macro") else kind[0].upper()),
        docstring=doc,
        tags=tags,
        writes=writes,
        params=[_param(text) for text in param or ()],
        **({"users": user} if user else {}),
        **({"database_users": database_user} if database_user else {}),
    )
    found, count = operator.add(tool)
    _follow(ctx, where, name)
    if as_json:
        data({"added": name, "kind": found.name.lower(), "parameters": count})
    else:
        say(f"{name} is registered: {found.word} {what}, {count} parameters written down")
        say("next: portico registry check")


@registry.command()
def remove(ctx: typer.Context, name: Name, where: Where = "", schema: Schema = "mcp", as_json: Json = False) -> None:
    """Take a tool out of a registry; the object itself stays."""
    is_gone = _operator(ctx, where, schema).remove(name)
    if not is_gone:
        raise ConfigError(f"no tool {name!r} is registered", fix="See: portico registry check")
    _follow(ctx, where, name)
    data({"removed": name}) if as_json else say(f"{name} is registered no longer")


@registry.command()
def grant(
    ctx: typer.Context,
    name: Name,
    user: Annotated[str, typer.Argument(help="Who; * means everybody.")],
    where: Where = "",
    schema: Schema = "mcp",
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the right away.")] = False,
    to_database: Annotated[bool, typer.Option("--database-user", help="It is a user of the database.")] = False,
    as_json: Json = False,
) -> None:
    """Let a user see a tool, or no longer."""
    operator = _operator(ctx, where, schema)
    is_changed = operator.grant(name, user, revoke=revoke, database_user=to_database)
    _follow(ctx, where, name)
    if as_json:
        data({"tool": name, "user": user, "granted": not revoke, "changed": is_changed})
        return
    may = "may no longer see" if revoke else "may see"
    say(f"{user} {may} {name}" + ("" if is_changed else ", as before"))


async def _checked(application: Application, name: str, dialect: str) -> RegistryCheck | CallError:
    """The check of one registry, or why it cannot be read, so that the others are checked too."""
    assert application.registries is not None, "else there are no names"
    try:
        return await application.registries.check(name, dialect)
    except CallError as error:
        return error


async def _told(application: Application, name: str) -> int:
    """Let others know of a registry that was read, and count its tools."""
    assert application.registries is not None, "else there are no names"
    await application.registries.tell(name)
    return len(application.gateway.snapshot.sections[name].tools)


def _follow(ctx: typer.Context, where: str, tool: str) -> None:
    """Read the registry that was just changed, so that the next command and every gateway know it."""

    async def work(application: Application) -> None:
        providers = application.registries.providers if application.registries is not None else {}
        is_url = "://" in where
        names = {name for name, one in providers.items() if (one.spec.url == where if is_url else where in ("", name))}
        await ask(application, names)
        for problem in (one for name in names for one in providers[name].problems):
            if problem.tool == tool and not problem.loads:
                warn(f"{problem.tool} is not offered: {problem}")

    try:
        in_app(ctx, work, complete=False)
    except (PorticoError, BaseExceptionGroup) as error:
        ours = first_of_ours(error)
        if ours is None:
            raise
        fail(ours, as_json=options(ctx).as_json)  # the change itself was made


def _operator(ctx: typer.Context, where: str, schema: str) -> RegistryOperator:
    """The operator of the registry of a database, which is named in the config or by its URL."""
    url = where
    if "://" not in where:

        async def work(application: Application) -> tuple[str, str]:
            (name,) = _names(application, where or None, only_one=True)
            assert application.registries is not None, "else there are no names"
            spec = application.registries.providers[name].spec
            return spec.url, spec.registry

        url, schema = in_app(ctx, work, complete=False)
    return RegistryOperator(url, schema)


def _names(application: Application, wanted: str | None, *, only_one: bool = False) -> list[str]:
    known = sorted(application.registries.providers) if application.registries is not None else []
    if not known:
        raise ConfigError("no database with a registry is configured", fix=NOT_CONFIGURED)
    if wanted is not None and wanted not in known:
        raise UnknownServer(f"no database is called {wanted!r}; configured: {', '.join(known)}")
    if wanted is None and only_one and len(known) > 1:
        raise ConfigError("several databases are configured", fix=f"Say which with --database: {', '.join(known)}")
    return [wanted] if wanted is not None else known


def _param(text: str) -> NewParam:
    name, mark, type = text.partition(":")
    is_optional = type.endswith("?")
    if not mark or not type.rstrip("?"):
        raise ConfigError(f"{text!r} is no parameter", where="--param", fix="Write NAME:TYPE, such as region:text")
    return NewParam(name=name.strip(), type=type.rstrip("?").strip(), required=not is_optional)


def _failure(error: CallError) -> dict[str, Any]:
    return {"error": error.code, "details": list(error.details)}


def _as_data(name: str, one: RegistryCheck | CallError) -> dict[str, Any]:
    return {"database": name, **_failure(one)} if isinstance(one, CallError) else one.as_data()


def _print_unread(name: str, error: CallError) -> None:
    warn(f"{name}: cannot be read: {'; '.join(error.details) or error}")


def _print_check(one: RegistryCheck) -> None:
    rest = f"{one.refused} do not" + (f", and the config keeps {one.withheld} back" if one.withheld else "")
    say(f"{one.database}: {len(one.statements)} tools load from the registry {one.registry!r}, {rest}")
    for name, statement in one.statements.items():
        say(f"  {name}")
        say(f"    {statement.sql}")
        for mark, bind in statement.binds.items():
            say(f"    {mark} = {bind}")
    for problem in one.problems:
        is_fine = problem.loads or problem.is_withheld
        word = "kept back" if problem.is_withheld else "note" if problem.loads else "does not load"
        (say if is_fine else warn)(f"  {word}: {problem}")
