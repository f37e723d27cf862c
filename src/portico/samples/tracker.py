"""An issue tracker: a dozen tools with the long schemas that such servers have."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import date
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from portico.samples import ADD, DESTROY, READ, UPDATE

Status = Literal["open", "in_progress", "in_review", "blocked", "closed"]
Priority = Literal["low", "medium", "high", "urgent"]
Kind = Literal["bug", "feature", "task", "question"]
Relation = Literal["blocks", "duplicates", "relates_to"]


class Environment(BaseModel):
    """Where a bug was seen."""

    version: str = Field(description="Version of the product, e.g. 2.4.1")
    platform: Literal["linux", "macos", "windows", "web", "mobile"] = Field(description="Platform it runs on")
    browser: str | None = Field(default=None, description="Browser and version, for the web platform")


class Estimate(BaseModel):
    """How much work is expected."""

    points: int = Field(ge=0, le=100, description="Story points")
    confidence: Literal["guess", "rough", "sure"] = Field(default="rough", description="How far to trust it")


class Comment(BaseModel):
    """A remark under an issue."""

    id: int
    author: str
    body: str


class Link(BaseModel):
    """A relation from one issue to another."""

    relation: Relation
    target: int


class Issue(BaseModel):
    """Something to be done, with everything that is known about it."""

    number: int
    title: str
    body: str = ""
    kind: Kind = "task"
    status: Status = "open"
    priority: Priority = "medium"
    labels: list[str] = []
    assignees: list[str] = []
    due: date | None = None
    environment: Environment | None = None
    estimate: Estimate | None = None
    sprint: str | None = None
    comments: list[Comment] = []
    links: list[Link] = []


class IssueLine(BaseModel):
    """An issue in a list."""

    number: int
    title: str
    status: Status
    priority: Priority


class Changes(BaseModel):
    """What to change about an issue; everything that is left out stays as it is."""

    title: str | None = Field(default=None, min_length=1, description="New title")
    body: str | None = Field(default=None, description="New text, in Markdown")
    status: Status | None = Field(default=None, description="New status; use close_issue to close with a reason")
    priority: Priority | None = Field(default=None, description="New priority")
    due: date | None = Field(default=None, description="New due date, YYYY-MM-DD")
    estimate: Estimate | None = Field(default=None, description="New estimate of the work")


IssueNumber = Annotated[int, Field(ge=1, description="Number of the issue")]
Labels = Annotated[
    list[str], Field(max_length=10, description="Labels, at most ten, e.g. frontend or good-first-issue")
]
Assignees = Annotated[list[str], Field(description="Logins of the people who work on it")]

server = MCPServer(
    "tracker",
    title="Tracker",
    version="1.0.0",
    description="Tracks issues, comments and sprints of a small team",
    instructions="Find issues with search_issues; all other tools take the issue's number.",
    log_level="WARNING",
)

_ids = itertools.count(1)
_issues: dict[int, Issue] = {}
_sprints: dict[str, date] = {"2026-S1": date(2026, 1, 16), "2026-S2": date(2026, 1, 30)}


@server.tool(
    annotations=ADD,
    description="Create a new issue in the tracker and return it with its number. Search first: a duplicate helps "
    "nobody. Bugs should say in which environment they were seen.",
)
def create_issue(
    title: Annotated[
        str, Field(min_length=1, max_length=200, description="One line that says what is wrong or wanted")
    ],
    body: Annotated[str, Field(description="Details in Markdown: steps, what was expected, what happened")] = "",
    kind: Annotated[Kind, Field(description="What sort of issue it is")] = "task",
    priority: Annotated[Priority, Field(description="How soon it has to be done")] = "medium",
    labels: Labels = [],  # noqa: B006 - read, never changed
    assignees: Assignees = [],  # noqa: B006
    due: Annotated[date | None, Field(description="Due date, YYYY-MM-DD")] = None,
    environment: Annotated[Environment | None, Field(description="Where it was seen; wanted for bugs")] = None,
) -> Issue:
    """Create a new issue in the tracker and return it with its number."""
    number = next(_ids)
    _issues[number] = Issue(
        number=number,
        title=title,
        body=body,
        kind=kind,
        priority=priority,
        labels=list(labels),
        assignees=list(assignees),
        due=due,
        environment=environment,
    )
    return _issues[number]


@server.tool(annotations=READ)
def get_issue(number: IssueNumber) -> Issue:
    """Get one issue with its comments and links."""
    return _find(number)


@server.tool(
    annotations=READ,
    description="Search the issues by text, status, kind, assignee and label; all conditions must hold. Returns one "
    "line for each issue; get_issue has the details.",
)
def search_issues(
    text: Annotated[str, Field(description="Words that the title or body must contain; empty for all")] = "",
    status: Annotated[list[Status] | None, Field(description="Only these statuses")] = None,
    kind: Annotated[Kind | None, Field(description="Only this kind")] = None,
    assignee: Annotated[str | None, Field(description="Only issues of this login")] = None,
    label: Annotated[str | None, Field(description="Only issues with this label")] = None,
    sort: Annotated[Literal["newest", "oldest", "priority"], Field(description="Order of the result")] = "newest",
    limit: Annotated[int, Field(ge=1, le=100, description="Most issues to return")] = 20,
) -> list[IssueLine]:
    """Search the issues by text, status, kind, assignee and label."""
    words = text.lower().split()
    found = [
        issue
        for issue in _issues.values()
        if all(word in f"{issue.title} {issue.body}".lower() for word in words)
        and (not status or issue.status in status)
        and (kind is None or issue.kind == kind)
        and (assignee is None or assignee in issue.assignees)
        and (label is None or label in issue.labels)
    ]
    order = {"urgent": 0, "high": 1, "medium": 2, "low": 3}
    found.sort(
        key=lambda issue: order[issue.priority] if sort == "priority" else issue.number, reverse=sort == "newest"
    )
    return [IssueLine.model_validate(issue.model_dump(include=set(IssueLine.model_fields))) for issue in found[:limit]]


@server.tool(annotations=UPDATE)
def update_issue(
    number: IssueNumber, changes: Annotated[Changes, Field(description="The fields to change, with new values")]
) -> Issue:
    """Change some fields of an issue and leave the others alone."""
    given = {name: getattr(changes, name) for name in changes.model_fields_set}
    _issues[number] = _find(number).model_copy(update=given)
    return _issues[number]


@server.tool(annotations=UPDATE)
def assign_issue(number: IssueNumber, assignees: Assignees) -> Issue:
    """Hand an issue to these people, instead of those who had it."""
    issue = _find(number)
    issue.assignees = list(dict.fromkeys(assignees))
    return issue


@server.tool(annotations=UPDATE)
def label_issue(
    number: IssueNumber,
    add: Labels = [],  # noqa: B006
    remove: Annotated[list[str], Field(description="Labels to take off")] = [],  # noqa: B006
) -> Issue:
    """Put labels on an issue and take others off."""
    issue = _find(number)
    issue.labels = [label for label in dict.fromkeys([*issue.labels, *add]) if label not in remove]
    return issue


@server.tool(annotations=ADD)
def add_comment(
    number: IssueNumber,
    body: Annotated[str, Field(min_length=1, description="Text of the comment, in Markdown")],
    author: Annotated[str, Field(description="Login of the author")] = "agent",
) -> Comment:
    """Add a comment under an issue."""
    issue = _find(number)
    comment = Comment(id=len(issue.comments) + 1, author=author, body=body)
    issue.comments = [*issue.comments, comment]
    return comment


@server.tool(annotations=UPDATE)
def link_issues(
    source: IssueNumber,
    relation: Annotated[Relation, Field(description="How the source relates to the target")],
    target: IssueNumber,
) -> Issue:
    """Record that one issue blocks, duplicates or relates to another."""
    issue, link = _find(source), Link(relation=relation, target=_find(target).number)
    if link not in issue.links:
        issue.links = [*issue.links, link]
    return issue


@server.tool(annotations=UPDATE)
def close_issue(
    number: IssueNumber,
    reason: Annotated[Literal["done", "duplicate", "wont_fix", "cannot_reproduce"], Field(description="Why")] = "done",
) -> Issue:
    """Close an issue; the reason becomes its last comment."""
    issue = _find(number)
    if issue.status != "closed":
        add_comment(number, f"Closed: {reason}.")
        issue.status = "closed"
    return issue


@server.tool(annotations=UPDATE)
def plan_sprint(
    sprint: Annotated[str, Field(description="Name of the sprint, e.g. 2026-S2")],
    numbers: Annotated[list[int], Field(min_length=1, description="Issues to put into it")],
    ends: Annotated[date | None, Field(description="Last day; needed when the sprint is new")] = None,
) -> list[Issue]:
    """Put issues into a sprint, which is made when it does not exist yet."""
    chosen = [_find(number) for number in numbers]
    if sprint not in _sprints and ends is None:
        raise ToolError(f"no sprint {sprint!r}; give ends to make it, or use one of {', '.join(_sprints)}")
    _sprints.setdefault(sprint, ends or date.max)
    for issue in chosen:
        issue.sprint = sprint
    return chosen


@server.tool(annotations=READ)
def issue_statistics(
    by: Annotated[Literal["status", "priority", "kind", "sprint"], Field(description="What to count by")] = "status",
) -> dict[str, int]:
    """Count the issues by status, priority, kind or sprint."""
    return dict(Counter(str(getattr(issue, by)) for issue in _issues.values()))


@server.tool(annotations=DESTROY)
def delete_issue(
    number: IssueNumber, confirm: Annotated[bool, Field(description="Must be true: there is no way back")]
) -> str:
    """Delete an issue with its comments for good. Close it instead if anybody may look for it later."""
    issue = _find(number)
    if not confirm:
        raise ToolError("nothing was deleted: confirm is false")
    del _issues[number]
    return f"deleted {issue.number}: {issue.title}"


def _find(number: int) -> Issue:
    if number not in _issues:
        raise ToolError(f"no issue {number}; search_issues lists what there is")
    return _issues[number]


create_issue("Login page is slow", "Takes 8 s on first load.", kind="bug", priority="high", labels=["frontend"])
create_issue("Export orders as CSV", kind="feature", assignees=["ana"])
create_issue("Crash when the name is empty", kind="bug", priority="urgent", assignees=["ben"], labels=["backend"])
create_issue("Write the release notes", due=date(2026, 1, 29))

if __name__ == "__main__":
    server.run()
