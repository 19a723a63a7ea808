"""``rename-feed``: another name for a feed, which keeps its offsets and history."""

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import WrongUseError
from kafka_ingest.operating.known_feed import known_feed
from kafka_ingest.settings.feed import NAME
from kafka_ingest.verbs.decided import Decided


def rename(control: SqlControlTables, old: str, new: str, decided: Decided | None) -> Answer:
    """Rename a feed in the control tables, or show whether it can be."""
    feed = known_feed(control, old)
    if control.feed(new) is not None:
        raise WrongUseError(
            f"the control tables know a feed {new!r} already; a name is one feed's. Nothing was changed."
        )
    if not NAME.fullmatch(new):
        raise WrongUseError(f"expected a name that a feed file can have, found {new!r}. Nothing was changed.")
    executed = decided is not None
    if decided is not None:
        control.rename_feed(feed, new, reason=decided.reason, actor=decided.actor)
    text = f"feed {old} {'is now' if executed else 'would be'} {new}; its offsets and batches are kept"
    document = {"feed_id": str(feed.feed_id), "was": old, "is": new, "executed": executed}
    return Answer(document, [Line(text)], only_shown=not executed)
