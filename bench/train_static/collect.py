"""Collect pairs of (what someone wants, the tool that does it) from the documentation of permissive packages.

Run it as `python bench/train_static/collect.py [--out DIR]`. It writes `pairs.jsonl` and `sources.json`
into DIR; downloads and what was mined from each package are kept there too, so that a second run only does what is new.
"""

import argparse
import hashlib
import json
import re
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path
from platform import python_version
from typing import Any
from zipfile import BadZipFile, ZipFile

import docstrings
import operations
import stubs
from forms import second_form
from licences import tarball_licence, wheel_licence
from packages import fetch_tarball, fetch_wheels
from sources import NPM_OPENAPI, NPM_STUBS, PACKAGES, SAME_QUERY

Row = dict[str, Any]
Origin = dict[str, Any]

HERE = Path(__file__).parent
MODELS: dict[str, Callable[[Path], list[Row]]] = {
    "botocore": operations.mine_botocore,
    "google_api_python_client": operations.mine_discovery,
}

GENERATED = re.compile(r"(Pre|Post)-rpc|Parses? an? \S+ path into|Returns? a fully-qualified|Calls \w+ and waits")
"""Sentences that generators of client libraries put above plumbing."""


def main() -> None:
    """Fetch, mine, thin out and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / ".cache" / "train_static")
    parser.add_argument("--offline", action="store_true", help="only packages that were downloaded before")
    parser.add_argument("--minutes", type=float, default=600, help="mine nothing new after so many minutes")
    options = parser.parse_args()
    deadline = time.time() + 60 * options.minutes
    packages = _packages(options.out / "packages", offline=options.offline)
    with Pool(2) as pool:
        work = [(path, options.out / "mined", deadline) for path in packages]
        mined = [found for found in pool.starmap(mine, work, chunksize=1) if found]
    pairs = list(_with_forms(_thinned(row for _, rows in mined for row in rows)))
    _write(options.out, pairs, [origin for origin, _ in mined])


def _packages(folder: Path, *, offline: bool) -> list[Path | None]:
    """Return the files to mine, best first; None is the standard library."""
    wheels = fetch_wheels(PACKAGES, folder, offline=offline)
    fetched = (fetch_tarball(name, folder, offline=offline) for name in (*NPM_OPENAPI, *NPM_STUBS))
    tarballs = [path for path in fetched if path]
    return [None, *wheels[:150], *tarballs, *wheels[150:]]


def mine(path: Path | None, cache: Path, deadline: float) -> tuple[Origin, list[Row]] | None:
    """Return where one package's pairs come from, and the pairs, mined now or before; None when it is too late."""
    stem = path.name if path else f"python-{python_version()}"
    kept = cache / f"{stem}.{_edition()}.json"
    if not kept.exists():
        if time.time() > deadline:
            return None
        cache.mkdir(parents=True, exist_ok=True)
        licence = _licence(path)
        rows = _rows(path) if licence else []
        part = kept.with_suffix(".part")
        part.write_text(json.dumps([licence, rows]))
        part.rename(kept)
    licence, rows = json.loads(kept.read_text())
    package, version = re.match(r"(.+?)-(\d[^-]*?)(?:-|\.tgz|$)", stem).groups()  # type: ignore[union-attr]
    return {"package": package, "version": version, "licence": licence, "mined": len(rows)}, rows


def _edition() -> str:
    """Return a mark of the mining code: what an older one mined is mined again."""
    parts = ("docstrings", "operations", "stubs", "licences", "texts")
    return hashlib.md5(b"".join((HERE / f"{part}.py").read_bytes() for part in parts)).hexdigest()[:8]


def _licence(path: Path | None) -> str | None:
    if path is None:
        return "PSF-2.0"
    if path.suffix == ".tgz":
        with tarfile.open(path) as archive:
            return tarball_licence(archive)
    try:
        with ZipFile(path) as wheel:
            return wheel_licence(wheel)
    except (BadZipFile, OSError):
        return None


def _rows(path: Path | None) -> list[Row]:
    if path is None:
        return docstrings.mine_standard_library()
    if path.suffix == ".tgz":
        return operations.mine_openapi(path) if "openapi" in path.name else stubs.mine_tarball(path)
    model = MODELS.get(path.name.split("-")[0], lambda _: [])
    return model(path) + docstrings.mine_wheel(path)


def _thinned(rows: Iterable[Row]) -> Iterator[Row]:
    """Drop what repeats: the same sentence for the same name, and a sentence that too many tools share."""
    named: set[tuple[str, str]] = set()
    asked: Counter[str] = Counter()
    for row in rows:
        query = re.sub(r"\W+", " ", row["query"].lower()).strip()
        name = row["name"].rsplit(".", 1)[-1].lower()
        if GENERATED.match(row["query"]) or (query, name) in named or asked[query] >= SAME_QUERY:
            continue
        named.add((query, name))
        asked[query] += 1
        yield row


def _with_forms(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        yield {**row, "form": "sentence"}
        if (other := second_form(row)) is not None:
            yield other


def _write(out: Path, pairs: list[Row], origins: list[Origin]) -> None:
    part = out / "pairs.jsonl.part"
    with part.open("w", encoding="utf-8") as stream:
        for pair in pairs:
            stream.write(json.dumps(pair, ensure_ascii=False) + "\n")
    part.rename(out / "pairs.jsonl")
    written = Counter(pair["source"].split("/")[0] for pair in pairs)
    refused = [origin["package"] for origin in origins if not origin["licence"]]
    used = [{**origin, "pairs": written[origin["package"]]} for origin in origins if origin["licence"]]
    mark = hashlib.sha256((out / "pairs.jsonl").read_bytes()).hexdigest()
    told = {"pairs": len(pairs), "pairs_sha256": mark, "used": used, "refused": refused}
    (out / "sources.json").write_text(json.dumps(told, indent=1))
    forms = Counter(pair["form"] for pair in pairs)
    print(f"{len(pairs)} pairs of {len(used)} packages ({len(refused)} refused for their licence): {dict(forms)}")


if __name__ == "__main__":
    main()
