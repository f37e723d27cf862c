"""A database that is only read: one room for the packaged tools and for tools of your own."""

from .connection import Column as Column
from .connection import OwnConnection as OwnConnection
from .connection import OwnQuery as OwnQuery
from .connection import QueryResult as QueryResult
from .connection import ReadConnection as ReadConnection
from .connection import TableName as TableName
from .source import DatabaseSource as DatabaseSource
