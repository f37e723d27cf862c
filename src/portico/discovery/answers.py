"""Search answers as data: one tool in full, tools by keywords, or the names of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from portico.domain.items import Item
from portico.domain.tool import Tool, ToolId

from .documentation import parameters
from .entries import reading_call, told_of
from .sentences import first_sentence
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


def exact_asset(item: Item) -> Answer:
    """Everything about the prompt, resource or document that the query names."""
    return {"match_type": "exact", "asset": {**_asset(item), "full_documentation": told_of(item)}}


def with_assets(answer: Answer, items: Sequence[Item]) -> Answer:
    """The answer with the prompts, resources and documents that answer the query too; none, no field."""
    return {**answer, "assets": [_asset(item) for item in items]} if items else answer


def _asset(item: Item) -> Answer:
    """A prompt, resource or document on one line, and the call that reads it."""
    call = reading_call(item).parameters
    read = {"tool_name": call["name"], "arguments": call["arguments"]}
    return {"kind": str(item.kind), "name": item.listed, "summary": first_sentence(told_of(item), 120), "read": read}


def shown_names(answer: Answer) -> list[str]:
    """The listed names of the tools in an answer, in its order."""
    if answer["match_type"] == "exact":
        return [answer["tool"]["name"]] if "tool" in answer else []
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
