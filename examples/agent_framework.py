"""Portico's catalog inside another agent framework, Pydantic AI: `python examples/agent_framework.py`.

The agent has three tools, however many the catalog holds: it finds, reads and calls the others through them. The model
here is a script, so that this runs without a network and without a key; give `Agent` the name of a real one instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from portico import CallError, Catalog


def handle_base_tableList(database_name: str) -> list[str]:  # noqa: N802  tools of databases are named so
    """List the tables of a database.

    Arguments:
      database_name - the database to look at
    """
    return [f"{database_name}.customers", f"{database_name}.orders"]


def handle_base_tableDDL(table_name: str) -> str:  # noqa: N802
    """Show the statement that created a table.

    Arguments:
      table_name - the table
    """
    return f"CREATE TABLE {table_name} (id INTEGER PRIMARY KEY)"


def tools_of(catalog: Catalog) -> list[Callable[..., Any]]:
    """The catalog as three functions that any framework can give to its agent."""

    def search_tools(query: str) -> str:
        """Find tools by what they do; each line is the name of a tool and what it is for."""
        return "\n".join(f"{hit.handle}: {hit.tool.description.splitlines()[0]}" for hit in catalog.search(query))

    def describe_tools(names: list[str]) -> str:
        """Tell everything about some tools: description, parameters, an example."""
        return catalog.describe(names).text

    async def call_tool(name: str, arguments: dict[str, Any]) -> str:
        """Run a tool that search_tools found."""
        try:
            return (await catalog.call(name, arguments)).text
        except CallError as error:
            raise ModelRetry(str(error)) from error  # which says what is wrong, and the model tries again

    return [search_tools, describe_tools, call_tool]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What a model would do: search, read, call with a mistake in it, call again, answer."""
    told = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == 0:
        print("the agent sees:", ", ".join(sorted(tool.name for tool in info.function_tools)))
        return ModelResponse(parts=[ToolCallPart("search_tools", {"query": "list the tables of a database"})])
    name = str(told[0].content).partition(":")[0]
    if turn == 1:
        return ModelResponse(parts=[ToolCallPart("describe_tools", {"names": [name]})])
    if turn in (2, 3):
        arguments = {"database": "shop"} if turn == 2 else {"database_name": "shop"}
        return ModelResponse(parts=[ToolCallPart("call_tool", {"name": name, "arguments": arguments})])
    return ModelResponse(parts=[TextPart(f"{name} says: {told[-1].content}")])


async def main() -> None:
    """Ask an agent something that only a tool of the catalog knows."""
    catalog = Catalog()
    for function in (handle_base_tableList, handle_base_tableDDL):
        catalog.register_tool(function)
    agent = Agent(FunctionModel(scripted), tools=tools_of(catalog), retries=2)
    result = await agent.run("Which tables does the database shop have?")
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
