"""``dead-letters --give-up``: remove a batch's dead letters for good, or record that they are lost."""

from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line, number
from kafka_ingest.answers.tables import moment
from kafka_ingest.foundation.counting import counted
from kafka_ingest.operating.give_up_dead_letters import LettersOfBatch, letters_to_give_up
from kafka_ingest.operating.give_up_dead_letters import give_up_dead_letters as give_up
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.verbs.decided import Decided


def give_up_dead_letters(batch_id: UUID, control: OperatorTables, sinks: Sinks, decided: Decided | None) -> Answer:
    """Give the dead letters of a batch up, or show what that comes to."""
    if decided is None:
        return would_give_up(batch_id, control, sinks)
    records = give_up(batch_id, control, sinks, reason=decided.reason, actor=decided.actor)
    document = {"feed": control.batch(batch_id).feed_name, "batch_id": str(batch_id), "given_up": records}
    return Answer(document, [Line(f"gave up {counted(records, 'dead letter')} of batch {batch_id}")])


def would_give_up(batch_id: UUID, control: OperatorTables, sinks: Sinks) -> Answer:
    """Show how many dead letters would be given up."""
    found = letters_to_give_up(batch_id, control, sinks)
    feed, removal = found.batch.feed_name, found.removal
    rows = control.coverage(feed)
    replays = [each for each in (rows.replays if rows is not None else ()) if each.letters.batch_id == batch_id]
    replayed = sum(each.letters.number for each in replays if not each.is_open)
    still_open = sorted({str(each.by) for each in replays if each.is_open})
    return Answer(
        {
            "feed": feed,
            "batch_id": str(batch_id),
            "dead_letters": found.records,
            "replayed": replayed,
            "open_replays": still_open,
            "removed_before": removal is not None,
            "executed": False,
        },
        [
            Line(would_be_given_up(found, replayed), quotes=True),
            *(
                Line(f"batch {each} is about to replay some of them: finish it first, or abandon it", aside=True)
                for each in still_open
            ),
        ],
        only_shown=removal is None,
    )


def would_be_given_up(found: LettersOfBatch, replayed: int) -> str:
    """Return how many dead letters there are, and what became of them before."""
    letters = f"{counted(found.records, 'dead letter')} of batch {found.batch.batch_id} of feed {found.batch.feed_name}"
    if found.removal is not None:
        removal = found.removal
        by = f"{removal.actor} on {moment(removal.at)} UTC: {removal.reason}"
        return f"the {letters} were removed before, by {by}"
    but = f"; {number(replayed)} of them were replayed, and their rows stay" if replayed else ""
    return f"would give up the {letters}, and remove them{but}"
