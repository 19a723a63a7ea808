"""Whether an output is the one that batches were published in, or only a folder in its place while its storage is away."""

from uuid import UUID

from kafka_ingest.batch import BatchKind
from kafka_ingest.boundaries import ControlReader, Output, Sinks, SinkTarget
from kafka_ingest.errors import OutputUnavailableError


def check_output_there(feed_id: UUID, target: SinkTarget, control: ControlReader, sinks: Sinks) -> None:
    """Raise OutputUnavailableError where the output lacks the receipt of the feed's newest committed batch of a kind.

    What would be made in the place of a mount would be invisible, and records with it, once the storage is back; what is
    missing there says nothing about files. Receipts are kept for ever, so an output that was used always has this one.
    """
    for kind in BatchKind:
        newest = control.newest_published(feed_id, kind)
        if newest is None or newest.output != Output(target.sink_format, target.output_path):
            continue
        if sinks(target).is_kept(newest.batch_id):
            continue
        raise OutputUnavailableError(
            f"{target.output_path} is not the output that batch {newest.batch_id} was published in: its receipt is not beside "
            "it. Is the storage mounted? Nothing was read, written or moved; run this again once it is. If it is gone for good, "
            "give the feed another sink.path; an open batch is ended by `kafka-ingest abandon BATCH --lost-output --reason …`."
        )
