"""What an output's receipts say of rows that later batches have replaced. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.removal import RemovalCause


def with_replaced(receipts: Sequence[PublishedReceipt]) -> list[PublishedReceipt]:
    """Return receipts with what others have replaced of each, and with its files judged without those rows."""
    landed = [published.plan.replaces for published in receipts if has_landed(published)]
    replaced = {(each.batch_id, each.topic_partition) for replaces in landed for each in replaces}
    found: list[PublishedReceipt] = []
    for published in receipts:
        batch_id, ranges = published.plan.batch_id, published.plan.ranges if replaced else ()
        gone = {each.topic_partition for each in ranges if (batch_id, each.topic_partition) in replaced}
        found.append(without(published, gone))
    return found


def has_landed(published: PublishedReceipt) -> bool:
    """Whether a batch was published, and so has replaced what its plan names, whatever became of its own rows since."""
    if published.removal is not None:
        return published.removal.cause is RemovalCause.EXPIRED or published.files.is_marked
    files = published.files
    was_counted = files.state is FilesState.GONE and files.rows is not None
    return files.state in {FilesState.INTACT, FilesState.CHANGED} or was_counted


def without(published: PublishedReceipt, replaced: set[TopicPartition]) -> PublishedReceipt:
    """Return a receipt with the partitions whose rows were replaced; what is left of it counts as all of it."""
    if not replaced:
        return published
    found = replace(published, replaced=frozenset(replaced))
    if published.files.rows == rows_left(found):
        return replace(found, files=FoundFiles(FilesState.INTACT, rows=published.files.rows))
    return found


def rows_left(published: PublishedReceipt) -> int:
    """Return how many of a batch's rows should be in the output: those that no other batch has replaced."""
    held = (held for file in published.receipt.files for held in file.partitions)
    return sum(each.rows for each in held if each.topic_partition not in published.replaced)
