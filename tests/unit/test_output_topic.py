"""What an output topic's cluster says, which records it cannot keep, and how rows are read; without a broker."""

from concurrent.futures import Future
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_ingest import assembly
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.errors import (
    KafkaLoginRefusedError,
    KafkaUnavailableError,
    OutputNotUsableError,
    OutputUnavailableError,
)
from kafka_ingest.sinks.kafka_topic.cluster import OutputCluster, Topic
from kafka_ingest.sinks.kafka_topic.produced_rows import check_times, ends_of, rows_at_once

SETTINGS = KafkaClientSettings("kafka_other", {"bootstrap.servers": "kafka:9093"})
NOW_MS = 1_767_312_000_000  # 2026-01-02


def topic(**settings: str) -> Topic:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Topic("orders_clean", "its id", 1, 1, {"cleanup.policy": "delete"} | named)


def records_of(*timestamps_ms: int) -> pa.Table:
    count = len(timestamps_ms)
    return pa.table(
        {
            "kafka_topic": ["orders"] * count,
            "kafka_partition": [0] * count,
            "kafka_offset": range(count),
            "kafka_timestamp": pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "kafka_timestamp_ms": pa.array(timestamps_ms, pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("settings", "timestamp_ms", "expected"),
    [
        ({"message_timestamp_before_max_ms": "1000"}, NOW_MS - 1001, "refuse it: message.timestamp.before.max.ms is"),
        ({"message_timestamp_before_max_ms": str(NOW_MS)}, -2, "refuse it: message.timestamp.before.max.ms is"),
        ({"message_timestamp_after_max_ms": "1000"}, NOW_MS + 1001, "refuse it: message.timestamp.after.max.ms is"),
    ],
)
def test_a_record_that_its_time_would_keep_out_of_the_topic_is_named(
    settings: dict[str, str], timestamp_ms: int, expected: str
) -> None:
    with pytest.raises(OutputNotUsableError, match=expected) as error:
        check_times(records_of(NOW_MS, timestamp_ms), topic(**settings), NOW_MS)
    assert "cannot take record orders-0@1: its timestamp is" in str(error.value)


def test_records_of_which_the_newest_is_older_than_the_retention_are_refused() -> None:
    with pytest.raises(OutputNotUsableError, match=r"those beside it: retention\.ms is 1,000\. Set the topic's"):
        check_times(records_of(NOW_MS - 1001, NOW_MS - 5000), topic(retention_ms="1000"), NOW_MS)


def test_an_old_record_among_newer_ones_is_taken_as_its_segment_stays() -> None:
    check_times(records_of(NOW_MS - 999, NOW_MS - 5000), topic(retention_ms="1000"), NOW_MS)


@pytest.mark.parametrize(
    "settings",
    [{}, {"retention_ms": "-1"}, {"retention_ms": "1001"}, {"retention_ms": "1", "cleanup_policy": "compact"}],
)
def test_records_that_the_topic_keeps_are_taken_and_those_without_a_time_get_that_of_their_publishing(
    settings: dict[str, str],
) -> None:
    kept = {name.replace("_", "."): value for name, value in settings.items()}
    found = Topic("orders_clean", "its id", 1, 1, {"cleanup.policy": "delete"} | kept)
    check_times(records_of(0, -1, NOW_MS - 1001, NOW_MS), found, NOW_MS)


def test_records_before_1970_are_kept_by_the_time_of_their_files() -> None:
    check_times(records_of(-2, -1_000), topic(retention_ms="1"), NOW_MS)


def test_a_setting_that_a_compatible_cluster_does_not_list_is_named() -> None:
    with pytest.raises(OutputNotUsableError, match=r"orders_clean: expected the cluster to list its max\.message\.byt"):
        _ = topic().largest_record_bytes


def test_the_missing_right_on_the_group_is_no_passing_error() -> None:
    error = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    found = OutputCluster(SETTINGS).named("orders_clean", error)
    assert isinstance(found, OutputNotUsableError)
    assert "read the group 'kafka_ingest'" in str(found)


def test_a_topic_without_a_leader_is_not_asked_where_it_ends_as_librdkafka_may_end_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described: Future[Any] = Future()
    described.set_result(SimpleNamespace(partitions=[SimpleNamespace(leader=None)]))
    admin = SimpleNamespace(describe_topics=lambda *_, **__: {"orders_clean": described})  # and no list_offsets
    monkeypatch.setattr(OutputCluster, "_admin", lambda _: nullcontext(admin))
    found = OutputCluster(SETTINGS)
    with pytest.raises(OutputUnavailableError, match="LEADER_NOT_AVAILABLE"), found.named_errors("orders_clean"):
        found.end_of("orders_clean")


def test_a_silent_broker_is_waited_for_as_long_as_the_connection_says() -> None:
    slow = KafkaClientSettings("kafka_other", {"bootstrap.servers": "kafka:9093", "socket.timeout.ms": "7000"})
    assert OutputCluster(slow).socket_timeout_ms == 7000
    assert OutputCluster(SETTINGS).socket_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(KafkaLoginRefusedError, KafkaLoginRefusedError), (KafkaUnavailableError, OutputUnavailableError)],
)
def test_a_login_is_tried_before_an_output_is_asked_anything_and_its_refusal_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch, raised: type[Exception], expected: type[Exception]
) -> None:
    def refuse(_: KafkaClient) -> None:
        raise raised("no")

    monkeypatch.setattr(KafkaClient, "check_let_in", refuse)
    with pytest.raises(expected):
        assembly.let_in(SETTINGS)


def test_brokers_are_asked_for_the_place_of_the_first_and_the_last_record_of_each_partition() -> None:
    assert ends_of([0, 0, 0, 2, 1, 2, 2, 0]) == {0, 7, 3, 6, 4}
    assert (ends_of([3, 3, 3]), ends_of([3]), ends_of([])) == ({0, 2}, {0}, set())


@pytest.mark.parametrize(
    ("values", "dictionary", "expected"),
    [
        ([b"x" * 900_000] * 50, ["value"], 35),
        ([b"x", b"y" * 500_000] * 9, ["value"], 63),
        ([b"x" * 900_000] * 50, [], 1_000),
        ([b"paid", b"new"] * 50, ["value"], 1_000),
        ([None] * 5, ["key", "value"], 1_000),
        ([], ["value"], 1_000),
    ],
)
def test_so_few_rows_are_in_memory_at_once_that_a_large_value_of_many_of_them_is_no_gigabyte(
    tmp_path: Path, values: list[bytes | None], dictionary: list[str], expected: int
) -> None:
    columns = {"key": pa.array([None] * len(values), pa.binary()), "value": pa.array(values, pa.binary())}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", use_dictionary=dictionary)
    with (tmp_path / "rows.parquet").open("rb") as source:
        found = pyarrow.parquet.ParquetFile(source)
        assert [rows_at_once(found, source, group) for group in range(found.num_row_groups)] == [expected]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([None, [("trace", b"x" * 499_995)], []] * 20, 63),
        ([[("a", b"x" * 99_999), ("a", None)]] * 20, 159),
        ([[("a" * 1_000_000, b"x")]] * 20, 31),
        ([[("trace", b"1")]] * 20, 1_000),
        ([None] * 20, 1_000),
        ([], 1_000),
    ],
)
def test_large_headers_that_many_records_have_are_no_gigabyte_in_memory_either(
    tmp_path: Path, headers: list[list[tuple[str, bytes | None]] | None], expected: int
) -> None:
    each = pa.struct([("key", pa.string()), ("value", pa.binary())])
    column = [found and [{"key": key, "value": value} for key, value in found] for found in headers]
    rows = pa.table({"kafka_headers": pa.array(column, pa.list_(each))})
    pyarrow.parquet.write_table(rows, tmp_path / "rows.parquet", dictionary_pagesize_limit=2_000_000)
    with (tmp_path / "rows.parquet").open("rb") as source:
        found = pyarrow.parquet.ParquetFile(source)
        assert [rows_at_once(found, source, group) for group in range(found.num_row_groups)] == [expected]
