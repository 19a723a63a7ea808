"""What Kafka is asked for the view of all feeds."""

from pathlib import Path
from uuid import UUID

from tests.fakes import FakeKafkaCluster, topic

from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ask_logs
from kafka_ingest.page.all_feeds import rows_of
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

BOUNDS = LogBounds(0, 30, 30)


def test_records_are_asked_for_of_partitions_alone_that_kafka_has_answered_about() -> None:
    """One question is about all feeds that are shown: a topic without the right to see it would fail it."""
    read = {name: TopicPartition(name, 0) for name in ("gone", "hidden", "orders", "silent")}
    stored = {tp: StoredOffset(tp, "id-1", 0, 10, "earliest") for tp in read.values()}
    overview = FeedOverview(
        feed_id=UUID(int=1), name="shop", cluster_id="cluster-a", topics=list(read), stored=stored, rows_committed=0
    )
    bounds = {"hidden": BOUNDS, "orders": BOUNDS, "silent": Unavailable("no leader")}
    topics = {name: topic(each, topic_id="id-1") for name, each in bounds.items()}
    kafka = FakeKafkaCluster(topics, cluster_id="cluster-a")
    kafka.denied = {"hidden"}
    logs = ask_logs(kafka, stored)
    settings = {
        "name": "shop",
        "kafka": {"conn_id": "kafka_shop", "topics": list(read), "group": "shop"},
        "sink": {"format": "parquet", "path": "/data/shop"},
    }
    files = {"shop": FeedFile(Path("shop.yaml"), Feed.model_validate(settings))}
    found = rows_of({"shop": overview}, files, {"kafka_shop": Answer(logs)})
    isolation, rows = found["kafka_shop"]["shop"]
    assert isolation is Isolation.READ_COMMITTED
    assert [row.topic_partition for row in rows] == [read["orders"]]
