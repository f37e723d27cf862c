"""Deciding from a package's own metadata whether its licence is permissive."""

import json
import re
import tarfile
from email.parser import HeaderParser
from zipfile import ZipFile

PERMISSIVE = re.compile(r"(MIT|MIT-0|MIT-CMU|HPND|BSD|0BSD|BSD-[23]-Clause|Apache-2\.0|PSF-2\.0|Python-2\.0|ISC)", re.I)
BESIDE = re.compile(r"(Zlib|CC0-1\.0|Unlicense|LLVM-exception|Unicode-3\.0|Unicode-DFS-2016|BSL-1\.0)", re.I)
"""Licences of bundled parts that do not change what the package itself permits."""

CLASSIFIED = re.compile(
    r"OSI Approved :: (MIT|BSD|Apache Software|Python Software Foundation|ISC|Historical Permission)"
)
FORBIDDEN = re.compile(
    r"GPL|GNU|MPL|Mozilla|Proprietary|Commercial|Business Source|BUSL|Elastic|SSPL|CC[- ]BY|Creative Commons|EUPL"
    r"|CeCILL|\bEPL",
    re.I,
)
WORDED = re.compile(
    r"\b(MIT|(new |modified |simplified |[23][- ]clause )?BSD|Apache|PSF|Python Software Foundation|ISC)\b", re.I
)
TEXTS = re.compile(
    r"MIT License|Permission is hereby granted, free of charge|Redistribution and use in source and binary forms"
    r"|Apache License\s+Version 2\.0|ISC License"
)


def permits(expression: str) -> bool:
    """Tell whether an SPDX expression, read left to right, permits use under permissive terms only."""
    for choice in re.split(r"\s+OR\s+", expression.replace("(", " ").replace(")", " ").strip()):
        parts = re.split(r"\s+(?:AND|WITH)\s+", choice.strip())
        if all(PERMISSIVE.fullmatch(part.strip()) or BESIDE.fullmatch(part.strip()) for part in parts) and any(
            PERMISSIVE.fullmatch(part.strip()) for part in parts
        ):
            return True
    return False


def words_permit(text: str) -> bool:
    """Tell whether a licence named in free words is permissive."""
    return bool(WORDED.search(text)) and not FORBIDDEN.search(text)


def wheel_licence(wheel: ZipFile) -> str | None:
    """Return the permissive licence that a wheel declares, or None when it declares none or another one."""
    if not (metadata := _read(wheel, r"[^/]+\.dist-info/METADATA")):
        return None
    headers = HeaderParser().parsestr(metadata)
    if expression := headers.get("License-Expression"):
        return expression if permits(expression) else None
    named = " ".join((headers.get("License") or "").split())
    classifiers = [value for value in headers.get_all("Classifier") or [] if value.startswith("License ::")]
    if FORBIDDEN.search(" ".join(classifiers)) or (len(named) < 120 and FORBIDDEN.search(named)):
        return None
    if found := [match[1] for value in classifiers if (match := CLASSIFIED.search(value))]:
        return " / ".join(found)
    if named and len(named) < 120:
        return named if words_permit(named) or permits(named) else None
    return _from_text(headers.get("License") or _read(wheel, r"[^/]+\.dist-info/(licenses/)?LICEN[SC]E[^/]*"))


def tarball_licence(archive: tarfile.TarFile) -> str | None:
    """Return the permissive licence that an npm package declares, or None when it declares none or another one."""
    for member in archive:
        if (
            member.name.count("/") == 1
            and member.name.endswith("/package.json")
            and (stream := archive.extractfile(member))
        ):
            licence = json.load(stream).get("license")
            return licence if isinstance(licence, str) and permits(licence) else None
    return None


def _from_text(text: str) -> str | None:
    match = TEXTS.search(text[:1200])
    return None if match is None or FORBIDDEN.search(text[:300]) else " ".join(match[0].split())


def _read(wheel: ZipFile, pattern: str) -> str:
    found = sorted(name for name in wheel.namelist() if re.fullmatch(pattern, name))
    return wheel.read(found[0]).decode("utf-8", "replace") if found else ""
