"""Whether the control tables know what the feed's output holds; if not, they are not the ones it was written with."""

import logging
from collections.abc import Collection, Iterator

import uuid6

from kafka_ingest.batch import BatchState
from kafka_ingest.boundaries import ControlTables, FeedSnapshot, NewFeed, Sink, Sinks, SinkTarget
from kafka_ingest.errors import FeedChangedError, OutputNotUsableError, OutputUnavailableError, OutputUnknownError
from kafka_ingest.planning.settings import FeedPlanSettings

log = logging.getLogger(__name__)


def check_output_known(feed: FeedSnapshot, settings: FeedPlanSettings, control: ControlTables, sinks: Sinks) -> None:
    """Raise OutputUnknownError where the output holds batches that the control tables do not know, or know as unpublished.

    That is what control tables restored from an older backup look like: going on would write records a second time.
    """
    for target, known in outputs_of(feed, settings, sinks):
        unknown = unknown_batches(feed, known, control)
        if unknown:
            # Looked at again: one of them may have been revoked between the two looks.
            still_there = set(sinks(target).known_batches())
            unknown = [batch_id for batch_id in unknown if batch_id in still_there]
        if not unknown:
            continue
        is_current = target.output_path == settings.output_path
        first = "" if is_current else f"set sink.path to {target.output_path}, as it was, and "
        raise OutputUnknownError(
            f"feed {settings.name}: its output {target.output_path} holds {len(unknown):,} published batches that the control "
            f"tables do not know as published (the newest is {unknown[-1]}). Were the tables restored from an older backup, or "
            "is this another database? Nothing was done: reading on would write records twice. If the output is this feed's, "
            f"rebuild the tables from it: {first}`kafka-ingest adopt {settings.name}` shows how they would change."
        )


def unknown_batches(feed: FeedSnapshot, found: Collection[str], control: ControlTables) -> list[str]:
    """Return which of the batches that were found in an output the control tables do not know as published.

    They are asked after the output: what somebody publishes meanwhile is known to them before it is visible.
    """
    states = {str(batch_id): state for batch_id, state in control.batch_states(feed.feed_id).items()}
    published = {BatchState.COMMITTING, BatchState.COMMITTED}
    return [batch_id for batch_id in found if states.get(batch_id) not in published]


def outputs_of(
    feed: FeedSnapshot, settings: FeedPlanSettings, sinks: Sinks
) -> Iterator[tuple[SinkTarget, Collection[str]]]:
    """Yield the outputs that a feed's batches may lie in, with the ids of those that do."""
    # An open batch keeps its own output, whatever the feed file says now.
    target = feed.open_batch.plan if feed.open_batch is not None else settings
    yield target, sinks(target).known_batches()
    if feed.published_to is not None and feed.published_to.output_path != target.output_path:
        try:
            known = sinks(feed.published_to).known_batches()
        except (OutputUnavailableError, OutputNotUsableError) as error:
            # An output that was left behind may be gone with its storage, and stops nothing.
            log.info("%s", error)
        else:
            yield feed.published_to, known


def check_output(feed: FeedSnapshot | None, settings: FeedPlanSettings, control: ControlTables, sinks: Sinks) -> None:
    """Raise OutputUnknownError where a plan would, whether the control tables know the feed or not."""
    if feed is not None:
        check_output_known(feed, settings, control, sinks)
    else:
        new_feed(settings, control, sinks(settings))


def new_feed(settings: FeedPlanSettings, control: ControlTables, sink: Sink) -> NewFeed:
    """Return the feed's new identity; raises OutputUnknownError where its output holds batches that nobody knows."""
    if known := sink.known_batches():
        if control.feed(settings.name) is not None:
            raise FeedChangedError(
                f"feed {settings.name}: another first plan was faster. Nothing was written; plan again."
            )
        raise OutputUnknownError(
            f"feed {settings.name} is new to the control tables, but its output {settings.output_path} already holds "
            f"{len(known):,} published batches (the newest is {known[-1]}). Reading again would write their records twice. "
            "Is this the right control database? If the feed was renamed: `kafka-ingest rename-feed OLD NEW`. If the tables are "
            f"lost: `kafka-ingest adopt {settings.name}` rebuilds them from the output. Or give the feed another sink.path."
        )
    return NewFeed(uuid6.uuid7(), settings.name)
