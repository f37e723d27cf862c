"""Tools that run in this process."""

from .decorator import Connection as Connection
from .decorator import RequestContext as RequestContext
from .decorator import ToolMark as ToolMark
from .decorator import tool as tool
from .functions import LocalTool as LocalTool
from .functions import make_tool as make_tool
from .provider import LocalProvider as LocalProvider
