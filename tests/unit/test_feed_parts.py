"""What the parts of a feed are made of."""

import gc
import weakref
from pathlib import Path
from typing import Any

from kafka_ingest.assembly import FeedParts
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.feed import Feed


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
