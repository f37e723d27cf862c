"""Tools that live in a database: what a data engineer registers in two views, agents can use."""

from .call_statements import BoundStatement as BoundStatement
from .call_statements import Returns as Returns
from .call_statements import build_registry_sql as build_registry_sql
from .call_statements import statement_template as statement_template
from .call_statements import tool_definition as tool_definition
from .registry_rows import LoadedRegistry as LoadedRegistry
from .registry_rows import ObjectKind as ObjectKind
from .registry_rows import Problem as Problem
from .registry_rows import RegisteredParameter as RegisteredParameter
from .registry_rows import Registration as Registration
from .registry_rows import read_rows as read_rows
