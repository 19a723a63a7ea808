"""Records that are read by a process of little memory, and what is made of how it ends."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_ingest.cluster import first_answers as module
from kafka_ingest.cluster.first_answers import MEMORY_BYTES, TOO_LARGE, FirstAnswer, first_answers
from kafka_ingest.cluster.large_records import large_records
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.spark_settings import LargeRecord

POSITIONS = [("orders", 0, 7), ("orders", 1, 9)]
RANGES = [OffsetRange(TopicPartition("orders", 0), 7, 20), OffsetRange(TopicPartition("orders", 1), 9, 20)]
ANSWERED = '{"topic": "orders", "partition": 0, "offset": 19, "size": 12}'
READ = f"cat > /dev/null; echo '{ANSWERED}'"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let a shell's script stand in for the process."""
    monkeypatch.setattr(module, "LIMITED", request.param)


@pytest.mark.parametrize("script", ["kill -ABRT $$", "kill -SEGV $$", "exit 52"], indirect=True)
@pytest.mark.usefixtures("script")
def test_where_the_process_gets_no_memory_the_record_batch_is_too_large() -> None:
    assert first_answers({}, POSITIONS, 1) == {("orders", 0): TOO_LARGE, ("orders", 1): TOO_LARGE}
    assert large_records({}, RANGES, 1) == {
        TopicPartition("orders", 0): [LargeRecord(7, MEMORY_BYTES, of_batch=True)],
        TopicPartition("orders", 1): [LargeRecord(9, MEMORY_BYTES, of_batch=True)],
    }


@pytest.mark.parametrize("script", ["kill -KILL $$", "exit 1", "exit 0"], indirect=True)
@pytest.mark.usefixtures("script")
def test_a_process_that_ends_for_another_reason_says_nothing_of_any_record() -> None:
    assert first_answers({}, POSITIONS, 1) == {}
    assert large_records({}, RANGES, 1) == {}


@pytest.mark.parametrize("script", [f"{READ}; kill -ABRT $$"], indirect=True)
@pytest.mark.usefixtures("script")
def test_what_was_read_before_the_process_ended_counts() -> None:
    assert first_answers({}, POSITIONS, 1) == {("orders", 0): FirstAnswer(19, 12), ("orders", 1): TOO_LARGE}


@pytest.mark.parametrize("script", ["cat >> $SENT; echo >> $SENT; exit 52"], indirect=True)
@pytest.mark.usefixtures("script")
def test_a_login_that_is_a_function_reaches_each_process_as_what_it_returns_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENT", str(tmp_path / "sent"))
    signed = iter(("first", "second", "third"))
    first_answers({"oauth_cb": lambda _: (next(signed), 900.5)}, POSITIONS, 1)
    sent = [json.loads(line)["settings"] for line in (tmp_path / "sent").read_text().splitlines()]
    assert sent == [{"oauth_cb": [token, 900.5]} for token in ("first", "second", "third")]


# ── Records of a broker ──


@pytest.fixture
def servers() -> Iterator[str]:
    """The address of librdkafka's own broker for tests, inside this process."""
    settings = {"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": "0"}
    with Producer(settings) as producer:
        [broker] = producer.list_topics(timeout=10).brokers.values()
        yield f"{broker.host}:{broker.port}"


def produce(servers: str, partition: int, sizes: list[int], codec: str = "none") -> None:
    """Produce records with a key of one byte, and values of these sizes."""
    settings = {"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 1_000_000_000}
    with Producer(settings) as producer:
        for size in sizes:
            producer.produce("orders", bytes(size), key=b"k", partition=partition)
        assert producer.flush(60) == 0


@pytest.mark.long
def test_a_record_too_large_for_any_process_is_found_at_its_offset_and_the_others_with_their_sizes(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMITED", module.LIMITED.replace(str(module.MEMORY_MIB * 1024), "131072"))
    for partition in range(4):
        produce(servers, partition, [5, 3, 6])
    produce(servers, 1, [1_000_000], "zstd")
    produce(servers, 2, [200_000_000], "zstd")
    for partition in range(4):
        produce(servers, partition, [7])
    first, second, third, fourth = (TopicPartition("orders", number) for number in range(4))
    ranges = [OffsetRange(first, 0, 4), OffsetRange(second, 1, 4), OffsetRange(third, 0, 5), OffsetRange(fourth, 0, 1)]
    settings = {"bootstrap.servers": servers, "log_level": "0", "group.id": "none", **module.LITTLE}

    assert large_records(settings, ranges, 15) == {
        first: [LargeRecord(0, 6), LargeRecord(2, 7), LargeRecord(3, 8)],
        second: [LargeRecord(1, 4), LargeRecord(2, 7), LargeRecord(3, 1_000_001)],
        third: [LargeRecord(0, 6), LargeRecord(2, 7), LargeRecord(3, MEMORY_BYTES, of_batch=True)],
        fourth: [LargeRecord(0, 6)],
    }
