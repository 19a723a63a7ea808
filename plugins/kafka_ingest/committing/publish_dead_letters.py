"""The dead letters of a batch: checked with its data, and published after it, in an output of their own.

The data is published first. Its marker decides whether the batch is published or revoked; so dead letters are visible
only of batches that cannot be abandoned any more. The stored offsets move after both.
"""

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.model.batch import Attempt, Batch, BatchPlan
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters, where_they_are
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.ports.outputs import Sink, Sinks


def check_dead_letters(batch: Batch, attempt: Attempt, receipt: Receipt, sinks: Sinks) -> None:
    """Ask before COMMITTING whether the dead letters can be published, and check their files; moves nothing.

    Raises what :meth:`Publisher.can_take` and :meth:`Staging.verify` raise.
    """
    if not receipt.dead_letters:
        return
    sink = sinks(output_of_dead_letters(batch.plan.output))
    directory, letters = staged_dead_letters(attempt.directory), receipt.of_dead_letters()
    # Beside the output, whose storage was found available before.
    sink.publisher.prepare()
    sink.publisher.can_take(directory, letters)
    sink.staging.verify(directory, letters)


def publish_dead_letters(batch: Batch, attempt: Attempt, receipt: Receipt, sinks: Sinks) -> None:
    """Make the dead letters of a published batch visible, once; does nothing where that was done."""
    if not receipt.dead_letters:
        return
    letters = sinks(output_of_dead_letters(batch.plan.output))
    publish_letters(batch.plan, staged_dead_letters(attempt.directory), receipt, letters)


def publish_letters(plan: BatchPlan, staged: Place, receipt: Receipt, letters: Sink) -> None:
    letters.publisher.prepare()
    try:
        letters.publisher.publish(staged, PublishedReceipt(plan, receipt.of_dead_letters(), ()))
    except OutputConflictError as error:
        raise OutputConflictError(
            f"batch {plan.batch_id}: its rows are published, but its dead letters cannot be, and no offset was moved. "
            f"Expected them in {staged} or in {where_they_are(plan.output)}; found: "
            f"{str(error).partition('. ')[0].rstrip('.')}. Restore them from a backup and run it again; or "
            "give these dead letters up, for good: "
            f"`kafka-ingest dead-letters {plan.feed_name} --batch {plan.batch_id} --give-up --reason …`."
        ) from error
