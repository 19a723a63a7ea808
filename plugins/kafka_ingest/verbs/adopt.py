"""``adopt``: rebuild a feed's control rows from its output's receipts."""

from collections.abc import Iterator
from itertools import chain

from kafka_ingest.answers.answer import Answer, Line, mirror_lines
from kafka_ingest.answers.documents import adoption_document
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import adoption_table
from kafka_ingest.assembly import FeedParts
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.published_output import FilesState
from kafka_ingest.operating.adopt import AdoptDecision, decide_adoption
from kafka_ingest.operating.adopt import adopt as adopt_output
from kafka_ingest.verbs.decided import Decided


def adopt(parts: FeedParts, decided: Decided | None) -> Answer:
    """Adopt the output, or show what that comes to."""
    output = parts.plan_settings.output
    sink = parts.sinks(output)
    decision = decide_adoption(parts.plan_settings, parts.control, sink)
    mirror_failure = None
    if decided is not None and not decision.is_nothing:
        letters = parts.sinks(output_of_dead_letters(output))
        adopt_output(decision, parts.control, sink, reason=decided.reason, actor=decided.actor, letters=letters)
        mirror_failure = parts.mirror(actor=decided.actor).failure
    executed = decided is not None and not decision.is_nothing
    return Answer(
        adoption_document(parts.feed.name, decision, executed=executed) | {"mirror_failure": mirror_failure},
        chain(lines_of(parts.feed.name, decision, executed=executed), mirror_lines(mirror_failure)),
        only_shown=not decision.is_nothing and not executed,
    )


def lines_of(feed_name: str, decision: AdoptDecision, *, executed: bool) -> Iterator[Line | FittingTable]:
    """Yield the stored offsets before and after, what is adopted, and files that differ from their receipts."""
    if decision.is_nothing:
        yield Line(f"nothing to adopt: the control tables know all {counted(decision.known, 'batch')} of the output")
        return
    yield adoption_table(feed_name, decision)
    adoption = decision.adoption
    yield Line(
        f"{'adopted' if executed else 'would adopt'} {counted(len(adoption.batches), 'batch')} and "
        f"{counted(len(adoption.gaps), 'gap')} "
        f"of feed {decision.target.feed_id}"
    )
    if adoption.abandoned is not None:
        yield Line(
            f"{'abandoned' if executed else 'would abandon'} open batch {adoption.abandoned}: later batches read its "
            "ranges"
        )
    fates = {
        FilesState.CHANGED: "taken as it is: `kafka-ingest coverage --verify` counts it",
        FilesState.GONE: f"{'' if executed else 'would be '}recorded as removed",
        FilesState.EXPIRED: "it expired",
        FilesState.STAGED: f"{'' if executed else 'would be '}published now: its commit ended half way",
    }
    for batch_id, found in adoption.files.items():
        yield Line(f"batch {batch_id}: {found.difference}; {fates[found.state]}", "yellow", aside=True)
