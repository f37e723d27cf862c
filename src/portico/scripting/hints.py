"""Hints for the author of a script that failed, from its source and the error, without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from portico.domain.suggestions import nearest_names

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

READ = 64_000  # characters of a source that are looked at; hints are found while the gateway waits

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


_UNREADABLE = r"near|expected|unexpected|malformed"  # where it could be read, foreign signs would be guesses
_ADVICE: Sequence[tuple[str, str, str]] = (
    (r"!=", _UNREADABLE, "write ~= instead of !="),
    (r"&&", _UNREADABLE, "write and instead of &&"),
    (r"\|\|", _UNREADABLE, "write or instead of ||"),
    (r"\+=|-=|\*=|\+\+", _UNREADABLE, "Lua has no += or ++: write x = x + 1"),
    (r"\belse\s+if\b", _UNREADABLE, "write elseif as one word"),
    (r"\b(?:const|let|var)\s", _UNREADABLE, "write local name = value"),
    (r"=>|\bdef\s|\bfunc\s", _UNREADABLE, "write function (x) ... end"),
    (r"`", _UNREADABLE, "texts are written in quotes or [[ ]], and joined with .."),
    (r"//|/\*", _UNREADABLE, "comments begin with --"),
    (r"!\s*[A-Za-z_(]", _UNREADABLE, "write not instead of !"),
    (
        r"\{\s*\"\"\s*:|[,{]\s*\w+\s*:\s",
        _UNREADABLE,
        'fields of a table are written name = value, or ["name"] = value',
    ),
    ("", r"attempt to add a '(?:string' with|\w+' with a 'string')", "texts are joined with .. and not with +"),
    (
        "",
        "value is null",
        "JSON's null is the global null, which counts as true in Lua: test it with value ~= null",
    ),
    (
        "",
        r"attempt to.*nil value \(field",
        "a field that an answer does not have is nil: print(json.encode(value)) shows what there is",
    ),
    ("", "result takes more than", "build a small table of what is needed, and give that to result()"),
)
"""Patterns of the code and of the reason, and what to write instead where both are found."""


def hints(source: str, reason: str, servers: Sequence[str]) -> list[str]:
    """Hints for the author, the likeliest first, each in one sentence; none is better than a wrong one."""
    # Comments vanish; texts become empty ones, so that what stands in them is not read as code.
    code = _COMMENT_OR_TEXT.sub(lambda found: " " if found[0].startswith("--") else '""', source[:READ])
    found = [
        *_about_syntax(code, reason),
        *_about_names(code, reason, servers),
        *(hint for pattern, why, hint in _ADVICE if re.search(why, reason) and re.search(pattern, code)),
    ]
    if re.search(r"[=(,{]\s*\.\.\.\s*[,})\n]", code) and not _TAKES_ANY_NUMBER.search(code):
        found.append("... stands for no value here: write the value itself, or take it from args")
    return [*dict.fromkeys(found)]


def _about_syntax(code: str, reason: str) -> Iterator[str]:
    is_local = any(_RESULT_AMONG_THEM.search(names) for names in _LOCALS.findall(code))
    if is_local and re.search(r"\bresult\s*\(", code) and "result" in reason:
        yield (
            "a local variable named result hides the function result(): name it otherwise, "
            "as in local res = ... and result(res)"
        )
    if re.search(r"\.\s*await\s*\(", code):
        yield "write :await() with a colon instead of .await()"
    elif re.search(r"\bawait\s+[A-Za-z_]", code):
        yield "Lua has no await keyword: write :await() after the call"
    elif "not awaited" in reason and "await" not in code:
        yield "a call returns a future at once: write server.tool({ name = value }):await() for its value"


def _about_names(code: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if match := _GLOBAL.search(reason):
        yield from _about_global(match.group(1), reason, servers)
    if match := _FIELD.search(reason):
        name = match.group(1)
        for library, (fields, advice) in REMOVED_FIELDS.items():
            if name in fields.split() and re.search(rf"\b{library}\s*\.\s*{name}\b", code):
                yield f"'{library}.{name}' is not available: {advice}"
    if match := re.search(r"_gateway has no '([^']*)'", reason):
        for near in nearest_names(match.group(1), QUESTIONS, limit=1, cutoff=50.0):
            yield f"did you mean _gateway.{near}?"


def _about_global(name: str, reason: str, servers: Sequence[str]) -> Iterator[str]:
    if name in REMOVED:
        yield f"{name!r} is not available: {REMOVED[name]}"
    elif near := nearest_names(name, servers):
        yield f"there is no {name!r}; did you mean {' or '.join(near)}?"
    elif "index" in reason and servers:
        shown = ", ".join(servers[:10]) + (", ..." if len(servers) > 10 else "")
        yield f"there is no {name!r}; the servers are {shown}"
