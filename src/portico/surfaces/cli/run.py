"""The command that runs a script."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.domain.call import Result
from portico.errors import Refused

from .act import CALLER, print_result
from .browse import Json
from .desk import options
from .output import data
from .waiting import in_house

if TYPE_CHECKING:
    from portico.house import House

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

    async def work(house: House) -> Result:
        if house.scripts is None:
            raise Refused("the script", details=(OFF,))
        return await house.scripts.run(CALLER, source, given, seconds=timeout, whole=True)

    result = in_house(options(ctx), work, as_json=as_json)
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
