"""How far consumer groups stand from the stored offsets of their feeds."""

from collections.abc import Collection

import pytest
from tests.fakes import FakeKafkaCluster

from kafka_ingest.errors import KafkaAccessDeniedError, KafkaUnavailableError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing import group_drift
from kafka_ingest.observing.group_drift import GroupDrift, GroupDrifts, Mirrored, drift_of

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
STORED = {FIRST: 100, SECOND: 50}


def group_of(feed: str, offset: int = 100) -> Mirrored:
    return Mirrored(feed, {FIRST: offset})


def test_what_a_group_is_behind_and_what_it_is_ahead_are_not_offset_against_each_other() -> None:
    assert drift_of(STORED, {FIRST: 90, SECOND: 60}) == GroupDrift(behind=10, ahead=10)
    assert drift_of(STORED, {FIRST: 100, SECOND: None}) == GroupDrift()
    assert drift_of(STORED, {FIRST: None, SECOND: None}) is None


def test_an_answer_counts_for_the_stored_offsets_that_it_was_asked_for_alone() -> None:
    kafka, drifts = FakeKafkaCluster(), GroupDrifts()
    kafka.groups["orders"] = {FIRST: 90}
    drifts.look(kafka, {"orders": group_of("orders")}, ["orders"])
    assert drifts.of("orders", group_of("orders")) == GroupDrift(behind=10)
    # A commit has moved both since; nobody has asked again.
    assert drifts.of("orders", group_of("orders", 200)) is None
    assert drifts.of("orders", None) is None


def test_of_many_feeds_each_look_asks_those_that_are_shown_and_then_the_longest_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_drift, "MOST_ASKED", 2)
    feeds = {name: group_of(name) for name in ("a", "b", "c", "d")}
    asked: list[list[str]] = []
    drifts = GroupDrifts(clock=iter(range(1_000)).__next__)

    class Kafka(FakeKafkaCluster):
        def group_offsets(
            self, group: str, topic_partitions: Collection[TopicPartition]
        ) -> dict[TopicPartition, int | None]:
            asked[-1].append(group)
            return super().group_offsets(group, topic_partitions)

    monkeypatch.setattr(group_drift, "LOOK_S", 100)
    for _ in range(3):
        asked.append([])
        drifts.look(Kafka(), feeds, ["d"])
    assert asked == [["d", "a"], ["d", "b"], ["d", "c"]]


def test_a_group_that_may_not_be_read_hides_no_other_and_a_cluster_that_is_down_is_asked_once() -> None:
    kafka, drifts = FakeKafkaCluster(), GroupDrifts()
    kafka.groups["b"] = {FIRST: 100}
    answer = kafka.group_offsets

    def denies(group: str, partitions: object) -> dict[TopicPartition, int | None]:
        if group == "a":
            raise KafkaAccessDeniedError("no right")
        return answer(group, partitions)  # type: ignore[arg-type]

    kafka.group_offsets = denies  # type: ignore[method-assign, assignment]
    feeds = {name: group_of(name) for name in ("a", "b")}
    drifts.look(kafka, feeds, ["a", "b"])
    assert (drifts.of("a", feeds["a"]), drifts.of("b", feeds["b"])) == (None, GroupDrift())
    down = FakeKafkaCluster()
    down.is_down = True
    with pytest.raises(KafkaUnavailableError):
        drifts.look(down, feeds, [])
    assert down.questions == ["group_offsets"]


def test_a_group_whose_coordinator_is_silent_keeps_no_other_from_being_asked() -> None:
    kafka, drifts = FakeKafkaCluster(), GroupDrifts()
    kafka.groups["b"] = {FIRST: 90}
    answer = kafka.group_offsets

    def is_silent(group: str, partitions: object) -> dict[TopicPartition, int | None]:
        if group == "a":
            raise KafkaUnavailableError("no answer")
        return answer(group, partitions)  # type: ignore[arg-type]

    kafka.group_offsets = is_silent  # type: ignore[method-assign, assignment]
    feeds = {name: group_of(name) for name in ("a", "b")}
    with pytest.raises(KafkaUnavailableError):  # the first one's: whether others have an answer is not known yet
        drifts.look(kafka, feeds, ["a", "b"])
    drifts.look(kafka, feeds, ["a", "b"])
    assert (drifts.of("a", feeds["a"]), drifts.of("b", feeds["b"])) == (None, GroupDrift(behind=10))
