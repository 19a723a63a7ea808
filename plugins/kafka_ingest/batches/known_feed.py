"""Find the feed that an operator names."""

from kafka_ingest.errors import UnknownFeedError
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
