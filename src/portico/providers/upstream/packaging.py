"""Which image a server runs from, and in which network, when its command starts a container."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from portico.domain.server import Packaging, ServerSpec

_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES = frozenset(
    "--rm --interactive --tty --detach --init --privileged --read-only --publish-all --no-healthcheck --quiet"
    " --oom-kill-disable --sig-proxy --use-api-socket".split()
)
"""Options without a value; all others take the word that follows."""
_LETTERS = frozenset("ditqP")
"""The short ones, which may stand together."""
_NETWORK = ("--network", "--net")


def packaging_of(spec: ServerSpec) -> Packaging:
    """What the command says; nothing when it starts no container."""
    engine = PurePath(spec.command).name.removesuffix(".exe")
    if engine not in _ENGINES or "run" not in spec.args:
        return Packaging()
    return _read(spec.args[spec.args.index("run") + 1 :])


def _read(words: Sequence[str]) -> Packaging:
    network, place = "", 0
    while place < len(words) and words[place].startswith("-"):
        option, has_value, value = words[place].partition("=")
        if not has_value and not _is_switch(option):
            place += 1
            value = words[place] if place < len(words) else ""
        if option in _NETWORK:
            network = value
        place += 1
    return Packaging(docker_image=words[place] if place < len(words) else "", network_mode=network)


def _is_switch(option: str) -> bool:
    return option in _SWITCHES or (not option.startswith("--") and set(option[1:]) <= _LETTERS)
