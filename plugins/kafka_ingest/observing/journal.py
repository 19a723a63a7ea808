"""The history of a feed: its audit journal, in words and as old → new. Each kind of event has its function."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import Event, Gap, GapCause
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.ports.control import ControlObserver

Detail = Mapping[str, Any]

MOVES_ALWAYS = frozenset({GapCause.SKIPPED, GapCause.BEHIND})
"""Causes of gaps over which the stored offset moved, where they are applied."""


@dataclass(frozen=True, slots=True)
class Change:
    """One partition's stored offset before and after; None where it had, or has, none, or its start is pending."""

    topic_partition: TopicPartition
    was: int | None
    becomes: int | None

    def __str__(self) -> str:
        if self.was is None:
            return f"{self.topic_partition} begins at {offset(self.becomes)}"
        return f"{self.topic_partition}: {offset(self.was)} → {offset(self.becomes)}"


@dataclass(frozen=True, slots=True)
class EventText:
    """An event in words; ``changes`` are the stored offsets that it is known to have moved, started or ended."""

    summary: str
    changes: tuple[Change, ...] = ()
    reason: str | None = None


def format_event(event: Event) -> EventText:
    """Return an event in words; an unknown kind, or another version's form, is shown as its JSON."""
    formatter = FORMATTERS.get(event.kind)
    reason = event.detail.get("reason")
    # One of another form was written by another version, or by hand.
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        if formatter is not None:
            text = formatter(event.detail)
            return text if text.reason is not None else EventText(text.summary, text.changes, reason)
    return EventText(json.dumps(dict(event.detail), ensure_ascii=False, default=str), reason=reason)


def seeded(detail: Detail) -> EventText:
    rows = sorted(detail["partitions"], key=lambda row: row["rule"])
    changes = [Change(place(row), None, row["offset"]) for row in rows]
    begin = []
    for rule, of_rule in groupby(rows, key=lambda row: row["rule"]):
        texts = listing(f"{place(row)} → {offset(row['offset'])}" for row in of_rule)
        begin.append(f"by start rule {rule}: {texts}")
    return EventText("; ".join(begin), tuple(changes))


def gaps_filed(detail: Detail) -> EventText:
    """Describe which offsets were passed over, or will be, and which stored offsets that moved.

    Retention's gaps do not say whether any moved: a backfill also files gaps for deleted records. A reset has its own
    event.
    """
    gaps = gaps_in(detail)
    ahead = [gap for gap in gaps if gap.applied_at is None]
    moves = [gap for gap in gaps if gap.applied_at is not None and gap.cause in MOVES_ALWAYS]
    others = [gap for gap in gaps if gap.applied_at is not None and gap.cause not in MOVES_ALWAYS]
    changes = [
        Change(gap.offset_range.topic_partition, gap.offset_range.start_offset, gap.offset_range.end_offset)
        for gap in moves
    ]
    parts = [
        f"passed over: {listing(f'{change} ({gap.cause})' for change, gap in zip(changes, moves, strict=True))}",
        f"not ingested: {listing(f'{gap.offset_range} ({gap.cause})' for gap in others)}",
        f"ahead of the stored offset: {listing(f'{gap.offset_range} ({gap.cause})' for gap in ahead)}",
    ]
    lost_files = (
        f"{entry['file']} of batch {entry['batch_id']}, {counted(entry['rows'], 'row')}"
        for entry in detail.get("lost", ())
    )
    parts.append(f"lost: {listing(lost_files)}")
    why = detail.get("reason") or reasons(gaps)
    return EventText("; ".join(part for part in parts if not part.endswith(": ")), tuple(changes), why)


def gaps_closed(detail: Detail) -> EventText:
    gaps = gaps_in(detail)
    return EventText(
        f"read after all: {listing(gap.offset_range for gap in gaps)}{more(detail, 'gaps')}", reason=reasons(gaps)
    )


def reset(detail: Detail) -> EventText:
    """Describe how stored offsets were moved, started and ended, and under which topic ids and cluster."""
    was = {place(row): row for row in detail["removed"]}
    now = {place(row): row for row in detail["partitions"]}
    ended = [Change(tp, was[tp]["next_offset"], None) for tp in sorted(was.keys() - now.keys())]
    changes = [Change(tp, was[tp]["next_offset"] if tp in was else None, now[tp]["next_offset"]) for tp in sorted(now)]
    moved = [change for change in changes if change.was != change.becomes]
    kept = len(changes) - len(moved)
    ids = sorted(
        {
            f"{tp.topic}: topic id {was[tp]['topic_id']} → {now[tp]['topic_id']}"
            for tp in was.keys() & now.keys()
            if was[tp]["topic_id"] != now[tp]["topic_id"]
        }
    )
    cluster = detail["cluster_id"]
    parts = [
        listing(moved),
        listing(f"{change.topic_partition} ends at {offset(change.was)}" for change in ended),
        f"{counted(kept, 'partition')} {'keeps its offset' if kept == 1 else 'keep their offsets'}" if kept else "",
        listing(ids),
        f"cluster {cluster['was']} → {cluster['is']}" if cluster["was"] != cluster["is"] else "",
    ]
    return EventText("; ".join(part for part in parts if part), (*moved, *ended))


def adopted(detail: Detail) -> EventText:
    """Describe what was adopted from the output; the stored offsets before it are not on record."""
    rows = listing(f"{place(row)} → {offset(row['next_offset'])}" for row in detail["partitions"])
    parts = [
        f"{count_of(detail, 'batches'):,} of the output's batches taken over",
        f"stored offsets {rows}{more(detail, 'partitions')}" if rows else "",
        f"ended {listing(detail['removed'])}{more(detail, 'removed')}" if detail["removed"] else "",
        f"open batch {detail['abandoned']} → ABANDONED" if detail["abandoned"] else "",
        files_not_there(detail.get("files", {})),
    ]
    return EventText("; ".join(part for part in parts if part))


def files_not_there(files: Mapping[str, str]) -> str:
    states = sorted(set(files.values()))
    return "; ".join(f"{state}: {listing(sorted(one for one in files if files[one] == state))}" for state in states)


def expired(detail: Detail) -> EventText:
    return EventText(
        f"{counted(len(detail['batches']), 'batch')} removed from the output: {listing(detail['batches'])}"
    )


def cleaned(detail: Detail) -> EventText:
    attempts = detail["attempts"]
    gone = sum(attempt["size_bytes"] for attempt in attempts)
    which = listing(f"attempt {attempt['attempt']}" for attempt in attempts)
    return EventText(f"staged output of {which}{more(detail, 'attempts')} removed, {gone / 1e6:,.1f} MB")


def backfill_planned(detail: Detail) -> EventText:
    count, request = count_of(detail, "chunks"), detail["request"]
    asked = [
        f"{key} {plain(value)}"
        for key, value in request.items()
        if key not in {"feed", "reason"} and value not in (None, [], {})
    ]
    planned = f"{count:,} {'chunk' if count == 1 else 'chunks'} planned"
    return EventText(": ".join(part for part in (planned, ", ".join(asked)) if part), reason=request.get("reason"))


FORMATTERS: Mapping[str, Callable[[Detail], EventText]] = {
    "seeded": seeded,
    "gap": gaps_filed,
    "gap_closed": gaps_closed,
    "gap_acknowledged": lambda detail: EventText(f"{Gap.from_document(detail['gap']).offset_range} stays a gap"),
    "reset": reset,
    "abandoned": lambda detail: EventText(f"{detail['was']} → ABANDONED"),
    "attempts_discarded": lambda detail: EventText(
        f"WRITTEN → PLANNED; attempt {detail['attempt']} and all before it DISCARDED"
    ),
    "receipt_refused": lambda detail: EventText(f"attempt {detail['attempt']}: its receipt is not used"),
    "no_dates": lambda detail: EventText(
        f"timestamps that are no dates: {counted(detail['rows'], 'record')} with kafka_timestamp null and the "
        f"number in "
        "kafka_timestamp_ms"
    ),
    "ranges_left_out": lambda detail: EventText(
        f"not read: {listing(map(LeftOut.from_document, detail['ranges']))}{more(detail, 'ranges')}",
        reason="Kafka had deleted records of them",
    ),
    "receipt_accepted": lambda detail: EventText(f"PLANNED → WRITTEN by attempt {detail['attempt']}"),
    "mirror_failed": lambda detail: EventText(f"consumer group {detail['group']} was not moved"),
    "adopted": adopted,
    "renamed": lambda detail: EventText(f"{detail['was']} → {detail['is']}"),
    "output_changed": lambda detail: EventText(f"{detail['was']['path']} → {detail['is']['path']}"),
    "cleaned": cleaned,
    "expired": expired,
    "statistics_mended": lambda detail: EventText(
        f"readers look for the bounds of {listing(detail['named'])}{more(detail, 'named')}; files lacked those of "
        f"{listing(detail['lacking'])}{more(detail, 'lacking')}"
    ),
    "dead_letters_given_up": lambda detail: EventText(
        f"{counted(detail['records'], 'dead letter')} {were(detail['records'])} given up"
    ),
    "folded": lambda detail: EventText(
        f"{counted(detail['batches'], 'batch')} committed before {detail['before'][:10]}: "
        f"{counted(detail['ranges'], 'range')} and "
        f"{counted(detail['attempts'], 'attempt')} became sums, {counted(detail['events'], 'line')} of the "
        f"journal {were(detail['events'])} removed"
    ),
    "restored": lambda detail: EventText(f"its staged records were restored by {listing(detail['into'])}"),
    "backfill_planned": backfill_planned,
}
"""Every kind of event that is written; a test compares them with the code."""


def left_out(detail: Detail, name: str) -> int:
    return int(detail.get("left_out", {}).get(name, 0))


def count_of(detail: Detail, name: str) -> int:
    return len(detail[name]) + left_out(detail, name)


def more(detail: Detail, name: str) -> str:
    return f", and {missing:,} that the journal does not name" if (missing := left_out(detail, name)) else ""


def place(row: Detail) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def gaps_in(detail: Detail) -> list[Gap]:
    return [Gap.from_document(document) for document in detail["gaps"]]


def reasons(gaps: Iterable[Gap]) -> str:
    return listing(dict.fromkeys(gap.reason for gap in gaps))


def offset(value: int | None) -> str:
    return "pending" if value is None else f"{value:,}"


def plain(value: object) -> str:
    if isinstance(value, list):
        return listing(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One event, and its text."""

    event: Event
    text: EventText

    def as_document(self) -> dict[str, Any]:
        event, text = self.event, self.text
        return {
            **document_of(event, "event_id", "kind", "at", "batch_id"),
            "who": event.actor,
            **document_of(text, "reason", "summary"),
            "changes": [
                document_of(change, "topic_partition", "was") | {"is": change.becomes} for change in text.changes
            ],
            "detail": dict(event.detail),
        }


def history(
    control: ControlObserver,
    feed_id: UUID,
    *,
    kinds: Collection[str] = (),
    since: datetime | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[HistoryLine]:
    """Return a feed's events, newest first; raises WrongUseError on a kind that is never written.

    ``before`` is the number of an event: only older ones.
    """
    if unknown := sorted(set(kinds) - FORMATTERS.keys()):
        raise WrongUseError(f"--kind: expected one of {', '.join(sorted(FORMATTERS))}; found {', '.join(unknown)}")
    return [
        HistoryLine(event, format_event(event))
        for event in control.journal(feed_id, kinds=kinds, since=since, before=before, limit=limit)
    ]
