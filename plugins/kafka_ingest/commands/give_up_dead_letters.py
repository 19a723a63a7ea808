"""``dead-letters --give-up``: remove a batch's dead letters for good, or record that they are lost."""

from uuid import UUID

from kafka_ingest.commands.answer import Answer, Line, number
from kafka_ingest.commands.decided import Decided
from kafka_ingest.commands.tables import moment
from kafka_ingest.operating.give_up_dead_letters import give_up_dead_letters as give_up
from kafka_ingest.operating.give_up_dead_letters import letters_to_give_up
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks


def give_up_dead_letters(batch_id: UUID, control: OperatorTables, sinks: Sinks, decided: Decided | None) -> Answer:
    """Give the dead letters of a batch up, or show what that comes to."""
    if decided is None:
        return would_give_up(batch_id, control, sinks)
    records = give_up(batch_id, control, sinks, reason=decided.reason, actor=decided.actor)
    document = {"feed": control.batch(batch_id).feed_name, "batch_id": str(batch_id), "given_up": records}
    return Answer(document, [Line(f"gave up {number(records)} dead letters of batch {batch_id}")])


def would_give_up(batch_id: UUID, control: OperatorTables, sinks: Sinks) -> Answer:
    """Show how many dead letters would be given up."""
    found = letters_to_give_up(batch_id, control, sinks)
    feed, records, removal = found.batch.feed_name, number(found.records), found.removal
    if removal is not None:
        by = f"{removal.actor} on {moment(removal.at)} UTC: {removal.reason}"
        line = Line(f"the {records} dead letters of batch {batch_id} of feed {feed} were removed before, by {by}")
    else:
        line = Line(f"would give up the {records} dead letters of batch {batch_id} of feed {feed}, and remove them")
    return Answer(
        {
            "feed": feed,
            "batch_id": str(batch_id),
            "dead_letters": found.records,
            "removed_before": removal is not None,
            "executed": False,
        },
        [line],
        only_shown=removal is None,
    )
