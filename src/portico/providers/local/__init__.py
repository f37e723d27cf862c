"""Tools that run in this process."""

from .provider import LocalProvider as LocalProvider
