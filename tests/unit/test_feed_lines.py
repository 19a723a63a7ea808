"""All feeds, a line each: the worst first, and no number where it would mislead."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import FakeKafkaCluster, topic

from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.summaries import FeedOverview, OpenGaps
from kafka_ingest.observing.feed_lines import FeedLine, Standing, ask_logs, line_of, worst_first
from kafka_ingest.observing.group_drift import GroupDrift

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CLUSTER = "cluster-a"


def overview(*stored: int | None, topic_id: str = "id-1", **changes: Any) -> FeedOverview:
    """Return a feed with these stored offsets in its partitions."""
    rows = {
        TopicPartition("orders", number): StoredOffset(
            TopicPartition("orders", number), topic_id, None if offset is None else 0, offset, "earliest"
        )
        for number, offset in enumerate(stored)
    }
    return FeedOverview(
        **{
            "feed_id": UUID(int=1),
            "name": "orders",
            "cluster_id": CLUSTER,
            "topics": ["orders"],
            "stored": rows,
            "rows_committed": 0,
        }
        | changes
    )


def line(
    of: FeedOverview, *logs: LogBounds | Unavailable, topic_id: str = "id-1", cluster_id: str = CLUSTER, **options: Any
) -> FeedLine:
    kafka = FakeKafkaCluster({"orders": topic(*logs, topic_id=topic_id)}, cluster_id=cluster_id)
    return line_of(of, ask_logs(kafka, of.stored), options.pop("isolation", Isolation.READ_COMMITTED), **options)


def hold(cause: HoldCause) -> tuple[Hold, ...]:
    return (Hold("orders", 0, cause, "why", NOW),)


def test_lag_is_summed_and_the_least_headroom_counts_of_partitions_with_something_to_read() -> None:
    found = line(overview(10, 50, 70), LogBounds(0, 30, 40), LogBounds(45, 60, 60), LogBounds(69, 70, 70))
    assert (found.lag, found.headroom, found.standings) == (30, 5, (Standing.BEHIND,))
    assert line(overview(10), LogBounds(0, 30, 40), isolation=Isolation.READ_UNCOMMITTED).lag == 30
    assert line(overview(40), LogBounds(0, 40, 40)).standings == (Standing.UP_TO_DATE,)


def test_what_kafka_deleted_unread_is_counted_apart_from_what_can_be_read() -> None:
    found = line(overview(10), LogBounds(25, 30, 30))
    assert (found.lag, found.lost, found.standings) == (5, 15, (Standing.LOST, Standing.BEHIND))


def test_of_another_cluster_or_topic_no_number_is_shown() -> None:
    other_cluster = line(overview(10), LogBounds(0, 30, 30), cluster_id="cluster-b")
    assert (other_cluster.lag, other_cluster.standings) == (None, (Standing.OTHER_RECORDS,))
    other_topic = line(overview(10), LogBounds(0, 30, 30), topic_id="id-2")
    assert (other_topic.lag, other_topic.standings) == (None, (Standing.OTHER_RECORDS,))
    without_it = ask_logs(FakeKafkaCluster(cluster_id=CLUSTER), overview(10).stored)
    gone = line_of(overview(10), without_it, Isolation.READ_COMMITTED)
    assert gone.standings == (Standing.OTHER_RECORDS,)


def test_a_topic_that_may_not_be_seen_is_not_taken_for_another_one_or_for_gone() -> None:
    kafka = FakeKafkaCluster({"orders": topic(LogBounds(0, 30, 30))}, cluster_id=CLUSTER)
    kafka.denied = {"orders"}
    found = line_of(overview(10), ask_logs(kafka, overview(10).stored), Isolation.READ_COMMITTED)
    assert (found.standings, found.lag, found.silent) == ((Standing.UNKNOWN,), None, 1)
    assert found.denied == ("refused access to topic orders",)


def test_partitions_without_an_answer_or_a_start_are_left_out_visibly() -> None:
    found = line(overview(10, 20, None), LogBounds(0, 30, 30), Unavailable("no leader"), LogBounds(0, 9, 9))
    assert (found.lag, found.silent) == (20, 1)
    # Nobody knows what waits there: it is not "up to date".
    assert line(overview(30, 20), LogBounds(0, 30, 30), Unavailable("no leader")).standings == (Standing.UNKNOWN,)
    assert line(overview(30), Unavailable("no leader")).standings == (Standing.UNKNOWN,)


def test_a_topic_that_the_feed_does_not_read_any_more_has_no_lag() -> None:
    assert line(overview(10, topics=[]), LogBounds(0, 30, 30)).lag == 0


@pytest.mark.parametrize(
    ("changes", "stored"),
    [
        ({"holds": hold(HoldCause.OFFSETS_LOST)}, [Standing.LOST, Standing.HELD]),
        ({"holds": hold(HoldCause.BEYOND_LOG)}, [Standing.LOST, Standing.HELD]),
        ({"holds": hold(HoldCause.NO_ANSWER), "open_gaps": OpenGaps(1, 9, 1)}, [Standing.HELD, Standing.GAPS]),
        ({"holds": hold(HoldCause.OPEN_TRANSACTION)}, []),
        ({"open_gaps": OpenGaps(3, 9, undecided=1)}, [Standing.GAPS]),
        ({"open_gaps": OpenGaps(3, 9, undecided=0)}, []),
    ],
)
def test_every_state_that_holds_is_shown_the_worst_first_and_a_decided_gap_is_none(
    changes: dict[str, Any], stored: list[Standing]
) -> None:
    assert line(overview(10, **changes), LogBounds(0, 30, 30)).standings == (*stored, Standing.BEHIND)
    assert line(overview(30, **changes), LogBounds(0, 30, 30)).standings == (*stored, Standing.UP_TO_DATE)
    alone = line_of(overview(10, **changes), None, Isolation.READ_COMMITTED)
    assert (alone.lag, alone.headroom) == (None, None)
    assert alone.standings == (*stored, Standing.UNKNOWN)


def test_records_that_wait_for_a_run_that_is_not_due_are_on_time() -> None:
    assert line(overview(10), LogBounds(0, 30, 30), is_late=False).standings == (Standing.ON_TIME,)
    assert line(overview(10), LogBounds(0, 10, 10), is_late=True).standings == (Standing.UP_TO_DATE,)


def test_a_group_that_stands_elsewhere_is_worse_than_records_that_wait() -> None:
    for end, state in ((10, Standing.UP_TO_DATE), (30, Standing.BEHIND)):
        found = line(overview(10), LogBounds(0, end, end), drift=GroupDrift(ahead=1))
        assert found.standings == (Standing.DRIFTED, state)
    assert line(overview(10), LogBounds(0, 30, 30), drift=GroupDrift()).standings == (Standing.BEHIND,)


def test_a_file_that_cannot_be_used_is_the_worst() -> None:
    found = line(overview(10), LogBounds(25, 30, 30), file_error="no sink")
    assert found.standings == (Standing.UNUSABLE, Standing.LOST, Standing.BEHIND)


def test_the_worst_come_first_among_these_the_largest_lag() -> None:
    made = [
        FeedLine("b", None, (Standing.BEHIND,), lag=5),
        FeedLine("a", None, (Standing.BEHIND,), lag=5),
        FeedLine("never", None, (Standing.NEVER_PLANNED,)),
        FeedLine("far", None, (Standing.BEHIND,), lag=500),
        FeedLine("lost", None, (Standing.LOST,)),
    ]
    assert [each.name for each in worst_first(made)] == ["lost", "far", "a", "b", "never"]


def test_kafka_is_asked_a_few_questions_however_many_partitions_there_are() -> None:
    kafka = FakeKafkaCluster({"orders": topic(*[LogBounds(0, 1, 1)] * 500)}, cluster_id=CLUSTER)
    assert len(ask_logs(kafka, overview(*[0] * 500).stored).bounds) == 500
    assert sorted(kafka.questions) == ["cluster_id", "describe_topics", "log_bounds"]
