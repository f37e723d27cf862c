"""Servers that run as another user, or in a container."""

from __future__ import annotations

import os
import pwd
import signal
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from upstream_world import QUICK, Upstreams, said, until, use

from portico.domain.server import Isolation, Packaging, ServerSpec
from portico.errors import UpstreamGone
from portico.providers.child_process_supervisor import read_processes
from portico.providers.mcp import UpstreamProvider, stdio
from portico.providers.mcp.stdio import Launch, packaging_of

pytestmark = pytest.mark.anyio
NOBODY = pwd.getpwnam("nobody")
HOME = NOBODY.pw_dir if os.path.isdir(NOBODY.pw_dir) else "/"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start programs as somebody else")

SHELL_SERVER = r"""
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"server/discover"'*) said='"error":{"code":-32601,"message":"no"}' ;;
    *'"initialize"'*) said='"result":{"protocolVersion":"2025-11-25","capabilities":{}}' ;;
    *'"tools/call"'*)
      who="$(id -u) $(id -g) $(id -G | tr ' ' ,) $HOME $USER $LOGNAME $PWD"
      said='"result":{"content":[{"type":"text","text":"'$who'"}]}' ;;
    *) said='"result":{}' ;;
  esac
  [ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$said"
done
"""
"""Needs nothing but a shell, which every user may run; the Python of the tests may be closed to others."""

ENGINE = r"""#!/bin/sh
# Does what a container engine does as far as its caller can see: keeps the names of what runs, runs the command.
here=$(dirname "$0")
echo "$@" >> "$here/asked"
case "$1" in
  run)
    shift
    while :; do
      case "$1" in
        --name) name=$2; shift 2 ;;
        --label) shift 2 ;;
        -*) shift ;;
        *) break ;;
      esac
    done
    shift
    : > "$here/containers/$name"
    "$@"
    code=$?
    rm -f "$here/containers/$name"
    exit $code ;;
  ps) ls "$here/containers" ;;
  rm) rm "$here/containers/$3" ;;
esac
"""
"""There is no engine where the tests run, and none is needed to see what ours is told and what it gets."""


class Engine:
    """A folder with one program in it, first in PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "docker") -> None:
        self.folder, self._name = folder / "bin", name
        (self.folder / "containers").mkdir(parents=True)
        monkeypatch.setenv("PATH", f"{self.folder}:/usr/bin:/bin")
        monkeypatch.setattr(stdio, "ENGINES", (name,))  # whatever else this machine has

    def install(self) -> Engine:
        program = self.folder / self._name
        program.write_text(ENGINE)
        program.chmod(0o755)
        return self

    @property
    def asked(self) -> list[list[str]]:
        file = self.folder / "asked"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def containers(self) -> list[str]:
        return sorted(os.listdir(self.folder / "containers"))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(tmp_path, monkeypatch).install()


def contained(upstreams: Upstreams, **isolation: object) -> ServerSpec:
    spec = upstreams.spec(env={"TOKEN": "canary-1234"})
    return replace(spec, isolation=Isolation(image="ghcr.io/x/y:1", **isolation))  # type: ignore[arg-type]


@pytest.mark.requirement("P-ISOLATION")
async def test_a_container_gets_its_options_and_no_value_of_a_variable_is_an_argument(
    upstreams: Upstreams, engine: Engine
) -> None:
    spec = contained(upstreams, network="none", volumes=("/data:/data:ro",))
    provider = upstreams.provide(replace(spec, cwd="/work"))
    assert said(await use(provider, "environment"))["TOKEN"] == "canary-1234"
    (run,) = [words for words in engine.asked if words[0] == "run"]
    assert run[1:4] == ["-i", "--rm", "--init"]
    assert run[run.index("--name") + 1] == engine.containers[0]
    options = {"--network=none", "--volume=/data:/data:ro", "--workdir=/work", "--env=TOKEN"}
    assert options <= set(run[: run.index("ghcr.io/x/y:1")])
    assert run[run.index("ghcr.io/x/y:1") + 1] == sys.executable
    assert "canary" not in str(engine.asked)
    assert packaging_of(spec) == Packaging(docker_image="ghcr.io/x/y:1", network_mode="none")


@pytest.mark.requirement("P-ISOLATION")
async def test_a_closed_server_leaves_no_container(upstreams: Upstreams, engine: Engine) -> None:
    provider = upstreams.provide(contained(upstreams))
    await use(provider, "echo")
    assert len(engine.containers) == 1
    await provider.aclose()
    assert engine.containers == []


@pytest.mark.requirement("P-ISOLATION")
async def test_a_container_whose_engine_was_killed_is_removed(upstreams: Upstreams, engine: Engine) -> None:
    provider = upstreams.provide(contained(upstreams))
    await use(provider, "echo")
    pid = provider.health().pid
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    await until(lambda: provider.health().pid is None)
    await until(lambda: not engine.containers)


@pytest.mark.requirement("P-ISOLATION")
async def test_containers_of_gateways_that_are_no_more_are_removed_and_no_others(
    upstreams: Upstreams, engine: Engine
) -> None:
    start = next(each.start.decode() for each in read_processes() if each.pid == os.getpid())
    gone = [f"portico-{os.getpid()}-{int(start) + 1}-aa-s", "portico-999999999-5-bb-s"]
    others = [f"portico-{os.getpid()}-{start}-cc-s", "portico-web-1", "portico", "database", "portico-5-x"]
    for name in (*gone, *others):
        (engine.folder / "containers" / name).touch()
    provider = upstreams.provide(contained(upstreams))
    await use(provider, "echo")
    assert set(others) <= set(engine.containers)
    assert not set(gone) & set(engine.containers)
    assert any("--filter" in words and "label=portico.host=" in " ".join(words) for words in engine.asked)


@pytest.mark.requirement("P-ISOLATION", "P-PARKED")
async def test_without_an_engine_nothing_runs_until_there_is_one(
    upstreams: Upstreams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tmp_path, monkeypatch, "podman")
    provider = upstreams.provide(contained(upstreams))
    with pytest.raises(UpstreamGone, match="neither docker nor podman was found"):
        await use(provider, "echo")
    assert upstreams.spawned() == []
    engine.install()
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


@as_root
@pytest.mark.requirement("P-ISOLATION")
@pytest.mark.parametrize(
    ("run_as", "who"),
    [
        ("nobody", f"{NOBODY.pw_uid} {NOBODY.pw_gid} {NOBODY.pw_gid} {NOBODY.pw_dir} nobody nobody"),
        (f"{NOBODY.pw_uid}", f"{NOBODY.pw_uid} {NOBODY.pw_gid} {NOBODY.pw_gid} {NOBODY.pw_dir} nobody nobody"),
        ("54321", "54321 54321 54321 / 54321 54321"),
        (f"{NOBODY.pw_uid}:4321", f"{NOBODY.pw_uid} 4321 4321 {NOBODY.pw_dir} nobody nobody"),
    ],
)
async def test_a_server_runs_as_its_user_with_nothing_of_ours(upstreams: Upstreams, run_as: str, who: str) -> None:
    provider = upstreams.provide(shell(run_as))
    folder = "/" if run_as == "54321" else HOME
    assert said(await use(provider, "who")) == f"{who} {folder}"
    pid = provider.health().pid
    assert pid is not None
    with anyio.fail_after(10):
        await provider.aclose()
    assert pid not in {each.pid for each in read_processes()}


@as_root
@pytest.mark.requirement("P-ISOLATION", "F09")
async def test_a_server_of_another_user_ends_with_the_process_that_started_it(upstreams: Upstreams) -> None:
    provider = upstreams.provide(shell("nobody"))
    await use(provider, "who")
    pid = provider.health().pid
    (supervisor,) = [each.parent for each in read_processes() if each.pid == pid]
    assert supervisor != os.getpid()
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: not any(each.pid == pid and not each.is_zombie for each in read_processes()))
    await until(lambda: provider.health().pid is None)
    assert said(await use(provider, "who")).startswith(str(NOBODY.pw_uid))


def shell(run_as: str, **more: object) -> ServerSpec:
    isolation = Isolation(run_as=run_as)
    args = ("-c", SHELL_SERVER)
    spec = ServerSpec(name="s", transport="stdio", command="sh", args=args, timeouts=QUICK, isolation=isolation)
    return replace(spec, **more)  # type: ignore[arg-type]


@as_root
@pytest.mark.requirement("P-ISOLATION")
async def test_a_folder_that_is_closed_to_the_user_is_named(upstreams: Upstreams, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    provider = upstreams.provide(shell("nobody", cwd=str(closed)))
    for _ in range(3):
        with pytest.raises(UpstreamGone, match="'nobody' may not run 'sh', or not enter its working directory"):
            await use(provider, "who")
    assert upstreams.told() == ["parked"]


@pytest.mark.requirement("P-ISOLATION")
async def test_a_user_that_is_not_there_is_named_and_nothing_is_started(upstreams: Upstreams) -> None:
    with pytest.raises(UpstreamGone, match="there is no user 'nobody-at-all' on this machine"):
        await use(upstreams.provide(shell("nobody-at-all")), "who")


@pytest.mark.requirement("P-ISOLATION")
async def test_a_gateway_that_may_not_change_users_says_so(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "may_change_user", lambda: False)
    with pytest.raises(UpstreamGone, match=r"may not start programs as 'nobody'(.|\n)*run it as root"):
        await use(upstreams.provide(shell("nobody")), "who")


def test_the_variables_of_an_entry_count_more_than_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "may_change_user", lambda: True)
    environment = Launch.plan(shell("nobody", env={"HOME": "/tmp"})).environment
    assert (environment["HOME"], environment["USER"]) == ("/tmp", "nobody")


def test_what_a_server_is_started_in_is_part_of_what_it_is() -> None:
    def fingerprint(**isolation: str) -> str:
        spec = ServerSpec(name="a", transport="stdio", command="x", isolation=Isolation(**isolation))  # type: ignore[arg-type]
        return UpstreamProvider(spec, on_change=print, on_notice=print, client_version="1").fingerprint  # type: ignore[arg-type]

    found = {fingerprint(), fingerprint(run_as="u"), fingerprint(image="i"), fingerprint(image="i", network="none")}
    assert len(found) == 4
    plain = ServerSpec(name="a", transport="stdio", command="x")
    assert not plain.runs_like(replace(plain, isolation=Isolation(run_as="u")))
