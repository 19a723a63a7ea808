"""Geometry of what is drawn: offset bars to scale, batches on a line of time, and columns.

Templates write it down as SVG.

All lengths are in units of the drawing's own ``viewBox``; every shape carries its numbers as text, for its tooltip and
for those who cannot see it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.offsets import Isolation, OffsetRange
from kafka_ingest.model.summaries import BatchLine
from kafka_ingest.observing.feed_status import PartitionStatus

BAR_WIDTH = 1_000
THINNEST = 3
"""What is less wide could not be seen; a gap of one offset is worth seeing."""
PLOT_WIDTH, PLOT_HEIGHT = 600, 110
SPARK_WIDTH, SPARK_HEIGHT = 120, 24


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: ``kind`` names its colour and pattern."""

    kind: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One partition's offsets, or a feed's batches over time, to scale.

    ``stored_x`` is where the stored offset lies, None where it is pending, or there is none.
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


OF_STATE = {BatchState.COMMITTED: "committed", BatchState.ABANDONED: "gap"}
"""Which colour and pattern a batch has that has ended; one that has not is open."""


def timeline(lines: Sequence[BatchLine], now: datetime) -> Bar | None:
    """Return batches where they were planned and ended, on a line from the oldest one's plan to now, by their states.

    None where there are none.
    """
    if not lines:
        return None
    first = min(line.planned_at for line in lines)
    scale = BAR_WIDTH / max(1.0, (now - first).total_seconds())
    segments = []
    for line in sorted(lines, key=lambda each: each.planned_at):
        ended = min(now, line.committed_at or line.updated_at) if line.state in OF_STATE else now
        begin, end = ((at - first).total_seconds() * scale for at in (line.planned_at, max(ended, line.planned_at)))
        took = f"{(ended - line.planned_at).total_seconds():,.0f} s"
        text = f"{line.planned_at:%Y-%m-%d %H:%M} UTC: {line.kind} batch, {line.state.value}, {took}"
        segments.append(Segment(OF_STATE.get(line.state, "open"), *_placed(begin, end), text))
    counts = Counter(line.state.value for line in lines)
    of_states = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    return Bar(tuple(segments), None, f"batches since {first:%Y-%m-%d %H:%M} UTC: {of_states}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a plot: its value, what it means, and which colour and pattern it has."""

    value: float
    text: str
    kind: str = "committed"


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
    """Columns side by side, on a scale that begins at zero and ends at ``top``."""

    columns: tuple[PlacedColumn, ...]
    top: float
    width: int
    height: int


def plot(columns: Sequence[Column], *, width: int = PLOT_WIDTH, height: int = PLOT_HEIGHT) -> Plot | None:
    """Return columns of one width over the whole drawing, oldest first; None where there are none."""
    if not columns:
        return None
    top = _round_number(max(column.value for column in columns)) or 1
    step = width / max(len(columns), 12)
    left = width - step * len(columns)  # the newest at the right
    return Plot(tuple(_columns(columns, left, step, height / top, height)), top, width, height)


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
    """Return the next 1, 2 or 5 with zeros that is not less."""
    if value <= 0:
        return 0
    size = 10.0 ** (len(str(int(value))) - 1)
    return next((factor * size for factor in (1, 2, 5, 10) if factor * size >= value), 10 * size)
