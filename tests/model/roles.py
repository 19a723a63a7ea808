"""What actors do: DAG runs as Airflow would run them, their Spark applications, single tasks, and operators."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from tests.fakes import FeedInMemory, InMemoryControlTables, partition, sinks, span
from tests.model.actor import Actor, Crashed

from kafka_ingest.batches.backfill_request import BackfillRequest, OpenGaps
from kafka_ingest.batches.explain_failure import explain_failure
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.mirror_group import mirror_group
from kafka_ingest.batches.plan_backfill import BackfillOutcome, plan_backfill
from kafka_ingest.errors import RangesTakenError, RetryableError, SparkFailedError
from kafka_ingest.model.batch import Attempt
from kafka_ingest.model.control_rows import StartOver
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.skip import decide_skip, skip
from kafka_ingest.verbs.topic_changes import Changes, apply_choice

Done = TypeVar("Done")
Work = Callable[[Actor], str]

TRIES = 3
"""How often Airflow tries a task."""

BY_HAND = 10
"""How far the rude operator moves a stored offset."""


# ── DAG runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def dag_run(actor: Actor) -> str:
    """plan >> write >> commit; only the batch id is handed from task to task."""
    feed = actor.feed
    outcome = task(actor, "plan", lambda: feed.plan(actor.name))
    if outcome.batch is None:
        return "nothing new"
    batch_id = outcome.batch.batch_id
    task(actor, "write", lambda: write(actor, batch_id), batch_id)
    task(actor, "commit", lambda: feed.commit(batch_id, group=actor.world.group, actor=actor.name), batch_id)
    return "done"


def task(actor: Actor, name: str, work: Callable[[], Done], *passed: UUID) -> Done:
    """Try a task as Airflow does.

    Again where the error says so, or where its process was killed and that is survived.
    """
    for number in range(1, TRIES + 1):
        actor.begin(name, number, *passed)
        try:
            return work()
        except RetryableError:
            if number == TRIES:
                raise
        except Crashed:
            if not actor.world.killed_tasks_are_tried_again:
                raise
            actor.begin(name, "killed", number, *passed)
            actor.pause(f"tries {name} again")
    raise Crashed


def write(actor: Actor, batch_id: UUID) -> None:
    """The write task. Spark is an actor of its own, which continues when this one is killed."""
    feed = actor.feed
    attempt = feed.ask_for_attempt(batch_id, actor.name)
    if attempt is None:
        return
    spark = submit(actor, attempt)
    actor.wait_for(spark)
    if spark.outcome == "crashed":
        explain_failure(attempt, feed)
        raise SparkFailedError(f"{spark.name} died")
    feed.pin(attempt)


def submit(actor: Actor, attempt: Attempt) -> Actor:
    """Start the attempt's Spark application."""
    job = spark_job(attempt, left_out=actor.world.feed.lost_now(attempt))
    return actor.world.add(spark_name(attempt), job, can_crash=actor.world.spark_may_die)


def spark_name(attempt: Attempt) -> str:
    """Return what the story calls an attempt's Spark application."""
    return f"Spark of attempt {attempt.attempt} of batch …{str(attempt.batch_id)[-4:]}"


def spark_job(attempt: Attempt, *, left_out: Sequence[LeftOut] = ()) -> Work:
    """Return what an attempt's Spark application does.

    The files, then the receipt, which leaves out what was deleted.
    """

    def run(actor: Actor) -> str:
        feed = actor.world.feed
        actor.pause("stages its files")
        feed.sink.staged.add(attempt.directory)
        actor.pause("leaves its receipt")
        feed.spark_writes(attempt, left_out=left_out)
        return "done"

    return run


def one_commit(batch_id: UUID) -> Work:
    """Return a commit task alone, as an operator clears it by hand."""

    def run(actor: Actor) -> str:
        task(actor, "commit", lambda: actor.feed.commit(batch_id, group=actor.world.group, actor=actor.name), batch_id)
        return "done"

    return run


def one_plan(actor: Actor) -> str:
    """A plan task alone."""
    return task(actor, "plan", lambda: actor.feed.plan(actor.name)).result.value


# ── Backfills ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def plans_a_backfill(actor: Actor) -> str:
    """Plan a backfill of all open gaps, as one task whose chunks later ones work on.

    Where all of them is another's, its rows show it before anything is decided; that its step is refused is no such
    answer.
    """
    try:
        outcome = task(actor, "plan", lambda: fill_gaps(actor.feed, actor.name))
    except RangesTakenError as error:
        if "claimed by open backfills" not in str(error):
            raise
        return "claimed by another"
    return f"planned {len(outcome.chunks)}"


def fill_gaps(feed: FeedInMemory, actor: str) -> BackfillOutcome:
    """Plan a backfill of all open gaps; an actor that planned it before gets the same chunks."""
    request = BackfillRequest(OpenGaps(), {})
    return plan_backfill(request, feed.settings, feed, actor=actor, once=True)


# ── Operators ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def abandons(actor: Actor) -> str:
    """Abandon the batch that `status` shows as open."""
    batch = known_feed(actor.feed.control, "orders").open_batch
    if batch is None:
        return "no batch is open"
    was = abandon(batch.batch_id, actor.feed.control, sinks(actor.feed.sink), reason="wrong output", actor=actor.name)
    return f"abandoned, was {was}"


def starts_over(actor: Actor) -> str:
    """Reset all stored offsets to 0 by the step that is audited, and an open batch that is only PLANNED with them."""
    feed = known_feed(actor.feed.control, "orders")
    rows = [replace(row, first_offset=0, next_offset=0, seeded_by="reset") for row in feed.stored.values()]
    changes = Changes(feed, feed.cluster_id, (), feed.open_batch)
    after = [StartOver("orders", rows[0].topic_id, rows)]
    apply_choice(changes, after, actor.feed.control, discard_batch=True, reason="read again", actor=actor.name)
    mirror(actor)
    return "reset"


def skips(actor: Actor) -> str:
    """Jump over the next 10 offsets of partition 0, as `status` shows it."""
    start = known_feed(actor.feed.control, "orders").stored[partition(0)].next_offset
    assert start is not None
    decision = decide_skip("orders", span(0, start, start + 10), "damaged", actor.feed.control, actor.feed.kafka)
    skip(decision, actor.feed.control, actor=actor.name)
    mirror(actor)
    return "skipped"


def mirror(actor: Actor) -> None:
    """Take the group along, as the command line does."""
    feed = known_feed(actor.feed.control, "orders")
    mirror_group(feed.feed_id, actor.world.group, actor.feed, batch_id=None, actor=actor.name)


def moves_an_offset_by_hand(actor: Actor) -> str:
    """Change a row behind the protocol's back while a batch is open: nobody may, and some operator will."""
    actor.pause("moves a stored offset by hand")
    return "moved" if move_by_hand(actor.world.feed.control, BY_HAND) else "no batch is open"


def move_by_hand(control: InMemoryControlTables, by: int) -> bool:
    """Move the stored offset of partition 1 where a batch is open."""
    with control.transaction() as state:
        (row,) = state.feeds.values()
        if state.open_live_batch(row.feed_id) is None:
            return False
        key = (row.feed_id, partition(1))
        state.stored[key] = replace(state.stored[key], next_offset=state.stored[key].next_offset + by)
        state.touch(row.feed_id)
    return True
