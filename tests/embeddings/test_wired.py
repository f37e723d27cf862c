"""From the config file to the doctor: a house with an embedder, and one whose embedder is away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from portico.config import GatewaySettings, SearchSettings, Semantic, find_paths
from portico.search.embeddings.local import is_installed
from portico.surfaces.cli.context import Exit
from portico.wiring import Parts, assemble, open_app
from tests.surfaces.cli.shell import Shell

from .embedding_server import EmbeddingServer, says
from .polyglot import QUERY, TEXTS, TOOLS, speaks

KEY = "sk-very-secret-12345"


def configured(folder: Path, semantic: dict[str, object]) -> Shell:
    shell = Shell(folder)
    shell.configure(json.dumps({"semantic": semantic}))
    return shell


@pytest.mark.anyio
async def test_a_house_opens_the_embedder_of_its_settings_and_closes_it(
    server: EmbeddingServer, tmp_path: Path
) -> None:
    asked = Semantic(url=server.url, model="m", key=KEY, timeout_s=5)
    settings = GatewaySettings(
        home=find_paths({"PORTICO_HOME": str(tmp_path)}, tmp_path), search=SearchSettings(semantic=asked)
    )
    async with open_app(settings) as application:
        meanings = application.gateway.meanings
        assert meanings is not None
        assert server.requests == [], "nothing is asked before somebody needs it"
        assert await meanings.warm("x") is not None
    assert meanings.ask("late") is None
    assert server.texts == ["x"]


def test_without_the_setting_there_is_none() -> None:
    assert assemble(Parts()).gateway.meanings is None


@pytest.mark.requirement("P-EMBEDDER-CONFIG")
def test_doctor_says_how_the_embedder_is_doing(server: EmbeddingServer, tmp_path: Path) -> None:
    shell = configured(tmp_path, {"url": server.url, "model": "m", "key": "${KEY}"})
    well = shell.run("doctor", KEY=KEY)
    assert (well.code, well.out.splitlines()[0]) == (Exit.OK, f"ok  embedder m at {server.url}/embeddings: ready 0/0")
    server.behaviour = says(401, KEY)
    away = shell.run("doctor", "--json", KEY=KEY)
    assert away.code == Exit.UPSTREAM
    assert away.json[0] == {
        "embedder": f"m at {server.url}/embeddings",
        "state": "away: it refused the key (HTTP 401), next try in 30 s",
        "ok": False,
    }
    assert KEY not in well.out + well.err + away.out + away.err


@pytest.mark.requirement("P-EMBEDDER-CONFIG")
@pytest.mark.skipif(is_installed(), reason="sentence-transformers is here")
def test_a_local_model_without_its_package_is_reported_once_and_search_goes_on(tmp_path: Path) -> None:
    shell = configured(tmp_path, {"model": "small"})
    ended = shell.run("search", "anything")
    file = tmp_path / "portico.yaml"
    assert ended.err.splitlines()[0] == (
        f"config: {file}:1: semantic.model: a local model needs sentence-transformers, which is not installed. "
        "Run: pip install sentence-transformers, or choose all-MiniLM-L6-v2"
    )
    assert ended.err.count("which is not installed") == 1
    assert shell.run("doctor").code == Exit.CONFIG


@pytest.mark.requirement("P-SEMANTIC", "P-EMBEDDER-ONCE")
def test_a_command_finds_by_meaning_with_what_another_has_prepared(server: EmbeddingServer, tmp_path: Path) -> None:
    server.behaviour = speaks
    shell = Shell(tmp_path)
    tiny = json.loads(shell.serve_tiny(TOOLS).read_text(encoding="utf-8"))
    shell.configure(json.dumps(tiny | {"semantic": {"url": server.url, "model": "m", "timeout_s": 10}}))
    assert "ready 3/3" in shell.run("doctor").out
    found = shell.run("search", QUERY, "--json", "--explain")
    assert [(hit["name"], list(hit["why"])) for hit in found.json] == [("forecast", ["semantic"])]
    assert sorted(text for text in server.texts if ":" in text) == sorted(TEXTS)
