"""What is logged, and how: the key `log`."""

from __future__ import annotations

from .fields import Fields
from .settings import LOG_FORMATS, LOG_LEVELS, LogSettings


def read_log(fields: Fields) -> LogSettings:
    """The level and the format; empty where nothing is said."""
    fields.inner("log", ("level", "format"))
    return LogSettings(
        level=fields.choice("log", "level", among=LOG_LEVELS),
        format=fields.choice("log", "format", among=LOG_FORMATS),
    )
