"""Tools, prompts and glossaries that are written in YAML."""

from .yaml_files import LoadedYaml as LoadedYaml
from .yaml_files import load_yaml as load_yaml
