"""The `semantic` table: an endpoint or a local model, and what is said of one that cannot be used."""

from __future__ import annotations

import pytest

from portico.config import Semantic
from portico.config.variables_and_masking import mask

from .conftest import Home

KEY = "sk-very-secret-12345"


def read(home: Home, text: str) -> Semantic | None:
    home.write("project/portico.yaml", text)
    settings = home.load()
    assert settings.problems == ()
    return settings.search.semantic


def test_without_the_table_there_is_no_embedder(home: Home) -> None:
    assert home.load().search.semantic is None
    assert read(home, "port: 1") is None


def test_an_endpoint_is_read_with_its_key_from_the_environment(home: Home) -> None:
    home.environ["OPENAI_API_KEY"] = f" {KEY}\n"
    found = read(
        home,
        'semantic: {url: "https://api.example.com/v1", model: small, key: "${OPENAI_API_KEY}", timeout_s: 1.5}',
    )
    assert found == Semantic(url="https://api.example.com/v1", model="small", key=KEY, timeout_s=1.5, line=1)
    assert KEY not in repr(found)


def test_an_endpoint_on_this_machine_needs_no_key(home: Home) -> None:
    found = read(home, "semantic:\n  url: http://localhost:11434/v1\n  model: nomic-embed-text")
    assert found == Semantic(url="http://localhost:11434/v1", model="nomic-embed-text", line=3)
    assert found.timeout_s == 0.8


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("acme/model", "acme/model"),
        ("./models/small", "{project}/models/small"),
        ("/models/small", "/models/small"),
    ],
)
def test_a_local_model_is_a_name_or_a_folder_beside_the_file(home: Home, written: str, model: str) -> None:
    found = read(home, f"semantic: {{model: {written}}}")
    assert found is not None
    assert (found.url, found.model) == ("", model.format(project=home.project))


BROKEN = {
    "5": (1, "semantic", "must be a table"),
    "{}": (1, "semantic", "a model is needed"),
    "{model: ''}": (1, "semantic.model", "a model is needed"),
    "{url: 'https://h/v1'}": (1, "semantic", "a model is needed"),
    "{model: [a]}": (1, "semantic.model", "this must be text"),
    "{modell: a, model: b}": (1, "semantic.modell", "Did you mean 'model'?"),
    "\n  model: a\n  url: ftp://h": (3, "semantic.url", "not an http or https address"),
    "{model: a, url: ''}": (1, "semantic.url", "this is empty"),
    "{model: a, url: 'http://[::1'}": (1, "semantic.url", "not an http or https address"),
    "{model: a, url: 'https://ana:sk-very-secret-12345@h'}": (1, "semantic.url", "Write the key under key"),
    "{model: a, key: sk-very-secret-12345}": (1, "semantic.key", "there is no url"),
    "\n  model: a\n  url: http://h\n  key: ${NOT_SET}": (4, "semantic.key", "the variable NOT_SET is not set"),
    "{model: a, url: 'http://h', key: 'Bearer sk-very-secret-12345'}": (1, "semantic.key", "without Bearer"),
    "{model: a, timeout_s: 0}": (1, "semantic.timeout_s", "a number above 0"),
    "{model: a, timeout_s: soon}": (1, "semantic.timeout_s", "a number above 0"),
    "{model: a, timeout_s: 800}": (1, "semantic.timeout_s", "at most 30"),
}


@pytest.mark.requirement("P-EMBEDDER-CONFIG", "P-EMBEDDER-SECRET")
@pytest.mark.parametrize("text", BROKEN)
def test_what_cannot_be_used_is_named_by_line_and_field_and_the_rest_runs(home: Home, text: str) -> None:
    home.write("project/portico.yaml", f"semantic: {text}\nservers: {{a: {{command: x}}}}\n")
    settings = home.load()
    line, where, words = BROKEN[text]
    (problem,) = settings.problems
    assert (problem.line, problem.where) == (line, where)
    assert words in str(problem)
    assert problem.fix
    assert KEY not in str(problem)
    assert settings.search.semantic is None
    assert [spec.name for spec in settings.servers] == ["a"]


@pytest.mark.requirement("P-EMBEDDER-SECRET")
def test_a_key_in_the_file_is_masked_wherever_the_file_is_shown() -> None:
    assert mask({"semantic": {"model": "a", "key": "plain"}}) == {"semantic": {"model": "a", "key": "***"}}
