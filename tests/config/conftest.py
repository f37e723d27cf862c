"""A home folder of one user, with nothing of the real one in it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from portico.config import NAMES, PROFILES, GatewaySettings, load_settings, open_trust


@dataclass
class Home:
    """Real files in a temporary home, and the environment that points at it."""

    folder: Path
    project: Path
    environ: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, text: str | bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def trust(self) -> None:
        """Trust what lies in the project now, as `portico trust` does."""
        for name in (*NAMES, *PROFILES):
            if os.access(self.project / name, os.R_OK) and (self.project / name).is_file():
                open_trust(self.environ, self.project).trust(self.project / name)

    def load(self, config: str | Path | None = None) -> GatewaySettings:
        self.trust()
        return load_settings(None if config is None else str(config), self.environ, self.project)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    project = tmp_path / "project"
    project.mkdir()
    return Home(folder=tmp_path, project=project, environ={"HOME": str(tmp_path)})
