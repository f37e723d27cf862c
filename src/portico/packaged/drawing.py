"""Draws charts as PNG: axes with round numbers, labels that do not overlap, a legend."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

from .plots import Chart

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 90, 30, 60, 90
INK, PALE, PAPER = "#222222", "#dddddd", "#ffffff"
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#dd4477", "#66aa00")
LETTERS = 14
"""Letters of a label that are shown."""


@dataclass(slots=True)
class _Sheet:
    """A page with its pen, and how values lie on it."""

    low: float
    high: float
    count: int
    image: Image.Image = field(default_factory=lambda: Image.new("RGB", (WIDTH, HEIGHT), PAPER))

    @property
    def pen(self) -> ImageDraw.ImageDraw:
        return ImageDraw.Draw(self.image)

    def x(self, place: float) -> float:
        """Where the middle of a place is."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / max(self.count, 1)

    def y(self, value: float) -> float:
        """Where a value is."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.low) / (self.high - self.low)


def line_chart(chart: Chart) -> bytes:
    """A line for each series; where a value is missing, the line is broken."""
    sheet = _framed(chart, from_zero=False)
    for number, (_, values) in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        points = [None if v is None else (sheet.x(place), sheet.y(v)) for place, v in enumerate(values)]
        for start, end in pairwise(points):
            if start and end:
                sheet.pen.line([start, end], fill=colour, width=3)
        for point in filter(None, points):
            sheet.pen.ellipse([point[0] - 3, point[1] - 3, point[0] + 3, point[1] + 3], fill=colour)
    return _png(sheet.image)


def bar_chart(chart: Chart) -> bytes:
    """A bar for each value, those of one label side by side."""
    sheet = _framed(chart, from_zero=True)
    step = sheet.x(1) - sheet.x(0)
    width = step * 0.8 / max(len(chart.series), 1)
    for number, (_, values) in enumerate(chart.series):
        for place, value in enumerate(values):
            if value is None:
                continue
            left = sheet.x(place) - step * 0.4 + number * width
            top, bottom = sorted((sheet.y(value), sheet.y(0)))
            sheet.pen.rectangle([left, top, left + max(width - 1, 1), bottom], fill=COLOURS[number % len(COLOURS)])
    return _png(sheet.image)


def pie_chart(chart: Chart) -> bytes:
    """A slice for each label of the first series, with its share."""
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    pen = ImageDraw.Draw(image)
    _write(pen, (WIDTH / 2, 28), chart.title, 20, "mm")
    values = [value or 0.0 for value in chart.series[0][1]]
    whole, start = sum(values), -90.0
    box = (60.0, 80.0, 460.0, 480.0)
    for number, (label, value) in enumerate(zip(chart.labels, values, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        end = start + 360 * value / whole
        if value:
            pen.pieslice(box, start, end, fill=colour, outline=PAPER, width=2)
        y = 90 + number * 26
        pen.rectangle([520, y - 8, 536, y + 8], fill=colour)
        _write(pen, (546, y), f"{label[:32]}  {_number(value)}  ({100 * value / whole:.1f} %)", 14, "lm")
        start = end
    return _png(image)


def _framed(chart: Chart, *, from_zero: bool) -> _Sheet:
    """A page with title, axes, grid, labels and legend."""
    ticks = _ticks([*chart.values, *([0.0] if from_zero else [])])
    sheet = _Sheet(low=ticks[0], high=ticks[-1], count=len(chart.labels))
    pen = sheet.pen
    _write(pen, (WIDTH / 2, 22), chart.title, 20, "mm")
    for tick in ticks:
        pen.line([(LEFT, sheet.y(tick)), (WIDTH - RIGHT, sheet.y(tick))], fill=PALE)
        _write(pen, (LEFT - 8, sheet.y(tick)), _number(tick), 13, "rm")
    pen.line([(LEFT, TOP), (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM)], fill=INK, width=2)
    _write_labels(sheet, chart.labels)
    _write_legend(pen, [name for name, _ in chart.series])
    return sheet


def _write_labels(sheet: _Sheet, labels: Sequence[str]) -> None:
    """As many as fit, evenly left out otherwise."""
    longest = max((len(label[:LETTERS]) for label in labels), default=1)
    room = max(1, int((WIDTH - LEFT - RIGHT) / (8 * longest + 12)))
    every = max(1, math.ceil(len(labels) / room))
    for place in range(0, len(labels), every):
        x, bottom = sheet.x(place), HEIGHT - BOTTOM
        sheet.pen.line([(x, bottom), (x, bottom + 5)], fill=INK)
        _write(sheet.pen, (x, bottom + 18), labels[place][:LETTERS], 13, "mm")


def _write_legend(pen: ImageDraw.ImageDraw, names: Sequence[str]) -> None:
    x = float(LEFT)
    for number, name in enumerate(names):
        pen.rectangle([x, HEIGHT - 38, x + 14, HEIGHT - 24], fill=COLOURS[number % len(COLOURS)])
        _write(pen, (x + 20, HEIGHT - 31), name[:30], 14, "lm")
        x += 40 + pen.textlength(name[:30], font=_font(14))


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers that span the values, about six of them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-12 * max(abs(high), abs(low), 1.0):
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * nice for nice in (1, 2, 2.5, 5, 10) if size * nice >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if sign == 'k' else size):.4g}{sign}"
    return f"{value:.6g}"


def _write(pen: ImageDraw.ImageDraw, at: tuple[float, float], text: str, size: float, anchor: str) -> None:
    line = " ".join(text.split())  # a label may hold line breaks, and the pen takes one line
    pen.text(at, line, fill=INK, font=_font(size), anchor=anchor)


def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _png(image: Image.Image) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()
