"""What the next run does with a feed's open batch: resume it, or abandon it where its ranges left the log."""

import logging

from kafka_ingest.batches.ask_kafka import ask_about_batch, ask_about_plan
from kafka_ingest.batches.pin_receipt import pin_first_valid_receipt
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import listing
from kafka_ingest.planning.open_batch import decide_open_batch, held_topics
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.parts import Parts

log = logging.getLogger(__name__)


def resume_open_batch(
    feed: FeedSnapshot, batch: Batch, settings: FeedPlanSettings, parts: Parts, *, actor: str | None
) -> bool:
    """Return whether an open batch can be resumed; where it cannot be read any more, abandon it and return False.

    WRITTEN and COMMITTING batches are resumed without a question to Kafka. A PLANNED batch with a valid receipt is
    pinned; without one it is compared with the log, because its ranges will be read (again).
    Without an actor nothing is written: raises what stops the feed at this batch until an operator decides.
    """
    if batch.state is not BatchState.PLANNED:
        return True
    if actor is None:
        held_topics(batch, ask_about_plan(batch.plan, parts.kafka), settings)
        return True
    if pin_first_valid_receipt(batch, parts, actor=actor):
        return True
    decision = decide_open_batch(feed, batch, ask_about_batch(feed, batch.plan, settings, parts.kafka), settings)
    if not decision.problems:
        if decision.lost:
            log.warning("batch %s is resumed without what was deleted: %s", batch.batch_id, listing(decision.lost))
        # Kafka may take long to answer: an operator may have abandoned the batch in the meantime.
        return parts.control.batch(batch.batch_id).state.is_open
    # A Spark that ended while Kafka was asked may have written what the log has lost: check once more.
    if pin_first_valid_receipt(batch, parts, actor=actor):
        return True
    reason, only_from = f"its ranges can no longer be read: {listing(decision.problems)}", {BatchState.PLANNED}
    try:
        parts.control.abandon(batch.batch_id, only_from=only_from, reason=reason, actor=actor, jumps=decision.jumps)
    except BatchStateError as error:
        log.info("%s", error)
    else:
        log.warning("batch %s is abandoned: %s", batch.batch_id, reason)
        for gap in (gap for jump in decision.jumps for gap in jump.gaps):
            log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)
    return False
