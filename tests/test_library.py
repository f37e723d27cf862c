"""The catalog as a library: the example of the design, and everything around it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import fail_after

from portico import Catalog
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.search_answers import Findings, Hit
from portico.domain.tool import ToolId
from portico.errors import AmbiguousTool, EmbedderAway, InvalidArguments, InvalidDefinition, UnknownFilter, UnknownTool
from portico.protocols import Index
from portico.surfaces.capabilities.inventory import create_tool_registry
from portico.testing import FakeEmbedder, definition

ISSUE = definition("create_issue", "Create a bug report or another issue", title="string")


def run(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}: {arguments['title']}"


def handle_base_tableList(database: str = "main") -> list[str]:  # noqa: N802
    """List the tables of a database."""
    return [database]


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.add_tools("github", [ISSUE], call=run)
    made.register_tool(handle_base_tableList, category="base")
    return made


@pytest.mark.requirement("P-LIBRARY", "S0-53")
async def test_the_example_of_the_design(catalog: Catalog) -> None:
    hits = catalog.search("open a bug report", limit=5)
    assert (hits[0].handle, hits[0].server, hits[0].name) == ("github.create_issue", "github", "create_issue")
    assert hits[0].score > 0
    assert hits[0].why
    assert catalog.describe(["github.create_issue"]).text.startswith("## github.create_issue [write]")
    result = await catalog.call("github.create_issue", {"title": "x"})
    assert result.text == "create_issue: x"
    assert not result.is_error
    assert len(catalog) == 2


@pytest.mark.requirement("S0-2", "S0-46", "S0-68")
async def test_tools_may_be_added_late_and_are_found_at_once(catalog: Catalog) -> None:
    catalog.search("weather")

    async def forecast(city: str, days: int = 1) -> dict[str, Any]:
        """Forecast the weather."""
        return {"city": city, "days": days}

    handle = catalog.register_tool(forecast, category="sky")
    assert handle == "_local.forecast"
    assert [hit.handle for hit in catalog.search("weather")] == ["_local.forecast"]
    assert [hit.handle for hit in catalog.search("weather", category="sky")] == ["_local.forecast"]
    assert catalog.search("weather", category="base") == []
    result = await catalog.call("forecast", {"city": "Oslo", "days": "3"})
    assert result.structured == {"city": "Oslo", "days": 3}
    assert result.notes


@pytest.mark.requirement("S0-68", "S0-77")
async def test_a_tool_can_be_removed_by_any_spelling(catalog: Catalog) -> None:
    assert catalog.unregister("local.base_tableList")
    assert not catalog.unregister("local.base_tableList")
    assert catalog.unregister("github::create_issue")
    assert len(catalog) == 0
    with pytest.raises(UnknownTool):
        await catalog.call("github.create_issue", {"title": "x"})


@pytest.mark.requirement("P-RESOLVE-AMBIGUOUS")
def test_removing_an_ambiguous_name_removes_nothing(catalog: Catalog) -> None:
    catalog.add_tools("gitlab", [ISSUE], call=run)
    with pytest.raises(AmbiguousTool):
        catalog.unregister("create_issue")
    assert len(catalog) == 3


@pytest.mark.requirement("S0-68")
def test_definitions_that_cannot_be_used_are_listed_with_reasons() -> None:
    catalog = Catalog()
    bad: list[Any] = [{"name": ""}, {}, "junk", None, {"name": "x", "inputSchema": []}, ISSUE]
    catalog.add_tools("s", bad, call=run)
    assert len(catalog) == 1
    assert len(catalog.rejected) == 5
    assert {refusal.server for refusal in catalog.rejected} == {"s"}


@pytest.mark.requirement("S0-68")
async def test_a_second_definition_of_a_name_replaces_the_first(catalog: Catalog) -> None:
    catalog.add_tools("github", [{**ISSUE, "description": "now different"}], call=lambda name, arguments: "second")
    assert len(catalog) == 2
    assert "now different" in catalog.describe(["create_issue"]).text
    assert (await catalog.call("create_issue", {"title": "x"})).text == "second"


@pytest.mark.requirement("P-FILTERS", "P-TAGS")
def test_a_search_may_be_narrowed(catalog: Catalog) -> None:
    reading = {**definition("read_issue", "Read an issue"), "annotations": {"readOnlyHint": True}, "tags": ["Tracker"]}
    catalog.add_tools("github", [reading], call=run)
    assert [hit.name for hit in catalog.search("issue", tag="tracker")] == ["read_issue"]
    assert [hit.name for hit in catalog.search("issue", read_only=True)] == ["read_issue"]
    assert [hit.name for hit in catalog.search("", source="local")] == ["base_tableList"]
    assert len(catalog.search("issue", source="library", min_success=0.9, max_latency_ms=1)) == 2
    with pytest.raises(UnknownFilter, match="servers, nearest first: github, _local"):
        catalog.search("issue", server="gitub")
    with pytest.raises(InvalidArguments, match="min_success is a share from 0 to 1"):
        catalog.search("issue", min_success=95)


@pytest.mark.requirement("P-NOTHING-FITS")
def test_hits_tell_whether_they_answer_the_query_or_are_only_the_nearest(catalog: Catalog) -> None:
    assert not catalog.search("quantum zebra").fits
    found = catalog.search("kreate_isue", limit=1)
    assert found.fits
    assert [hit.handle for hit in found] == ["github.create_issue"]


@pytest.mark.requirement("P-USAGE")
async def test_what_is_called_well_comes_first_among_equals(catalog: Catalog) -> None:
    for server in ("s1", "s2"):
        catalog.add_tools(server, [ISSUE], call=run)
    for text in ("create_issue", "open an issue"):
        first = catalog.search(text)[0]
        assert (first.handle, first.also) == ("github.create_issue", ("s1.create_issue", "s2.create_issue"))
    await catalog.call("s2.create_issue", {"title": "x"})
    for text in ("create_issue", "open an issue"):
        hits = catalog.search(text)
        assert (hits[0].handle, hits[0].also) == ("s2.create_issue", ("github.create_issue", "s1.create_issue"))
        assert 0 < hits[0].why["usage"] <= 0.01 * hits[0].score
        assert all(hit.score == pytest.approx(sum(hit.why.values()), abs=0.001) for hit in hits)
    assert "performance: 1 call, 100.0% success" in catalog.describe(["s2.create_issue"]).text
    assert catalog.search("", limit=0, server="s2") == []


@pytest.mark.requirement("S0-46", "S0-68")
def test_every_tool_stands_in_one_category_and_a_category_holds_its_tools(catalog: Catalog) -> None:
    for category, name in (("base", "base_tableList"), ("misc", "create_issue")):
        assert [hit.name for hit in catalog.search("", category=category)] == [name]
    with pytest.raises(UnknownFilter, match="category"):
        catalog.search("", category="nothing")


class Shelf:
    """A way of searching that is not ours: whole words of names, in the order of the alphabet."""

    def __init__(self, snapshot: CatalogSnapshot) -> None:
        self.tools = sorted(snapshot.tools.values(), key=lambda tool: tool.handle)

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        wanted = set(text.lower().split())
        found = [tool for tool in self.tools if tool.id in within and wanted & set(tool.id.name.lower().split("_"))]
        return Findings(hits=tuple(Hit(tool=tool, score=1.0) for tool in found[:limit]), fits=bool(found))


@pytest.mark.requirement("S0-81")
async def test_another_way_to_search_can_be_plugged_in() -> None:
    previous: list[Index | None] = []

    def build(snapshot: CatalogSnapshot, last: Index | None) -> Shelf:
        previous.append(last)
        return Shelf(snapshot)

    catalog = Catalog(index=build)
    catalog.add_tools("github", [ISSUE, definition("close_issue", "Ends it", title="string")], call=run)
    assert [hit.name for hit in catalog.search("issue")] == ["close_issue", "create_issue"]
    assert [hit.score for hit in catalog.search("create")] == [1.0]
    assert not catalog.search("bug report").fits, "which only our own index would find"
    catalog.add_tools("gitlab", [ISSUE], call=run)
    assert [hit.server for hit in catalog.search("create")] == ["github", "gitlab"]
    assert [hit.server for hit in catalog.search("create", server="gitlab")] == ["gitlab"], "filters narrow it"
    assert (await catalog.call(catalog.search("close")[0].handle, {"title": "x"})).text == "close_issue: x"
    assert isinstance(previous[-1], Shelf), "each index is given the last one"


def test_a_function_may_move_to_another_shelf(catalog: Catalog) -> None:
    catalog.register_tool(handle_base_tableList, category="moved")
    assert [hit.handle for hit in catalog.search("tables", category="moved")] == ["_local.base_tableList"]
    assert len(catalog) == 2


def test_a_prefix_is_a_category_without_being_told() -> None:
    catalog = Catalog()
    catalog.register_tool(handle_base_tableList)
    assert catalog.search("tables", category="base")


def test_a_function_of_which_no_tool_can_be_made_is_refused() -> None:
    def impossible() -> None: ...

    impossible.__name__ = "x" * 600
    catalog = Catalog()
    with pytest.raises(InvalidDefinition):
        catalog.register_tool(impossible)
    assert len(catalog) == 0


@pytest.mark.requirement("P-LIBRARY-ERRORS")
async def test_errors_of_functions_are_results_and_errors_of_calls_are_raised(catalog: Catalog) -> None:
    def explode(a: int) -> None:
        raise ValueError("boom")

    catalog.register_tool(explode)
    with fail_after(5):
        result = await catalog.call("explode", {"a": 1})
    assert result.is_error
    assert result.text == "ValueError: boom"
    with pytest.raises(InvalidArguments, match=r"missing: a \(integer\)"):
        await catalog.call("explode")
    with pytest.raises(UnknownTool, match=r"did you mean: _local\.explode"):
        await catalog.call("exploed")


@pytest.mark.requirement("P-LIBRARY-IMPORTS")
@pytest.mark.parametrize("module", ["portico", "portico.library"])
def test_importing_the_library_pulls_in_no_mcp_and_no_web(module: str) -> None:
    script = (
        f"import sys, {module}\n"
        "heavy = {'mcp', 'mcp_types', 'starlette', 'uvicorn', 'aiohttp', 'fastapi', 'httpx', 'typer', 'rich'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
        "print(len(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split("\n")[0] == "[]"


def test_every_public_name_can_be_had() -> None:
    import portico

    for name in portico.__all__:
        assert getattr(portico, name).__name__ == name
    assert set(portico.__all__) <= set(dir(portico))
    with pytest.raises(AttributeError):
        _ = portico.Nothing


@pytest.mark.requirement("P-SEMANTIC")
def test_any_embedder_may_help_a_search() -> None:
    class Pictures:
        """Reads two words of another language."""

        name = "pictures"

        def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
            return [[1.0, 0.0] if "issue" in text or "проблема" in text else [0.0, 1.0] for text in texts]

    catalog = Catalog(embedder=Pictures())
    catalog.add_tools("github", [ISSUE, definition("fork", "Copy a repository")], call=run)
    assert catalog.prepare() == "ready 2/2"
    hits = catalog.search("проблема")
    assert [hit.name for hit in hits] == ["create_issue"]
    assert hits.fits
    assert hits[0].why["semantic"] == hits[0].score


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_an_embedder_that_fails_changes_nothing(catalog: Catalog) -> None:
    embedder = FakeEmbedder()
    embedder.fails(EmbedderAway("gone"))
    other = Catalog(embedder=embedder)
    other.add_tools("github", [ISSUE], call=run)
    other.register_tool(handle_base_tableList, category="base")
    assert other.prepare().startswith("away: gone")
    for query in ("open a bug report", "tables", "quantum zebra"):
        hits, expected = other.search(query), catalog.search(query)
        assert (hits.fits, [(h.handle, h.score) for h in hits]) == (
            expected.fits,
            [(h.handle, h.score) for h in expected],
        )
    assert catalog.prepare() == "no embedder"


def test_a_registry_of_tools_stands_on_a_catalog(catalog: Catalog) -> None:
    registry = create_tool_registry(catalog)
    assert registry.categories() == create_tool_registry(catalog.gateway).categories() != []


def test_browsing_a_catalog_is_no_search() -> None:
    told: list[str] = []
    other = Catalog(hooks=[SimpleNamespace(on_search=lambda caller, query, findings: told.append(query))])
    other.add_tools("github", [ISSUE], call=run)
    other.search("", server="github")
    other.search("issue")
    assert other.gateway.executor.hooks is not None
    other.gateway.executor.hooks.wait_until_idle()
    assert told == ["issue"]


def test_adding_costs_what_is_added_and_one_look_sees_all_of_it():
    catalog = Catalog()
    before = catalog.gateway.snapshot.number
    for place in range(50):
        catalog.add_tools(f"server{place}", [definition("fork", "Copy a repository")], call=run)

    def rename(old: str, new: str) -> str:
        return new

    told = [catalog.register_tool(rename, name=f"rename_{place}") for place in range(50)]
    assert catalog.gateway.snapshot.number == before + 1
    assert len(catalog) == 100
    assert {tool.handle for tool in catalog.gateway.snapshot.tools.values()} >= set(told)


def test_a_handle_that_other_names_decide_is_told_as_it_is():
    catalog = Catalog()

    def rename(old: str, new: str) -> str:
        return new

    told = [catalog.register_tool(rename, name=name) for name in ("move-file", "move_file", "move.file")]
    assert told[0] == "_local.move_file"
    handles = {tool.id.name: tool.handle for tool in catalog.gateway.snapshot.tools.values()}
    assert told[2] == handles["move.file"]
    assert len(set(handles.values())) == 3


def test_a_definition_is_taken_as_it_was_when_it_was_added():
    catalog, shared = Catalog(), {"name": "fork", "description": "Copy a repository"}
    catalog.add_tools("github", [shared], call=run)
    shared["name"] = "merge"
    catalog.add_tools("gitlab", [shared], call=run)
    assert sorted(tool.handle for tool in catalog.gateway.snapshot.tools.values()) == ["github.fork", "gitlab.merge"]
