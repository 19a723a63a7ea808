"""What does not expire with a batch, because another one holds it now. Pure."""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from kafka_ingest.model.offset_sets import subtract
from kafka_ingest.model.removal import RemovedRange
from kafka_ingest.model.replaced import Replacement


def without_taken_over(
    removed: Iterable[RemovedRange],
    batches: Collection[UUID],
    landed: Iterable[Replacement],
    ids: Mapping[tuple[str, str | None], str | None],
) -> list[RemovedRange]:
    """Return what is removed with some batches, without ranges of theirs that another batch holds now.

    ``landed`` are the replacements that were published or will be; ``ids`` the current ones of earlier topic ids whose
    records are the same.
    """
    by_replaced = {(each.replaced.batch_id, each.replaced.topic_partition): each for each in landed}
    taken: list[Replacement] = []
    for (batch_id, at), each in by_replaced.items():
        holder = each
        while (later := by_replaced.get((holder.by, at))) is not None:
            holder = later
        if batch_id in batches and holder.by not in batches:
            taken.append(each)

    def now(topic: str, topic_id: str | None) -> str | None:
        return ids.get((topic, topic_id), topic_id)

    return [
        RemovedRange(left, each.topic_id)
        for each in removed
        for topic in [each.offset_range.topic]
        for left in subtract(
            [each.offset_range],
            [one.replaced.offset_range for one in taken if now(topic, one.topic_id) == now(topic, each.topic_id)],
        )
    ]
