"""Every type code has one meaning, and values that do not fit exactly are refused in words."""

from __future__ import annotations

import jsonschema_rs
import pytest
from registry_world import BENIGN, MISFITS

from portico.providers.sql.sql_values import UnfitValue, ValueKind, read_type

FITTING = [(code, value) for code, values in BENIGN.items() for value in values]
UNFIT = [(code, value) for code, values in MISFITS.items() for value in values]


@pytest.mark.requirement("S4-20", "S4-28", "S4-29", "S4-30", "S4-31", "S4-32")
@pytest.mark.parametrize(
    ("code", "json_type"),
    [("CV", "string"), ("I", "integer"), ("F", "number"), ("DATE", "string"), ("DA", "string"), ("??", "string")],
)
def test_the_types_of_the_design_map_to_those_of_json(code, json_type):
    assert read_type(code).schema()["type"] == json_type


@pytest.mark.requirement("S4-E9")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("CF", "char"), ("CV", "varchar"), ("CO", "text"), ("I1", "byteint"), ("I2", "smallint"), ("I", "integer"),
        ("I8", "bigint"), ("F", "double"), ("D", "decimal"), ("N", "decimal"), ("DA", "date"), ("DATE", "date"),
        ("AT", "time"), ("TZ", "timetz"), ("TS", "timestamp"), ("SZ", "timestamptz"), ("BO", "bytes"), ("BF", "bytes"),
        ("BV", "bytes"), ("JN", "json"), ("XM", "other"), ("UT", "other"), ("PM", "other"), ("YR", "other"),
        ("integer", "integer"), ("BIGINT", "bigint"), ("text", "text"), ("character varying(20)", "varchar"),
        ("double precision", "double"), ("timestamptz", "timestamptz"), ("timestamp(3) with time zone", "timestamptz"),
        ("timestamp  without time zone", "timestamp"), ("time with time zone", "timetz"), ("boolean", "boolean"),
        ("uuid", "uuid"), ("jsonb", "jsonb"), ("bytea", "bytes"), ("NUMERIC( 10 , 2 )", "decimal"), ("real", "real"),
    ],
)  # fmt: skip
def test_every_code_and_spelled_out_name_has_one_meaning(code, name):
    found = read_type(code)
    assert (found.name, found.is_known) == (name, True)


def test_bo_is_a_blob_because_teradata_has_no_boolean():
    assert read_type("BO").shape is ValueKind.BYTES


@pytest.mark.requirement("S4-32")
@pytest.mark.parametrize("code", ["mood", "integer[]", "", "'; DROP TABLE x", "numeric(1", "I\0", "C" * 100])
def test_a_type_that_is_not_known_takes_text(code):
    found = read_type(code)
    assert (found.shape, found.is_known) == (ValueKind.TEXT, False)
    assert found.check("5") == "5"


@pytest.mark.requirement("S4-21")
@pytest.mark.parametrize(
    ("code", "length", "sizes"),
    [
        ("CV", "20", (20, None, 0)), ("CV", " 20 ", (20, None, 0)), ("CV", "20.0", (20, None, 0)),
        ("CV", "", (None, None, 0)),
        ("varchar(5)", "", (5, None, 0)), ("D", "10,2", (None, 10, 2)), ("D", "8", (None, None, 0)),
        ("numeric(10,2)", "", (None, 10, 2)), ("numeric(4)", "", (None, 4, 0)), ("numeric(2,9)", "", (None, None, 0)),
        ("I", "4", (None, None, 0)), ("CV", "x; DROP", (None, None, 0)), ("CV", "0", (None, None, 0)),
    ],
)  # fmt: skip
def test_lengths_are_read_where_they_mean_something(code, length, sizes):
    found = read_type(code, length)
    assert (found.length, found.precision, found.scale) == sizes


@pytest.mark.parametrize(("code", "value"), FITTING, ids=map(str, range(len(FITTING))))
def test_a_value_that_fits_is_bound_as_it_was_meant(code, value):
    found = read_type(code)
    assert jsonschema_rs.is_valid(found.schema(), value), "what the check takes, the schema offers"
    bound = found.check(value)
    assert type(bound) in (str, int, float, bool, bytes)
    if found.shape in (
        ValueKind.TEXT,
        ValueKind.INTEGER,
        ValueKind.FLOAT,
        ValueKind.BOOLEAN,
        ValueKind.DATE,
        ValueKind.TIMESTAMP,
    ):
        assert bound == value


@pytest.mark.requirement("S4-E1")
@pytest.mark.parametrize(("code", "value"), UNFIT, ids=map(str, range(len(UNFIT))))
def test_a_value_that_does_not_fit_is_refused_in_words(code, value):
    with pytest.raises(UnfitValue) as caught:
        read_type(code).check(value)
    assert len(str(caught.value)) < 120
    assert str(caught.value).isascii()


@pytest.mark.parametrize("code", BENIGN)
def test_null_is_no_value_of_any_type_but_json(code):
    if read_type(code).shape is not ValueKind.JSON:
        with pytest.raises(UnfitValue):
            read_type(code).check(None)


def test_decimals_stay_exact():
    assert read_type("D").check(0.1) == "0.1"
    assert read_type("D").check("0.10") == "0.10"
    assert read_type("D").check("-1e3") == "-1000"
    assert read_type("numeric(10,2)").check("12345678.900") == "12345678.900"


def test_sqlite_keeps_whole_numbers_of_any_declared_size():
    assert read_type("integer", dialect="sqlite").check(2**40) == 2**40
    with pytest.raises(UnfitValue, match="between -2147483648 and 2147483647"):
        read_type("integer", dialect="postgresql").check(2**40)


def test_a_text_is_measured_in_characters():
    five = read_type("CV", "5")
    assert five.check("漢漢漢漢漢") == "漢漢漢漢漢"
    with pytest.raises(UnfitValue, match="has 6 characters; at most 5"):
        five.check("漢漢漢漢漢漢")
