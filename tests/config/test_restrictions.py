"""Whatever restricts is in force, or nothing is served: no config starts with fewer restrictions than are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from portico.config.clients import OWN_KEYS
from portico.config.servers import KNOWN, TOLERATED
from portico.config.settings import restricts
from portico.errors import ConfigError, RestrictionError

from .conftest import Home

SERVER = "servers: {s: {command: a, %s}}"
WRITTEN = [
    "hooks: guard.py",
    "hooks: {guard: guard.py}",
    "hooks: {on_call: guard.py}",
    "hooks: 5",
    "hooks: true",
    "hooks: [[guard.py]]",
    "hooks: [{file: guard.py}]",
    'hooks: [""]',
    "hooks: [null]",
    'hooks: ["${NOT_SET}"]',
    "hook: [guard.py]",
    "Hooks: [guard.py]",
    "guards: [guard.py]",
    "policies: {deny: [x]}",
    "deny: [x]",
    "allow: [x]",
    "profiles: 5",
    "profiles: [a]",
    "profiles: nowhere.yml",
    'profiles: "${NOT_SET}"',
    "profile: base",
    "scripts: off",
    "scripts: {enabled: perhaps}",
    "scripts: {enable: false}",
    "scripts: {require_hardening: 2}",
    "hooks: [a.py]\nhooks: [b.py]",
    SERVER % "tools: x",
    SERVER % "tools: {deny: x}",
    SERVER % "tools: {deny: {x: y}}",
    SERVER % "tools: {deny: [[x]]}",
    SERVER % "tools: {allow: 5}",
    SERVER % "tools: {denny: [x]}",
    SERVER % "tools: {deny: ['${NOT_SET}']}",
    SERVER % "tool: {deny: [x]}",
    SERVER % "deny: [x]",
    SERVER % "allow: [x]",
    SERVER % "disabledTools: x",
    SERVER % "blocked_tools: [x]",
    SERVER % "tools: {deny: [x]}, tools: {}",
]


@pytest.mark.requirement("F37")
@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize("text", WRITTEN)
def test_a_restriction_that_cannot_be_read_ends_the_start(home: Home, text: str) -> None:
    home.write("project/portico.yaml", f"{text}\n")
    with pytest.raises(ConfigError) as caught:
        home.load()
    assert caught.value.fix
    assert caught.value.file == str(home.project / ("nowhere.yml" if "nowhere" in text else "portico.yaml"))


@pytest.mark.requirement("P-RESTRICTIONS", "F37")
def test_a_config_in_json_that_is_cut_off_anywhere_ends_the_start(home: Home) -> None:
    text = '{"servers": {"s": {"command": "a", "tools": {"deny": ["drop_*"]}}}, "hooks": ["guard.py"]}'
    for length in range(1, len(text)):
        home.write("project/portico.yaml", text[:length])
        with pytest.raises(ConfigError):
            home.load()


@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize(
    ("field", "allow", "deny"),
    [
        ("tools: [x, y]", ("x", "y"), ()),
        ("disabledTools: [x]", (), ("x",)),
        ("enabledTools: [x]", ("x",), ()),
        ("excludeTools: [x]", (), ("x",)),
    ],
)
def test_what_clients_write_to_restrict_a_server_is_in_force(
    home: Home, field: str, allow: tuple[str, ...], deny: tuple[str, ...]
) -> None:
    home.write("project/portico.yaml", SERVER % field)
    (spec,) = home.load().servers
    assert (spec.tools.allow, spec.tools.deny) == (allow, deny)


@pytest.mark.requirement("P-RESTRICTIONS")
def test_a_restriction_of_a_clients_file_that_nobody_knows_ends_the_start(home: Home) -> None:
    file = home.write("mcp.json", '{"mcpServers": {"s": {"command": "a", "denyTools": ["x"]}}}')
    with pytest.raises(RestrictionError, match="denyTools"):
        home.load(file)


def test_no_other_key_of_ours_is_taken_for_a_restriction() -> None:
    assert [key for key in OWN_KEYS if restricts((key,))] == ["profiles", "hooks", "scripts"]
    assert [key for key in (*KNOWN, *sorted(TOLERATED)) if restricts(("servers", "a", key))] == ["tools"]
    assert not restricts(("servers", "tools", "args"))
    assert not restricts(("servers", "hooks"))
    assert not restricts(())


@pytest.mark.requirement("P-RESTRICTIONS")
def test_a_chosen_profile_with_a_word_that_restricts_and_is_not_known_is_refused(home: Home, tmp_path: Path) -> None:
    home.environ["MCP_PROFILE"] = "mine"
    home.write("project/profiles.yml", "mine: {tool: ['.*'], deny: [x]}\n")
    home.trust()
    with pytest.raises(Exception, match="this key is not known"):
        home.load()
