"""The topics of a random history: what was ever produced into them, and what of it the cluster still holds."""

from dataclasses import dataclass, field
from itertools import count

from tests.fakes import FakeKafkaCluster, FakeTopic

from kafka_ingest.model.offsets import LogBounds, OffsetRange, TopicPartition, Unavailable


@dataclass(frozen=True)
class Record:
    """Where a value was produced. A topic that is made again with other records is of another generation."""

    topic: str
    generation: int
    partition: int
    offset: int


@dataclass
class Log:
    """One partition's log, ``[start, end)``.

    ``content`` also keeps what retention took; offsets without a value are markers.
    """

    start: int = 0
    end: int = 0
    content: dict[int, str] = field(default_factory=dict)
    has_leader: bool = True
    leader_epoch: int = 0
    epoch_starts: dict[int, int] = field(default_factory=dict)

    def elect(self) -> None:
        """Let another leader begin where the log ends."""
        self.leader_epoch += 1
        self.epoch_starts = {epoch: min(start, self.end) for epoch, start in self.epoch_starts.items()}
        self.epoch_starts[self.leader_epoch] = self.end

    def end_of(self, epoch: int) -> int:
        """Return where a leader epoch ended, or has come to."""
        return min((start for later, start in self.epoch_starts.items() if later > epoch), default=self.end)

    @property
    def bounds(self) -> LogBounds | Unavailable:
        """What Kafka says of it."""
        if not self.has_leader:
            return Unavailable("LEADER_NOT_AVAILABLE")
        return LogBounds(self.start, self.end, self.end, self.leader_epoch)


@dataclass
class Topic:
    """A topic as it is now."""

    name: str
    topic_id: str
    generation: int
    logs: list[Log]


class Topics:
    """All topics, on a cluster that says of them what is so; each value is produced once."""

    def __init__(self, *names: str, partitions: int) -> None:
        self.cluster = FakeKafkaCluster()
        self.produced: dict[str, Record] = {}
        self.generation_of: dict[str, int] = {}
        self._numbers = count(1)
        self._topics = {name: self._made(name, 1, [Log() for _ in range(partitions)]) for name in names}
        self._refresh_cluster()

    def __getitem__(self, name: str) -> Topic:
        return self._topics[name]

    def log(self, topic_partition: TopicPartition) -> Log | None:
        """Return a partition's log, None where there is no such partition."""
        logs = self._topics[topic_partition.topic].logs
        return logs[topic_partition.partition] if topic_partition.partition < len(logs) else None

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions there are."""
        return [TopicPartition(name, n) for name, topic in self._topics.items() for n in range(len(topic.logs))]

    def has_all(self, offset_range: OffsetRange) -> bool:
        """Whether the cluster can give every offset of a range now."""
        log = self.log(offset_range.topic_partition)
        return (
            log is not None
            and log.has_leader
            and not self.cluster.is_down
            and log.start <= offset_range.start_offset
            and offset_range.end_offset <= log.end
        )

    def produce(self, topic_partition: TopicPartition, records: int, markers: int) -> None:
        """Append records, then markers, which take offsets and hold nothing."""
        topic, log = self._topics[topic_partition.topic], self.log(topic_partition)
        assert log is not None
        for offset in range(log.end, log.end + records):
            value = f"{topic_partition}@{offset}#{next(self._numbers)}"
            log.content[offset] = value
            self.produced[value] = Record(topic.name, topic.generation, topic_partition.partition, offset)
        log.end += records + markers
        self._refresh_cluster()

    def delete_before(self, topic_partition: TopicPartition, start: int) -> None:
        """Let retention take what lies before an offset."""
        log = self.log(topic_partition)
        assert log is not None
        log.start = max(log.start, min(start, log.end))
        self._refresh_cluster()

    def cut_off(self, topic_partition: TopicPartition, end: int) -> None:
        """Lose the end of a log, as an unclean leader election does."""
        log = self.log(topic_partition)
        assert log is not None
        log.content = {offset: value for offset, value in log.content.items() if offset < end}
        log.start, log.end = min(log.start, end), end
        log.elect()
        self._refresh_cluster()

    def set_leader(self, topic_partition: TopicPartition, *, has_leader: bool) -> None:
        """Take a partition's leader away, or give it another one."""
        log = self.log(topic_partition)
        assert log is not None
        log.has_leader = has_leader
        if has_leader:
            log.elect()
        self._refresh_cluster()

    def go_down(self) -> None:
        """Let no broker answer."""
        self.cluster.is_down = True

    def heal(self) -> None:
        """Let every broker be up and every partition have a leader."""
        self.cluster.is_down, self.cluster.refusal = False, None
        for topic_partition in self.partitions():
            self.set_leader(topic_partition, has_leader=True)

    def add_partition(self, name: str, *, has_leader: bool) -> None:
        """Add a partition to a topic."""
        self._topics[name].logs.append(Log(has_leader=has_leader))
        self._refresh_cluster()

    def make_again(self, name: str, partitions: int) -> None:
        """Delete a topic and create one of that name, with other records."""
        generation = self._topics[name].generation + 1
        self._topics[name] = self._made(name, generation, [Log() for _ in range(partitions)])
        self._forget_group_offsets(name)

    def make_again_with_the_same_records(self, name: str) -> None:
        """Give a topic another id, as one that was copied to where it is now has."""
        known = self._topics[name]
        self._topics[name] = self._made(name, known.generation, known.logs)
        self._forget_group_offsets(name)

    def _made(self, name: str, generation: int, logs: list[Log]) -> Topic:
        topic_id = f"{name}-id-{next(self._numbers)}"
        self.generation_of[topic_id] = generation
        return Topic(name, topic_id, generation, logs)

    def _forget_group_offsets(self, name: str) -> None:
        """Do what Kafka does with the groups' offsets of a topic that is deleted."""
        for offsets in self.cluster.groups.values():
            for topic_partition in [tp for tp in offsets if tp.topic == name]:
                del offsets[topic_partition]
        self._refresh_cluster()

    def _refresh_cluster(self) -> None:
        for name, topic in self._topics.items():
            self.cluster.topics[name] = FakeTopic(dict(enumerate(log.bounds for log in topic.logs)), topic.topic_id)
            starts = {TopicPartition(name, number): log.epoch_starts for number, log in enumerate(topic.logs)}
            self.cluster.epoch_starts |= starts
