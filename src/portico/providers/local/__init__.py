"""Tools that run in this process."""

from .functions import LocalTool as LocalTool
from .functions import make_tool as make_tool
from .injection import Connection as Connection
from .injection import RequestContext as RequestContext
from .marks import ToolMark as ToolMark
from .marks import tool as tool
from .provider import LocalProvider as LocalProvider
