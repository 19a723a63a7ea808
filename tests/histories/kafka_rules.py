"""What happens in Kafka: records, retention, partitions, leaders, brokers, and topics that are not what they were."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.histories.machine import MARKERS, NAMES, NUMBERS, RECORDS, History

from kafka_ingest.model.hold import HoldCause

MOST_PARTITIONS = 4


class KafkaRules(History):
    """Rules of the cluster."""

    @rule(records=RECORDS, markers=MARKERS)
    def records_arrive(self, records: list[int], markers: int) -> None:
        self.produce(records, markers)

    @rule(number=NUMBERS, taken=st.integers(1, 8))
    def retention_takes(self, number: int, taken: int) -> None:
        log = self.world.topics.log(self.partition(number))
        self.world.topics.delete_before(self.partition(number), log.start + taken)

    @rule(name=NAMES, has_leader=st.booleans())
    def a_partition_is_added(self, name: str, has_leader: bool) -> None:  # noqa: FBT001 - drawn
        if len(self.world.topics[name].logs) < MOST_PARTITIONS:
            self.world.topics.add_partition(name, has_leader=has_leader)

    @rule(number=NUMBERS)
    def a_leader_comes_or_goes(self, number: int) -> None:
        has_leader = self.world.topics.log(self.partition(number)).has_leader
        self.world.topics.set_leader(self.partition(number), has_leader=not has_leader)

    @rule()
    def brokers_go_down_or_come_back(self) -> None:
        self.world.topics.cluster.is_down = not self.world.topics.cluster.is_down

    @rule()
    def kafka_refuses_group_offsets_or_takes_them_again(self) -> None:
        cluster = self.world.topics.cluster
        cluster.refusal = None if cluster.refusal else "the group has live members"

    @precondition(lambda self: not self.world.cuts)
    @rule(name=NAMES, partitions=st.none() | st.integers(1, 3))
    def a_topic_is_made_again(self, name: str, partitions: int | None) -> None:
        if partitions is None:
            self.world.topics.make_again_with_the_same_records(name)
        else:
            self.world.topics.make_again(name, partitions)

    @precondition(
        lambda self: self.known is not None and self.known.open_batch is None and not self.world.topics.cluster.is_down
    )
    @rule(number=NUMBERS, lost=st.integers(1, 5), grown=st.integers(0, 8))
    def a_log_is_cut_off_and_a_plan_sees_it(self, number: int, lost: int, grown: int) -> None:
        """Also where it has grown again, if the plan knows the leader epoch in which the log reached the stored one."""
        topic_partition = self.partition(number)
        row, log = self.feed.stored.get(topic_partition), self.world.topics.log(topic_partition)
        is_same_topic = row is not None and row.topic_id == self.world.topics[topic_partition.topic].topic_id
        if row is None or not is_same_topic or not row.next_offset or not log.has_leader:
            return
        end = max(row.next_offset - lost, 0)
        self.world.cuts[topic_partition] = min(end, self.world.cuts.get(topic_partition, end))
        self.world.topics.cut_off(topic_partition, end)
        if row.leader_epoch is not None:
            self.world.topics.produce(topic_partition, grown, 0)
        with self.step():
            self.world.plan()
        held = {hold.topic_partition: hold.at_offset for hold in self.feed.holds if hold.cause is HoldCause.BEYOND_LOG}
        assert held[topic_partition] == self.world.cuts[topic_partition]
