"""The former place of `portico.providers.sql`, for programs that import `DatabaseSource` from here."""

from .sql import DatabaseSource as DatabaseSource
