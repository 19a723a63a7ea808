"""What an output topic does besides the contract of all outputs: lost ends of transactions, kills, and its limits."""

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.contract.prepared_processes import prepared_processes
from tests.contract.sink_outputs import KafkaOutput, made, plan_to, publish, rows_of, written
from tests.kafka_faults import Record, produce, recreate_topic
from tests.kafka_outputs import PARTITIONS, SERVERS_VARIABLE, committed_records, make_topic, topic_of
from tests.killing import wait_for

from embedded_broker import EmbeddedBroker
from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    OutputNotUsableError,
    OutputUnavailableError,
    TopicRecreatedError,
)
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.kafka_topic import cluster, commits, marks

pytestmark = pytest.mark.long


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def output(request: pytest.FixtureRequest, tmp_path: Path) -> KafkaOutput:
    found = made(KafkaOutput, tmp_path / "orders", request)
    assert isinstance(found, KafkaOutput)
    return found


def producer_of(output: KafkaOutput, batch_id: object) -> Producer:
    """Return what another process has that has begun to publish a batch: a producer within its transaction."""
    found = Producer(
        {"bootstrap.servers": os.environ[SERVERS_VARIABLE], "log_level": 0}
        | {"transactional.id": f"kafka_ingest.{topic_of(output.path)}.{batch_id}"}
    )
    found.init_transactions(30)
    found.begin_transaction()
    return found


def marks_of(output: KafkaOutput) -> str:
    return f"{topic_of(output.path)}.kafka_ingest"


def ending(monkeypatch: pytest.MonkeyPatch, *, lands: bool) -> None:
    """Let the answer to the end of the first transaction be lost, or the question."""
    answers = iter([False])

    class Ended(Producer):
        def commit_transaction(self, *arguments: Any) -> Any:
            if next(answers, True):
                return super().commit_transaction(*arguments)
            if lands:
                super().commit_transaction(*arguments)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(cluster, "Producer", Ended)


@pytest.mark.parametrize("lands", [True, False])
def test_a_batch_is_there_once_after_the_end_of_its_transaction_was_not_answered_whether_it_landed_or_not(
    output: KafkaOutput, monkeypatch: pytest.MonkeyPatch, *, lands: bool
) -> None:
    directory, published = written(output, plan_to(output, 1))
    ending(monkeypatch, lands=lands)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_the_end_of_a_transaction_that_comes_after_the_batch_was_taken_over_changes_nothing(
    output: KafkaOutput,
) -> None:
    directory, published = written(output, plan_to(output, 1))
    batch_id = published.plan.batch_id
    zombie = producer_of(output, batch_id)
    zombie.produce(topic_of(output.path), f"{batch_id} 0", partition=0)
    zombie.flush(30)
    output.sink.publisher.revoke(directory, batch_id)
    with pytest.raises(KafkaException, match=r"FENCED|EPOCH"):
        zombie.commit_transaction(30)
    assert output.seen() == Counter()
    with pytest.raises(BatchRevokedError):
        KafkaOutput(output.path).sink.publisher.publish(directory, published)


def publish_and_hold(path: Path, directory: Path, published: PublishedReceipt, held: Path, servers: str) -> None:
    """Publish in a process of its own, up to where rows and mark are sent and the transaction has no end."""
    os.environ[SERVERS_VARIABLE] = servers
    real = commits.KafkaMarks.produce

    def hold(marks: commits.KafkaMarks, producer: Producer, mark: Any, *landings: Any) -> None:
        real(marks, producer, mark, *landings)
        assert producer.flush(60) == 0
        held.touch()
        time.sleep(300)

    commits.KafkaMarks.produce = hold  # type: ignore[method-assign]
    KafkaOutput(path).sink.publisher.publish(directory, published)


def test_a_commit_that_is_killed_within_its_transaction_leaves_nothing_and_the_next_one_all_rows_once(
    output: KafkaOutput, tmp_path: Path, servers: str
) -> None:
    directory, published = written(output, plan_to(output, 1))
    held = tmp_path / "held"
    arguments = (output.path, directory, published, held, servers)
    killed = prepared_processes().Process(target=publish_and_hold, args=arguments)
    killed.start()
    while not held.exists():
        assert killed.is_alive(), "it ended before it was to be killed"
        time.sleep(0.02)
    killed.kill()
    killed.join()
    name = topic_of(output.path)
    assert (len(committed_records(name)), len(committed_records(name, isolation="read_uncommitted"))) == (0, 20)
    KafkaOutput(output.path).sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    with pytest.raises(BatchStateError):
        KafkaOutput(output.path).sink.publisher.revoke(directory, published.plan.batch_id)


@pytest.fixture
def eager_cleaner(broker: EmbeddedBroker) -> Iterator[None]:
    """Kafka's log cleaner looks for work all the time."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for operation, value in ((AlterConfigOpType.SET, "100"), (AlterConfigOpType.DELETE, None)):
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        resource = ConfigResource("broker", str(broker.node_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()
        if operation is AlterConfigOpType.SET:
            yield


@pytest.mark.usefixtures("eager_cleaner")
def test_a_mark_is_found_behind_those_that_were_aborted_and_that_the_log_cleaner_has_taken(
    output: KafkaOutput, servers: str
) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    make_topic(servers, marks_of(output), settings, partitions=1)
    directory, published = written(output, plan_to(output, 1))
    batch_id = published.plan.batch_id
    killed = producer_of(output, batch_id)
    # After a record of long ago the next one begins a new segment, so that this one is cleaned, alone.
    killed.produce(marks_of(output), b"never committed", str(batch_id), partition=0, timestamp=1_700_000_000_000)
    assert killed.flush(30) == 0
    KafkaOutput(output.path).sink.publisher.publish(directory, published)
    while any(each.value() == b"never committed" for each in uncommitted(output)):
        time.sleep(0.1)
    with pytest.raises(BatchStateError):
        KafkaOutput(output.path).sink.publisher.revoke(directory, batch_id)


def uncommitted(output: KafkaOutput) -> list[Message]:
    return committed_records(marks_of(output), isolation="read_uncommitted")


def test_marks_that_were_deleted_make_every_answer_unknown(output: KafkaOutput, servers: str) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", marks_of(output), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    first = TopicPartition(marks_of(output), 0, 1)

    def is_deleted() -> bool:
        """Try it: the controller takes a setting before the broker does whose log it is."""
        try:
            admin.delete_records([first])[first].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    wait_for(is_deleted, "records that may be deleted")
    with pytest.raises(OutputNotUsableError, match="expected all records since offset 0, found that the first ones"):
        KafkaOutput(output.path).sink.publisher.revoke(directory, published.plan.batch_id)


def test_a_transaction_that_stays_open_hides_marks_and_is_named_with_what_ends_it(
    output: KafkaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    other, hidden = (plan_to(output, number).batch_id for number in (2, 3))
    killed = producer_of(output, other)
    killed.produce(marks_of(output), b"", str(other), partition=0)
    assert killed.flush(30) == 0
    monkeypatch.setattr(marks, "PATIENCE_S", 0.5)
    with pytest.raises(OutputUnavailableError, match=rf"transactional.id kafka_ingest.{topic_of(output.path)}.{other}"):
        KafkaOutput(output.path).sink.publisher.revoke(directory, hidden)
    producer_of(output, other)
    KafkaOutput(output.path).sink.publisher.revoke(directory, hidden)


def test_a_topic_without_the_mark_of_the_newest_batch_is_not_the_output(output: KafkaOutput, servers: str) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    make_topic(servers, "another")
    edited = KafkaOutput(output.path, topic="another")
    assert output.sink.lacks is not None
    assert edited.sink.lacks is not None
    assert output.sink.lacks(published.plan.batch_id) == ""
    assert "topic another.kafka_ingest, reached through" in edited.sink.lacks(published.plan.batch_id)


def test_a_topic_that_was_made_again_is_not_the_output_until_an_operator_accepts_it(
    output: KafkaOutput, servers: str
) -> None:
    first = publish(output, plan_to(output, 1)).plan.batch_id
    recreate_topic(servers, topic_of(output.path), PARTITIONS)
    lacks = KafkaOutput(output.path).sink.lacks
    assert lacks is not None
    with pytest.raises(TopicRecreatedError, match="deleted and created again: expected topic id") as error:
        lacks(first)
    said = re.search(r"a record with key (\S+) and value (\S+) to (\S+):", str(error.value))
    assert said is not None
    produce(servers, said[3], 0, [Record(said[2].encode(), said[1].encode())])
    assert lacks(first) == ""
    second = publish(output, plan_to(output, 2)).plan.batch_id
    assert lacks(second) == ""
    recreate_topic(servers, topic_of(output.path), PARTITIONS)
    with pytest.raises(TopicRecreatedError):
        lacks(second)


def test_what_no_topic_could_take_is_refused_before_anything_is_committed(servers: str, tmp_path: Path) -> None:
    cases = {
        " with message.timestamp.type=LogAppendTime": {"message.timestamp.type": "LogAppendTime"},
        "0@0: it has no key, and the topic is compacted": {"cleanup.policy": "compact"},
        "0@0: with its headers it has": {"max.message.bytes": "100"},
        "Kafka soon deletes it and those beside it: retention.ms is 604,800,000. Set": {"retention.ms": "604800000"},
    }
    for number, (expected, settings) in enumerate(cases.items()):
        path = tmp_path / f"topic-{number}" / "orders"
        make_topic(servers, topic_of(path), settings)
        refused = KafkaOutput(path)
        with pytest.raises(OutputNotUsableError) as error:
            prepare_and_take(refused)
        assert expected in str(error.value)
        if "max.message.bytes" in settings:
            with pytest.raises(OutputNotUsableError, match="MSG_SIZE_TOO_LARGE"):
                refused.sink.publisher.publish(*written(refused, plan_to(refused, 2)))
            assert committed_records(topic_of(path)) == []


def prepare_and_take(output: KafkaOutput) -> None:
    output.sink.publisher.prepare()
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.can_take(directory, published.receipt)


def test_a_topic_that_is_missing_or_has_too_few_partitions_is_refused_unless_records_go_by_key(
    servers: str, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    os.environ["TESTS_KAFKA_SERVERS"] = servers
    with pytest.raises(OutputNotUsableError, match=r"expected it in the cluster of sink.conn_id, found none"):
        KafkaOutput(path).sink.publisher.prepare()
    make_topic(servers, topic_of(path), partitions=1)
    same, by_key = KafkaOutput(path), KafkaOutput(path, partitions="by_key")
    same.sink.publisher.prepare()
    directory, published = written(same, plan_to(same, 1))
    with pytest.raises(OutputNotUsableError, match=r"up to number 1, found 1 partition\."):
        same.sink.publisher.can_take(directory, published.receipt)
    by_key.sink.publisher.can_take(directory, published.receipt)
    by_key.sink.publisher.publish(directory, published)
    assert len(committed_records(topic_of(path))) == 20


def test_a_batch_that_may_outlast_what_brokers_allow_is_refused_with_the_number_of_records_that_does_not(
    output: KafkaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    monkeypatch.setattr(marks, "ROWS_PER_S", 0.02)
    with pytest.raises(
        OutputNotUsableError, match=r"20 rows may take 1,060 s in one transaction, and the brokers allow 900 s"
    ):
        output.sink.publisher.can_take(directory, published.receipt)


def test_the_topic_that_the_feed_reads_is_refused_by_its_id_whatever_connection_leads_there(
    output: KafkaOutput,
) -> None:
    directory, published = written(output, plan_to(output, 1))
    found = cluster.OutputCluster(output.sink.publisher._table._cluster._settings).topic(topic_of(output.path))
    assert found is not None
    for file in published.receipt.files:
        path = directory / "data" / file.name
        rows = pyarrow.parquet.read_table(path)
        number = rows.schema.get_field_index("kafka_topic_id")
        pyarrow.parquet.write_table(rows.set_column(number, "kafka_topic_id", pa.array([found.topic_id] * 10)), path)
    with pytest.raises(OutputNotUsableError, match="expected another topic than the one that the feed reads"):
        output.sink.publisher._table.check_files(output.sink.publisher._parts.staged(directory, published.receipt))
