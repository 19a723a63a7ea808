"""Whether a feed's open batch was written and refused: it stays open until the feed file or the records are mended."""

from collections.abc import Mapping

from kafka_ingest.assembly import assemble
from kafka_ingest.errors import RefusedBatchError
from kafka_ingest.observing import feed_status
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed import Feed


def open_batch(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return the state of the feed's open batch; raises RefusedBatchError where what was written of it was refused."""
    control = assemble(feed, find_connection, environment).control
    known = control.feed(feed.name)
    found = feed_status.open_batch(known, control) if known is not None else None
    if found is None:
        return "none"
    if found["discarded"] is not None:
        raise RefusedBatchError(f"it was written, and is {found['state']} again: {found['discarded']}")
    return f"{found['batch_id']} is {found['state']}"
