"""A feed moves to another cluster, which has copies of its records at other offsets."""

import json
from collections import Counter

import pytest
from tests.integration.conftest import commit_to_group
from tests.kafka_faults import (
    FIRST_TIMESTAMP_MS,
    Record,
    committed_transaction,
    create_topic,
    delete_records,
    open_transaction,
    produce,
)
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker

BY_TIME = ("topic-changed", "orders", "--choice", "by-time", "--old-connection", "kafka_old")
WHY = ("--execute", "--reason", "the data centre moves")


@pytest.fixture
def new(another_broker: EmbeddedBroker) -> str:
    return another_broker.bootstrap_servers


@pytest.fixture
def there(servers: str, new: str) -> dict[str, str]:
    """The feed's connection leads to the new cluster, and another one to the old."""
    return {
        f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": address}})
        for name, address in (("KAFKA_DEFAULT", new), ("KAFKA_OLD", servers))
    }


def named(partition: int, seconds: list[int]) -> list[Record]:
    """Return records of these times, each with a value of its own."""
    return [
        Record(f"{partition}/{number}".encode(), timestamp_ms=FIRST_TIMESTAMP_MS + second * 1000)
        for number, second in enumerate(seconds)
    ]


TIMES = {0: [*range(12)], 1: [0, 1, *[2] * 6, 3, 4], 2: [0, 1, 1, 1], 3: [], 4: [5, 9, 1, 2, 7, 3, 8]}
"""A partition whose times are all different, one in which some are the same, one that is read to its end, an empty
one, and one whose times are in no order."""

READ = {0: 7, 1: 6, 2: 5, 4: 5}
"""Where the feed ends in the old logs; in the third one behind the marker of a transaction."""

TWICE = {"1/2", "1/3", "1/4", "1/5", "2/1", "2/2", "2/3", "4/0", "4/1", "4/2", "4/3", "4/4"}


@pytest.fixture
def moved(quick: QuickProject, servers: str, new: str, name: str) -> str:
    """A feed that has read some of a topic, whose copy in the new cluster has other offsets. The topic's name."""
    for address in (servers, new):
        create_topic(address, name, len(TIMES))
    for partition, seconds in TIMES.items():
        records = named(partition, seconds)
        if partition == 2:
            committed_transaction(servers, name, partition, records)
        elif records:
            produce(servers, name, partition, records)
        if partition == 0:  # the copy began later, and lacks what the feed has read
            produce(new, name, partition, records[3:])
        elif records:
            produce(new, name, partition, [Record(b"of another topic, long ago", timestamp_ms=1)] * 20)
            produce(new, name, partition, records)
    quick.write_feed(name, kafka={"topics": [name], "group": f"{name}-group"})
    quick.run("orders", *(f"--end-offset={name}:{partition}={end}" for partition, end in READ.items()))
    return name


def test_a_feed_continues_at_its_records_times_and_reads_twice_what_was_announced(
    quick: QuickProject, another_broker: EmbeddedBroker, moved: str, there: dict[str, str]
) -> None:
    shown = quick.answer(*BY_TIME, **there)
    announced = {each["partition"]: (each["offset"], each["read_twice_at_most"]) for each in shown["by_time"]}
    assert announced == {0: (4, 0), 1: (22, 4), 2: (21, 4), 3: (0, 0), 4: (20, 5)}
    assert not any(each["may_miss"] for each in shown["by_time"])
    in_words = quick.kafka_ingest(*BY_TIME, **there, COLUMNS="200").stdout
    assert f"read twice: at most 13 records: {moved}-1 4, {moved}-2 4, {moved}-4 5" in in_words
    assert "missed: none, as long as" in in_words
    assert quick.refusal("run", "orders", **there)[1] == "WRONG_CLUSTER", "nothing was changed"

    done = quick.answer(*BY_TIME, *WHY, **there)
    assert (done["by_time"], done["mirror_failure"]) == (shown["by_time"], None)
    produce(another_broker.bootstrap_servers, moved, 3, [Record(b"3/new")])
    quick.answer("run", "orders", **there)

    found = Counter(row["value"].decode() for row in quick.rows())
    assert found.keys() == {f"{each}/{n}" for each, times in TIMES.items() for n in range(len(times))} | {"3/new"}
    assert {value for value, times in found.items() if times > 1} == TWICE
    assert quick.answer("coverage", "orders", "--verify", **there)["accounted"]
    status = quick.answer("status", "orders", **there)
    assert status["cluster_id"] == another_broker.cluster_id
    assert [(row["stored_offset"], row["group_offset"]) for row in status["partitions"]] == [
        (end, end) for end in (9, 30, 24, 1, 27)
    ]
    [event] = quick.answer("history", "orders", "--kind", "reset", **there)["events"]
    assert event["detail"]["reason"] == "the data centre moves"
    assert event["detail"]["partitions"][1]["rule"] == "another cluster's offset 6, from 2026-01-01T00:00:02+00:00 on"


def test_control_tables_that_are_lost_after_a_move_are_rebuilt_with_it(
    quick: QuickProject, moved: str, there: dict[str, str]
) -> None:
    quick.answer(*BY_TIME, *WHY, **there)
    quick.answer("run", "orders", **there)
    stored = stored_there(quick, there)
    quick.control_file.unlink()
    quick.make_control_tables()
    quick.answer("adopt", "orders", "--execute", "--reason", "the disk died", **there)
    assert stored_there(quick, there) == stored, moved


def stored_there(quick: QuickProject, there: dict[str, str]) -> dict[int, int]:
    return {row["partition"]: row["stored_offset"] for row in quick.answer("status", "orders", **there)["partitions"]}


def test_a_copy_that_may_lack_unread_records_is_said_to(
    quick: QuickProject, new: str, moved: str, there: dict[str, str]
) -> None:
    delete_records(new, moved, 0, 6)
    shown = quick.answer(*BY_TIME, **there)
    assert [each["partition"] for each in shown["by_time"] if each["may_miss"]] == [0]
    assert f"may be missed: the new logs of {moved}-0 are empty, begin" in quick.kafka_ingest(*BY_TIME, **there).stdout
    delete_records(new, moved, 0, 9)
    assert quick.answer(*BY_TIME, **there)["by_time"][0] | {"time": ""} == {
        "topic": moved,
        "partition": 0,
        "offset": 9,
        "time": "",
        "read_twice_at_most": 7,
        "may_miss": True,
    }, "all copies are deleted"


def test_copies_under_another_name_begin_where_the_copied_group_is(
    quick: QuickProject, new: str, moved: str, there: dict[str, str]
) -> None:
    mirror, group = f"old.{moved}", f"{moved}-group"
    create_topic(new, mirror, len(TIMES))
    produce(new, mirror, 0, named(0, TIMES[0]))
    commit_to_group(new, group, mirror, {0: 5})
    start = {"group": group, "otherwise": "earliest"}
    quick.edit_feed(kafka={"topics": [mirror], "group": group}, start=start)

    quick.answer("topic-changed", "orders", "--choice", "start-over", *WHY, **there)
    assert quick.answer("run", "orders", **there)["batches"][0]["rows"] == len(TIMES[0]) - 5
    assert stored_there(quick, there) == {0: 12, 1: 0, 2: 0, 3: 0, 4: 0}


def test_what_times_cannot_say_is_refused_and_nothing_changes(
    quick: QuickProject, servers: str, moved: str, there: dict[str, str]
) -> None:
    before = quick.stored_offsets()
    confused = there | {"AIRFLOW_CONN_KAFKA_OLD": there["AIRFLOW_CONN_KAFKA_DEFAULT"]}
    assert quick.refusal(*BY_TIME, **confused)[:2] == (3, "WRONG_CLUSTER")
    assert quick.refusal(*BY_TIME)[:2] == (2, "WRONG_USE"), "the connection still leads to the old cluster"
    assert quick.refusal(*BY_TIME[:4], **there)[:2] == (2, "WRONG_USE")
    with open_transaction(servers, moved, 2, named(2, [60])):
        code, name, message = quick.refusal(*BY_TIME, **there)
        assert (code, name) == (2, "INVALID_RANGE")
        assert f"open transactions, found some in {moved}-2" in message
    assert f"only older ones in {moved}-2. Wait until the mirror has caught up" in quick.refusal(*BY_TIME, **there)[2]
    delete_records(servers, moved, 0, 9)
    assert "were deleted unread" in quick.refusal(*BY_TIME, **there)[2]
    assert quick.stored_offsets() == before
