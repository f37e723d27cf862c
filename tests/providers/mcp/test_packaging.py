"""A container's image and network are read from the command that starts it."""

from __future__ import annotations

import pytest

from portico.domain.server import Packaging, ServerSpec
from portico.providers.mcp.stdio import packaging_of


@pytest.mark.requirement("S1-48")
@pytest.mark.parametrize(
    ("command", "args", "image", "network"),
    [
        ("docker", "run -i --rm mcp/fetch", "mcp/fetch", ""),
        ("docker", "run -i --rm --network none -e TOKEN mcp/github:1.2 --verbose", "mcp/github:1.2", "none"),
        ("/usr/bin/podman", "run --net=host -v /a:/b -it ghcr.io/x/y", "ghcr.io/x/y", "host"),
        ("docker.exe", "--context far run --rm -e A=b --name x mcp/time", "mcp/time", ""),
        ("docker", "run -i --rm --network", "", ""),
        ("docker", "run", "", ""),
        ("docker", "compose up", "", ""),
        ("npx", "-y run docker", "", ""),
        ("", "", "", ""),
    ],
)
def test_the_image_and_the_network_of_a_container_are_known(command: str, args: str, image: str, network: str) -> None:
    spec = ServerSpec(name="s", transport="stdio", command=command, args=tuple(args.split()))
    assert packaging_of(spec) == Packaging(docker_image=image, network_mode=network)
