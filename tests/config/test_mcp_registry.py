"""What a registry lists becomes an entry: exact commands, pinned versions, values in their places, and refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portico.config.load import read_settings
from portico.config.mcp_registry import (
    ListedEntry,
    ListedServer,
    choose,
    has_public_name,
    make_entry,
    questions,
    read_list,
    read_listed,
)
from portico.config.settings import InstallationPaths
from portico.config.variables_and_masking import read_env_file, write_env_file
from portico.documents.document import parse_document
from portico.errors import ConfigError
from portico.text.redaction import secrets_of

pytestmark = pytest.mark.requirement("P-ADD-BY-NAME")
STDIO = {"type": "stdio"}


def server(**fields: Any) -> ListedServer:
    found = read_listed({"name": "io.example/sums", "version": "1.0.0", **fields})
    assert found is not None
    return found


def package(kind: str = "npm", identifier: str = "sums", version: str = "1.2.3", **fields: Any) -> dict[str, Any]:
    return {"registryType": kind, "identifier": identifier, "version": version, "transport": STDIO, **fields}


def entry(listed: dict[str, Any], *, local: bool = False, **given: str | Sequence[str]) -> ListedEntry:
    key = "packages" if "registryType" in listed else "remotes"
    chosen = choose(server(**{key: [listed]}), "", lambda _: True)
    values = {name: [value] if isinstance(value, str) else value for name, value in given.items()}
    return make_entry(chosen, values, "sums", is_local_list=local)


def command(listed: dict[str, Any], **given: str | Sequence[str]) -> list[str]:
    made = entry(listed, **given).entry
    return [made["command"], *made["args"]]


def positional(**fields: Any) -> dict[str, Any]:
    return {"type": "positional", **fields}


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "named", "name": name, **fields}


def test_each_kind_of_package_has_its_exact_command() -> None:
    assert command(package("npm", "@ana/sums")) == ["npx", "-y", "@ana/sums@1.2.3"]
    assert command(package("pypi", runtimeHint="uvx")) == ["uvx", "sums@1.2.3"]
    assert command(package("oci", "docker.io/ana/sums")) == ["docker", "run", "-i", "--rm", "docker.io/ana/sums:1.2.3"]
    tagged = package("oci", "ghcr.io/ana/sums:v2", "", environmentVariables=[{"name": "KEY", "isSecret": True}])
    expected = ["docker", "run", "-i", "--rm", "-e", "KEY", "ghcr.io/ana/sums:v2"]
    assert command(tagged, KEY="hush") == expected
    assert entry(tagged, KEY="hush").secrets == {"KEY": "hush"}
    assert command(package("oci", "ana/sums:1", "", runtimeHint="podman"))[0] == "podman"
    args = [positional(value="mcp"), positional(value="start")]
    assert command(package("nuget", "Ana.Sums", packageArguments=args)) == [
        "dnx", "Ana.Sums@1.2.3", "--yes", "--", "mcp", "start",
    ]  # fmt: skip


def test_arguments_stand_in_their_order_with_their_values() -> None:
    args = [
        named("--mode", value="fast"),
        named("--root", isRequired=True, isRepeated=True),
        named("--port", format="number"),
        named("--units", default="metric"),
        named("--verbose", format="boolean", default="true"),
        positional(valueHint="folder", isRequired=True),
        positional(value="sub/{part}", variables={"part": {"isRequired": True}}),
    ]
    listed = package(packageArguments=args)
    assert command(listed, root=["/a", "/b"], folder="/c", part="x") == [
        "npx", "-y", "sums@1.2.3",
        "--mode", "fast", "--root", "/a", "--root", "/b", "--units", "metric", "--verbose=true", "/c", "sub/x",
    ]  # fmt: skip
    asked = {value.name: value.is_required for value in questions(server(packages=[listed]).packages[0])}
    assert asked == {
        "root": True, "port": False, "units": False, "verbose": False, "folder": True, "part": True,
    }  # fmt: skip


def test_arguments_of_the_runtime_stand_before_the_package_each_once() -> None:
    mount = named(
        "--mount", value="type=bind,src={source}", isRequired=True, variables={"source": {"isRequired": True}}
    )
    listed = package("oci", "ana/sums", runtimeArguments=[positional(value="run"), named("-i"), named("--rm"), mount])
    made = entry(listed, source="/data")
    expected = ["run", "-i", "--rm", "--mount", "type=bind,src=/data", "ana/sums:1.2.3"]
    assert made.entry["args"] == expected
    assert made.remarks == ("the container is given more of this machine: --mount",)
    assert command(package(runtimeArguments=[named("-y"), named("--prefer-offline")]))[1:] == [
        "-y", "--prefer-offline", "sums@1.2.3",
    ]  # fmt: skip


@pytest.mark.requirement("T47", "P-ADD-UNTRUSTED")
@pytest.mark.parametrize(
    "listed",
    [
        package(identifier="-c"),
        package(identifier="--call=x"),
        package(identifier="git+https://example.com/x"),
        package(identifier="sums;touch x"),
        package(identifier="../sums"),
        package(identifier="@ana/../sums"),
        package(identifier="sums@latest"),
        package(version="latest"),
        package(version="^1.0.0"),
        package(version="1.x"),
        package(version=""),
        package("pypi", "--from"),
        package("pypi", "sums @ file:///x"),
        package("pypi", version=">=1"),
        package("oci", "--privileged"),
        package("oci", "ana/sums:latest", ""),
        package("oci", "ana/sums", ""),
        package("oci", "ana/sums", "-v"),
        package("oci", "ana/sums", "latest"),
        package("nuget", "-x"),
        package("mcpb", "https://example.com/x.mcpb"),
        package("cargo"),
        package(transport={"type": "streamable-http", "url": "http://localhost:1"}),
        package(registryBaseUrl="https://packages.example.com"),
        package(registryBaseUrl="https://["),
        package(environmentVariables=[{"name": "PATH", "value": "/tmp"}]),
        package(environmentVariables=[{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]),
        package(environmentVariables=[{"name": "A=B"}]),
        package(environmentVariables=[{"name": "npm_config_registry", "value": "https://example.com"}]),
        package("pypi", environmentVariables=[{"name": "UV_INDEX_URL", "isRequired": True}]),
        package("oci", "ana/sums", environmentVariables=[{"name": "DOCKER_HOST", "value": "tcp://example.com"}]),
        package(packageArguments=[positional(value="a\nb")]),
        package(packageArguments=[positional(value="a\u200bb")]),
        package(packageArguments=[positional(value="a" * 5_000)]),
        package(packageArguments=[positional(value="a")] * 101),
        {"type": "stdio", "url": "https://example.com/mcp"},
        {"type": "sse", "url": "https://example.com/mcp", "headers": [{"name": "A: b\r\nC", "value": "x"}]},
    ],
    ids=str,
)
def test_what_could_run_or_reach_something_else_is_refused(listed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="can be used"):
        entry(listed)


@pytest.mark.requirement("T47", "P-ADD-UNTRUSTED")
@pytest.mark.parametrize(
    "arguments",
    [
        [named("--registry", value="https://example.com")],
        [named("-p", value="another-package")],
        [positional(value="-c")],
        [named("-c", value="touch x")],
        [named("--call", value="touch x")],
        [named("--call=touch x")],
        [positional(value="-yc"), positional(value="touch x")],
        [positional(value="another-package")],
        [positional(value="{what}", variables={"what": {"default": "another-package"}})],
    ],
    ids=str,
)
def test_a_runtime_runs_the_package_and_nothing_else(arguments: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="could run something else"):
        entry(package(runtimeArguments=arguments))


@pytest.mark.requirement("P-ADD-UNTRUSTED")
@pytest.mark.parametrize(
    "listed",
    [
        package("pypi", runtimeArguments=[named("--from", value="another-package")]),
        package("pypi", runtimeArguments=[named("--index-url", value="https://example.com")]),
        package("pypi", runtimeArguments=[positional(value="--default-index=https://example.com")]),
        package("oci", "ana/sums", runtimeArguments=[named("--entrypoint", value="sh")]),
        package("nuget", "Ana.Sums", runtimeArguments=[named("--source", value="https://example.com")]),
    ],
    ids=str,
)
def test_a_package_comes_from_where_its_runtime_looks(listed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="could run something else"):
        entry(listed)


@pytest.mark.requirement("P-ADD-UNTRUSTED")
def test_a_value_that_is_given_never_becomes_an_option() -> None:
    listed = package(packageArguments=[positional(valueHint="file", isRequired=True)])
    with pytest.raises(ConfigError, match="must not begin with '-'"):
        command(listed, file="--exec=x")
    joined = package(packageArguments=[named("--file", isRequired=True)])
    assert command(joined, file="--exec=x")[-1] == "--file=--exec=x"


@pytest.mark.requirement("P-ADD-UNTRUSTED", "P-ADD-SECRETS")
def test_a_publisher_cannot_read_variables_of_this_machine(tmp_path: Path) -> None:
    """Not by writing them, and not by putting them together from parts."""
    args = [
        positional(value="${HOME}"),
        positional(value="{a}{HOME}", variables={"a": {"default": "$"}}),
        positional(value="{a}{HOME}", variables={"a": {"default": "\\$"}}),
        positional(valueHint="b", default="$${HOME}"),
    ]
    headers = [{"name": "X-Env", "value": "${HOME}"}]
    remote = {"type": "sse", "url": "https://example.com/${HOME}/sse", "headers": headers}
    for made in (entry(package(packageArguments=args)), entry(remote)):
        spec = read_back(made.entry, tmp_path, HOME="secret-home")
        assert "secret-home" not in repr((spec.args, spec.url, spec.headers))
    assert read_back(entry(package(packageArguments=args)).entry, tmp_path).args[2:] == (
        "${HOME}", "${HOME}", "\\${HOME}", "$${HOME}",
    )  # fmt: skip


def read_back(made: Any, folder: Path, **environ: str) -> Any:
    """The specification that a config with this entry gives."""
    document = parse_document(json.dumps({"servers": {"sums": dict(made)}}), folder / "portico.json")
    settings = read_settings(document, InstallationPaths(config=folder, data=folder), environ, folder)
    assert settings.problems == ()
    (spec,) = settings.servers
    return spec


@pytest.mark.requirement("P-ADD-SECRETS")
def test_secrets_of_headers_and_arguments_come_from_the_file_of_the_entry(tmp_path: Path) -> None:
    header = {"name": "Authorization", "value": "Bearer {token}", "isRequired": True, "isSecret": True}
    made = entry(
        {"type": "sse", "url": "https://example.com/sse", "headers": [header | {"variables": {"token": {}}}]},
        token="abc-123",
    )
    assert made.entry["headers"] == {"Authorization": "Bearer ${SUMS_TOKEN}"}
    write_env_file(tmp_path / "sums.env", made.secrets)
    spec = read_back({**made.entry, "envFile": "sums.env"}, tmp_path)
    assert spec.headers == {"Authorization": "Bearer abc-123"}
    assert "abc-123" in dict(secrets_of(spec)).values()
    with_key = entry(package(packageArguments=[named("--key", isRequired=True, isSecret=True)]), key="hush-hush")
    write_env_file(tmp_path / "sums.env", with_key.secrets)
    assert read_back({**with_key.entry, "envFile": "sums.env"}, tmp_path).args[-1] == "hush-hush"


@pytest.mark.requirement("P-ADD-SECRETS")
@pytest.mark.parametrize("value", ["a", "a b", " a ", "a'b", 'a"b', "a\\", "a # b", "$x", "'", '"', "é漢", "a\\nb", ""])
def test_a_file_of_variables_reads_back_what_was_written(tmp_path: Path, value: str) -> None:
    file = tmp_path / "x.env"
    write_env_file(file, {"KEY": value})
    assert read_env_file(file) == {"KEY": value}


@pytest.mark.requirement("P-ADD-SECRETS")
def test_a_value_that_no_file_of_variables_can_hold_is_refused(tmp_path: Path) -> None:
    for value in ("a\nb", "''#\\"):
        with pytest.raises(ConfigError, match="cannot be written"):
            write_env_file(tmp_path / "x.env", {"KEY": value})
    assert list(tmp_path.iterdir()) == []


def test_values_that_are_none_of_the_choices_are_refused() -> None:
    listed = package(environmentVariables=[{"name": "REGION", "isRequired": True, "choices": ["eu", "us"]}])
    assert entry(listed, REGION="eu").entry["env"] == {"REGION": "eu"}
    with pytest.raises(ConfigError, match=r"is not one of its choices\. eu, us"):
        entry(listed, REGION="mars")


def test_streamable_http_is_preferred_and_variables_stand_in_addresses() -> None:
    sse, http = ({"type": kind, "url": f"https://example.com/{kind}"} for kind in ("sse", "streamable-http"))
    chosen = choose(server(remotes=[sse, http]), "", lambda _: False)
    assert make_entry(chosen, {}, "sums").entry == {"type": "http", "url": "https://example.com/streamable-http"}
    tenant = {"type": "sse", "url": "https://{tenant}.example.com/sse", "variables": {"tenant": {"isRequired": True}}}
    assert entry(tenant, tenant="ana").entry["url"] == "https://ana.example.com/sse"


@pytest.mark.requirement("P-ADD-UNTRUSTED")
@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/mcp",
        "https://127.0.0.1/mcp",
        "https://localhost/mcp",
        "https://169.254.169.254/latest",
        "https://[::1]/mcp",
        "https://[::ffff:127.0.0.1]/mcp",
        "https://10.1.2.3/mcp",
        "https://2130706433/mcp",
        "https://0x7f.1/mcp",
        "https://intranet/mcp",
        "https://db.internal/mcp",
        "https://user:pw@example.com/mcp",
        "file:///etc/passwd",
        "https:///mcp",
        "https://[/mcp",
        "https://example.com:99999999/mcp",
        "",
    ],
)
def test_a_registry_elsewhere_sends_nobody_into_this_network(url: str) -> None:
    with pytest.raises(ConfigError, match=r"not encrypted|is not an http or https address"):
        entry({"type": "sse", "url": url})


@pytest.mark.requirement("P-ADD-UNTRUSTED")
def test_only_a_name_of_the_internet_is_public() -> None:
    assert all(map(has_public_name, ("example.com", "MCP.Example.com.", "1password.com", "xn--bcher-kva.example")))
    numbers = "127.1 0177.0.0.1 0x7f.0x1 8.8.8.8 fe80::1%eth0 2606:4700::1 64:ff9b::7f00:1"
    wide = "\uff11\uff12\uff17.0.0.1 127\u30020\u30020\u30021"
    names = "localhost LOCALHOST. a.local a.localhost db.internal intranet %31%32%37.0.0.1 exa%6dple.com"
    assert not any(map(has_public_name, ["", *numbers.split(), *wide.split(), *names.split()]))


@pytest.mark.requirement("P-ADD-UNTRUSTED")
@pytest.mark.parametrize(
    "body",
    [
        None,
        1,
        "x",
        [],
        {},
        {"servers": None},
        {"servers": [None, 1, [], {"server": 1}, {"server": {"name": 1}}]},
        [{"name": "no-slash"}],
    ],
    ids=str,
)
def test_what_is_no_list_of_servers_has_none(body: Any) -> None:
    assert read_list(body) == []


@pytest.mark.requirement("P-ADD-UNTRUSTED")
def test_malformed_parts_of_a_server_are_left_out_or_refused() -> None:
    odd = server(
        title=1,
        description="a\n\x1b[31mb" * 1_000,
        repository="x",
        packages=[1, {}, package(packageArguments={"a": 1}, environmentVariables=[1, {}])],
        remotes=[{}, {"type": 1, "url": 2, "headers": "x", "variables": [1]}],
    )
    assert len(odd.description) <= 500
    assert odd.description.isprintable()
    assert all(offer.refusal for offer in (*odd.packages, *odd.remotes))
