"""Find what is named: a feed by an operator, a batch by an operator or by a task's XCom, which anyone may have set."""

from uuid import UUID

from kafka_ingest.errors import UnknownBatchError, UnknownFeedError
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.ports.control import ControlReader


def known_feed(control: ControlReader, name: str) -> FeedSnapshot:
    """Return a feed's control rows; raises UnknownFeedError where it was never planned."""
    feed = control.feed(name)
    if feed is None:
        raise UnknownFeedError(
            f"expected a feed that was planned before, found {name!r}, which is not in the control tables. Is this the "
            "right control database? `kafka-ingest status` lists its feeds."
        )
    return feed


def batch_of_feed(batch_id: UUID, feed_name: str, control: ControlReader) -> Batch:
    """Return a feed's batch; raises UnknownBatchError where it is another's, or there is none."""
    batch = control.batch(batch_id)
    if batch.feed_name != feed_name:
        raise UnknownBatchError(
            f"expected a batch of feed {feed_name}, found {batch_id}, which is feed {batch.feed_name}'s. Nothing was "
            f"changed. `kafka-ingest batches {feed_name}` lists those of {feed_name}."
        )
    return batch
