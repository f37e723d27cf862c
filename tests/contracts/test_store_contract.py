"""What every store promises."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from portico.domain.server import Asked, Offering
from portico.protocols import DefinitionStore
from portico.storage.memory import MemoryDefinitions
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_database

OFFERING = Offering(
    server="github",
    title="GitHub",
    version="1",
    description="issues",
    instructions="be kind",
    protocol="2025-11-25",
    capabilities={"tools": {"listChanged": True}},
    tools=({"name": "create", "inputSchema": {"type": "object"}}, {"name": "données ✓"}),
    prompts=({"name": "greet"},),
    resources=({"uri": "file:///x"},),
    templates=({"uriTemplate": "file:///{x}"},),
    limited="only 2 of 5",
    asked=Asked(at=1_234.5, mark="abc"),
)
KINDS = ["memory", "sqlite", "postgresql"]


def opened(kind: str, request: pytest.FixtureRequest, kept: int) -> Iterator[DefinitionStore]:
    if kind == "memory":
        yield MemoryDefinitions(vectors_kept=kept)
        return
    folder: Path = request.getfixturevalue("tmp_path")
    where = "sqlite" if kind == "sqlite" else request.getfixturevalue("migrated_url")
    store = DatabaseDefinitions(open_database(where, folder / "deep"), vectors_kept=kept)
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def small_store(request: pytest.FixtureRequest) -> Iterator[DefinitionStore]:
    yield from opened(request.param, request, 4)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[DefinitionStore]:
    yield from opened(request.param, request, 20_000)


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_an_offering_comes_back_whole(store: DefinitionStore) -> None:
    store.save(OFFERING, "1")
    assert store.load({"github": "1"}) == {"github": OFFERING}
    assert store.load({"github": "1"})["github"].asked == OFFERING.asked


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_another_fingerprint_or_server_loads_nothing(store: DefinitionStore) -> None:
    store.save(OFFERING, "1")
    assert store.load({"github": "2"}) == {}
    assert store.load({"gitlab": "1"}) == {}
    assert store.load({}) == {}


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_the_newest_offering_is_the_one_remembered(store: DefinitionStore) -> None:
    store.save(OFFERING, "1")
    newer = Offering(server="github", title="new")
    store.save(newer, "2")
    assert store.load({"github": "1"}) == {}
    assert store.load({"github": "2"}) == {"github": newer}


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_what_is_forgotten_is_gone_and_forgetting_twice_is_fine(store: DefinitionStore) -> None:
    store.save(OFFERING, "1")
    store.save(Offering(server="other"), "1")
    store.forget(["github", "nobody"])
    store.forget(["github"])
    assert store.load({"github": "1", "other": "1"}) == {"other": Offering(server="other")}


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_names_with_quotes_and_other_alphabets_are_kept(store: DefinitionStore) -> None:
    names = [
        "'; DROP TABLE offerings; --",
        "данные",
        '"',
        "",
        "100%",
        ":server",
        "\0",
        "\ufffd",
        "🚪" * 512,
        "🚪" * 513,
    ]
    for name in names:
        store.save(Offering(server=name), "1")
    assert store.load(dict.fromkeys(names, "1")).keys() == set(names)


def test_closing_twice_is_fine(store: DefinitionStore) -> None:
    store.close()


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_a_failure_is_remembered_until_the_server_is_heard_again_or_changed(store: DefinitionStore) -> None:
    store.save_failure("github", "1", "no such command")
    assert store.failures({"github": "1", "other": "1"}, within=60) == {"github": "no such command"}
    assert store.failures({"github": "2"}, within=60) == {}
    assert store.failures({"github": "1"}, within=-1) == {}
    store.save(OFFERING, "1")
    assert store.failures({"github": "1"}, within=60) == {}


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_vectors_come_back_under_their_model_and_hash(store: DefinitionStore) -> None:
    store.save_vectors("one", {"a": b"\x00\x01", "b": b"\xff" * 5_000})
    store.save_vectors("two", {"a": b"other"})
    assert store.load_vectors("one", ["a", "b", "c"]) == {"a": b"\x00\x01", "b": b"\xff" * 5_000}
    assert store.load_vectors("two", ["a"]) == {"a": b"other"}
    assert store.load_vectors("three", ["a"]) == store.load_vectors("one", []) == {}


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_the_newest_vector_is_the_one_remembered(store: DefinitionStore) -> None:
    store.save_vectors("m", {"a": b"old"})
    store.save_vectors("m", {"a": b"new"})
    store.save_vectors("m", {})
    assert store.load_vectors("m", ["a"]) == {"a": b"new"}


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_many_vectors_are_loaded_at_once_and_odd_names_are_kept(store: DefinitionStore) -> None:
    rows = {f"'; DROP TABLE vectors; -- \"{n} данные": str(n).encode() for n in range(3_000)}
    store.save_vectors('"', rows)
    assert store.load_vectors('"', list(rows)) == rows


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_vectors_not_used_for_longest_make_room(small_store: DefinitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    days = iter(range(100))
    monkeypatch.setattr("portico.storage.remembered_offerings.time", lambda: 2 * 86_400.0 * next(days))
    for hash in "abcd":
        small_store.save_vectors("m", {hash: b"1"})
    assert small_store.load_vectors("m", ["a", "b"]).keys() == {"a", "b"}
    small_store.save_vectors("other", {"e": b"1"})
    assert small_store.load_vectors("m", list("abcd")).keys() == {"a", "b", "d"}
    small_store.save_vectors("m", dict.fromkeys("uvwxyz", b"1"))
    assert len(small_store.load_vectors("m", list("abcduvwxyz"))) == 4


@pytest.mark.requirement("P-STORE-CONTRACT")
def test_threads_may_use_one_store(store: DefinitionStore) -> None:
    def work(name: str) -> None:
        for n in range(20):
            store.save_vectors(name, {str(n): b"x"})
            store.save(Offering(server=name), str(n))
            assert store.load_vectors(name, [str(n)]) == {str(n): b"x"}

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "abcd"))
    assert store.load(dict.fromkeys("abcd", "19")).keys() == set("abcd")
