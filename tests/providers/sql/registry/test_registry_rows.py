"""Rows of any driver become registrations; a row that cannot be used harms no other."""

from __future__ import annotations

import random
import sqlite3
from decimal import Decimal

import pytest
from registry_world import param_row, tool_row

from portico.catalog.naming import META_TOOLS
from portico.providers.sql.registry import ObjectKind, read_rows, registry_rows
from portico.providers.sql.registry.call_statements import tool_definition

GOOD = tool_row(ToolName="good", TableName="good_f")
GOOD_PARAM = param_row(ToolName="good")


@pytest.mark.requirement(
    "S4-12", "S4-13", "S4-14", "S4-15", "S4-16", "S4-17", "S4-18", "S4-19", "S4-20", "S4-21", "S4-22", "S4-23", "S4-24"
)
def test_every_column_of_the_views_is_read():
    loaded = read_rows(
        [tool_row()], [param_row(), param_row(ParamName="since", ParamType="DA", ParamPosition=2, ParamRequired="N")]
    )
    (found,) = loaded.registrations
    assert loaded.problems == ()
    assert (found.name, found.database, found.object, found.kind) == ("sales", "shop", "sales_f", ObjectKind.FUNCTION)
    assert (found.docstring, found.tags, found.writes) == ("What was sold.", ("a", "b"), False)
    region, since = found.parameters
    assert (region.name, region.type.name, region.length, region.position) == ("region", "varchar", 20, 1)
    assert (region.required, region.comment) == (True, "Where.")
    assert (since.name, since.type.name, since.position, since.required) == ("since", "date", 2, False)


@pytest.mark.requirement("S2-18")
def test_a_row_may_give_an_example_prompt():
    (found,) = read_rows([tool_row(Example=" What sold best? ")], []).registrations
    assert tool_definition(found)["_meta"]["example"] == "What sold best?"
    (plain,) = read_rows([tool_row()], []).registrations
    assert "example" not in tool_definition(plain)["_meta"]


@pytest.mark.requirement("S4-15")
@pytest.mark.parametrize(
    ("code", "kind"),
    [("F", ObjectKind.FUNCTION), ("M", ObjectKind.MACRO), ("T", ObjectKind.TABLE), ("v", ObjectKind.VIEW)],
)
def test_the_tool_type_tells_what_the_object_is(code, kind):
    (found,) = read_rows([tool_row(ToolType=code)], []).registrations
    assert found.kind is kind


@pytest.mark.requirement("S4-E11")
def test_padded_cells_are_stripped():
    row = {key: f"{value}    " for key, value in tool_row(ToolType="T").items()}
    param = {key: f"{value}  " for key, value in param_row(ParamType="DA", ParamPosition="1").items()}
    (found,) = read_rows([row], [param]).registrations
    assert (found.name, found.database, found.object, found.kind) == ("sales", "shop", "sales_f", ObjectKind.TABLE)
    assert (found.parameters[0].name, found.parameters[0].type.name) == ("region", "date")


@pytest.mark.requirement("S4-17", "S4-E14")
@pytest.mark.parametrize("tags", ["a,b", "a, b", "a b", "a b ", " a ,, b,a", b"a,b"])
def test_tags_are_separated_by_commas_or_spaces(tags):
    (found,) = read_rows([tool_row(Tags=tags)], []).registrations
    assert found.tags == ("a", "b")


@pytest.mark.requirement("S4-23", "S4-E10")
@pytest.mark.parametrize(
    ("cell", "required"),
    [("Y", True), ("y ", True), ("YES", True), (True, True), (1, True), ("N", False), ("no", False),
     (0, False), (False, False)],
)  # fmt: skip
def test_required_is_read_as_it_is_written(cell, required):
    (found,) = read_rows([tool_row()], [param_row(ParamRequired=cell)]).registrations
    assert found.parameters[0].required is required


def test_nothing_said_makes_a_parameter_required_and_a_column_not():
    for kind, required in (("F", True), ("M", True), ("T", False), ("V", False)):
        (found,) = read_rows([tool_row(ToolType=kind)], [param_row(ParamRequired=None)]).registrations
        assert found.parameters[0].required is required


def test_what_its_row_does_not_declare_as_writing_only_reads():
    told = {
        cell: read_rows([tool_row(ToolType="M", Writes=cell)], []).registrations[0].writes
        for cell in ("Y", "N", None, "?")
    }
    assert told == {"Y": True, "N": False, None: False, "?": True}
    assert read_rows([tool_row(ToolType="F")], []).registrations[0].writes is False
    assert read_rows([tool_row(ToolType="F", Writes="Y")], []).registrations[0].writes is True
    assert read_rows([tool_row(ToolType="V", Writes="Y")], []).registrations[0].writes is False


@pytest.mark.parametrize(
    "spell", [str.lower, str.upper, str.title, lambda name: name.encode()], ids=["lower", "upper", "title", "bytes"]
)
def test_names_of_columns_may_come_in_any_case(spell):
    rows = [{spell(key): value for key, value in row.items()} for row in (tool_row(), param_row())]
    loaded = read_rows(rows[:1], rows[1:])
    assert [one.name for one in loaded.registrations] == ["sales"]
    assert loaded.problems == ()


def test_numbers_may_come_as_any_type_that_drivers_use():
    for one in (1, "1", Decimal(1), 1.0, "1.0", b"1"):
        (found,) = read_rows([tool_row()], [param_row(ParamPosition=one, ParamLength=Decimal(20))]).registrations
        assert (found.parameters[0].position, found.parameters[0].length) == (1, 20)


def test_rows_of_sqlite3_are_read_as_they_come():
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    select = "SELECT 'x' AS TOOLNAME, 'main' AS DataBaseName, 't' AS TableName, 'T' AS ToolType, 'd' AS docstring"
    loaded = read_rows(connection.execute(select).fetchall(), [])
    connection.close()
    assert [one.name for one in loaded.registrations] == ["x"]


@pytest.mark.requirement("S4-36")
def test_parameters_are_sorted_by_position_and_tools_by_name():
    params = [param_row(ParamName=name, ParamPosition=place) for name, place in (("c", 3), ("a", 1), ("b", 2))]
    tools = [tool_row(ToolName="z"), tool_row(), tool_row(ToolName="a")]
    loaded = read_rows(tools, params)
    assert [one.name for one in loaded.registrations] == ["a", "sales", "z"]
    assert [one.name for one in loaded.registrations[1].parameters] == ["a", "b", "c"]


def test_the_order_of_the_rows_does_not_matter():
    tools = [tool_row(ToolName=f"t{n}") for n in range(5)] + [tool_row(ToolName="bad name")]
    params = [param_row(ToolName=f"t{n}", ParamName=f"p{p}", ParamPosition=p) for n in range(6) for p in (1, 2, 3)]
    first = read_rows(tools, params)
    for seed in range(5):
        shaken = random.Random(seed)
        shaken.shuffle(tools)
        shaken.shuffle(params)
        assert read_rows(tools, params) == first


def test_a_fingerprint_changes_with_everything_that_was_registered():
    base = read_rows([tool_row()], [param_row()]).registrations[0].fingerprint
    changes = [
        {"TableName": "x"},
        {"DataBaseName": "x"},
        {"ToolType": "M"},
        {"docstring": "x"},
        {"Tags": "x"},
        {"Writes": "Y"},
    ]
    found = {read_rows([tool_row(**one)], [param_row()]).registrations[0].fingerprint for one in changes}
    inner = [{"ParamName": "x"}, {"ParamType": "CF"}, {"ParamLength": 9}, {"ParamRequired": "N"}, {"ParamComment": "x"}]
    found |= {read_rows([tool_row()], [param_row(**one)]).registrations[0].fingerprint for one in inner}
    assert len(found | {base}) == len(changes) + len(inner) + 1
    assert read_rows([tool_row()], [param_row()]).registrations[0].fingerprint == base


NAMES = [
    "", " ", "a b", "a;b", 'a"b', "a'b", "a--b", "a/*b*/", "a.b", "sales; DROP TABLE x", '"sales"', "sales)", "1sales",
    "é",
    "a\0b", "\ud800", "a\nb", "a\u200bb", "\u202esales", "a" * 129, "[a]", "`a`", "a:b", "a%b", "a\\b", "$a",
    "{schema}", "*",
]  # fmt: skip
HOSTILE = (
    [({"DataBaseName": name}, None) for name in NAMES]
    + [({"TableName": name}, None) for name in NAMES]
    + [({}, {"ParamName": name}) for name in NAMES]
    + [({"ToolName": name}, None) for name in (*NAMES[:6], "a" * 129, "\u202ex", "x\0", "\ud800", "-x", ".x", "x\n")]
    + [({"ToolName": name}, None) for name in sorted(META_TOOLS)]
    + [({"ToolName": name}, None) for name in ("list-servers", "Call_Tool", "search.tools")]
    + [({"ToolType": code}, None) for code in ("", None, "X", "FF", "P", "F;", 5, b"\xff", [])]
    + [({}, {"ParamPosition": place}) for place in (0, -1, "x", 1.5, None, 2, 10**400, float("nan"), True, [])]
    + [({"TableName": value}, None) for value in (None, 5, b"\xff\xfe", [], {}, object(), 10**5000, True)]
)


@pytest.mark.requirement("S4-E4", "T69")
@pytest.mark.parametrize(("tool", "param"), HOSTILE)
def test_a_hostile_row_is_refused_with_a_reason_and_the_others_load(tool, param):
    assert len(HOSTILE) > 60
    row = tool_row(**tool)
    params = [param_row(**{**param, "ToolName": row["ToolName"]})] if param is not None else []
    loaded = read_rows([row, GOOD], [*params, GOOD_PARAM])
    assert [one.name for one in loaded.registrations] == ["good"]
    (problem,) = loaded.problems
    assert not problem.loads
    assert problem.reason
    assert problem.fix
    assert len(str(problem)) < 600
    str(problem).encode()
    problem.tool.encode()


@pytest.mark.parametrize("column", ["ToolName", "DataBaseName", "TableName", "ToolType"])
def test_a_view_without_a_column_says_which(column):
    row = {key: value for key, value in tool_row().items() if key != column}
    loaded = read_rows([row], [])
    assert loaded.registrations == ()
    assert repr(column) in loaded.problems[0].reason


@pytest.mark.parametrize("row", [None, 5, "text", ("sales", "shop"), [1, 2]])
def test_what_is_no_row_is_refused(row):
    loaded = read_rows([row, GOOD], [row, GOOD_PARAM])
    assert [one.name for one in loaded.registrations] == ["good"]
    assert len(loaded.problems) == 2


def test_of_two_rows_with_one_name_neither_runs_unless_they_are_the_same():
    assert [one.name for one in read_rows([tool_row(), tool_row()], [param_row(), param_row()]).registrations] == [
        "sales"
    ]
    loaded = read_rows([tool_row(), tool_row(TableName="evil"), GOOD], [])
    assert [one.name for one in loaded.registrations] == ["good"]
    assert "registered 2 times" in loaded.problems[0].reason


@pytest.mark.parametrize("places", [(1, 1), (1, 3), (2, 3), (0, 1)])
def test_positions_that_do_not_count_from_one_are_refused(places):
    params = [param_row(ParamName=f"p{n}", ParamPosition=place) for n, place in enumerate(places)]
    loaded = read_rows([tool_row(), GOOD], params)
    assert [one.name for one in loaded.registrations] == ["good"]


def test_columns_of_a_table_may_leave_gaps_as_dropped_columns_do():
    params = [param_row(ParamName=f"p{place}", ParamPosition=place) for place in (1, 4, 9)]
    assert [one.name for one in read_rows([tool_row(ToolType="T")], params).registrations[0].parameters] == [
        "p1",
        "p4",
        "p9",
    ]


def test_two_parameters_of_one_name_are_refused_whatever_their_case():
    loaded = read_rows([tool_row()], [param_row(), param_row(ParamName="REGION", ParamPosition=2)])
    assert "two parameters 'region'" in loaded.problems[0].reason


@pytest.mark.requirement("S4-18")
def test_parameters_without_a_tool_are_told_once():
    loaded = read_rows([GOOD], [param_row(ToolName="ghost"), param_row(ToolName="ghost", ParamName="b")])
    assert [(one.tool, one.where) for one in loaded.problems] == [("ghost", "mcp_list_toolParams")]


def test_too_many_parameters_are_refused():
    params = [param_row(ParamName=f"p{n}", ParamPosition=n) for n in range(1, 202)]
    loaded = read_rows([tool_row(), GOOD], params)
    assert [one.name for one in loaded.registrations] == ["good"]
    assert "has 201 parameters" in loaded.problems[0].reason


def test_long_and_strange_texts_are_cut_and_cleaned_with_a_note():
    loaded = read_rows(
        [tool_row(docstring="d" * 9_000, Tags=" ".join(f"t{n}" for n in range(30)))],
        [param_row(ParamComment="c" * 2_000)],
    )
    (found,) = loaded.registrations
    assert (len(found.docstring), len(found.tags), len(found.parameters[0].comment)) == (8_000, 20, 1_000)
    assert [one.loads for one in loaded.problems] == [True, True, True]
    hostile = read_rows([tool_row(docstring="a\0b\x1b[31m\ud800\u202ec\nd")], []).registrations[0]
    assert hostile.docstring == "a b [31m c\nd"


@pytest.mark.requirement("S4-32")
def test_an_unknown_type_is_noted_and_takes_text():
    loaded = read_rows([tool_row()], [param_row(ParamType="mood", ParamLength="many")])
    (found,) = loaded.registrations
    assert found.parameters[0].type.schema() == {"type": "string"}
    assert len(loaded.problems) == 2
    assert all(one.loads for one in loaded.problems)


@pytest.mark.requirement("P-REGISTRY-ROWS")
def test_of_too_many_tools_the_first_load_and_the_rest_is_told_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_rows, "MOST_TOOLS", 3)
    found = read_rows([tool_row(ToolName=f"t{n}") for n in range(9)], [])
    assert [one.name for one in found.registrations] == ["t0", "t1", "t2"]
    (told,) = [problem for problem in found.problems if not problem.loads]
    assert (told.tool, told.reason) == ("t3", "and 5 more are too many for one registry")
