"""Every code block and every transcript of the README and the docs is true: it is run, and its output compared."""

from __future__ import annotations

import configparser
import json
import plistlib
import re
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from tests.docs.blocks import KNOWN, Block, blocks
from tests.docs.world import Gateways, Home, Homes, bounded, expected, matches, settings_of, transcript
from tests.house.source import ROOT

pytestmark = [pytest.mark.requirement("P-DOCS-RUN"), pytest.mark.timeout(180)]

NOT_RUN = {
    "README.md": 2,
    "docs/guides/base-tools.md": 1,
    "docs/guides/develop.md": 2,
    "docs/guides/logs.md": 1,
    "docs/guides/registry.md": 4,
    "docs/guides/remote.md": 1,
    "docs/guides/semantic.md": 2,
    "docs/guides/service.md": 2,
    "docs/guides/upgrade.md": 2,
    "docs/reference/cli.md": 2,
    "docs/reference/surfaces.md": 3,
}
"""Blocks of each page that nobody can run here, each with its reason beside it; these numbers only ever shrink."""
TEXTS = {"text"}
HANDLE = re.compile(r"\br_[\w-]{16}")
ASKED = re.compile(r"^> ([\w-]+)\((.*)\)$")


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes(tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def gateways(homes: Homes) -> Iterator[Gateways]:
    found = Gateways(homes)
    yield found
    found.close()


@cache
def every() -> tuple[Block, ...]:
    return tuple(blocks())


def of(*languages: str) -> list[object]:
    """The blocks of these languages that are run here."""
    found = [one for one in every() if one.language in languages and one.is_run_here and "output" not in one.markers]
    return [pytest.param(one, id=one.id) for one in found]


def home_of(block: Block, homes: Homes) -> Home:
    """A home with the files that stand above a block on its page, after the transcripts that it goes on from."""
    before = [one for one in every() if one.page == block.page and one.line < block.line]
    home = homes.make(block.servers)
    for one in before:
        if name := one.markers.get("file"):
            home.put(name, one.text)
    if script := block.markers.get("setup"):
        home.run(script)
    if "goes on" in block.markers and block.language == "console":
        for one in _chain(block, before, "console"):
            if script := one.markers.get("setup"):
                home.run(script)
            transcript(home, one.text)
    return home


def _chain(block: Block, before: list[Block], language: str) -> list[Block]:
    """The blocks of a language that a block goes on from, the first one first."""
    found: list[Block] = []
    for one in reversed(before):
        if one.language == language and one.is_run_here:
            found.append(one)
            if "goes on" not in one.markers:
                break
    return found[::-1]


def test_every_block_says_what_it_is():
    unsaid = [
        one.id for one in every() if one.is_run_here and one.language not in KNOWN and "output" not in one.markers
    ]
    assert unsaid == [], (
        "name its language (`text` for a drawing), or write a marker above it: see tests/docs/blocks.py"
    )


def test_what_is_not_run_has_a_reason_and_becomes_less():
    without = [one.id for one in every() if "not run" in one.markers and len(one.markers["not run"]) < 10]
    assert without == []
    pages = [one.page for one in every() if "not run" in one.markers]
    more = {page: pages.count(page) for page in sorted(set(pages)) if pages.count(page) > NOT_RUN.get(page, 0)}
    assert more == {}


def test_whoever_is_said_to_run_a_block_exists():
    named = {one.markers["run by"] for one in every() if "run by" in one.markers}
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_a_text_is_no_transcript():
    hidden = [one.id for one in every() if one.language in TEXTS and re.search(r"^(\$|>) ", one.text, re.MULTILINE)]
    assert hidden == []


@pytest.mark.parametrize("block", of("console"))
def test_a_transcript_is_what_happens(block: Block, homes: Homes):
    for command, said, real in transcript(home_of(block, homes), block.text):
        assert matches(said, real), f"{block.id}: $ {command}\n--- shown\n{said}\n--- real\n{real}"


@pytest.mark.parametrize("block", of("commands"))
def test_commands_succeed(block: Block, homes: Homes):
    home = home_of(block, homes)
    for line in block.text.splitlines():
        done = home.run(bounded(line))
        assert done.returncode == 0, f"{block.id}: {line}\n{done.stdout}"


@pytest.mark.parametrize("block", of("agent"))
def test_an_agent_reads_what_is_shown(block: Block, gateways: Gateways):
    surface = block.markers.get("surface", "discover")
    before = [one for one in every() if one.page == block.page and one.line < block.line]
    told = [*(_chain(block, before, "agent") if "goes on" in block.markers else []), block]
    (home, talk), handles = gateways.find(block.servers), dict[str, str]()
    for call, said in (step for one in told for step in _asked(one.text)):
        found = ASKED.match(call)
        assert found, f"{block.id}: {call}"
        given = json.loads(HANDLE.sub(lambda shown: handles.get(shown[0], shown[0]), found[2]))
        text = talk.call(surface, found[1], given).text
        handles.update(zip(HANDLE.findall(said), HANDLE.findall(text), strict=False))
        shown, real = home.plain(said), home.plain(text)
        assert matches(shown, real), f"{block.id}: {call}\n--- shown\n{shown}\n--- real\n{real}"


@pytest.mark.parametrize("block", of("http"))
def test_a_request_is_answered_as_shown(block: Block, gateways: Gateways):
    home, talk = gateways.find(block.servers)
    for request, said in _asked(block.text):
        real = home.plain(talk.send("GET", request.removeprefix("> GET ")).body.decode())
        assert matches(home.plain(said), real), f"{block.id}: {request}\n--- shown\n{said}\n--- real\n{real}"


def _asked(text: str) -> list[tuple[str, str]]:
    """Each call with what is shown of its answer."""
    parts = re.split(r"^(> .*)$", text, flags=re.MULTILINE)[1:]
    return [(call, said.strip("\n")) for call, said in zip(parts[::2], parts[1::2], strict=True)]


@pytest.mark.parametrize("block", of("python"))
def test_a_program_runs_and_prints_what_is_shown(block: Block, homes: Homes):
    home = home_of(block, homes)
    home.put("program.py", block.text)
    done = home.run("python program.py")
    assert done.returncode == 0, f"{block.id}\n{done.stdout}"
    following = [one for one in every() if one.page == block.page and one.line > block.line][:1]
    if following and "output" in following[0].markers:
        assert matches(home.plain(following[0].text), home.plain(done.stdout)), f"{block.id}\n{done.stdout}"


@pytest.mark.parametrize("block", of("lua"))
def test_a_script_runs(block: Block, homes: Homes):
    home = home_of(block, homes)
    home.put("script.lua", block.text)
    done = home.run("portico run script.lua")
    assert done.returncode == 0, f"{block.id}\n{done.stdout}"


@pytest.mark.parametrize("block", of("yaml"))
def test_a_config_is_read_without_a_complaint(block: Block, homes: Homes):
    name = block.markers.get("file", "portico.yaml")
    if not name.endswith("portico.yaml"):
        yaml.safe_load(block.text)
        return
    assert settings_of(home_of(block, homes), block.text) == []


@pytest.mark.parametrize("block", of("json"))
def test_json_is_json(block: Block):
    json.loads(block.text)


@pytest.mark.parametrize("block", of("ini", "xml", "nginx"))
def test_a_file_for_another_program_can_be_read(block: Block):
    if block.language == "ini":
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(block.text)
        assert "portico serve" in unit["Service"]["ExecStart"]
    elif block.language == "xml":
        assert plistlib.loads(block.text.encode())["ProgramArguments"][1] == "serve"
    else:
        assert block.text.count("{") == block.text.count("}")


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    unlisted = [page for page in pages if not page.startswith(("decisions/", "README"))]
    assert sorted(page for page in unlisted if f"]({page})" not in index) == []


def test_dots_stand_for_anything_and_nothing_else_does():
    assert matches("a\n...\nb ... c", "a\nx\ny\nb 17 c")
    assert matches("a\n...", "a")
    assert not matches("a\nb", "a\nx\nb")
    assert not matches("a 1", "a 2")
    assert expected("a.b").fullmatch("axb\n") is None
