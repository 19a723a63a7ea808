"""Publishing or revoking too late: the errors of the one of the two that lost."""

from uuid import UUID

from kafka_ingest.errors import BatchRevokedError, BatchStateError


def how_to_abandon(batch_id: UUID) -> str:
    """Return how to end a batch that cannot be published."""
    return f"abandon the batch: `kafka-ingest abandon {batch_id} --reason …`, and the next run reads its ranges again"


def being_abandoned(batch_id: UUID) -> BatchRevokedError:
    """Return the error of publishing too late."""
    return BatchRevokedError(
        f"batch {batch_id} is being abandoned: an operator revoked its staged files. Nothing of it is visible and no "
        f"offset was moved. To finish that, {how_to_abandon(batch_id)}."
    )


def published_already(batch_id: UUID) -> BatchStateError:
    """Return the error of revoking too late."""
    return BatchStateError(
        f"batch {batch_id} is published already, so it cannot be abandoned any more: it only rolls forward. Run the "
        "feed, or its commit task, again. Nothing was changed."
    )
