"""Modules and files of functions: what is in them is offered, what is wrong with them is named."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from portico.errors import ConfigError
from portico.providers.python import loading as importing
from portico.providers.python.loading import LoadedTools, ToolModules, load_tools

GOOD = '''
def handle_good(x: int) -> int:
    """Good."""
    return x
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose modules are forgotten afterwards."""
    paths, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = paths
    for name in sys.modules.keys() - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")) or name.startswith("portico_tools_"):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def names(loaded: LoadedTools) -> list[str]:
    return [tool.name for tool in loaded.tools]


def only_problem(loaded: LoadedTools) -> ConfigError:
    assert len(loaded.problems) == 1, [str(problem) for problem in loaded.problems]
    problem = loaded.problems[0]
    assert "Traceback" not in str(problem)
    assert "\n" not in str(problem)
    return problem


@pytest.mark.requirement("S0-48", "P-PYTHON-TOOLS")
def test_functions_named_handle_and_marked_ones_are_tools(folder: Path) -> None:
    write(
        folder,
        "tools/mine.py",
        '''
        from __future__ import annotations
        import json
        from dataclasses import dataclass
        from functools import partial
        from json import dumps as handle_dumps
        from portico import tool

        @dataclass
        class Point:
            x: int

        def handle_base_tableList(database: str, at: Point) -> list[str]:
            """List tables."""
            return []

        async def handle_later(x: int) -> int:
            """Later."""
            return x

        @tool("renamed", server="other", category="odd")
        def anything(x: int = 0) -> int:
            """Do it."""
            return x

        def helper(): ...
        def _handle_private(): ...
        class handle_class: ...
        handle_constant = 5
        handle_partial = partial(handle_later, 3)
        ''',
    )
    loaded = load_tools(["tools/mine.py"], folder)
    assert names(loaded) == ["base_tableList", "later", "renamed", "partial"]
    first, _, renamed, _ = loaded.tools
    assert first.definition["inputSchema"]["properties"]["at"]["properties"] == {"x": {"type": "integer"}}
    assert (renamed.server, renamed.category) == ("other", "odd")
    assert Path(first.file) == folder / "tools" / "mine.py"
    assert [str(problem) for problem in loaded.problems if "partial" not in str(problem)] == []


def test_dotted_modules_are_looked_for_beside_the_config_too(folder: Path) -> None:
    write(folder, "k1_company/__init__.py", "from .sub import handle_inner\nfrom k1_else import handle_foreign\n")
    write(folder, "k1_company/sub.py", GOOD.replace("good", "inner"))
    write(folder, "k1_else.py", GOOD.replace("good", "foreign"))
    write(folder, "k1_exports.py", "from k1_else import handle_foreign\n__all__ = ['handle_foreign']\n")
    assert names(load_tools(["k1_company"], folder)) == ["inner"]
    assert names(load_tools(["k1_company.sub"], folder)) == ["inner"]
    assert names(load_tools(["k1_exports"], folder)) == ["foreign"]


def test_patterns_absolute_paths_and_home_are_understood(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write(folder, f"many/{name}.py", GOOD.replace("good", name))
    monkeypatch.setenv("HOME", str(folder))
    assert names(load_tools(["many/*.py"], folder)) == ["a", "b"]
    assert names(load_tools([str(folder / "many" / "b.py"), "~/many/a.py"], Path("/"))) == ["b", "a"]
    assert names(load_tools(["many/a.py", "many/*.py", "./many/a.py"], folder)) == ["a", "b"]


def test_a_file_may_import_what_lies_beside_it_and_leaves_nothing_there(folder: Path) -> None:
    write(folder, "deep/k1_beside.py", "VALUE = 7\n")
    write(folder, "deep/main.py", "from k1_beside import VALUE\n" + GOOD)
    assert names(load_tools(["deep/main.py"], folder)) == ["good"]
    assert list((folder / "deep").glob("__pycache__/main*")) == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("import k1_nowhere\n", 1, "'k1_nowhere', which is not there. Install 'k1_nowhere' where Portico is installed"),
        ("x = 1\ndef broken(:\n", 2, "it is not Python: invalid syntax near 'def broken(:'"),
        ("x = 1\ny = {}['no']\n", 2, "failed: KeyError: 'no'. Mend it and try again."),
        ("import sys\nsys.exit('bye')\n", 2, "failed: SystemExit: bye. It must be importable without side effects."),
        ("raise RuntimeError('a\\nb')\n", 1, "failed: RuntimeError: a b."),
        ("def f():\n    raise ValueError\nf()\n", 2, "failed: ValueError. Mend"),
        ("x = 1\n", None, "it has no tool in it. Name a function handle_something, or put @tool above it."),
        ("def handle_(): ...\n", None, "the function 'handle_' has no name after 'handle_'. Give it one."),
        ("def handle_x(a: int):\n    return a\n", 1, "the tool 'x' is offered, but it has no docstring"),
    ],
)
@pytest.mark.requirement("P-PYTHON-SAFE")
def test_a_module_that_cannot_be_used_is_named_and_the_others_load(
    folder: Path, text: str, line: int | None, words: str
) -> None:
    path = write(folder, "bad.py", text)
    write(folder, "good.py", GOOD)
    loaded = load_tools(["bad.py", "good.py"], folder)
    assert "good" in names(loaded)
    problem = only_problem(loaded)
    assert (problem.file, problem.line) == (str(path), line)
    assert words in str(problem)


def test_what_is_not_even_python_is_named(folder: Path) -> None:
    (folder / "bytes.py").write_bytes(b"\x00\xff\xfe")
    assert "bytes.py" in str(only_problem(load_tools(["bytes.py"], folder)))
    (folder / "latin.py").write_bytes("x = 'é'\n".encode("latin-1"))
    assert "latin.py" in str(only_problem(load_tools(["latin.py"], folder)))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere.py", "there is no file 'nowhere.py'. It is looked for in"),
        ("no/*.py", "no .py file fits 'no/*.py'"),
        ("./folder", "'./folder' is a folder. Write ./folder/*.py."),
        ("./notes.txt", "'./notes.txt' is not a .py file"),
        ("k1_no_such_module", "there is no module 'k1_no_such_module'. Install it where Portico is installed"),
        ("k1_no_such.module", "there is no module 'k1_no_such.module'"),
        ("not a module", "'not a module' is neither a module nor a file. Write a module such as my_company.tools"),
        ("", "'' is neither a module nor a file"),
    ],
)
def test_a_source_that_names_nothing_is_named(folder: Path, source: str, words: str) -> None:
    (folder / "folder").mkdir()
    write(folder, "notes.txt", "hello")
    problem = only_problem(load_tools([source], folder))
    assert words in str(problem)
    assert problem.where == "python"


def test_a_second_tool_of_one_name_is_named_and_the_first_is_offered(folder: Path) -> None:
    first, second = write(folder, "one.py", GOOD), write(folder, "two.py", "\n" + GOOD)
    loaded = load_tools(["one.py", "two.py"], folder)
    assert [tool.file for tool in loaded.tools] == [str(first)]
    problem = only_problem(loaded)
    assert (problem.file, problem.line) == (str(second), 3)
    assert f"the tool 'good' is there already, from {first}:2; this one is not offered" in str(problem)


@pytest.mark.requirement("P-STDIO-CLEAN")
def test_what_modules_and_functions_print_never_reaches_stdout(folder: Path) -> None:
    path = write(
        folder,
        "loud.py",
        '''
        print("loud import")

        def handle_loud() -> str:
            """Be loud."""
            print("loud call")
            return "said"

        async def handle_louder() -> str:
            """Be louder."""
            print("louder call", flush=True)
            return "said"
        ''',
    )
    script = f"""
import anyio, sys
from pathlib import Path
from portico.providers.python.loading import load_tools
from portico.providers.python import LocalProvider
before = sys.stdout
provider = LocalProvider()
provider.take(load_tools([{str(path)!r}], Path(".")).tools)
async def main():
    for name in ("loud", "louder"):
        result = await provider.call(name, {{}}, meta={{}}, on_progress=None)
        assert result["content"][0]["text"] == "said"
anyio.run(main)
assert sys.stdout is before
print("mine")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "mine\n"
    assert done.stderr == "loud import\nloud call\nlouder call\n"


def test_a_changed_file_is_loaded_afresh_and_a_broken_one_keeps_its_old_tools(folder: Path) -> None:
    path = write(folder, "live.py", GOOD)
    modules = ToolModules(["live.py"], folder)
    assert names(modules.reload(())) == ["good"]
    write(folder, "live.py", GOOD.replace("good", "well"))
    assert names(modules.reload(())) == ["good"]
    assert names(modules.reload({path})) == ["well"]
    write(folder, "live.py", "def broken(:\n")
    broken = modules.reload({path})
    assert names(broken) == ["well"]
    assert "it is not Python" in str(only_problem(broken))
    write(folder, "live.py", GOOD)
    mended = modules.reload({path})
    assert (names(mended), mended.problems) == (["good"], ())
    path.unlink()
    gone = modules.reload({path})
    assert names(gone) == []
    assert "there is no file 'live.py'" in str(only_problem(gone))


def test_a_changed_package_is_loaded_afresh_with_its_own_modules(folder: Path) -> None:
    write(folder, "k1_live/__init__.py", "from .sub import *\n")
    inner = write(folder, "k1_live/sub.py", GOOD)
    modules = ToolModules(["k1_live"], folder)
    assert names(modules.reload(())) == ["good"]
    assert inner in modules.files()
    write(folder, "k1_live/sub.py", GOOD.replace("good", "well"))
    assert names(modules.reload({inner})) == ["well"]
    write(folder, "k1_live/sub.py", "1/0\n")
    broken = modules.reload({inner})
    assert names(broken) == ["well"]
    problem = only_problem(broken)
    assert (problem.file, problem.line) == (str(inner), 1)
    assert sys.modules["k1_live.sub"].handle_well(1) == 1


@pytest.mark.requirement("P-PYTHON-SAFE")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Odd(BaseException): pass\nraise Odd('no')", "failed: Odd: no. It must be importable without"),
        ("import asyncio\nraise asyncio.CancelledError", "failed: CancelledError. It must be importable without"),
        ("raise GeneratorExit", "failed: GeneratorExit."),
    ],
)
def test_no_exception_of_a_module_gets_past_the_others(folder: Path, text: str, said: str) -> None:
    write(folder, "good.py", GOOD)
    write(folder, "bad.py", text)
    loaded = load_tools(["bad.py", "good.py"], folder)
    assert names(loaded) == ["good"]
    assert said in str(only_problem(loaded))


def test_an_interrupt_ends_us_but_one_of_a_module_that_is_loaded_aside_does_not(folder: Path) -> None:
    write(folder, "bad.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_tools(["bad.py"], folder)
    with ThreadPoolExecutor(1) as aside:
        loaded = aside.submit(load_tools, ["bad.py"], folder).result(10)
    assert "failed: KeyboardInterrupt" in str(only_problem(loaded))


ODD = """
class Exits(type):
    def __getattr__(cls, name):
        raise SystemExit

class Odd(metaclass=Exits):
    pass
"""
LOUD = """
import io, os, subprocess, sys
os.write(1, b"raw\\n")
subprocess.run([sys.executable, "-c", "print('child')"], check=True)
sys.stdout = io.StringIO()
"""


def test_objects_that_answer_no_question_are_passed_over(folder: Path) -> None:
    write(folder, "odd.py", ODD + GOOD)
    assert names(load_tools(["odd.py"], folder)) == ["good"]


def test_nothing_that_an_import_does_reaches_stdout_or_stays(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(folder, "loud.py", LOUD + GOOD)
    before = sys.stdout
    assert names(load_tools(["loud.py"], folder)) == ["good"]
    assert sys.stdout is before
    print("ours")
    assert capfd.readouterr() == ("ours\n", "raw\nchild\n")


def test_an_import_that_takes_long_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = threading.Event()
    monkeypatch.setattr(importing, "LONG_SECONDS", 0.01)
    monkeypatch.setattr(importing.logger, "handle", lambda record: (caplog.handler.handle(record), said.set()))
    monkeypatch.setattr(sys, "said", said, raising=False)
    write(folder, "slow.py", f"import sys\nassert sys.said.wait(10)\n{GOOD}")
    assert names(load_tools(["slow.py"], folder)) == ["good"]
    assert f"importing {str(folder / 'slow.py')!r} has taken 0.01 s, and goes on" in caplog.text


def test_one_file_that_is_named_in_two_ways_is_said_to_be_one(folder: Path) -> None:
    write(folder, "twice_named.py", GOOD)
    loaded = load_tools(["twice_named.py", "twice_named"], folder)
    assert names(loaded) == ["good"]
    assert "Name its file once." in str(only_problem(loaded))
