"""Whether an output is the feed's: the one that its batches were published in, and with no batch but theirs.

It may be an empty mount point while its storage is away, or of the same relative path below another root: a shell may
have another KAFKA_INGEST_DATA than the tasks. Batches that the control tables do not have were written with others.
"""

import contextlib
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from uuid import UUID

import uuid6

from kafka_ingest.errors import (
    FeedChangedError,
    OutputElsewhereError,
    OutputNotUsableError,
    OutputUnavailableError,
    OutputUnknownError,
    UnknownBatchError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed, PublishedBatch
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import ControlReader, ControlTables
from kafka_ingest.ports.outputs import Sink, Sinks


def check_output_there(
    feed_id: UUID, target: OutputLocation, control: ControlReader, sinks: Sinks, *, is_planned: bool = False
) -> None:
    """Raise OutputUnavailableError where the output lacks the receipt of the feed's newest committed batch of a kind.

    ``is_planned``: a batch is to be planned there, so its folders have to be those of the newest one, too.

    Whatever was created in an empty mount point would be hidden, records included, once the storage is mounted again;
    and files missing there prove nothing. Receipts are kept permanently, so an output that was used always has this
    one.
    """
    # One that replaces rows, or replays dead letters, does so in an output that has another kind of batch, too.
    published = control.newest_of_kinds(feed_id)
    for kind in (BatchKind.LIVE, BatchKind.BACKFILL, BatchKind.COPY):
        newest = published.get(kind)
        if newest is None or newest.output != target:
            continue
        sink = sinks(target)
        if sink.archive.is_kept(newest.batch_id):
            check_in_database_or_topic(newest.batch_id, target, sink)
            if is_planned:
                check_same_folders(newest, target)
            continue
        raise OutputUnavailableError(
            f"{target} is not the output that batch {newest.batch_id} was published in: its receipt is not beside it. "
            "Is the storage mounted? Nothing was read, written or moved; run this again once it is. If the storage is "
            "lost, give the feed another sink.path; an open batch is ended by `kafka-ingest abandon BATCH "
            "--lost-output --reason …`."
        )


def check_in_database_or_topic(batch_id: UUID, target: OutputLocation, sink: Sink) -> None:
    """Raise OutputUnavailableError where the rows are in a database or a topic, and that lacks a batch."""
    # One that an `adopt` found gone was noted as removed.
    if sink.lacks is not None and (why := sink.lacks(batch_id)) and sink.archive.removal(batch_id) is None:
        raise OutputUnavailableError(
            f"{target} is not the output that batch {batch_id} was published in: {why}. Nothing was read, written or "
            "moved."
        )


def check_same_folders(newest: PublishedBatch, target: OutputLocation) -> None:
    """Raise OutputNotUsableError where a batch would have other folders in a directory than the newest one has.

    DuckDB refuses to read both by the names of their folders; tables say themselves how they are partitioned.
    """
    before, now = (TableOptions.of(dict(each.options)).partition_by for each in (newest.output, target))
    if before != now and any(term.name for term in (*before, *now)):
        had, asked = ("; ".join(map(str, terms)) or "nothing" for terms in (before, now))
        raise OutputNotUsableError(
            f"expected sink.partition_by as batch {newest.batch_id} in {target} has it, {had}, found {asked}: readers "
            "could not take the folders of both for columns. Nothing was written or moved; set it as it was, or give "
            "the feed another sink.path."
        )


def check_same_root(
    feed: FeedSnapshot, target: OutputLocation, relative_path: Path | None, control: ControlReader, sinks: Sinks
) -> None:
    """Raise OutputElsewhereError where a feed's relative output would be split over two roots.

    An edited path is intended, and so is an absolute one. The same relative path below another root means another
    environment, unless it is the same storage under another name: then the newest batch's receipt is there.
    """
    was = feed.published_to or target
    if relative_path is None or was == target or not was.uri.endswith(f"/{relative_path}"):
        return
    newest = control.newest_published(feed.feed_id)
    if newest is None or sinks(target).archive.is_kept(newest.batch_id):
        return
    root = was.uri.removesuffix(f"/{relative_path}") or "/"
    raise OutputElsewhereError(
        f"sink.path {str(relative_path)!r} leads to {target} here, but the feed's newest batch, {newest.batch_id}, was "
        f"published in {was}: does KAFKA_INGEST_DATA differ between here and the tasks'? Nothing was read, written or "
        f"moved. Set KAFKA_INGEST_DATA={root} as there. If the output is to continue at the new place, set it in the "
        f"feed file: sink.path: {target}."
    )


log = logging.getLogger(__name__)

PUBLISHED = frozenset({BatchState.COMMITTING, BatchState.COMMITTED})

LEAST_ID = UUID(int=0)
"""From which on an output is asked where a feed has few batches: for all of them, as its receipts say."""


def check_newest_known(
    feed: FeedSnapshot, settings: FeedPlanSettings, control: ControlTables, sinks: Sinks, *, actor: str | None = None
) -> None:
    """Raise as :func:`check_output_known`, for the newest batches and those that are open or were abandoned lately.

    A batch missing from older control tables is newer than all of theirs, or open in them; so a plan need not check
    years of batches, nor read a table, whose receipts say the same. Maintenance checks all of them daily, and so does
    every step of an operator.
    """
    check_output_known(feed, settings, control, sinks, from_id=feed.recent_batch or LEAST_ID, actor=actor)


def check_output_known(
    feed: FeedSnapshot,
    settings: FeedPlanSettings,
    control: ControlTables,
    sinks: Sinks,
    *,
    from_id: UUID | None = None,
    actor: str | None = None,
) -> None:
    """Raise OutputUnknownError where the output holds batches that the control tables do not have as published.

    Control tables restored from an older backup look like that: continuing would write records a second time. Not so
    where their database was the output's, too, and has lost both: an actor ends such batches.
    """
    since = from_id if from_id != LEAST_ID else None
    for target, known in outputs_of(feed, settings, sinks, from_id):
        unknown = unknown_batches(feed, known, control, sinks(target), since)
        if unknown:
            # Checked again: one of them may have been revoked between the two reads.
            sink = sinks(target)
            still_there = set(sink.publisher.known_batches(from_id))
            unknown = [each for each in unknown if each in still_there or is_older_and_kept(each, sink, since)]
            lost = lost_with_tables(unknown, feed.feed_id, target, control, sinks, actor)
            unknown = [each for each in unknown if each not in lost]
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


def lost_with_tables(
    batch_ids: Collection[str],
    feed_id: UUID,
    target: OutputLocation,
    control: ControlTables,
    sinks: Sinks,
    actor: str | None,
) -> set[str]:
    """Return which of a feed's batches only receipts know: one database lost rows and offsets. An actor ends them."""
    sink = sinks(target)
    if not batch_ids or sink.lost is None or sink.in_transaction is None or not sink.in_transaction(control.are_in):
        return set()
    kept = [found for each in batch_ids if (found := sink.archive.published_receipt(UUID(each))) is not None]
    its = (each.plan for each in kept if (each.plan.feed_id, each.plan.output) == (feed_id, target))
    lost = sink.lost({str(plan.batch_id) for plan in its}, None)
    # One that was open when the copy was made is published by its next commit, with the same receipt.
    ended = {each for each in lost if not is_open(UUID(each), control)}
    return lost if actor is None else sink.lost(ended, actor) | (lost - ended)


def is_open(batch_id: UUID, control: ControlTables) -> bool:
    """Whether the control tables know a batch that has not ended."""
    with contextlib.suppress(UnknownBatchError):
        return control.batch(batch_id).state.is_open
    return False


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
