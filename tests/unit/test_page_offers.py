"""What the page offers to decide about a feed, and what the form is to say."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import Request
from tests.fakes import a_plan

from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchKind, BatchState
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.summaries import BatchLine
from kafka_ingest.observing.feed_status import FeedStatus, PartitionStatus, TopicProblem
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.offers import Offer, acknowledge, offers_of, offers_of_batch, read_again
from kafka_ingest.page.one_batch import OneBatch, Run, runs_of
from kafka_ingest.page.rendering import PageOf, page
from kafka_ingest.page.sources import DagNow
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.verbs.operate_form import OperateForm

NOW = datetime(2026, 1, 31, tzinfo=UTC)
QUIET = FeedStatus("orders", "cluster", "orders-ingest", None, (), None)


def offered(status: FeedStatus, file_error: str | None = None) -> list[dict[str, object]]:
    """Return what the forms of a feed are to say."""
    return said(offers_of(status, file_error))


def said(offers: Iterable[Offer]) -> list[dict[str, object]]:
    """Return what forms are to say besides the feed; each can be read, shows first, and has the fields to decide."""
    found = [json.loads(each.config) for each in offers]
    for form in found:
        assert not OperateForm.of(form).decides
        assert (form.pop("feed"), form.pop("dry_run"), form.pop("reason")) == ("orders", True, None)
    return found


COUNT = {"action": "verify-coverage"}
ALWAYS = [{"action": "preview", "records": None, "show_values": False}, COUNT]
DECIDE = {"action": "topic-changed", "topics": ["orders"], "choice": None, "old_connection": None, "open_batch": None}


def test_of_a_quiet_feed_the_newest_records_can_be_decoded_and_the_output_counted() -> None:
    assert offered(QUIET) == ALWAYS


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
    assert offered(replace(QUIET, holds=(hold, hold))) == [*forms, *ALWAYS]


def test_a_topic_that_kafka_reports_as_another_one_can_be_decided_before_a_plan_holds_it() -> None:
    status = replace(QUIET, topic_problems=(TopicProblem("orders", "recreated"),))
    assert offered(status) == [DECIDE, *ALWAYS]


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
    assert offered(replace(QUIET, partitions=(drifted,))) == [{"action": "mirror"}, *ALWAYS]


# ── A batch ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PLAN = a_plan(OffsetRange(TopicPartition("orders", 0), 0, 4))
OF_BATCH = {"batch_id": str(PLAN.batch_id)}
STAGED = Attempt(PLAN.batch_id, 1, AttemptState.PINNED, Path("/staged/1"), "0" * 64, NOW, "run 1")
ABANDON = {"action": "abandon", **OF_BATCH, "lost_output": False}
RESTORE = {"action": "restore", **OF_BATCH}
LETTERS = [
    {"action": "dead-letters", **OF_BATCH, "show_values": False},
    {"action": "give-up-dead-letters", **OF_BATCH},
]


def view_of(state: BatchState, *attempts: Attempt, has_dead_letters: bool = False, **plan: Any) -> OneBatch:
    batch = Batch("orders", replace(PLAN, **plan), state, "run 1", NOW)
    line = BatchLine(PLAN.batch_id, "live", state, NOW, "run 1", NOW, *[None] * 7, attempt=1, folded=False)
    return OneBatch("orders", batch, line, (), attempts, (), PageOf.of([], 1, 1), Answer(None), has_dead_letters)


@pytest.mark.parametrize(
    ("view", "forms"),
    [
        (view_of(BatchState.WRITTEN, STAGED), [ABANDON]),
        (view_of(BatchState.ABANDONED, STAGED), [RESTORE]),
        (view_of(BatchState.ABANDONED), []),
        (view_of(BatchState.ABANDONED, replace(STAGED, cleaned_at=NOW)), []),
        (view_of(BatchState.ABANDONED, replace(STAGED, state=AttemptState.DISCARDED)), []),
        (view_of(BatchState.ABANDONED, STAGED, kind=BatchKind.COPY), []),
        (view_of(BatchState.COMMITTED, STAGED), []),
        (view_of(BatchState.COMMITTED, STAGED, has_dead_letters=True), LETTERS),
        (view_of(BatchState.WRITTEN, STAGED, has_dead_letters=True), [ABANDON]),
    ],
)
def test_what_fits_a_batchs_state_can_be_decided(view: OneBatch, forms: list[dict[str, object]]) -> None:
    assert said(offers_of_batch(view)) == forms


@pytest.mark.parametrize(
    ("actor", "run"),
    [
        ("airflow:orders/manual__1", Run("orders", "manual__1")),
        ("airflow:alice@example.com@operate_feed/manual__1", Run("operate_feed", "manual__1")),
        ("airflow:a/b@operate_feed/manual__1", Run("operate_feed", "manual__1")),
    ],
)
def test_who_acted_leads_to_the_dag_run(actor: str, run: Run) -> None:
    assert runs_of([actor, actor, "cli:alice@host/1", "restored:1"]) == [run]
    assert run.has_spark is (run.dag_id == "orders")


def test_a_batchs_view_names_its_output_in_an_object_store_too() -> None:
    request = Request({"type": "http", "root_path": "/kafka-offsets", "headers": [], "method": "GET", "path": "/"})
    view = view_of(BatchState.WRITTEN, output=OutputLocation.at("delta", "s3://lake@bucket/orders"))
    shown = page(request, "batch.html", view=view, offers=[], dags={})
    assert "<code>s3://lake@bucket/orders</code>" in bytes(shown.body).decode()


def test_a_gap_that_nobody_decided_can_be_acknowledged() -> None:
    span = OffsetRange(TopicPartition("orders", 3), 7, 9)
    gap = Gap(UUID(int=1), span, "id", GapCause.RETENTION, "why", "run 1", NOW, NOW)
    assert said([acknowledge("orders", gap)]) == [{"action": "skip", "offset_range": "orders:3=7-9"}]


def test_that_runs_of_a_paused_dag_wait_is_said_beside_the_buttons() -> None:
    request = Request({"type": "http", "root_path": "/kafka-offsets", "headers": [], "method": "GET", "path": "/"})
    view = view_of(BatchState.WRITTEN, STAGED)
    for is_paused in (True, False):
        dags = {"operate_feed": DagNow(is_paused, None)}
        shown = page(request, "batch.html", view=view, offers=list(offers_of_batch(view)), dags=dags)
        assert (b"operate_feed is paused" in bytes(shown.body)) is is_paused
