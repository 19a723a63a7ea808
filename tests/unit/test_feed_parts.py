"""What the parts of a feed are made of."""

import gc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FeedInMemory, feed_settings

from kafka_ingest.assembly import FeedParts
from kafka_ingest.errors import UnknownBatchError, WrongUseError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.feed import Feed
from kafka_ingest.write_step import write_batch


def not_asked(conn_id: str) -> ConnectionFields:
    raise WrongUseError(conn_id)


def test_a_feeds_kafka_client_ends_with_its_parts_and_not_with_a_garbage_collection(tmp_path: Path) -> None:
    """librdkafka ends the process, or crashes, where a collection in one of its own threads closes a client."""
    document: dict[str, Any] = {
        "name": "orders",
        "kafka": {"topics": ["orders"]},
        "sink": {"format": "parquet", "path": str(tmp_path / "orders")},
    }
    gc.disable()
    try:
        parts = FeedParts(Feed.model_validate(document), None, not_asked, {})
        kafka = weakref.ref(parts.kafka)
        del parts
        assert kafka() is None
    finally:
        gc.enable()


def test_a_batch_of_another_feed_is_neither_written_nor_committed_in_this_ones_name(tmp_path: Path) -> None:
    """The id comes from an XCom, which anyone who may write one can set; the group of this feed would be moved."""
    theirs = FeedInMemory(settings=feed_settings(name="refunds"))
    batch_id = theirs.written().batch_id
    document = {
        "name": "orders",
        "kafka": {"topics": ["orders"], "group": "mine"},
        "sink": {"format": "parquet", "path": str(tmp_path)},
    }
    parts: Any = FeedParts(Feed.model_validate(document), theirs.control, not_asked, {})
    write = partial(write_batch, parts, submit=None)
    for task in (write, parts.commit):
        with pytest.raises(
            UnknownBatchError, match=f"expected a batch of feed orders, found {batch_id}, which is feed re"
        ):
            task(batch_id, actor="airflow:orders/manual__1")
    with pytest.raises(UnknownBatchError):
        parts.batch(batch_id)
    assert theirs.control.batch(batch_id).state is BatchState.WRITTEN
