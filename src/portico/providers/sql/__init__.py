"""A database that is only read: one room for the packaged tools and for tools of your own."""

from .connection import Column as Column
from .connection import Connection as Connection
from .connection import OwnConnection as OwnConnection
from .connection import Question as Question
from .connection import Result as Result
from .connection import Table as Table
from .source import DatabaseSource as DatabaseSource
