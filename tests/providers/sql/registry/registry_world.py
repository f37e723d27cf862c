"""Rows as a registry gives them, and values of every type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portico.providers.sql.registry import ObjectKind, RegisteredParameter, Registration
from portico.providers.sql.sql_values import read_type

DIALECTS = ("postgresql", "sqlite", "teradata")

BENIGN: Mapping[str, tuple[Any, ...]] = {
    "CV": ("plain", "", "O'Brien", "50% :x ? $1 -- \\", "été 漢 😀 \u202etxet", "x" * 999),
    "CF": ("abc", "a b", ""),
    "CO": ("long text",),
    "I1": (0, -128, 127),
    "I2": (5, -32768, 32767),
    "I": (5, -(2**31), 2**31 - 1, 7.0),
    "I8": (5, -(2**63), 2**63 - 1),
    "F": (1.5, 0, -2, 1e300, 5e-324, 2**53),
    "real": (1.5, 0, -3e38, 1e-40),
    "D": (1.25, "1.25", "-0.10", 10**30, "1e3"),
    "numeric(10,2)": ("12345678.90", 0.1, -5),
    "DA": ("2026-05-31", "0001-01-01", "9999-12-31", "2024-02-29"),
    "AT": ("12:30:00", "00:00", "23:59:59.123456"),
    "TZ": ("12:30:00Z", "12:30:00.5-05:30"),
    "TS": ("2026-05-31T12:30:00", "2026-05-31 12:30", "2026-05-31T23:59:59.999999"),
    "SZ": ("2026-05-31T12:30:00Z", "2026-05-31T12:30:00+14:00"),
    "interval": ("P1DT2H30M", "P2W", "PT0.5S"),
    "boolean": (True, False),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "BV": ("aGVsbG8=", ""),
    "BO": ("AAECAw==",),
    "jsonb": ({"a": [1, None, "x'y"]}, [], "text", 1.5, True),
    "JN": ({"b": 1},),
    "UT": ("anything",),
    "mood": ("happy",),
}
"""Values that fit, by the code of their type."""

MISFITS: Mapping[str, tuple[Any, ...]] = {
    "CV": (5, True, 1.5, [], {}, ["a"], "a\0b", "\ud800", "x" * 100_001),
    "I1": (128, -129, "5", True, 1.5),
    "I2": (32768, "5"),
    "I": (2**31, -(2**31) - 1, "5", "1); DROP TABLE x; --", True, 1.5, 10**400, float("inf"), float("nan"), [], {},
          "٣"),
    "I8": (2**63, 10**5000, "5", 1e300),
    "F": ("1.5", True, float("nan"), float("inf"), -float("inf"), 10**400, 2**53 + 1, [], "NaN"),
    "real": (1e39, 1e-50, "1"),
    "D": (True, "NaN", "Infinity", "1_000", "0x10", "", "1e999", 10**400, 10**5000, "1 OR 1=1", "١", [], float("nan")),
    "numeric(10,2)": ("1.234", 10**8, "123456789.00"),
    "DA": ("2026-02-30", "20260531", "2026-W22-7", "31.05.2026", "2026-5-1", "2026-05-31T00:00:00",
           20260531, "0000-01-01", True),
    "AT": ("24:00:00", "12", "12:30:00Z", "12:60:00", 5),
    "TZ": ("12:30:00", "12:30:00+25:00"),
    "TS": ("2026-05-31", "2026-05-31T12:30:00Z", "2026-05-31T24:00:00", "now", "2026-05-31T12:30:00\n"),
    "SZ": ("2026-05-31T12:30:00", "2026-05-31T12:30:00+15:00", "yesterday"),
    "interval": ("P", "PT", "1 day", "P1H", 5),
    "boolean": (0, 1, "true", "Y", []),
    "uuid": ("123e4567e89b12d3a456426614174000", "x", 5),
    "BV": ("not base64!", 5, "aGVsbG8", "é"),
    "jsonb": (float("nan"), {"a": float("inf")}, {"a": "\0"}, {"\ud800": 1}, [10**400], {1: 2}),
}  # fmt: skip
"""Values that do not, by the code of their type."""


def tool_row(**more: Any) -> dict[str, Any]:
    """A row of the view of tools."""
    row = {"ToolName": "sales", "DataBaseName": "shop", "TableName": "sales_f", "ToolType": "F"}
    return {**row, "docstring": "What was sold.", "Tags": "a, b", **more}


def param_row(**more: Any) -> dict[str, Any]:
    """A row of the view of parameters."""
    row = {"ToolName": "sales", "ParamName": "region", "ParamType": "CV", "ParamLength": 20, "ParamPosition": 1}
    return {**row, "ParamRequired": "Y", "ParamComment": "Where.", **more}


def parameter(name: str, code: str, position: int = 1, **more: Any) -> RegisteredParameter:
    """One parameter of a type."""
    return RegisteredParameter(name=name, type=read_type(code), position=position, **more)


def registered(kind: ObjectKind, *parameters: RegisteredParameter, **more: Any) -> Registration:
    """A registration of one kind."""
    given = {"name": "tool", "database": "shop", "object": "thing", "docstring": "Does it.", **more}
    return Registration(kind=kind, parameters=parameters, **given)


SALES = (
    parameter("region", "varchar(20)", 1),
    parameter("amount", "numeric(10,2)", 2),
    parameter("sold_on", "DA", 3),
    parameter("open", "boolean", 4),
)
"""The columns of a table."""

_CLOSERS = (
    "", "'", '"', "`", "]", ")", "')", '")', "'))", "\\'", "\\", "''", "x'", "1", "1)", ":p1", "%s", "?", "*/", "＇",
    "{fn x(",
)  # fmt: skip
_PAYLOADS = (
    "; DROP TABLE sales; --", "; DELETE FROM sales; --", " OR 1=1 --", " OR 'a'='a", " OR ''='", ' OR ""="',
    " UNION SELECT name FROM sqlite_master --", " UNION SELECT usename FROM pg_user --", "/**/OR/**/1=1",
    " AND 1=(SELECT COUNT(*) FROM sales)", "; ATTACH DATABASE 'evil.db' AS evil; --", "; PRAGMA writable_schema=1; --",
    "; COPY sales TO PROGRAM 'id'; --", "; SELECT pg_sleep(100); --", "; COMMIT; DROP TABLE sales; --",
    " || (SELECT 1) || ", "\n; INSERT INTO sales VALUES ('x', 1); --", " -- ", " /* ", " #", "; SET ROLE postgres; --",
    " RETURNING *", "$$; DROP TABLE sales; $$", " LIMIT 1 OFFSET 1; DROP TABLE sales", "; EXEC evil; --",
)  # fmt: skip
INJECTIONS = [closer + payload for closer in _CLOSERS for payload in _PAYLOADS]
"""More than five hundred texts that try to become something else than a value."""
