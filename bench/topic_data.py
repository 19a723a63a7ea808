"""The records that are read: repeatable topics of order events, produced by two processes as fast as they can."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic  # where it is defined: `admin` hides it from mypy
from positions import Numbers, Positions, positions_of
from talking import BenchmarkError

from dies_with_parent import dying_with_this_process

PRODUCERS = 2
IN_A_TRANSACTION = 50_000
"""Records of one partition that are committed together; after them the marker takes an offset."""

SMALLEST_BYTES, LARGEST_BYTES = 100, 10_240
TIMEOUT_S = 1_800.0
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class TopicData:
    """A topic and what is in it; the same in every run.

    ``record_bytes`` is the length of each value; ``skew`` the share of partition 0, or 0.0 for evenly spread records.
    ``compression`` is the topic's and its producers' codec. Values are JSON of four fields, or of ten in the format
    ``form`` (`order_values.py`), where ``record_bytes`` is about what JSON takes.
    """

    name: str
    records: int
    partitions: int = 4
    record_bytes: int = 200
    incompressible: bool = False
    compression: str = "zstd"
    skew: float = 0.0
    transactional: bool = False
    seed: int = 7
    form: str = ""

    def counts(self) -> dict[int, int]:
        """Return how many records each partition holds."""
        first = round(self.records * self.skew) if self.skew else self.share(self.records, 0, self.partitions)
        if self.partitions == 1:
            return {0: self.records}
        others = self.partitions - 1
        return {0: first} | {
            number: self.share(self.records - first, number - 1, others) for number in range(1, self.partitions)
        }

    @staticmethod
    def share(whole: int, number: int, parts: int) -> int:
        """Return how large a part is, where the first ones take what does not divide evenly."""
        return whole // parts + (number < whole % parts)

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last one of each partition, transaction markers included."""
        return {
            partition: count + (-(-count // IN_A_TRANSACTION) if self.transactional else 0)
            for partition, count in self.counts().items()
        }

    def first_offsets(self, records: int) -> dict[int, int]:
        """Return end offsets that leave about this many records before them, evenly over the partitions."""
        ends = self.end_offsets()
        return {partition: min(end, -(-records // self.partitions)) for partition, end in ends.items()}

    def positions(self, ends: Mapping[int, int]) -> Positions:
        """Return the positions of all records before the given end offsets."""
        return positions_of(self.parts(ends))

    def parts(self, ends: Mapping[int, int]) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield each partition's positions, in the order of their offsets."""
        for partition, count in self.counts().items():
            offsets = np.arange(count, dtype=np.uint64)
            if self.transactional:
                offsets += offsets // np.uint64(IN_A_TRANSACTION)
            offsets = offsets[offsets < np.uint64(ends[partition])]
            yield np.full(len(offsets), partition, dtype=np.uint64), offsets


def make_topic(data: TopicData, bootstrap_servers: str, log: Path, registry_url: str = "") -> None:
    """Create the topic and fill it. Raises BenchmarkError unless its logs end where they should.

    Serializers register their schemas at ``registry_url``.
    """
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}) as admin:
        new = NewTopic(
            data.name,
            num_partitions=data.partitions,
            replication_factor=1,
            config={"compression.type": {"none": "uncompressed"}.get(data.compression, data.compression)},
        )
        admin.create_topics([new])[data.name].result()
        _produce(data, bootstrap_servers, log, registry_url)
        asked = {TopicPartition(data.name, number): OffsetSpec.latest() for number in range(data.partitions)}
        answers = admin.list_offsets(asked, request_timeout=ANSWER_TIMEOUT_S)
        found = {partition.partition: answer.result().offset for partition, answer in answers.items()}
    if found != data.end_offsets():
        raise BenchmarkError(
            f"{data.name}: expected logs that end at {data.end_offsets()}, found {found}: records were lost or "
            f"produced twice. See {log}, and run the benchmark again"
        )


def topic_id(topic: str, bootstrap_servers: str) -> str:
    """Return Kafka's id of a topic."""
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}) as admin:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_TIMEOUT_S)
        return str(described[topic].result().topic_id)


def _produce(data: TopicData, bootstrap_servers: str, log: Path, registry_url: str) -> None:
    program = Path(__file__).with_name("produce_topic.py")
    processes: list[subprocess.Popen[bytes]] = []
    with log.open("ab") as output:
        try:
            for number in range(PRODUCERS):
                task = {
                    "data": asdict(data),
                    "bootstrap_servers": bootstrap_servers,
                    "producer": number,
                    "registry_url": registry_url,
                }
                command = dying_with_this_process([sys.executable, str(program), json.dumps(task)])
                processes.append(
                    subprocess.Popen(
                        command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
                    )
                )
            failed = [process.returncode for process in processes if process.wait(TIMEOUT_S)]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if failed:
        raise BenchmarkError(
            f"{data.name}: expected {PRODUCERS} producers to succeed, found exit codes {failed}; see {log}"
        )
