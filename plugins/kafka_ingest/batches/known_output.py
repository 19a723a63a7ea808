"""Whether the control tables have every batch of the feed's output; if not, it was written with other tables."""

import logging
from collections.abc import Collection, Iterator
from uuid import UUID

import uuid6

from kafka_ingest.batches.used_output import check_same_root
from kafka_ingest.errors import FeedChangedError, OutputNotUsableError, OutputUnavailableError, OutputUnknownError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sink, Sinks

log = logging.getLogger(__name__)

PUBLISHED = frozenset({BatchState.COMMITTING, BatchState.COMMITTED})

LEAST_ID = UUID(int=0)
"""From which on an output is asked where a feed has few batches: for all of them, as its receipts say."""


def check_newest_known(feed: FeedSnapshot, settings: FeedPlanSettings, control: ControlTables, sinks: Sinks) -> None:
    """Raise as :func:`check_output_known`, for the newest batches and those that are open or were abandoned lately.

    A batch missing from older control tables is newer than all of theirs, or open in them; so a plan need not check
    years of batches, nor read a table, whose receipts say the same. Maintenance checks all of them daily, and so does
    every step of an operator.
    """
    check_output_known(feed, settings, control, sinks, from_id=feed.recent_batch or LEAST_ID)


def check_output_known(
    feed: FeedSnapshot,
    settings: FeedPlanSettings,
    control: ControlTables,
    sinks: Sinks,
    *,
    from_id: UUID | None = None,
) -> None:
    """Raise OutputUnknownError where the output holds batches that the control tables do not have as published.

    Control tables restored from an older backup look like that: continuing would write records a second time.
    """
    since = from_id if from_id != LEAST_ID else None
    for target, known in outputs_of(feed, settings, sinks, from_id):
        unknown = unknown_batches(feed, known, control, sinks(target), since)
        if unknown:
            # Checked again: one of them may have been revoked between the two reads.
            sink = sinks(target)
            still_there = set(sink.publisher.known_batches(from_id))
            unknown = [each for each in unknown if each in still_there or is_older_and_kept(each, sink, since)]
        if not unknown:
            continue
        is_current = target == settings.output
        first = "" if is_current else f"set sink.path to {target}, as it was, and "
        raise OutputUnknownError(
            f"feed {settings.name}: its output {target} holds {counted(len(unknown), 'published batch')} that "
            f"the control "
            f"tables do not know as published (the newest is {unknown[-1]}). Were the tables restored from an older "
            "backup, or is this another database? Nothing was done: reading further would write records twice. If the "
            f"output is this feed's, rebuild the tables from it: {first}`kafka-ingest adopt {settings.name}` shows how "
            "they would change."
        )


def unknown_batches(
    feed: FeedSnapshot, found: Collection[str], control: ControlTables, sink: Sink, since: UUID | None
) -> list[str]:
    """Return which of the batches found in an output the control tables do not have as published, oldest first.

    The tables are read after the output: a batch published in between is in them before it is visible.
    """
    states = {str(batch_id): state for batch_id, state in control.batch_states(feed.feed_id, since).items()}
    older = [
        batch_id
        for batch_id, state in sorted(states.items())
        if state not in PUBLISHED and is_older_and_kept(batch_id, sink, since)
    ]
    return older + [batch_id for batch_id in found if states.get(batch_id) not in PUBLISHED]


def is_older_and_kept(batch_id: str, sink: Sink, since: UUID | None) -> bool:
    """Whether a batch older than the checked ones was published."""
    return since is not None and UUID(batch_id) < since and sink.archive.is_kept(UUID(batch_id))


def outputs_of(
    feed: FeedSnapshot, settings: FeedPlanSettings, sinks: Sinks, from_id: UUID | None
) -> Iterator[tuple[OutputLocation, Collection[str]]]:
    """Yield the outputs that may hold batches of a feed, with the ids of those that do, from an id on."""
    # An open batch keeps its own output, whatever the feed file says now.
    target = feed.open_batch.plan.output if feed.open_batch is not None else settings.output
    yield target, sinks(target).publisher.known_batches(from_id)
    if feed.published_to is not None and feed.published_to != target:
        try:
            known = sinks(feed.published_to).publisher.known_batches(from_id)
        except (OutputUnavailableError, OutputNotUsableError) as error:
            # A former output may be gone with its storage; that stops nothing.
            log.info("%s", error)
        else:
            yield feed.published_to, known


def check_output(feed: FeedSnapshot | None, settings: FeedPlanSettings, control: ControlTables, sinks: Sinks) -> None:
    """Raise OutputUnknownError or OutputElsewhereError where a plan would, whether or not the feed is known."""
    if feed is not None:
        check_output_known(feed, settings, control, sinks)
        check_same_root(feed, settings.output, settings.relative_path, control, sinks)
    else:
        new_feed(settings, control, sinks(settings.output))


def new_feed(settings: FeedPlanSettings, control: ControlTables, sink: Sink) -> NewFeed:
    """Return the feed's new identity; raises OutputUnknownError where its output already holds batches."""
    if known := sink.publisher.known_batches():
        if control.feed(settings.name) is not None:
            raise FeedChangedError(
                f"feed {settings.name}: another first plan was faster. Nothing was written; plan again."
            )
        raise OutputUnknownError(
            f"feed {settings.name} is new to the control tables, but its output {settings.output} already holds "
            f"{counted(len(known), 'published batch')} (the newest is {known[-1]}). Reading again would write "
            f"their records "
            "twice. Is this the right control database? If the feed was renamed: `kafka-ingest rename-feed OLD NEW`. "
            f"If the tables are lost: `kafka-ingest adopt {settings.name}` rebuilds them from the output. Or give the "
            "feed another sink.path."
        )
    return NewFeed(uuid6.uuid7(), settings.name)
