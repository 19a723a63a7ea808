"""A batch as people name it."""

from uuid import UUID

from kafka_ingest.errors import UnknownBatchError


def id_of_batch(text: str) -> UUID:
    """Return a batch's id; raises UnknownBatchError on a text that is none."""
    try:
        return UUID(text)
    except ValueError as error:
        raise UnknownBatchError(f"expected a batch's id, found {text!r}; `kafka-ingest batches` lists them") from error
