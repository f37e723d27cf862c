"""The types that a registry may name: what an agent is told of each, and which values it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .shapes import Shape, check
from .unfit import Unfit, at

SHAPES: Mapping[str, Shape] = {
    **dict.fromkeys(("char", "varchar", "text", "other"), Shape.TEXT),
    **dict.fromkeys(("byteint", "smallint", "integer", "bigint"), Shape.INTEGER),
    **dict.fromkeys(("real", "double"), Shape.FLOAT),
    "decimal": Shape.DECIMAL,
    "boolean": Shape.BOOLEAN,
    "date": Shape.DATE,
    **dict.fromkeys(("time", "timetz"), Shape.TIME),
    **dict.fromkeys(("timestamp", "timestamptz"), Shape.TIMESTAMP),
    "interval": Shape.INTERVAL,
    "uuid": Shape.UUID,
    **dict.fromkeys(("json", "jsonb"), Shape.JSON),
    "bytes": Shape.BYTES,
}
"""Every type by the one name that we give it; `other` is one of which we know nothing but that text stands for it."""

_TERADATA = {
    **dict.fromkeys(("cf", "gf"), "char"),
    **dict.fromkeys(("cv", "gv"), "varchar"),
    "co": "text",
    "i1": "byteint",
    "i2": "smallint",
    "i": "integer",
    "i8": "bigint",
    "f": "double",
    **dict.fromkeys(("d", "n"), "decimal"),
    "da": "date",
    "at": "time",
    "tz": "timetz",
    "ts": "timestamp",
    "sz": "timestamptz",
    # Codes come from the data dictionary, in which BO is a BLOB; Teradata has no boolean that it could stand for.
    **dict.fromkeys(("bf", "bv", "bo"), "bytes"),
    "jn": "json",
    **dict.fromkeys("xm ut pd pm ps pt pz a1 an yr ym mo dy dh dm ds hr hm hs mi ms sc".split(), "other"),
}
"""The codes of Teradata's data dictionary: XML, user-defined types, periods, arrays and intervals are `other`."""

_SPELLED = {
    **dict.fromkeys(("char", "character", "nchar", "bpchar"), "char"),
    **dict.fromkeys(("varchar", "character varying", "nvarchar", "varchar2"), "varchar"),
    **dict.fromkeys(("text", "clob", "string"), "text"),
    **dict.fromkeys(("byteint", "tinyint"), "byteint"),
    **dict.fromkeys(("smallint", "int2", "smallserial"), "smallint"),
    **dict.fromkeys(("integer", "int", "int4", "serial", "mediumint"), "integer"),
    **dict.fromkeys(("bigint", "int8", "bigserial"), "bigint"),
    **dict.fromkeys(("real", "float4"), "real"),
    **dict.fromkeys(("double", "double precision", "float", "float8"), "double"),
    **dict.fromkeys(("decimal", "numeric", "dec", "number"), "decimal"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    "date": "date",
    **dict.fromkeys(("time", "time without time zone"), "time"),
    **dict.fromkeys(("timetz", "time with time zone"), "timetz"),
    **dict.fromkeys(("timestamp", "timestamp without time zone", "datetime"), "timestamp"),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), "timestamptz"),
    **dict.fromkeys(("uuid", "uniqueidentifier"), "uuid"),
    "interval": "interval",
    "json": "json",
    "jsonb": "jsonb",
    "xml": "other",
    **dict.fromkeys(("bytea", "blob", "byte", "varbyte", "binary", "varbinary"), "bytes"),
}

_WIDENED: Mapping[str, Mapping[str, str]] = {
    "sqlite": {**dict.fromkeys(("byteint", "smallint", "integer"), "bigint"), "real": "double"}
}
"""SQLite keeps numbers of any declared size in eight bytes."""

_PATTERN = re.compile(r"([a-z][a-z0-9_ ]*?) ?(?:\( ?([0-9]{1,9}) ?(?:, ?([0-9]{1,9}) ?)?\))?( with(?:out)? time zone)?")
_SIZE = re.compile(r"([0-9]{1,9})(?:\.0*)?(?: ?, ?([0-9]{1,9}))?")

BITS: Mapping[str, int] = {"byteint": 8, "smallint": 16, "integer": 32, "bigint": 64}
MOST_DIGITS = 1_000
MOST_ITEMS = 500
"""Values of one list."""

_JSON_TYPES: Mapping[Shape, Any] = {
    Shape.INTEGER: "integer",
    Shape.FLOAT: "number",
    Shape.DECIMAL: ["number", "string"],
    Shape.BOOLEAN: "boolean",
    Shape.JSON: ["object", "array", "string", "number", "boolean"],
}
# The formats `time` and `date-time` ask for a zone, so the types without one are described in words.
_FORMATS = {"date": "date", "timetz": "time", "timestamptz": "date-time", "interval": "duration", "uuid": "uuid"}
_HINTS = {
    "time": "such as 12:30:00",
    "timestamp": "such as 2026-05-31T12:30:00",
    "bytes": "in base64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamType:
    """What one parameter takes."""

    code: str
    """As the registry spells it."""
    name: str
    """One of the names in SHAPES."""
    length: int | None = None
    """Characters of a text, bytes of bytes."""
    precision: int | None = None
    scale: int = 0
    is_known: bool = True
    """Whether the code is in our table; text stands for one that is not."""
    cast: str = ""
    """The type that the database's own function takes, as it can stand in a cast; empty where it is not known."""
    choices: tuple[str, ...] = ()
    """The values of an enum."""
    is_many: bool = False
    """Whether a list of such values is taken."""

    @property
    def shape(self) -> Shape:
        """What its values are in JSON."""
        return SHAPES[self.name]

    @property
    def bits(self) -> int:
        """The size of a whole number."""
        return BITS.get(self.name, 64)

    @property
    def has_zone(self) -> bool:
        """Whether a moment of this type tells its zone."""
        return self.name in ("timetz", "timestamptz")

    @property
    def hint(self) -> str:
        """What JSON Schema has no word for."""
        return _HINTS.get(self.name, "")

    def schema(self, *, bounds: bool = True) -> dict[str, Any]:
        """The type as JSON Schema says it; without bounds in the fewest words."""
        if self.is_many:
            items = replace(self, is_many=False).schema(bounds=bounds)
            single = items["type"] if isinstance(items["type"], list) else [items["type"]]
            return {"type": list(dict.fromkeys(["array", *single])), "items": items}
        found: dict[str, Any] = {"type": _JSON_TYPES.get(self.shape, "string")}
        if self.choices:
            found["enum"] = list(self.choices)
        if self.name in _FORMATS:
            found["format"] = _FORMATS[self.name]
        if bounds and self.shape is Shape.TEXT and self.length:
            found["maxLength"] = self.length
        if bounds and self.shape is Shape.INTEGER and self.bits < 32:
            found |= {"minimum": -(2 ** (self.bits - 1)), "maximum": 2 ** (self.bits - 1) - 1}
        return found

    def check(self, value: Any) -> Any:
        """The value that is bound for a value of JSON.

        Raises:
            Unfit: it is of another type, too large or too long; the reason says what would fit.
        """
        if self.is_many:
            one = replace(self, is_many=False)
            values = value if isinstance(value, list) else [value]
            if len(values) > MOST_ITEMS:
                raise Unfit(f"has {len(values)} items; at most {MOST_ITEMS} are taken")
            return [at(place, check, one, item) for place, item in enumerate(values)]
        return check(self, value)


def read_type(code: str, length: str = "", dialect: str = "") -> ParamType:
    """The type that a registry means by a code or a spelled-out name; one that is not known takes text."""
    spelled = " ".join(code.split()).lower()
    match = _PATTERN.fullmatch(spelled)
    name = _TERADATA.get(spelled) or (match and _SPELLED.get(f"{match[1]}{match[4] or ''}"))
    if not name:
        return ParamType(code=code, name="other", is_known=False)
    name = _WIDENED.get(dialect, {}).get(name, name)
    inner = (match[2], match[3]) if match else (None, None)
    sizes = _SIZE.fullmatch(" ".join(length.split()))
    beside = (sizes[1], sizes[2]) if sizes else (None, None)
    if name == "decimal":
        # A single number beside D or N is the bytes that the dictionary counts, not the digits.
        return _decimal(code, inner if inner[0] else beside if beside[1] else (None, None))
    size = (inner[0] or beside[0]) if name in ("char", "varchar", "bytes") else None
    return ParamType(code=code, name=name, length=int(size or 0) or None)


def _decimal(code: str, digits: tuple[str | None, str | None]) -> ParamType:
    precision, scale = (int(part or 0) for part in digits)
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        return ParamType(code=code, name="decimal")
    return ParamType(code=code, name="decimal", precision=precision, scale=scale)


_EXAMPLES: Mapping[Shape, Any] = {
    Shape.INTEGER: 1,
    Shape.FLOAT: 1.5,
    Shape.DECIMAL: "1",
    Shape.BOOLEAN: True,
    Shape.DATE: "2026-01-31",
    Shape.INTERVAL: "P1D",
    Shape.UUID: "123e4567-e89b-12d3-a456-426614174000",
    Shape.JSON: {},
    Shape.BYTES: "AA==",
}


def example_of(type: ParamType, text: str) -> Any:
    """A value of JSON that fits a type; for texts, as much of this one as fits."""
    if type.choices:
        return type.choices[0]
    zone = "Z" if type.has_zone else ""
    moments = {Shape.TIME: f"12:30:00{zone}", Shape.TIMESTAMP: f"2026-01-31T12:30:00{zone}"}
    return moments.get(type.shape) or _EXAMPLES.get(type.shape) or text[: type.length or len(text)]


def is_size(length: str) -> bool:
    """Whether a text is a length, or digits before and behind the point."""
    return not length.strip() or _SIZE.fullmatch(" ".join(length.split())) is not None
