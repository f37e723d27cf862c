"""Tools, prompts and glossaries that are written in YAML."""

from .loading import LoadedYaml as LoadedYaml
from .loading import load_yaml as load_yaml
