"""What the page offers to decide about a feed, and what the form is to say."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.observing.feed_status import FeedStatus, PartitionStatus, TopicProblem
from kafka_ingest.page.offers import offers_of, read_again
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.settings.operate_form import OperateForm

NOW = datetime(2026, 1, 31, tzinfo=UTC)
QUIET = FeedStatus("orders", "cluster", "orders-ingest", None, (), None)


def offered(status: FeedStatus, file_error: str | None = None) -> list[dict[str, object]]:
    """Return what forms are to say besides the feed; each can be read, shows first, and has the fields to decide."""
    found = [json.loads(each.config) for each in offers_of(status, file_error)]
    for form in found:
        assert not OperateForm.of(form).decides
        assert (form.pop("feed"), form.pop("dry_run"), form.pop("reason")) == ("orders", True, None)
    return found


COUNT = {"action": "verify-coverage"}
DECIDE = {"action": "topic-changed", "topics": ["orders"], "choice": None, "open_batch": None}


def test_of_a_quiet_feed_the_output_can_be_counted() -> None:
    assert offered(QUIET) == [COUNT]


def test_an_open_batch_can_be_abandoned_and_a_broken_file_examined() -> None:
    batch_id = "01989f6a-0000-7000-8000-000000000000"
    status = replace(QUIET, open_batch={"batch_id": batch_id})
    assert offered(status, "broken") == [
        {"action": "doctor"},
        {"action": "abandon", "batch_id": batch_id, "lost_output": False},
        COUNT,
    ]


@pytest.mark.parametrize(
    ("cause", "forms"),
    [
        (HoldCause.TOPIC_CHANGED, [DECIDE]),
        (HoldCause.BEYOND_LOG, [DECIDE]),
        (HoldCause.UNREADABLE, [{"action": "skip", "offset_range": "orders:3=7-8"}]),
        (HoldCause.NO_ANSWER, []),
        (HoldCause.OPEN_TRANSACTION, []),
    ],
)
def test_a_hold_that_an_operator_can_end_is_offered_once(cause: HoldCause, forms: list[dict[str, object]]) -> None:
    hold = Hold("orders", 3, cause, "why", NOW, 7)
    assert offered(replace(QUIET, holds=(hold, hold))) == [*forms, COUNT]


def test_a_topic_that_kafka_reports_as_another_one_can_be_decided_before_a_plan_holds_it() -> None:
    status = replace(QUIET, topic_problems=(TopicProblem("orders", "recreated"),))
    assert offered(status) == [DECIDE, COUNT]


def test_a_gap_is_read_again_by_a_form_that_the_backfill_takes() -> None:
    span = OffsetRange(TopicPartition("orders", 0), 4, 6)
    gap = Gap(UUID(int=1), span, "id", GapCause.SKIPPED, "why", "alice", NOW, NOW)
    offer = read_again("orders", gap)
    assert offer.dag_id == "backfill_offsets"
    form = json.loads(offer.config)
    assert (form["feed"], form["offset_ranges"], form["mode"]) == ("orders", ["orders:0=4-6"], "fill")
    assert BackfillForm.of(form).offset_ranges == ["orders:0=4-6"]


def test_a_group_that_drifted_can_be_set_to_the_stored_offsets() -> None:
    stored = StoredOffset(TopicPartition("orders", 0), "id", 0, 4, "earliest")
    drifted = PartitionStatus(stored, 0, None, None, 1, Isolation.READ_COMMITTED)
    assert offered(replace(QUIET, partitions=(drifted,))) == [{"action": "mirror"}, COUNT]
