"""What the tracker knows about an issue."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import BaseModel, Field

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
