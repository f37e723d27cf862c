"""The tables behind the data server, made by arithmetic so that every start gives the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

Cell = str | int | float
Row = Mapping[str, Cell]

_REGIONS = ("north", "south", "east", "west")
_PRODUCTS = ("lantern", "compass", "kettle", "rope", "tent", "stove")
_STATIONS = ("harbour", "ridge", "valley", "old mill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One table: what it is about, and its rows."""

    title: str
    rows: Sequence[Row]

    @property
    def columns(self) -> dict[str, str]:
        """Name -> type of each column."""
        return {name: _TYPE_NAMES[type(value)] for name, value in self.rows[0].items()}


_TYPE_NAMES = {str: "text", int: "integer", float: "number"}


def _orders(rng: random.Random) -> list[Row]:
    return [_order(rng, number) for number in range(1, 241)]


def _order(rng: random.Random, number: int) -> Row:
    quantity, price = rng.randint(1, 9), rng.randint(300, 18000) / 100
    return {
        "order_id": number,
        "day": str(date(2026, 1, 1) + timedelta(days=rng.randrange(180))),
        "region": rng.choice(_REGIONS),
        "product": rng.choice(_PRODUCTS),
        "quantity": quantity,
        "unit_price": price,
        "amount": round(quantity * price, 2),
    }


def _weather(rng: random.Random) -> list[Row]:
    days = [date(2026, 3, 1) + timedelta(days=offset) for offset in range(30)]
    return [
        {
            "day": str(day),
            "station": station,
            "temperature": round(rng.gauss(9, 4), 1),
            "rain_mm": round(max(0.0, rng.gauss(1, 3)), 1),
        }
        for day in days
        for station in _STATIONS
    ]


def _inventory(rng: random.Random) -> list[Row]:
    return [
        {"product": product, "warehouse": region, "in_stock": rng.randint(0, 400), "reorder_at": rng.randint(20, 90)}
        for product in _PRODUCTS
        for region in _REGIONS
    ]


def _build(title: str, make: Callable[[random.Random], list[Row]]) -> Dataset:
    # Not for secrets: a fixed seed is the point.
    return Dataset(title=title, rows=make(random.Random(title)))  # noqa: S311


DATASETS: Mapping[str, Dataset] = {
    "orders": _build("Orders of an outdoor shop, first half of 2026", _orders),
    "weather": _build("Daily weather at four stations, March 2026", _weather),
    "inventory": _build("Stock of each product in each warehouse", _inventory),
}
"""Name -> dataset."""
