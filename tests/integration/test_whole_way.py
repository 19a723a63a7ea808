"""The whole way on real parts: broker, Spark, Parquet, control tables, consumer group, through the command line.

That commands and Spark start as processes of their own is tested with the README's commands.
"""

import json
from itertools import islice
from uuid import UUID

from tests.kafka_faults import topic_id
from tests.project import positions_of
from tests.quick_project import QuickProject

from order_events import OrderEvent, order_events, produce


def rows_expected(events: list[OrderEvent], topic: str, id_of_topic: str | None) -> list[dict]:
    """Return the rows that events in an empty topic have to become, by position."""
    counts: dict[int, int] = {}
    rows = []
    for event in events:
        offset = counts.get(event.partition, 0)
        counts[event.partition] = offset + 1
        headers = [{"key": key, "value": value} for key, value in event.headers]
        rows.append(
            {
                "kafka_topic": topic,
                "kafka_partition": event.partition,
                "kafka_offset": offset,
                "timestamp_ms": event.timestamp_ms,
                "key": event.key,
                "value": event.value,
                "kafka_headers": headers or None,
                "kafka_topic_id": id_of_topic,
                "kafka_timestamp_ms": None,
            }
        )
    return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


def comparable(row: dict) -> dict:
    found = {key: value for key, value in row.items() if key not in {"kafka_batch", "kafka_timestamp"}}
    return found | {"timestamp_ms": round(row["kafka_timestamp"].timestamp() * 1000)}


def test_every_key_value_header_and_timestamp_arrives_once_and_only_the_new_ones_with_the_next_run(
    quick: QuickProject, servers: str, topic: str
) -> None:
    quick.write_feed(topic)
    events = list(order_events(6_000, seed=11))
    assert {event.value is None for event in events} == {True, False}
    assert {event.key is None for event in events} == {True, False}

    id_of_topic = topic_id(servers, topic)
    produce(servers, topic, islice(events, 4_000))
    with quick.submitting(spark_is_real=True):
        [first] = quick.run()
    assert first["rows"] == 4_000
    assert [comparable(row) for row in quick.rows()] == rows_expected(events[:4_000], topic, id_of_topic)

    produce(servers, topic, events[4_000:])
    [second] = quick.run()
    assert second["rows"] == 2_000
    assert [comparable(row) for row in quick.rows()] == rows_expected(events, topic, id_of_topic)
    assert {row["kafka_batch"] for row in quick.rows()} == {first["batch_id"], second["batch_id"]}

    ends = {partition: offset + 1 for partition, offset in positions_of(events)}
    assert quick.stored_offsets() == ends
    assert quick.group_offsets() == ends
    assert quick.run() == []


def test_a_backlog_is_worked_off_batch_by_batch_until_the_feed_has_caught_up(
    quick: QuickProject, servers: str, topic: str
) -> None:
    quick.write_feed(topic, limits={"max_records": 400})
    events = list(order_events(1_000, seed=3))
    produce(servers, topic, events)

    batches = quick.run("orders", "--until-caught-up")

    assert [batch["rows"] for batch in batches] == [400, 400, 200]
    assert [batch["capped"] for batch in batches] == [True, True, False]
    assert quick.positions() == positions_of(events)
    assert [UUID(batch["batch_id"]).version for batch in batches] == [7, 7, 7]


def test_a_failed_spark_application_leaves_nothing_visible_and_the_next_run_continues_the_same_batch(
    quick: QuickProject, servers: str, topic: str
) -> None:
    events = list(order_events(200, seed=5))
    produce(servers, topic, events)
    quick.write_feed(topic, spark={"conf": {"spark.driver.memory": "1k"}})

    with quick.submitting(spark_is_its_own=True):
        failed = quick.kafka_ingest("run", "orders", "--json")

    assert failed.exit_code == 1
    assert failed.document["error"]["code"] == "SPARK_FAILED"
    assert "heap" in failed.document["error"]["message"]
    assert quick.rows() == []
    open_batch = quick.status()["open_batch"]
    assert open_batch["state"] == "PLANNED"

    quick.write_feed(topic)
    [batch] = quick.run()
    assert batch["result"] == "resumed"
    assert batch["batch_id"] == open_batch["batch_id"]
    assert quick.positions() == positions_of(events)


def test_a_broker_that_is_down_is_named_within_the_time_limit_and_stored_offsets_are_still_shown(
    quick: QuickProject, servers: str, topic: str
) -> None:
    quick.write_feed(topic)
    produce(servers, topic, order_events(100, seed=5))
    quick.run()
    nobody = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000}
    unreachable = json.dumps({"conn_type": "kafka", "extra": nobody})

    status, run = (
        quick.kafka_ingest(verb, "orders", "--json", AIRFLOW_CONN_KAFKA_DEFAULT=unreachable)
        for verb in ("status", "run")
    )

    assert status.exit_code == 1
    assert "127.0.0.1:1" in status.document["kafka"]["error"]
    assert sum(entry["stored_offset"] for entry in status.document["partitions"]) == 100
    assert {entry["lag"] for entry in status.document["partitions"]} == {None}
    assert run.exit_code == 1
    assert run.document["error"]["code"] == "KAFKA_UNAVAILABLE"


def test_a_topic_that_does_not_exist_is_named_and_not_created(quick: QuickProject) -> None:
    quick.write_feed("no-such-topic")

    answer = quick.kafka_ingest("run", "orders", "--json")

    assert answer.exit_code == 2
    assert answer.document["error"]["code"] == "UNKNOWN_TOPIC"
    assert "'no-such-topic' does not exist" in answer.document["error"]["message"]
    assert quick.kafka_ingest("run", "orders", "--json").document["error"]["code"] == "UNKNOWN_TOPIC"
    assert quick.kafka_ingest("status", "orders", "--json").document["partitions"] == []


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_planned(
    quick: QuickProject, servers: str, topic: str
) -> None:
    produce(servers, topic, order_events(10, seed=5))
    in_the_way = quick.home / "file"
    in_the_way.write_text("not a directory")
    quick.write_feed(topic, sink={"format": "parquet", "path": str(in_the_way / "orders")})

    answer = quick.kafka_ingest("run", "orders", "--json")

    assert answer.exit_code == 2
    assert answer.document["error"]["code"] == "OUTPUT_NOT_USABLE"
    assert str(in_the_way / "orders") in answer.document["error"]["message"]
    assert quick.kafka_ingest("batches", "--json").document["batches"] == []


def test_a_missing_spark_connection_is_an_error_and_never_a_submit_to_yarn(quick: QuickProject, topic: str) -> None:
    quick.write_feed(topic, spark={"conn_id": "spark_elsewhere"})

    answer = quick.kafka_ingest("run", "orders", "--json")

    assert answer.exit_code == 2
    assert answer.document["error"]["code"] == "MISSING_CONNECTION"
    assert "AIRFLOW_CONN_SPARK_ELSEWHERE" in answer.document["error"]["message"]
    assert quick.kafka_ingest("batches", "--json").document["batches"] == []
