"""Tools that draw what is in a table, as PNG images."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from portico.errors import ConfigError, InvalidArguments, Sent, UpstreamGone, extra_for
from portico.providers.python.decorator_and_injection import tool
from portico.providers.sql import QueryResult, ReadConnection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, DPI = 960, 560, 100
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#dd4477", "#66aa00")
LETTERS = 14  # letters of a label that are shown
_drawing = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Data of a chart: one label for each place, and a value or nothing of each series there."""

    title: str
    labels: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]

    @property
    def values(self) -> list[float]:
        """Every value that is there."""
        return [value for _, values in self.series for value in values if value is not None]


PLACES = 500  # labels that one chart has at most
LARGEST = 1e300  # numbers that can still be subtracted from each other
SLICES = 15
SERIES = 8


@tool(read_only=True, idempotent=True, examples=[{"labels": "day", "columns": ["amount"], "table_name": "sales"}])
def handle_plot_line_chart(
    conn: ReadConnection, labels: str, columns: list[str], table_name: str = "", sql: str = "", title: str = ""
) -> dict[str, Any]:
    """Draws a line chart of numeric columns as a PNG image.

    Arguments:
      labels - column along the bottom, e.g. a date; the rows of a table are ordered by it
      columns - numeric columns, a line for each
      table_name - Table or view name; or else sql
      sql - one SELECT whose rows are drawn in their order
      title - what stands above the chart
    """
    chart, note = _chart(conn, labels, columns, table_name, sql, title)
    return _image(_draw("line_chart", chart), chart, note)


@tool(read_only=True, idempotent=True, examples=[{"labels": "day", "columns": ["amount"], "table_name": "sales"}])
def handle_plot_bar_chart(
    conn: ReadConnection, labels: str, columns: list[str], table_name: str = "", sql: str = "", title: str = ""
) -> dict[str, Any]:
    """Draws a bar chart of numeric columns as a PNG image.

    Arguments:
      labels - column along the bottom, e.g. a name; the rows of a table are ordered by it
      columns - numeric columns, a bar for each
      table_name - Table or view name; or else sql
      sql - one SELECT whose rows are drawn in their order
      title - what stands above the chart
    """
    chart, note = _chart(conn, labels, columns, table_name, sql, title)
    return _image(_draw("bar_chart", chart), chart, note)


@tool(read_only=True, idempotent=True, examples=[{"labels": "region", "column": "amount", "table_name": "sales"}])
def handle_plot_pie_chart(
    conn: ReadConnection, labels: str, column: str, table_name: str = "", sql: str = "", title: str = ""
) -> dict[str, Any]:
    """Draws a pie chart of one numeric column as a PNG image.

    Arguments:
      labels - column that names the slices
      column - numeric column, none of whose values is below zero
      table_name - Table or view name; or else sql
      sql - one SELECT whose rows are drawn in their order
      title - what stands above the chart
    """
    chart, note = _chart(conn, labels, [column], table_name, sql, title)
    if any(value < 0 for value in chart.values) or not sum(chart.values):
        raise InvalidArguments("column", details=("a pie needs values above zero and none below; draw bars instead",))
    if len(chart.labels) > SLICES:
        problem = f"{len(chart.labels)} slices cannot be told apart; group the rows in sql, {SLICES} at most"
        raise InvalidArguments("labels", details=(problem,))
    return _image(_draw("pie_chart", chart), chart, note)


@tool(read_only=True, idempotent=True, examples=[{"column": "amount", "table_name": "sales"}])
def handle_plot_histogram(
    conn: ReadConnection, column: str, table_name: str = "", sql: str = "", bins: int = 20, title: str = ""
) -> dict[str, Any]:
    """Draws how the values of one numeric column are distributed, as a PNG image.

    Arguments:
      column - numeric column
      table_name - Table or view name; or else sql
      sql - one SELECT that has the column
      bins - how many bars
      title - what stands above the chart
    """
    found = _found(conn, [column], table_name, sql, limit=None)
    values = [value for value in _numbers(found, column) if value is not None]
    if not values:
        raise InvalidArguments("column", details=(f"{column!r} has no values to draw",))
    bins = max(1, min(bins, 100))
    low, high = min(values), max(values)
    width = (high - low) / bins or 1.0
    counts = [0.0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    labels = [f"{low + place * width:.4g}" for place in range(bins)]
    chart = Chart(title=title or column, labels=labels, series=[(f"rows by {column}", counts)])
    return _image(_draw("bar_chart", chart), chart, found.note)


def _chart(
    conn: ReadConnection, labels: str, columns: Sequence[str], table_name: str, sql: str, title: str
) -> tuple[Chart, str]:
    if not 1 <= len(columns) <= SERIES:
        raise InvalidArguments("columns", details=(f"{len(columns)} columns; draw 1 to {SERIES}",))
    found = _found(conn, [labels, *columns], table_name, sql)
    if not found.rows:
        raise InvalidArguments("table_name", details=("there are no rows to draw",))
    place = _place(found, labels)
    texts = ["" if row[place] is None else str(row[place]) for row in found.rows]
    series = [(column, _numbers(found, column)) for column in columns]
    return Chart(title=title or table_name, labels=texts, series=series), found.note


def _found(
    conn: ReadConnection, columns: Sequence[str], table_name: str, sql: str, limit: int | None = PLACES
) -> QueryResult:
    if bool(table_name) == bool(sql):
        raise InvalidArguments("table_name", details=("pass either table_name or sql",))
    if sql:
        return conn.rows(sql, limit=limit)
    table = conn.find(table_name)
    names = [conn.quoted(conn.column(table, column)) for column in columns]
    asked = f"SELECT {', '.join(names)} FROM {conn.quoted(table)}"  # noqa: S608 - names that the database knows
    return conn.rows(f"{asked} ORDER BY {names[0]}" if len(names) > 1 else asked, limit=limit)


def _place(found: QueryResult, column: str) -> int:
    known = [name.casefold() for name in found.columns]
    if column.casefold() not in known:
        raise InvalidArguments(
            "columns", details=(f"the rows have no column {column!r}; they have: {', '.join(found.columns)}",)
        )
    return known.index(column.casefold())


def _numbers(found: QueryResult, column: str) -> list[float | None]:
    place = _place(found, column)
    return [_number(row[place], column) for row in found.rows]


def _number(value: Any, column: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        problem = f"{column!r} holds {str(value)[:40]!r}, which is no number; choose a numeric column"
        raise InvalidArguments("columns", details=(problem,)) from error
    if math.isfinite(number) and abs(number) > LARGEST:
        raise InvalidArguments("columns", details=(f"{column!r} holds {number:g}, which no axis can show; scale it",))
    return number if math.isfinite(number) else None


def _draw(kind: str, chart: Chart) -> bytes:
    """The chart as PNG.

    Raises:
        UpstreamGone: matplotlib is not installed.
    """
    try:
        with extra_for("charts"):
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
    except ConfigError as error:
        raise UpstreamGone(f"plot_{kind}", details=(str(error),), sent=Sent.NOTHING) from error
    # The filter of warnings is one for all threads: a letter that the font lacks is drawn as a box, and not warned of.
    with _drawing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(_line(chart.title), parse_math=False)
        _DRAW[kind](axes, chart)
        written = io.BytesIO()
        FigureCanvasAgg(figure).print_png(written)  # type: ignore[no-untyped-call]
    return written.getvalue()


def _draw_lines(axes: Axes, chart: Chart) -> None:
    for (_, values), colour in zip(chart.series, COLOURS, strict=False):
        # A line is broken where a value is missing.
        axes.plot([math.nan if value is None else value for value in values], color=colour, marker="o", markersize=4)
    _show_labels(axes, chart)


def _draw_bars(axes: Axes, chart: Chart) -> None:
    width = 0.8 / len(chart.series)
    for number, (_, values) in enumerate(chart.series):
        places = [place - 0.4 + (number + 0.5) * width for place in range(len(values))]
        axes.bar(places, [value or 0.0 for value in values], width, color=COLOURS[number])
    _show_labels(axes, chart)


def _draw_pie(axes: Axes, chart: Chart) -> None:
    values = [value or 0.0 for value in chart.series[0][1]]
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(values))]
    axes.pie(values, colors=colours, startangle=90, counterclock=False, wedgeprops={"edgecolor": "white"})
    shares = [f"{value:.6g}  ({100 * value / sum(values):.1f} %)" for value in values]
    labels = [f"{_line(label)[:32]}  {share}" for label, share in zip(chart.labels, shares, strict=True)]
    _show_legend(axes, labels, colours, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _show_labels(axes: Axes, chart: Chart) -> None:
    """As many labels as fit, evenly left out otherwise, and the names of the series."""
    labels = [_line(label)[:LETTERS] for label in chart.labels]
    room = max(1, WIDTH // (8 * max(map(len, labels)) + 20))
    shown = range(0, len(labels), math.ceil(len(labels) / room))
    axes.set_xticks(shown, [labels[place] for place in shown], parse_math=False)
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    names = [_line(name)[:30] for name, _ in chart.series]
    _show_legend(axes, names, COLOURS, loc="upper left", bbox_to_anchor=(0.0, -0.08), ncols=len(names))


def _show_legend(axes: Axes, names: Sequence[str], colours: Sequence[str], **place: Any) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour) for colour, _ in zip(colours, names, strict=False)]
    legend = axes.legend(handles, ["." for _ in names], frameon=False, **place)
    for text, name in zip(legend.get_texts(), names, strict=True):
        # Given afterwards: a legend leaves out names that begin with "_", and "$" in them is no formula.
        text.set_parse_math(False)
        text.set_text(name)


def _line(text: str) -> str:
    return " ".join(text.split())


_DRAW: Mapping[str, Callable[[Axes, Chart], None]] = {
    "line_chart": _draw_lines,
    "bar_chart": _draw_bars,
    "pie_chart": _draw_pie,
}


def _image(png: bytes, chart: Chart, note: str) -> dict[str, Any]:
    """An image for the eye and a line for who cannot see it."""
    names = ", ".join(name for name, _ in chart.series)
    extent = f"values from {min(chart.values):g} to {max(chart.values):g}" if chart.values else "no values"
    said = f"{names}: {len(chart.labels)} places, {extent}. {note}".strip()
    data = base64.b64encode(png).decode("ascii")
    return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}, {"type": "text", "text": said}]}
