"""Search answers as data: one tool in full, tools by keywords, or the names of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from portico.domain.tool import Tool, ToolId

from .documentation import parameters
from .summaries import summary

Answer = dict[str, Any]


def exact(tool: Tool) -> Answer:
    """Everything about the tool that the query names."""
    return {
        "match_type": "exact",
        "tool": {
            "name": tool.listed,
            "category": tool.category,
            "description": summary(tool),
            "full_documentation": tool.description or tool.title,
            "parameters": parameters(tool),
        },
    }


def approximate(tools: Sequence[Tool], scores: Mapping[ToolId, float]) -> Answer:
    """One line for each tool, in the given order; a tool without a score has 0."""
    return {
        "match_type": "approximate",
        "results_count": len(tools),
        "tools": [
            {
                "name": tool.listed,
                "category": tool.category,
                "summary": summary(tool),
                "score": int(scores.get(tool.id, 0)),
            }
            for tool in tools
        ],
    }


def shown_names(answer: Answer) -> list[str]:
    """The listed names of the tools in an answer, in its order."""
    if answer["match_type"] == "exact":
        return [answer["tool"]["name"]]
    return [tool if isinstance(tool, str) else tool["name"] for tool in answer["tools"]]


def list_all(tools: Iterable[Tool], *, limit: int, after: str = "") -> Answer:
    """The names of all tools, sorted, one page of them; `next_cursor` is there when more follow.

    A cursor is the last name that was shown, so that a page stays right when the catalog changes in between.
    """
    names = sorted(tool.listed for tool in tools)
    following = [name for name in names if name > after]
    answer: Answer = {"match_type": "list_all", "total_count": len(names), "tools": following[:limit]}
    if len(following) > limit:
        answer["next_cursor"] = answer["tools"][-1]
    return answer
