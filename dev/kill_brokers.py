"""Kill brokers of a cluster of three while batches are published in a topic, and count what readers see afterwards.

    python dev/kill_brokers.py

Each batch is a transaction that loses a broker by SIGKILL: the one that coordinates it, the one that leads a partition
of the output, or that of the marks; in the middle of its records, before its mark, or before its end. As a DAG would, a
commit that fails is run again. Readers with `read_committed` have to see each record once.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_broker import KAFKA_VERSION, EmbeddedBroker
from free_ports import LOOPBACK, random_free_ports
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.sinks.kafka_topic import produced_rows
from kafka_ingest.sinks.kafka_topic.cluster import OutputCluster
from kafka_ingest.sinks.kafka_topic.commits import KafkaTopic
from kafka_ingest.sinks.kafka_topic.marks import KafkaMarks
from kafka_ingest.sinks.tables.table_format import Mark, Outcome, Staged

NODES, PARTITIONS, ROWS = 3, 3, 30_000
OUTPUT = "orders_clean"
VICTIMS = {
    "the coordinator": "__transaction_state",
    "the output's leader": OUTPUT,
    "the marks' leader": f"{OUTPUT}.kafka_ingest",
}
"""What a broker that is killed leads partition 0 of."""
IN_THE_MIDDLE, BEFORE_THE_MARK, BEFORE_THE_END = "in the middle of the records", "before the mark", "before the end"
AGAIN_WITHIN_S = 300.0


@contextmanager
def cluster_of_three(directory: Path) -> Iterator[dict[int, EmbeddedBroker]]:
    """Run three nodes, each a broker and a controller; of three replicas of everything two have to be in sync."""
    free = iter(random_free_ports(2 * NODES))
    ports = {number: (next(free), next(free)) for number in range(1, NODES + 1)}
    safe = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
    safe |= {"transaction.state.log.min.isr": "2", "min.insync.replicas": "2", "default.replication.factor": "3"}
    safe |= {"replica.lag.time.max.ms": "5000", "process.roles": "broker,controller"}
    safe["controller.quorum.voters"] = ",".join(f"{n}@{LOOPBACK}:{ports[n][1]}" for n in ports)
    nodes: dict[int, EmbeddedBroker] = {}
    for number, (client, controller) in ports.items():
        listeners = f"PLAINTEXT://{LOOPBACK}:{client},CONTROLLER://{LOOPBACK}:{controller}"
        own = {"node.id": str(number), "listeners": listeners}
        nodes[number] = EmbeddedBroker(directory / str(number), port=client, extra=safe | own, joins=nodes.get(1))
        nodes[number].launch()
    try:
        for node in nodes.values():
            node.wait_until_it_answers()
        yield nodes
    finally:
        for node in nodes.values():
            node.kill()


def described(admin: AdminClient, topic: str) -> Any:  # noqa: ANN401 - the client's own
    """Return what the cluster says of a topic's partitions."""
    return admin.describe_topics(TopicCollection([topic]), request_timeout=20)[topic].result().partitions


def wait_for_replicas(admin: AdminClient) -> None:
    """Return once all replicas of all topics are in sync."""
    until = time.monotonic() + AGAIN_WITHIN_S
    while time.monotonic() < until:
        found = [each for topic in VICTIMS.values() for each in described(admin, topic)]
        if all(len(each.isr) == NODES and each.leader is not None for each in found):
            return
        time.sleep(0.5)
    raise TimeoutError(f"expected {NODES} replicas of each partition in sync, found {found}")


def staged_rows(directory: Path) -> Staged:
    """Write the files of one attempt; each record's key says which one it was."""
    files = []
    count = ROWS // PARTITIONS
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    for number in range(PARTITIONS):
        keys = [f"{directory.name} {number} {offset}".encode() for offset in range(count)]
        rows = {
            "kafka_topic": pa.array(["orders"] * count),
            "kafka_partition": pa.array([number] * count, pa.int32()),
            "kafka_offset": pa.array(range(count), pa.int64()),
            "kafka_timestamp": pa.array([1_790_000_000_000_000] * count, pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([key * 10 for key in keys], pa.binary()),
            "kafka_headers": pa.array([None] * count, pa.list_(header)),
            "kafka_topic_id": pa.array(["of the orders"] * count),
            "kafka_timestamp_ms": pa.array([None] * count, pa.int64()),
        }
        directory.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table(rows), directory / f"{number}.parquet")
        held = [SimpleNamespace(smallest_offset=number)]
        files.append(SimpleNamespace(name=f"{number}.parquet", size_bytes=1, partitions=held))
    receipt: Any = SimpleNamespace(rows=count * PARTITIONS, files=files)
    return Staged("", directory, receipt)


@contextmanager
def killing(when: str, kill: Callable[[], None]) -> Iterator[None]:
    """Kill once, when a transaction has come so far."""
    left = [kill]

    def once() -> None:
        if left:
            left.pop()()

    def pieces(staged: Staged) -> Iterator[pa.Table]:
        for number, piece in enumerate(real_pieces(staged)):
            if number == ROWS // produced_rows.PIECE // 2:
                once()
            yield piece

    def before_the_mark(*arguments: Any) -> None:  # noqa: ANN401 - handed on
        once()
        real_mark(*arguments)

    class Ending(Producer):
        def commit_transaction(self, *arguments: Any) -> Any:  # noqa: ANN401 - handed on
            once()
            return super().commit_transaction(*arguments)

    real_pieces, real_mark = produced_rows.pieces, KafkaMarks.produce
    patches: dict[str, AbstractContextManager[Any]] = {
        IN_THE_MIDDLE: mock.patch.object(produced_rows, "pieces", pieces),
        BEFORE_THE_MARK: mock.patch.object(KafkaMarks, "produce", before_the_mark),
        BEFORE_THE_END: mock.patch("kafka_ingest.sinks.kafka_topic.cluster.Producer", Ending),
    }
    with patches[when]:
        yield


def publish(commits: KafkaTopic, batch_id: UUID, staged: Staged) -> int:
    """Publish a batch, again where that fails; return how often it failed."""
    until = time.monotonic() + AGAIN_WITHIN_S
    failed = 0
    while True:
        try:
            commits.land(Mark(batch_id, Outcome.PUBLISHED), staged)
        except OutputUnavailableError:
            if time.monotonic() > until:
                raise
            failed += 1
            time.sleep(1)
        else:
            return failed


def topic_of(settings: KafkaClientSettings) -> KafkaTopic:
    where = {"conn_id": settings.conn_id, "topic": OUTPUT}
    return KafkaTopic(OutputLocation.at("kafka", "/nowhere", where), lambda _: OutputCluster(settings))


def seen(cluster: OutputCluster) -> Counter[bytes]:
    """Return what a reader of `read_committed` finds in the output, by the records' keys."""
    found: Counter[bytes] = Counter()
    consumer = cluster.reader()
    consumer.assign([TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                found[message.key() or b""] += 1
            else:
                ended += 1
    consumer.close()
    return found


def main() -> int:
    """Return how many records are not there once."""
    with tempfile.TemporaryDirectory() as folder, cluster_of_three(Path(folder) / "kafka") as nodes:
        servers = ",".join(node.bootstrap_servers for node in nodes.values())
        print(f"Kafka {KAFKA_VERSION}, {NODES} nodes: {servers}", flush=True)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic(OUTPUT, PARTITIONS, NODES)])[OUTPUT].result()
        settings = KafkaClientSettings("kafka_other", {"bootstrap.servers": servers})
        published: list[UUID] = [uuid4()]
        first = staged_rows(Path(folder) / str(published[0]))
        publish(topic_of(settings), published[0], first)
        for victim, topic in VICTIMS.items():
            for when in (IN_THE_MIDDLE, BEFORE_THE_MARK, BEFORE_THE_END):
                wait_for_replicas(admin)
                node = nodes[described(admin, topic)[0].leader.id]
                published.append(uuid4())
                staged = staged_rows(Path(folder) / str(published[-1]))
                commits = topic_of(settings)
                began = time.monotonic()
                with killing(when, node.kill):
                    failed = publish(commits, published[-1], staged)
                print(f"{victim}, killed {when}: {time.monotonic() - began:.1f} s, failed {failed} times", flush=True)
                node.start()
        wait_for_replicas(admin)
        found = seen(OutputCluster(settings))
        count = ROWS // PARTITIONS
        keys = (f"{batch} {number} {n}" for batch in published for number in range(PARTITIONS) for n in range(count))
        expected = Counter(key.encode() for key in keys)
        wrong = sum(((expected - found) + (found - expected)).values())
        print(f"{len(published)} batches, {found.total():,} records seen, {wrong:,} not there once", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
