"""What is known of one object: how it is called, what columns it has, and whether it may be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from portico.providers.registry.registration import Kind, Registration

Key = tuple[str, str, Kind]
"""Database, object and kind of an object, in small letters; a view counts as a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnType:
    """The type of one parameter, as the database's catalog has it."""

    name: str
    """As it can stand in a cast."""
    base: str
    """What a domain is made of; otherwise the same type, under its plain name."""
    labels: tuple[str, ...] = ()
    """The values of an enum."""
    is_pseudo: bool = False
    """Whether it stands for other types, or for something that no query can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to call a function, macro or procedure; those of one name may differ in what they take."""

    least: int
    most: int
    names: tuple[str, ...] = ()
    """Of what it takes, where they have names."""
    types: tuple[OwnType, ...] = ()
    """Of what it takes, where the catalog tells; that of a VARIADIC parameter is the type of its items."""
    is_variadic: bool = False
    """Whether the last parameter takes a list."""
    returns_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One object that the database has, under its exact name."""

    database: str
    name: str
    kind: Kind
    columns: tuple[str, ...] | None = None
    """Those of a table or view; None where nobody can tell."""
    forms: tuple[Form, ...] | None = None
    """Those of a function, macro or procedure; None where nobody can tell."""
    is_permitted: bool = True
    """Whether the database user who asks may use it."""
    denied: str = ""
    """Why it may not be used, whatever rights there are."""
    writes: str = ""
    """Why it may not be used unless it was registered as writing."""
    mark: str = ""
    """Changes when the object does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found of all that a registry names."""

    found: Mapping[Key, tuple[Found, ...]] = field(default_factory=dict)
    mark: str = ""
    """What a later look can be compared with, cheaply; empty where there is no such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a registry names, in small letters and in order."""

    databases: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()


def named_by(registrations: Iterable[Registration]) -> Named:
    """The names that stand in registrations."""
    all_of = tuple(registrations)
    return Named(
        databases=tuple(sorted({one.database.lower() for one in all_of})),
        objects=tuple(sorted({one.object.lower() for one in all_of})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The registry's views as they can stand in SQL."""

    tools: str
    params: str
    users: str = ""
    """Empty where there is no such view."""


def key(database: str, name: str, kind: Kind) -> Key:
    """What an object is looked up by."""
    return database.lower(), name.lower(), Kind.TABLE if kind is Kind.VIEW else kind


def grouped(found: list[Found]) -> dict[Key, tuple[Found, ...]]:
    """Objects by what they are looked up by; several may differ in the case of their letters."""
    groups: dict[Key, tuple[Found, ...]] = {}
    for one in found:
        spot = key(one.database, one.name, one.kind)
        groups[spot] = (*groups.get(spot, ()), one)
    return groups
