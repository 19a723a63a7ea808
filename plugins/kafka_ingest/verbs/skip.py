"""``skip``: jump over an interval of offsets, and file it as a gap."""

from kafka_ingest.answers.answer import Answer, Line, mirror_lines
from kafka_ingest.assembly import FeedParts
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.operating.skip import SkipDecision, decide_skip
from kafka_ingest.operating.skip import skip as file_gap
from kafka_ingest.verbs.decided import Decided

SHOWN_ONLY = "shown only"


def skip(parts: FeedParts, interval: OffsetRange, decided: Decided | None) -> Answer:
    """Skip an interval, or show what that comes to."""
    parts.check_output_known()
    name = parts.feed.name
    reason = decided.reason if decided is not None else SHOWN_ONLY
    decision = decide_skip(name, interval, reason, parts.control, parts.kafka)
    gap_id, mirror_failure = None, None
    if decided is not None:
        gap_id = str(file_gap(decision, parts.control, actor=decided.actor).gap_id)
        mirror_failure = parts.mirror(actor=decided.actor).failure if decision.moves_stored_offset else None
    document = {
        "feed": name,
        "gap_id": gap_id,
        "topic": interval.topic,
        "partition": interval.partition,
        "start_offset": interval.start_offset,
        "end_offset": interval.end_offset,
        "acknowledges_gap": decision.acknowledged is not None,
        "moves_stored_offset_now": decision.moves_stored_offset,
        "executed": decided is not None,
        "mirror_failure": mirror_failure,
    }
    lines = [Line(sentence(interval, decision, executed=decided is not None)), *mirror_lines(mirror_failure)]
    return Answer(document, lines, only_shown=decided is None)


def sentence(interval: OffsetRange, decision: SkipDecision, *, executed: bool) -> str:
    """Return what was done, or would be."""
    if decision.acknowledged is not None:
        did = "acknowledged" if executed else "would acknowledge"
        why = f"{decision.acknowledged.cause.value}: {decision.acknowledged.reason}"
        return (
            f"{did} gap {interval}, {counted(interval.span, 'offset')} ({why}); it stays, and a backfill can "
            f"still read it"
        )
    if not decision.moves_stored_offset:
        moved = f"reading continues up to {interval.start_offset:,}, then jumps"
    elif executed:
        moved = f"the stored offset is now {interval.end_offset:,}"
    else:
        moved = f"the stored offset would move to {interval.end_offset:,}"
    return f"{'filed' if executed else 'would file'} gap {interval}, {counted(interval.span, 'offset')}; {moved}"
