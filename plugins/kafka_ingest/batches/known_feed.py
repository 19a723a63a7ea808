"""Find what is named: a feed by an operator, a batch by an operator or by a task's XCom, which anyone may have set."""

from dataclasses import replace
from uuid import UUID

from kafka_ingest.errors import OutputConflictError, OutputUnavailableError, UnknownBatchError, UnknownFeedError
from kafka_ingest.model.batch import Batch, BatchPlan
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.ports.outputs import Sinks


def known_feed(control: ControlReader, name: str) -> FeedSnapshot:
    """Return a feed's control rows; raises UnknownFeedError where it was never planned."""
    feed = control.feed(name)
    if feed is None:
        raise UnknownFeedError(
            f"expected a feed that was planned before, found {name!r}, which is not in the control tables. Is this the "
            "right control database? `kafka-ingest status` lists its feeds."
        )
    return feed


def batch_of_feed(batch_id: UUID, feed_name: str, control: ControlReader) -> Batch:
    """Return a feed's batch; raises UnknownBatchError where it is another's, or there is none."""
    batch = control.batch(batch_id)
    if batch.feed_name != feed_name:
        raise UnknownBatchError(
            f"expected a batch of feed {feed_name}, found {batch_id}, which is feed {batch.feed_name}'s. Nothing was "
            f"changed. `kafka-ingest batches {feed_name}` lists those of {feed_name}."
        )
    return batch


def whole_plan(plan: BatchPlan, sinks: Sinks) -> BatchPlan:
    """Return a plan with its ranges; raises what :func:`receipt_of_folded` does where it is folded."""
    return plan if plan.folded is None else receipt_of_folded(plan.batch_id, plan.folded, plan.output, sinks).plan


def plan_read(batch: Batch, sinks: Sinks) -> BatchPlan:
    """Return a batch's plan with those of its ranges that it reads or has read; raises what :func:`whole_plan` does."""
    plan = batch.plan
    if plan.folded is None:
        return replace(plan, ranges=batch.ranges_read)
    return plan_as_read(receipt_of_folded(plan.batch_id, plan.folded, plan.output, sinks))


def plan_as_read(published: PublishedReceipt) -> BatchPlan:
    """Return the plan of a published batch with those of its ranges that it has read."""
    return replace(published.plan, ranges=published.ranges_read)


def receipt_of_folded(batch_id: UUID, fingerprint: str, output: OutputLocation, sinks: Sinks) -> PublishedReceipt:
    """Return what is kept of a folded batch beside its output, if it belongs to the plan with this fingerprint.

    Raises OutputUnavailableError where it is missing, OutputConflictError where it is of another plan or unusable.
    """
    published = sinks(output).archive.published_receipt(batch_id)
    if published is None:
        raise OutputUnavailableError(
            f"batch {batch_id} is folded: expected its receipt, which alone has its ranges, beside {output}, found "
            "none. Is that storage mounted? Otherwise restore the receipt from a backup. Nothing was changed."
        )
    if published.plan.fingerprint != fingerprint:
        raise OutputConflictError(
            f"batch {batch_id} is folded: expected the receipt of its plan, with fingerprint {fingerprint}, beside "
            f"{output}, found that of another, {published.plan.fingerprint}. Restore the receipt from a backup. "
            "Nothing was changed."
        )
    return published
