"""A small shop to try the tools on: the same customers, products, orders and articles every time."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from portico.providers.sql.sqlite_session import Rows, make_sqlite

SCHEMA = """
CREATE TABLE customers (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT, email TEXT, joined DATE NOT NULL
);
CREATE TABLE products (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price NUMERIC(10, 2) NOT NULL, stock INTEGER,
  description TEXT
);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id), ordered DATE NOT NULL,
  shipped DATE, discount NUMERIC(4, 2)
);
CREATE TABLE order_items (
  order_id INTEGER NOT NULL REFERENCES orders (id), product_id INTEGER NOT NULL REFERENCES products (id),
  quantity INTEGER NOT NULL, PRIMARY KEY (order_id, product_id)
);
CREATE INDEX orders_by_customer ON orders (customer_id);
CREATE VIEW monthly_sales AS
  SELECT strftime('%Y-%m', o.ordered) AS month, count(DISTINCT o.id) AS orders, sum(i.quantity * p.price) AS revenue
  FROM orders o JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id GROUP BY 1;
CREATE VIRTUAL TABLE articles USING fts5(title, body);
"""

_FIRST = "Ada Bruno Carla Dario Elena Fritz Greta Hugo Ines Jonas Klara Leo Mara Nils Olga Paul".split()
_LAST = "Amsler Bianchi Christen Dubois Egger Frei Gerber Huber Imhof Jost".split()
_CITIES = ("Bern", "Basel", "Genf", "Lugano", "Zürich", None)
_PRODUCTS = (
    ("Espresso cup", "kitchen", 9.5, "A small cup of stoneware that keeps coffee hot."),
    ("Tea kettle", "kitchen", 48.0, "Boils a litre of water in three minutes."),
    ("Bread knife", "kitchen", 32.9, None),
    ("Desk lamp", "office", 79.0, "Warm light that can be dimmed, with a cable of two metres."),
    ("Notebook", "office", 6.2, "Ninety-six dotted pages."),
    ("Fountain pen", "office", 54.0, None),
    ("Rain jacket", "outdoor", 139.0, "Keeps dry in heavy rain and folds into its own pocket."),
    ("Hiking socks", "outdoor", 18.5, "Made of wool, against blisters."),
    ("Water bottle", "outdoor", 24.0, "Steel, keeps water cold for a day."),
    ("Head torch", "outdoor", 39.9, None),
)
_ARTICLES = (
    ("Returns", "You may return a product within thirty days. We refund the price, not the shipping."),
    ("Shipping", "Orders leave our house within two working days. Shipping within Switzerland takes one day more."),
    ("Warranty", "Every lamp and every kettle has a warranty of five years. Keep the invoice."),
    ("Caring for wool", "Wash wool cold and let it dry flat. Socks of wool need no ironing."),
    ("Paying", "We take cards and invoices. An invoice is due after thirty days."),
)


def demo_url(folder: Path) -> str:
    """The URL of the demo database in a folder; it is made when it is not there yet.

    Raises:
        StoreError: the folder cannot be written.
    """
    file = (folder / "demo.db").absolute()
    make_sqlite(file, SCHEMA, _tables(random.Random(7)))  # noqa: S311 - the same shop for everybody
    return f"sqlite:///{quote(str(file))}"


def _tables(chance: random.Random) -> dict[str, Rows]:
    customers = [_customer(number, chance) for number in range(1, 81)]
    products = [
        (number, name, shelf, price, chance.choice((0, 3, 12, 40, None)), text)
        for number, (name, shelf, price, text) in enumerate(_PRODUCTS, 1)
    ]
    orders = [_order(number, chance) for number in range(1, 301)]
    items = [
        (order[0], product, chance.randint(1, 4))
        for order in orders
        for product in sorted(chance.sample(range(1, len(products) + 1), chance.randint(1, 3)))
    ]
    return {"customers": customers, "products": products, "orders": orders, "order_items": items, "articles": _ARTICLES}


def _customer(number: int, chance: random.Random) -> tuple[Any, ...]:
    first, last = chance.choice(_FIRST), chance.choice(_LAST)
    email = f"{first}.{last}@example.com".lower() if chance.random() > 0.2 else None
    joined = date(2023, 1, 1) + timedelta(days=chance.randint(0, 700))
    return number, f"{first} {last}", chance.choice(_CITIES), email, joined.isoformat()


def _order(number: int, chance: random.Random) -> tuple[Any, ...]:
    ordered = date(2025, 1, 1) + timedelta(days=chance.randint(0, 360))
    shipped = (ordered + timedelta(days=chance.randint(1, 5))).isoformat() if chance.random() > 0.1 else None
    return number, chance.randint(1, 80), ordered.isoformat(), shipped, chance.choice((None, None, 0.05, 0.1))
