"""Whether an output is the one that batches were published in, or an empty mount point while its storage is away.

Or an output of the same relative path below another root: a shell may have another KAFKA_INGEST_DATA than the tasks.
"""

from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import OutputElsewhereError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.control_rows import FeedSnapshot, PublishedBatch
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.ports.control import ControlReader
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
            check_known_elsewhere(newest.batch_id, target, sink)
            if is_planned:
                check_same_folders(newest, target)
            continue
        raise OutputUnavailableError(
            f"{target} is not the output that batch {newest.batch_id} was published in: its receipt is not beside it. "
            "Is the storage mounted? Nothing was read, written or moved; run this again once it is. If the storage is "
            "lost, give the feed another sink.path; an open batch is ended by `kafka-ingest abandon BATCH "
            "--lost-output --reason …`."
        )


def check_known_elsewhere(batch_id: UUID, target: OutputLocation, sink: Sink) -> None:
    """Raise OutputUnavailableError where the rows are not at the output's place, and what has them lacks a batch."""
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
