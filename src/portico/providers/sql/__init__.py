"""A database that is only read: connections for the packaged tools and for tools of your own."""

from .database_source import DatabaseSource as DatabaseSource
from .read_connection import Column as Column
from .read_connection import OwnConnection as OwnConnection
from .read_connection import OwnQuery as OwnQuery
from .read_connection import QueryResult as QueryResult
from .read_connection import ReadConnection as ReadConnection
from .read_connection import TableName as TableName
