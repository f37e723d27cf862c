"""Pairs from Python sources, read as syntax trees and never run: functions, tools of agents, commands."""

import ast
import hashlib
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from sources import PER_PACKAGE
from texts import asks, plain, split_first

Row = dict[str, Any]

LARGEST_FILE = 1_500_000
_ASIDE = re.compile(
    r"(^|/)(_?tests?|testing|_?vendor(ed)?|_vendored_packages|third_party|thirdparty|examples?|site-packages|idlelib|turtledemo|lib2to3|docs?)/"
    r"|(^|/)(test_|conftest)|_test\.py$|_pb2|/setup\.py$"
)
_BEFORE = re.compile(
    r"(^|/)\w*?(tools?|toolkits?|tool_specs?|operations|operators|hooks|api|apis|resources|services|clients?)(/|\.py)"
)
"""Files that often hold what a person would ask for: read first."""

_AFTER = re.compile(r"(^|/)_?(models?|types?|schemas?|entities|migrations|internal|_utils?|utils?)(/|\.py)|/_[^_]")
"""Files that seldom hold what a person would ask for: read last, when the package has room left."""

_ROUTINE = {
    "from_json",
    "to_json",
    "from_dict",
    "to_dict",
    "to_str",
    "from_orm",
    "get_name",
    "main",
    "serialize",
    "deserialize",
    "validate",
    "pb",
    "to_proto",
}
_PASSIVE = {
    "property",
    "cached_property",
    "setter",
    "getter",
    "deleter",
    "overload",
    "validator",
    "field_validator",
    "fixture",
    "hybrid_property",
}
_SELF = {"self", "cls", "args", "kwargs", "mcs", "_", "extra_headers", "extra_query", "extra_body"}


def mine_wheel(path: Path) -> list[Row]:
    """Return the pairs of one wheel, at most `PER_PACKAGE`, from its files in an order that a hash mixes."""
    package = path.name.split("-")[0]
    try:
        with ZipFile(path) as wheel:
            names = [info.filename for info in wheel.infolist() if _is_wanted(info.filename, info.file_size)]
            return _mine(package, ((name, wheel.read(name)) for name in _mixed(names)))
    except (BadZipFile, OSError):
        return []


def mine_standard_library() -> list[Row]:
    """Return the pairs of the running interpreter's standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = {str(path.relative_to(root)): path for path in root.rglob("*.py")}
    names = [name for name, path in paths.items() if _is_wanted(name, path.stat().st_size)]
    return _mine("python", ((name, paths[name].read_bytes()) for name in sorted(names)), most=6 * PER_PACKAGE)


def _is_wanted(name: str, size: int) -> bool:
    return name.endswith(".py") and size <= LARGEST_FILE and not _ASIDE.search(name) and ".data/" not in name


def _mixed(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (_turn(name), hashlib.md5(name.encode()).digest()))


def _turn(name: str) -> int:
    return 2 if _AFTER.search(name) else 0 if _BEFORE.search(name) else 1


def _mine(package: str, files: Iterable[tuple[str, bytes]], most: int = PER_PACKAGE) -> list[Row]:
    rows: dict[str, Row] = {}
    for name, source in files:
        for row in _rows(package, name, source):
            rows.setdefault(row["query"].lower(), row)
        if len(rows) >= most:
            break
    return list(rows.values())[:most]


def _rows(package: str, name: str, source: bytes) -> Iterator[Row]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    server = _server(package, name)
    for owner, node in _definitions(tree):
        found = _from_class(node) if isinstance(node, ast.ClassDef) else _from_function(node, owner)
        if found is not None:
            yield {"source": package, "server": server, **found}


def _server(package: str, name: str) -> str:
    parts = [part for part in name.removesuffix(".py").split("/") if not part.startswith("_")]
    last = parts[-1] if parts else ""
    spelled = package.replace("_", "-").lower()
    return spelled if last.replace("_", "-").lower() in ("", spelled, "init") else f"{spelled} {last}"


def _definitions(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield "", node
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield node.name, inner


def _from_function(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> Row | None:
    decorators = {_last_name(decorator) for decorator in node.decorator_list}
    if node.name.startswith(("_", "test")) or node.name in _ROUTINE or decorators & _PASSIVE:
        return None
    text = ast.get_docstring(node) or _command_help(node)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parameters = [argument.arg for argument in arguments if argument.arg not in _SELF]
    return _pair(text, f"{owner}.{node.name}" if owner else node.name, parameters)


def _from_class(node: ast.ClassDef) -> Row | None:
    """Return the pair of a class that is an agent's tool: its `name` and `description` are constants."""
    constants = {target: value for statement in node.body for target, value in _constant(statement)}
    if not (constants.get("description") and re.search(r"Tool|Action|Command|Operator|Function|Skill", node.name)):
        return None
    return _pair(constants["description"], constants.get("name") or node.name, [])


def _constant(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(statement, ast.AnnAssign):
        target, value = statement.target, statement.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    else:
        return
    if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield target.id, value.value


def _command_help(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    for decorator in node.decorator_list:
        for keyword in getattr(decorator, "keywords", []):
            if keyword.arg in ("help", "short_help", "description") and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return ""


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _pair(text: str, name: str, parameters: list[str]) -> Row | None:
    query, description = split_first(plain(text[:4000]))
    if not asks(query) or not (description or parameters):
        return None
    return {"query": query, "name": name, "description": description, "parameters": parameters[:20]}
