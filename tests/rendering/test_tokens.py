"""The token counters: an estimate that is near the truth on any text, and the truth as an extra."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalogue import FLEET_VARIABLE, Definition, generate, load_fleet

from portico.config import load_settings
from portico.domain.search_answers import Query
from portico.errors import ConfigError
from portico.rendering import budget
from portico.rendering.budget import _CLASSES, ExactTokens, TokenEstimate, counter_for
from portico.rendering.cards import signature
from portico.testing import AGENT, make_test_app

COUNTER = TokenEstimate()
exact_only = pytest.mark.skipif(
    find_spec("splintr") is None, reason="the extra `tokens` is not installed: its wheel has 19 MB"
)
LANGUAGES = [
    "Получить список всех задач проекта и отсортировать их по дате создания.",
    "获取项目的所有任务并按创建日期排序。返回任务列表。",
    "プロジェクトのすべてのタスクを取得し、作成日順に並べ替えます。",
    "프로젝트의 모든 작업을 가져와 생성 날짜순으로 정렬합니다.",
    "Récupère toutes les tâches du projet et trie-les par date de création.",
    "احصل على جميع مهام المشروع ورتبها حسب تاريخ الإنشاء",
]


def test_the_estimate_names_itself_and_grows_with_the_text() -> None:
    assert COUNTER.name == "estimate"
    assert COUNTER.count("") == 0
    assert 0 < COUNTER.count("search tools") < COUNTER.count("search tools " * 10)


@given(st.text(max_size=300))
def test_every_letter_of_any_script_counts(text: str) -> None:
    visible = "".join(text.split())
    assert COUNTER.count(visible) >= len(visible) / 12
    assert COUNTER.count(text) <= 2 * len(text)


@pytest.mark.parametrize("unit", ["a", "A", "aB", "_", "7", "{", " ", "\n", " \n", "é", "日", "🎉", "\ud800", "\x00"])
def test_the_estimate_reads_a_text_once(unit: str) -> None:
    """Each pattern matches a bounded piece or fails at the first letter, so that nothing is read again and again."""
    text = unit * 3_000
    pieces = [found for pattern, _ in _CLASSES for found in pattern.finditer(text)]
    assert max(len(found[0]) for found in pieces) <= 16 if pieces else unit == " "
    covered = sum(len(found[0]) for found in pieces)
    assert covered <= len(text)
    assert COUNTER.count(text * 2) <= 2 * COUNTER.count(text) + 1


@pytest.mark.requirement("P-NO-STALL")
@given(
    st.lists(
        st.sampled_from(['"name": ', "create", "_", "Issue", "123", "  \n", "{", "}},", "\u00e9t\u00e9", "\u65e5", "X"])
    )
)
def test_a_long_text_is_read_in_parts_and_counts_as_one(pieces: list[str]) -> None:
    text = ("".join(pieces) + "end ") * (3 * budget.PART // (len("".join(pieces)) + 4) + 1)
    whole = sum(weight * len(pattern.findall(text)) for pattern, weight in _CLASSES)
    assert TokenEstimate().count(text) == -(-whole // 100)
    parts = list(budget._parts(text))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 2 * budget.PART


def test_a_setting_chooses_the_counter(tmp_path: Path) -> None:
    config = tmp_path / "portico.yaml"
    config.write_text("servers: {}\n")
    assert load_settings(str(config), {}, tmp_path).catalog.tokens == "estimate"
    config.write_text("tokens: exact\n")
    assert load_settings(str(config), {}, tmp_path).catalog.tokens == "exact"
    config.write_text("tokens: guess\n")
    refused = load_settings(str(config), {}, tmp_path)
    assert (refused.catalog.tokens, len(refused.problems)) == ("estimate", 1)
    assert counter_for("estimate").name == "estimate"


def test_without_the_extra_an_exact_count_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(ConfigError, match=r"tokens: .*pip install 'portico\[tokens\]'"):
        counter_for("exact")


@exact_only
def test_the_exact_counter_counts_o200k_tokens() -> None:
    counter = counter_for("exact")
    assert counter.name == "o200k"
    assert [counter.count(text) for text in ("", "hello world", "a" * 16)] == [0, 2, 2]
    assert counter.count("<|endoftext|>") > 1
    assert counter.count("half \ud800 a pair") > 2


@exact_only
def test_reports_name_the_exact_counter() -> None:
    application = make_test_app(generate(3, 9), counter=counter_for("exact"))
    assert application.admin.bill(100).counter == "o200k"
    assert application.gateway.search(AGENT, Query(text="create")).counter == "o200k"


def errors_of(texts: list[str]) -> list[float]:
    """How far the estimate is off, for each text, smallest first."""
    truth = ExactTokens()
    return sorted(abs(COUNTER.count(text) / truth.count(text) - 1) for text in texts)


def bias_of(texts: list[str]) -> float:
    """How far the estimate is off over all texts together."""
    truth = ExactTokens()
    return sum(map(COUNTER.count, texts)) / sum(map(truth.count, texts)) - 1


def texts_of(definitions: dict[str, list[Definition]]) -> tuple[list[str], list[str]]:
    """Definitions as a client would read them, and pages of their signatures."""
    tools = list(make_test_app(definitions).gateway.snapshot.tools.values())
    lines = [signature(tool) for tool in tools]
    pages = ["\n".join(lines[start : start + 5]) for start in range(0, len(lines), 5)]
    return [orjson.dumps(tool.definition).decode() for tool in tools], pages


@exact_only
@pytest.mark.requirement("P-TOKENS-ESTIMATE")
def test_the_estimate_is_near_the_exact_count() -> None:
    definitions, pages = texts_of(generate(20, 300))
    for texts in (definitions, pages):
        errors = errors_of(texts)
        assert median(errors) < 0.06
        assert errors[int(len(errors) * 0.95)] < 0.15
        assert abs(bias_of(texts)) < 0.06


@exact_only
@pytest.mark.requirement("P-TOKENS-ESTIMATE")
def test_the_estimate_is_near_the_exact_count_of_real_definitions() -> None:
    found = load_fleet()
    if found is None:
        pytest.skip(f"{FLEET_VARIABLE} names no file with the definitions of real servers")
    definitions, pages = texts_of(found)
    errors = errors_of(definitions)
    assert median(errors) < 0.03
    assert errors[int(len(errors) * 0.95)] < 0.08
    assert abs(bias_of(definitions)) < 0.01
    assert median(errors_of(pages)) < 0.06


@exact_only
@pytest.mark.requirement("P-TOKENS-ESTIMATE")
def test_the_estimate_is_of_the_right_size_in_other_languages() -> None:
    assert errors_of(LANGUAGES)[-1] < 0.6
    assert abs(bias_of(LANGUAGES)) < 0.3
