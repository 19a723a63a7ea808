"""Geometry of what is drawn: offset bars to scale, and columns with their axes.

Templates write it down as SVG.

All lengths are in units of the drawing's own ``viewBox``; every shape carries its numbers as text, for its tooltip and
for those who cannot see it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.model.offsets import Isolation, OffsetRange
from kafka_ingest.observing.feed_status import PartitionStatus

BAR_WIDTH = 1_000
THINNEST = 3
"""What is less wide could not be seen; a gap of one offset is worth seeing."""
PLOT_WIDTH, PLOT_HEIGHT = 600, 110
SPARK_WIDTH, SPARK_HEIGHT = 120, 24
FEWEST = 12
"""Fewer columns are as narrow as these would be, the newest at the right."""
FEW = 6
"""The times of fewer columns would overlap."""


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A time on the axis below a drawing, at so many percent of its width."""

    percent: float
    at: datetime

    @property
    def anchor(self) -> str:
        """Which end of its text is there: no text leaves the drawing."""
        return "start" if self.percent < 20 else "end" if self.percent > 80 else "middle"  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: ``kind`` names its colour and pattern."""

    kind: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One partition's offsets, to scale.

    ``stored_x`` is where the stored offset is, None where it is pending, or there is none.
    """

    segments: tuple[Segment, ...]
    stored_x: float | None
    text: str


def offset_bar(status: PartitionStatus, pending: OffsetRange | None) -> Bar | None:
    """Return a partition's bar, from the log's start, or the stored offset where that is less, to the log's end.

    ``pending`` is what its open batch reads. None where nothing is known that has a length.
    """
    stored, bounds = status.stored.next_offset, status.bounds
    known = [offset for offset in (stored, pending.end_offset if pending else None) if offset is not None]
    if bounds is not None:
        known += [bounds.log_start_offset, bounds.high_watermark]
    elif status.stored.first_offset is not None:
        known.append(status.stored.first_offset)
    if not known or min(known) == max(known):
        return None
    low, high = min(known), max(known)
    parts: list[tuple[str, int, int, str]] = []
    if stored is not None:
        parts.append(("committed", low, stored, "committed"))
    if bounds is not None:
        begin = bounds.log_start_offset if stored is None else max(stored, bounds.log_start_offset)
        if stored is not None:
            parts.append(("lost", stored, bounds.log_start_offset, "deleted by Kafka before they were read"))
        parts.append(("unread", begin, bounds.readable_end(status.isolation), "to be read"))
        if status.isolation is Isolation.READ_COMMITTED:
            held_back = max(begin, bounds.last_stable_offset)
            parts.append(("transaction", held_back, bounds.high_watermark, "behind an open transaction"))
    if pending is not None:
        parts.append(("open", pending.start_offset, pending.end_offset, "in the open batch"))
    parts += [
        ("gap", gap.offset_range.start_offset, gap.offset_range.end_offset, f"gap: {gap.cause.value}")
        for gap in status.gaps
    ]
    scale = BAR_WIDTH / (high - low)
    segments = tuple(
        Segment(kind, *_placed((start - low) * scale, (end - low) * scale), f"{start:,} to {end:,} {what}")
        for kind, first, last, what in parts
        for start, end in [(max(first, low), min(last, high))]
        if start < end
    )
    texts = [f"{status.stored.topic_partition}: {segment.text}" for segment in segments[:1]]
    texts += [segment.text for segment in segments[1:]]
    return Bar(segments, None if stored is None else round((stored - low) * scale, 1), "; ".join(texts))


def _placed(start: float, end: float) -> tuple[float, float]:
    width = max(end - start, THINNEST)
    return round(min(start, BAR_WIDTH - width), 1), round(width, 1)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a plot: its value, what it means, which colour and pattern it has, and its place in time."""

    value: float
    text: str
    kind: str = "committed"
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column where it is drawn."""

    x: float
    y: float
    width: float
    height: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Columns side by side, on a scale that begins at zero and ends at ``top``; ``times`` are those of some of them."""

    columns: tuple[PlacedColumn, ...]
    top: float
    width: int
    height: int
    times: tuple[TimeMark, ...] = ()


def plot(columns: Sequence[Column], *, width: int = PLOT_WIDTH, height: int = PLOT_HEIGHT) -> Plot | None:
    """Return columns of one width over the whole drawing, oldest first; None where there are none."""
    if not columns:
        return None
    top = _round_number(max(column.value for column in columns)) or 1
    step = width / max(len(columns), FEWEST)
    left = width - step * len(columns)  # the newest at the right
    placed = tuple(_columns(columns, left, step, height / top, height))
    marked = sorted({0, len(columns) // 2, len(columns) - 1} if len(columns) > FEW else {len(columns) - 1})
    times = tuple(
        TimeMark(round(100 * (placed[number].x + placed[number].width / 2) / width, 1), at)
        for number in marked
        if (at := columns[number].at) is not None
    )
    return Plot(placed, top, width, height, times)


def _columns(columns: Iterable[Column], left: float, step: float, scale: float, height: int) -> Iterable[PlacedColumn]:
    for number, column in enumerate(columns):
        tall = max(column.value * scale, 1.0 if column.value else 0.0)
        yield PlacedColumn(
            round(left + number * step + step * 0.1, 1),
            round(height - tall, 1),
            round(step * 0.8, 1),
            round(tall, 1),
            column.text,
            column.kind,
        )


def _round_number(value: float) -> float:
    if value <= 0:
        return 0
    size = 10.0 ** (len(str(int(value))) - 1)
    return next((factor * size for factor in (1, 2, 5, 10) if factor * size >= value), 10 * size)
