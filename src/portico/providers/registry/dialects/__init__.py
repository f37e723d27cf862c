"""The kinds of SQL that registered objects are called in, one module each."""

from .dialect import Dialect as Dialect
from .dialect import Given as Given
from .speaking import dialect_named as dialect_named
