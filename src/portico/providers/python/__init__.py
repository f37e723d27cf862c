"""Tools that run in this process."""

from .decorator_and_injection import Connection as Connection
from .decorator_and_injection import RequestContext as RequestContext
from .decorator_and_injection import ToolMark as ToolMark
from .decorator_and_injection import tool as tool
from .functions import LocalTool as LocalTool
from .functions import make_tool as make_tool
from .provider import LocalProvider as LocalProvider
