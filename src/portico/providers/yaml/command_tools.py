"""Programs as tools: a list of arguments with `{name}` in them, started without a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from portico.providers.mcp.stdio import child_environment
from portico.providers.processes import OUTPUT_LIMIT, Ended, run_program
from portico.providers.python import LocalTool

from .tool_entries import (
    KEYS,
    YamlParameter,
    YamlTable,
    as_text,
    complete,
    fill_places,
    input_schema,
    leading_places,
    local_tool,
    place_names,
    read_parameters,
)

SECONDS = 30.0
LONGEST_SECONDS = 3_600.0
_KEYS = ("parameters", "command", "cwd", "env", "timeout", "read_only", "destructive", "idempotent")
_HINTS = {"read_only": "readOnlyHint", "destructive": "destructiveHint", "idempotent": "idempotentHint"}
_INTERPRETERS = re.compile(
    r"(?i)(ba|da|z|k|c|tc|fi|a)?sh|cmd|powershell|pwsh|python[\d.]*|perl|ruby|node|php|lua|osascript"
)
_CODE_OPTION = re.compile(r"(?i)-[a-z]*[cerp]|--(eval|execute|command|print)|/[ck]|-(encoded)?command")
_TAKING = re.compile(r"-[oOWXIrM]|\+O|--(rcfile|init-file|require|import|loader)")
"""Options of interpreters whose value is the next argument."""
_CODE_ATTACHED = re.compile(r"(?i)-[a-z]*[ce]|--(eval|execute|command|print)=")
_UNQUOTED = frozenset("|&;<>()$`*?~#!\n\\")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTool:
    """Fills the arguments in and runs the program."""

    name: str
    arguments: tuple[str, ...]
    parameters: Mapping[str, YamlParameter]
    folder: str
    seconds: float = SECONDS
    passed: frozenset[str] = frozenset()
    """Variables of ours that the program may see."""
    declared: Mapping[str, str]

    async def __call__(self, **values: Any) -> dict[str, Any]:
        """Run the program and return its output; another exit code than 0 is an error."""
        given = complete(self.name, self.parameters, values)
        texts = {name: "" if value is None else as_text(value) for name, value in given.items()}
        ours = {name: value for name, value in os.environ.items() if name in self.passed}
        environment = child_environment({**ours, **self.declared})
        program = _found(self.arguments[0], self.folder, environment.get("PATH", os.defpath))
        if program is None:
            return _failure(f"the program {self.arguments[0]!r} was not found; the operator should check PATH")
        argv = [program, *(fill_places(argument, texts) for argument in self.arguments[1:])]
        try:
            ended = await run_program(argv, environment=environment, folder=self.folder, seconds=self.seconds)
        except OSError as error:
            return _failure(_unstarted(self.arguments[0], self.folder, error))
        return self._answer(ended)

    def _answer(self, ended: Ended) -> dict[str, Any]:
        errors = ended.errors.decode("utf-8", "replace").strip()
        if ended.code is None:
            return _failure(f"stopped after {self.seconds:g} s, with all that it had started. {errors}".strip())
        output = ended.output.decode("utf-8", "replace")
        if ended.code:
            said = errors or output[-1_000:].strip() or "it wrote nothing"
            return _failure(f"exit code {ended.code}: {said}")
        content = [{"type": "text", "text": output}]
        if ended.written > OUTPUT_LIMIT:
            note = f"note: the output has {ended.written:,} bytes; only the first {OUTPUT_LIMIT:,} are shown"
            content.append({"type": "text", "text": note})
        return {"content": content}


def command_tool(entry: YamlTable, folder: Path) -> LocalTool:
    """The tool of an entry with `command`; its working folder is that of the file unless it says another."""
    entry.note_unknown((*KEYS, *_KEYS))
    arguments, parameters = _arguments(entry), read_parameters(entry)
    _check_places(entry, arguments, parameters)
    _check_code(entry, arguments)
    parameters |= {name: replace(parameters[name], bars_dash=True) for name in _barred(arguments, parameters)}
    for parameter in parameters.values():
        if parameter.default is not None and parameter.bars_dash and as_text(parameter.default).startswith("-"):
            raise entry.wrong(f"the default of {parameter.name!r} begins with '-'", "Say `allow_dash: true` there")
    seconds = entry.number("timeout")
    if seconds is not None and not 0 < seconds <= LONGEST_SECONDS:
        raise entry.wrong(f"a timeout of {seconds:g} s", f"Write seconds above 0 and up to {LONGEST_SECONDS:g}")
    passed, declared = _environment(entry)
    tool = CommandTool(
        name=entry.name,
        arguments=arguments,
        parameters=parameters,
        folder=str(folder / Path(entry.text("cwd", ".")).expanduser()),
        seconds=SECONDS if seconds is None else float(seconds),
        passed=passed,
        declared=declared,
    )
    hints = {hint: said for key, hint in _HINTS.items() if (said := entry.flag(key)) is not None}
    reads = {name: parameter.read for name, parameter in parameters.items()}
    return local_tool(entry, tool, input_schema(parameters), reads, hints, is_async=True)


def _arguments(entry: YamlTable) -> tuple[str, ...]:
    node = entry.get("command")
    is_listed = node is None or node.items is not None
    found = entry.texts("command") if is_listed else _split(entry, entry.text("command"))
    if not found or not found[0].strip():
        raise entry.wrong("the command is empty", "Write a list such as [git, log, -n, '{count}']")
    if any("\0" in argument for argument in found):
        raise entry.wrong("the command holds a NUL character", "Leave it out")
    return tuple(found)


def _split(entry: YamlTable, text: str) -> list[str]:
    """A command in one line, when no shell would read more into it than words and quotes."""
    quote = ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
            is_syntax = quote == '"' and letter in "$`\\"
        else:
            quote = letter if letter in "'\"" else ""
            is_syntax = letter in _UNQUOTED
        if is_syntax:
            fix = "Write the command as a list, in which every sign is just a sign, or put the signs between '...'"
            raise entry.wrong(f"{letter!r} is shell syntax, and no shell runs the command", fix)
    try:
        return shlex.split(text)
    except ValueError as error:
        raise entry.wrong(f"the command cannot be split: {error}", "Close the quote, or write a list") from error


def _check_places(entry: YamlTable, arguments: tuple[str, ...], parameters: Mapping[str, YamlParameter]) -> None:
    if place_names(arguments[0]):
        raise entry.wrong("the program itself is a place", "Name the program; only its arguments can vary")
    used = {name for argument in arguments for name in place_names(argument)}
    if undeclared := sorted(used - parameters.keys()):
        fix = f"Declare it under `parameters`, or write {{{{{undeclared[0]}}}}} for the letters themselves"
        raise entry.wrong(f"no parameter is declared for {{{undeclared[0]}}}", fix)
    for name, parameter in parameters.items():
        if parameter.kind == "identifier":
            raise entry.wrong(f"{name!r} is an identifier, which is for SQL", "Give it `type: string`")
        if parameter.is_many:
            raise entry.wrong(f"{name!r} takes a list, which is for SQL", "Delete `many`")
        if name not in used:
            entry.note(f"its parameter {name!r} stands nowhere in its command", f"Write {{{name}}} in it, or delete it")


def _check_code(entry: YamlTable, arguments: tuple[str, ...]) -> None:
    """A shell by another name: no value may become part of what an interpreter runs."""
    is_reading, before = False, ""
    for argument in arguments:
        is_code = is_reading and bool(_CODE_OPTION.fullmatch(before) or _CODE_ATTACHED.match(argument))
        if is_code and place_names(argument):
            fix = "Pass the value as an argument of its own, and let the code read it from there ($1, sys.argv)"
            raise entry.wrong(f"{{{place_names(argument)[0]}}} would become code of an interpreter", fix)
        # What follows the code or the script is for them, and no option of the interpreter.
        is_value = bool(_TAKING.fullmatch(before))
        is_reading = is_reading and (is_value or argument.startswith(("-", "+", "/c", "/k")))
        is_reading = is_reading or bool(_INTERPRETERS.fullmatch(PurePath(argument).stem))
        before = argument


def _barred(arguments: tuple[str, ...], parameters: Mapping[str, YamlParameter]) -> set[str]:
    """Parameters that begin an argument where an option could stand: all before a `--`."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    names = {name for argument in before for name in leading_places(argument)}
    return {name for name in names if not parameters[name].allow_dash}


def _environment(entry: YamlTable) -> tuple[frozenset[str], dict[str, str]]:
    """The variables that are passed on, and those that are set: a list names, a table sets."""
    node = entry.get("env")
    passed: set[str] = set()
    declared: dict[str, str] = {}
    if node is not None and node.members is not None:
        for member in entry.members("env"):
            if member.node.items is not None or member.node.members is not None:
                raise entry.wrong(f"{member.key[:60]!r} in `env` is {member.node.kind}", "Write a text", member.line)
            if member.node.is_scalar:
                declared[member.key] = member.node.spelling
            else:
                passed.add(member.key)
    else:
        passed = set(entry.texts("env"))
    for name in passed | declared.keys():
        if not _VARIABLE.fullmatch(name) or "\0" in declared.get(name, ""):
            raise entry.wrong(f"{name[:60]!r} in `env` is no variable", "Write names such as GIT_DIR")
    return frozenset(passed), declared


def _found(program: str, folder: str, path: str) -> str | None:
    named = os.path.expanduser(program)
    if os.path.dirname(named):
        named = os.path.join(folder, named)
    found = shutil.which(named, path=path)
    return os.path.abspath(found) if found else None


def _unstarted(program: str, folder: str, error: OSError) -> str:
    if not os.path.isdir(folder):
        return f"{program!r} cannot be started: its folder is not there; the operator should check `cwd`"
    return f"{program!r} cannot be started: {error.strerror or error}"


def _failure(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}
