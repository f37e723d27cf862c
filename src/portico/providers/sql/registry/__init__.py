"""Tools that live in a database: what a data engineer registers in two views, agents can use."""

from .definition import tool_definition as tool_definition
from .rows import LoadedRegistry as LoadedRegistry
from .rows import ObjectKind as ObjectKind
from .rows import Problem as Problem
from .rows import RegisteredParameter as RegisteredParameter
from .rows import Registration as Registration
from .rows import read_rows as read_rows
from .statements import Bind as Bind
from .statements import BoundStatement as BoundStatement
from .statements import Returns as Returns
from .statements import build_registry_sql as build_registry_sql
from .statements import statement_template as statement_template
from .values import ParamType as ParamType
