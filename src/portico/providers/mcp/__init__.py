"""Upstream MCP servers: one provider per server, over stdio, streamable HTTP or SSE, in both protocol eras."""

from .provider import UpstreamProvider

__all__ = ["UpstreamProvider"]
