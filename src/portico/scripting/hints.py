"""What the author of a script may have meant: hints from the source and the error, without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches

REMOVED = {
    "io": "files are not reachable: ask a server's tool for them",
    "require": "modules cannot be loaded: json and base64 are there, and so are string, table, math and utf8",
    "package": "modules cannot be loaded",
    "debug": "there is no debug library: print values",
    "dofile": "files cannot be loaded",
    "loadfile": "files cannot be loaded",
    "loadstring": "write load(text) instead of loadstring(text)",
    "unpack": "write table.unpack(list) instead of unpack(list)",
    "setfenv": "Lua 5.4 has no setfenv: pass a table as the fourth value of load",
    "python": "nothing but Lua is reachable",
    "async": "calls run at the same time by themselves: make them, then await_all them",
    "await": "write :await() after the call, as in server.tool({ name = value }):await()",
    "console": "write print(value)",
    "JSON": "write json.encode(value) and json.decode(text)",
    "cjson": "write json.encode(value) and json.decode(text)",
    "undefined": "Lua says nil, and JSON's null is the global null",
    "None": "Lua says nil, and JSON's null is the global null",
    "True": "Lua writes true and false",
    "False": "Lua writes true and false",
}
"""Globals that authors expect and that are not there, and what to write instead."""
REMOVED_FIELDS = {
    "os": ("execute getenv exit remove rename tmpname setlocale", "of os there are time, clock, date and difftime"),
    "string": ("dump", "functions cannot be written out"),
    "table": ("getn foreach maxn", "write #list, and for index, value in ipairs(list) do"),
}
QUESTIONS = ("search", "describe", "read_result", "list_resources", "read_resource")

READ = 64_000
"""Characters of a source that are looked at; hints are found while the gateway waits."""

# Sources may be hostile. Whatever begins here also ends, at the latest with the source or the line, and nothing is
# tried twice (`*+`), so that reading takes a time in proportion to the length.
_COMMENT_OR_TEXT = re.compile(
    r"--\[(=*+)\[.*?(?:\]\1\]|\Z)|--[^\n]*+|\[(=*+)\[.*?(?:\]\2\]|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?",
    re.DOTALL,
)
_LOCALS = re.compile(r"\blocal\s++([\w\s,]*+)")
_RESULT_AMONG_THEM = re.compile(r"(?:^|,\s*+|\blocal\s++)result\b")
_TAKES_ANY_NUMBER = re.compile(r"\bfunction\b\s*+[\w.:]{0,80}+\s*+\([\w\s,]*+\.\.\.")
_GLOBAL = re.compile(r"\(global '([^']+)'\)")
_FIELD = re.compile(r"\((?:field|method) '([^']+)'\)")


def hints(source: str, reason: str, servers: Sequence[str]) -> list[str]:
    """Hints for the author, the likeliest first, each in one sentence; none is better than a wrong one."""
    code = _COMMENT_OR_TEXT.sub(_blank, source[:READ])
    found: list[str] = []
    for rule in _RULES:
        found += [hint for hint in rule(code, reason, servers) if hint not in found]
    return found


def _blank(match: re.Match[str]) -> str:
    """Comments vanish; texts become empty ones, so that what stands in them is not read as code."""
    return " " if match.group().startswith("--") else '""'


def _shadowed_result(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    is_local = any(_RESULT_AMONG_THEM.search(names) for names in _LOCALS.findall(code))
    if is_local and re.search(r"\bresult\s*\(", code) and "result" in reason:
        yield (
            "a local variable named result hides the function result(): name it otherwise, "
            "as in local res = ... and result(res)"
        )


def _missing_await(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if re.search(r"\.\s*await\s*\(", code):
        yield "write :await() with a colon instead of .await()"
    elif re.search(r"\bawait\s+[A-Za-z_]", code):
        yield "Lua has no await keyword: write :await() after the call"
    elif "not awaited" in reason and "await" not in code:
        yield "a call returns a future at once: write server.tool({ name = value }):await() for its value"


def _unknown_global(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    match = _GLOBAL.search(reason)
    if not match:
        return
    name = match.group(1)
    if name in REMOVED:
        yield f"{name!r} is not available: {REMOVED[name]}"
        return
    if near := get_close_matches(name, servers, n=3, cutoff=0.6):
        yield f"there is no {name!r}; did you mean {' or '.join(near)}?"
    elif "index" in reason and servers:
        shown = ", ".join(servers[:10]) + (", ..." if len(servers) > 10 else "")
        yield f"there is no {name!r}; the servers are {shown}"


def _removed_field(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    match = _FIELD.search(reason)
    if not match:
        return
    name = match.group(1)
    for library, (fields, advice) in REMOVED_FIELDS.items():
        if name in fields.split() and re.search(rf"\b{library}\s*\.\s*{name}\b", code):
            yield f"'{library}.{name}' is not available: {advice}"


def _placeholder(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if re.search(r"[=(,{]\s*\.\.\.\s*[,})\n]", code) and not _TAKES_ANY_NUMBER.search(code):
        yield "... stands for no value here: write the value itself, or take it from args"


def _concatenation(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if re.search(r"attempt to add a '(?:string' with|\w+' with a 'string')", reason):
        yield "texts are joined with .. and not with +"


def _foreign_operators(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if not re.search(r"near|expected|unexpected|malformed", reason):
        return  # it could be read, so these would be guesses
    foreign = (
        (r"!=", "write ~= instead of !="),
        (r"&&", "write and instead of &&"),
        (r"\|\|", "write or instead of ||"),
        (r"\+=|-=|\*=|\+\+", "Lua has no += or ++: write x = x + 1"),
        (r"\belse\s+if\b", "write elseif as one word"),
        (r"\b(?:const|let|var)\s", "write local name = value"),
        (r"=>|\bdef\s|\bfunc\s", "write function (x) ... end"),
        (r"`", "texts are written in quotes or [[ ]], and joined with .."),
        (r"//|/\*", "comments begin with --"),
        (r"!\s*[A-Za-z_(]", "write not instead of !"),
        (r"\{\s*\"\"\s*:|[,{]\s*\w+\s*:\s", 'fields of a table are written name = value, or ["name"] = value'),
    )
    yield from (hint for pattern, hint in foreign if re.search(pattern, code))


def _nil_or_null(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if "value is null" in reason:
        yield "JSON's null is the global null, which counts as true in Lua: test it with value ~= null"
    elif "attempt to" in reason and "nil value (field" in reason:
        yield "a field that an answer does not have is nil: print(json.encode(value)) shows what there is"


def _too_large(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if "result takes more than" in reason:
        yield "build a small table of what is needed, and give that to result()"


def _questions(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    match = re.search(r"_gateway has no '([^']*)'", reason)
    if match and (near := get_close_matches(match.group(1), QUESTIONS, n=1, cutoff=0.5)):
        yield f"did you mean _gateway.{near[0]}?"


_RULES: Sequence[Callable[[str, str, Sequence[str]], Iterator[str]]] = (
    _shadowed_result,
    _missing_await,
    _unknown_global,
    _removed_field,
    _questions,
    _foreign_operators,
    _concatenation,
    _placeholder,
    _nil_or_null,
    _too_large,
)
