"""A feed whose output is another topic, by the command line: each record once for readers of what is committed."""

import json
from itertools import islice
from typing import Any

import pytest
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.kafka_faults import Record
from tests.kafka_faults import produce as produce_plain
from tests.kafka_outputs import committed_records, make_topic
from tests.quick_project import QuickProject

from order_events import PARTITIONS, order_events, produce


@pytest.fixture
def output(quick: QuickProject, servers: str, topic: str) -> str:
    """The output topic of the project's feed, with as many partitions as the one it reads."""
    name = f"{topic}-clean"
    make_topic(servers, name, partitions=PARTITIONS)
    extra = {"bootstrap.servers": servers}
    quick.environment["AIRFLOW_CONN_KAFKA_OTHER"] = json.dumps({"conn_type": "kafka", "extra": extra})
    quick.write_feed(topic, sink={"format": "kafka", "path": "orders", "conn_id": "kafka_other", "topic": name})
    return name


def comparable(topic: str) -> list[tuple[Any, ...]]:
    return [
        (each.partition(), each.key(), each.value(), each.headers() or [], each.timestamp()[1])
        for each in committed_records(topic)
    ]


def test_each_record_is_in_the_other_topic_once_with_all_that_it_had_in_the_order_of_its_partition(
    quick: QuickProject, servers: str, topic: str, output: str
) -> None:
    events = list(order_events(2_000, seed=11))
    produce(servers, topic, islice(events, 1_000))
    assert [batch["rows"] for batch in quick.run()] == [1_000]
    produce(servers, topic, events[1_000:])
    odd = Record(None, b"a key", timestamp_ms=1, headers=(("a", b"\xff"), ("a", b"")))
    produce_plain(servers, topic, 0, [odd])
    assert [batch["rows"] for batch in quick.run()] == [1_001]
    assert quick.run() == []
    assert comparable(output) == comparable(topic)
    assert len(comparable(output)) == 2_001
    of_topic = ("verify", str(quick.output / "orders"), "--cluster", "kafka_other", "--output-topic", output)
    alone = quick.answer(*of_topic)
    assert (alone["sound"], alone["output_topic"]) == (True, output)
    assert sum(each["rows"] for each in alone["partitions"]) == 2_001

    # Lost control tables are made again from the receipts and the marks.
    before = quick.stored_offsets()
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert (quick.stored_offsets(), quick.run()) == (before, [])


@pytest.mark.usefixtures("output")
def test_what_a_topic_cannot_do_is_refused_by_name(quick: QuickProject, servers: str, topic: str) -> None:
    produce(servers, topic, order_events(20, seed=11))
    [batch] = quick.run()
    batch_id = batch["batch_id"]
    for command in (
        ("expire", "orders", "--before", "2100-01-01"),
        ("coverage", "orders", "--verify"),
        ("lost", "orders", "--batch", batch_id),
        ("backfill", "orders", f"batch={batch_id}", "--when", "overlap=replace"),
    ):
        assert quick.refusal(*command)[:2] == (2, "NOT_OF_THIS_FORMAT"), command
    [located] = quick.answer("locate", "orders", topic, "0", "0")["batches"]
    assert located["batch_id"] == batch_id
