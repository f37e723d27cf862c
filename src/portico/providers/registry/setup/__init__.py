"""The SQL that makes a registry in a database, with samples to try."""

from .scripts import setup_script as setup_script
from .scripts import setup_steps as setup_steps
