"""What a child process gets to know: a frozen list of variables, and what its server's config declares."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

from portico.domain.server import ServerSpec

from .faults import Lost

_POSIX = "PATH HOME LANG TERM USER LOGNAME SHELL TMPDIR TZ"
_WINDOWS = (
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP"
    " USERNAME USERPROFILE TZ"
)
_NETWORK = "SSL_CERT_FILE NODE_EXTRA_CA_CERTS HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy"

INHERITED = frozenset(f"{_WINDOWS if sys.platform == 'win32' else _POSIX} {_NETWORK}".split())
"""The variables of ours that every child sees; `LC_*` comes on top."""


def child_environment(declared: Mapping[str, str], ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of a child: nothing of ours but the frozen list, then what is declared."""
    inherited = {
        name: value
        for name, value in ours.items()
        # "()" begins an exported shell function, which is code.
        if (name in INHERITED or name.startswith("LC_")) and not value.startswith("()")
    }
    return {**inherited, **declared}


def executable(spec: ServerSpec, environment: Mapping[str, str]) -> str:
    """The file that a server's command means, looked for where the child would look.

    Raises:
        Lost: there is none, or the working directory is missing.
    """
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        raise Lost(f"the working directory {spec.cwd!r} does not exist", "check the `cwd` field")
    command = os.path.expanduser(spec.command)
    if os.path.dirname(command):
        command = os.path.join(spec.cwd or "", command)
    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if os.path.exists(command) and os.path.dirname(command):
        raise Lost(f"{spec.command!r} is not an executable file", "check its permissions or the `command` field")
    raise Lost(f"the command {spec.command!r} was not found", "check PATH or the `command` field")
