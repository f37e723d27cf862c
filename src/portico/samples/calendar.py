"""A calendar: meetings, who attends them, and when everybody is free."""

from __future__ import annotations

import itertools
from datetime import date, datetime, time, timedelta
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import AfterValidator, BaseModel, Field

from portico.samples import ADD, DESTROY, READ, UPDATE


def _without_zone(moment: datetime) -> datetime:
    # One calendar, one clock on the wall: mixing moments with and without a zone would make them incomparable.
    return moment.replace(tzinfo=None)


Moment = Annotated[datetime, AfterValidator(_without_zone)]
EventId = Annotated[str, Field(pattern=r"^e\d+$", description="Id of an event, e.g. e1")]
Start = Annotated[Moment, Field(description="Start in local time, e.g. 2026-02-03T09:30")]
Minutes = Annotated[int, Field(ge=5, le=1440, description="Length in minutes")]
People = Annotated[list[str], Field(description="E-mail addresses")]
Answer = Literal["accepted", "declined", "tentative"]


class Repeat(BaseModel):
    """How an event comes again."""

    every: Literal["day", "week"] = Field(description="Time between two occurrences")
    times: int = Field(ge=2, le=52, description="How often it takes place in all")


class Event(BaseModel):
    """A stretch of time with a title and attendees."""

    id: str
    title: str
    start: datetime
    end: datetime
    attendees: dict[str, str] = {}
    place: str | None = None


class Slot(BaseModel):
    """A free stretch of time."""

    start: datetime
    end: datetime


server = MCPServer(
    "calendar",
    title="Calendar",
    version="1.0.0",
    description="Schedules meetings and finds free time",
    log_level="WARNING",
)

_ids = itertools.count(1)
_events: dict[str, Event] = {}


@server.tool(
    annotations=ADD,
    description="Create an event, or a series of events, and invite the attendees. Returns every event that was made. "
    "Overlaps are allowed: call find_free_slots first to avoid them.",
)
def create_event(
    title: Annotated[str, Field(min_length=1, description="What the event is about")],
    start: Start,
    minutes: Minutes = 30,
    attendees: People = [],  # noqa: B006 - read, never changed
    place: Annotated[str | None, Field(description="Room, address or link of a call")] = None,
    repeat: Annotated[Repeat | None, Field(description="For an event that comes again")] = None,
) -> list[Event]:
    """Create an event, or a series of events, and invite the attendees."""
    step = timedelta(weeks=1) if repeat and repeat.every == "week" else timedelta(days=1)
    starts = [start + step * index for index in range(repeat.times if repeat else 1)]
    invited = dict.fromkeys(attendees, "invited")
    made = [
        Event(id=f"e{next(_ids)}", title=title, start=at, end=at + timedelta(minutes=minutes), attendees=dict(invited))
        for at in starts
    ]
    for event in made:
        event.place = place
        _events[event.id] = event
    return made


@server.tool(annotations=READ)
def list_events(
    first: Annotated[date, Field(description="First day, YYYY-MM-DD")],
    last: Annotated[date, Field(description="Last day, included")],
    attendee: Annotated[str | None, Field(description="Only events that this person attends")] = None,
) -> list[Event]:
    """List the events between two days, the earliest first."""
    found = (event for event in _events.values() if first <= event.start.date() <= last)
    return sorted((event for event in found if not attendee or attendee in event.attendees), key=lambda e: e.start)


@server.tool(annotations=READ)
def get_event(id: EventId) -> Event:
    """Get one event with the answers of its attendees."""
    return _find(id)


@server.tool(annotations=UPDATE)
def move_event(
    id: EventId, start: Start, minutes: Annotated[Minutes | None, Field(description="New length")] = None
) -> Event:
    """Move an event to another time; its length stays unless you give a new one."""
    event = _find(id)
    length = timedelta(minutes=minutes) if minutes else event.end - event.start
    event.start, event.end = start, start + length
    return event


@server.tool(annotations=UPDATE)
def respond_to_invitation(
    id: EventId,
    attendee: Annotated[str, Field(description="E-mail address of the one who answers")],
    answer: Annotated[Answer, Field(description="The answer")],
) -> Event:
    """Answer an invitation on behalf of an attendee."""
    event = _find(id)
    if attendee not in event.attendees:
        raise ToolError(f"{attendee!r} is not invited to {id}; invited are {', '.join(event.attendees) or 'none'}")
    event.attendees = {**event.attendees, attendee: answer}
    return event


@server.tool(annotations=UPDATE)
def invite_attendees(id: EventId, attendees: People) -> Event:
    """Invite more people to an event; those who answered keep their answer."""
    event = _find(id)
    event.attendees = {**dict.fromkeys(attendees, "invited"), **event.attendees}
    return event


@server.tool(annotations=READ)
def find_free_slots(
    day: Annotated[date, Field(description="Day to look at, YYYY-MM-DD")],
    attendees: People,
    minutes: Minutes = 30,
    opens: Annotated[time, Field(description="Start of the working day")] = time(9),
    closes: Annotated[time, Field(description="End of the working day")] = time(17),
) -> list[Slot]:
    """Find the times of a day at which all of these people are free for long enough."""
    free_from, end_of_day = datetime.combine(day, opens), datetime.combine(day, closes)
    slots = []
    for event in [*_busy(day, attendees), None]:
        until = min(event.start, end_of_day) if event else end_of_day
        if until - free_from >= timedelta(minutes=minutes):
            slots.append(Slot(start=free_from, end=until))
        free_from = max(free_from, event.end) if event else free_from
    return slots


@server.tool(annotations=DESTROY)
def cancel_event(id: EventId, message: Annotated[str, Field(description="What to tell the attendees")] = "") -> str:
    """Cancel an event for everybody; this cannot be undone."""
    event = _find(id)
    del _events[id]
    told = f"; told {', '.join(event.attendees)}: {message}" if message and event.attendees else ""
    return f"cancelled {event.title!r}{told}"


def _find(id: str) -> Event:
    if id not in _events:
        raise ToolError(f"no event {id!r}; list_events shows what there is")
    return _events[id]


def _busy(day: date, attendees: list[str]) -> list[Event]:
    there = (event for event in list_events(day, day) if set(attendees) & event.attendees.keys())
    return [event for event in there if any(event.attendees.get(person) != "declined" for person in attendees)]


_TEAM = ["ana@example.com", "ben@example.com"]
create_event("Stand-up", datetime(2026, 2, 2, 9, 30), 15, _TEAM, repeat=Repeat(every="day", times=5))
create_event("Design review", datetime(2026, 2, 3, 14), 60, _TEAM, place="Room 4")
create_event("Dentist", datetime(2026, 2, 4, 11), 45, ["ana@example.com"])

if __name__ == "__main__":
    server.run()
