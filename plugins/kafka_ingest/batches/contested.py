"""Which of two feeds that claim one name, output or group keeps running: the one in the control tables.

The feed files alone do not decide it, and reading them uses no database; so each such feed has a DAG, and its plan task
decides.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.ports.control import ControlTables


@dataclass(frozen=True, slots=True)
class Claimant:
    """What a feed file says about where the feed reads and writes."""

    name: str
    output: OutputLocation | None
    """None where a relative path has no root here."""

    topics: Collection[str]
    topic_pattern: str | None


def keeps_running(feed: Claimant, rivals: Iterable[Claimant], control: ControlTables) -> bool:
    """Return whether a feed was first: the control tables have it with this output, and no rival with theirs."""
    known = control.feed(feed.name)
    if known is None or not writes_there(known, feed):
        return False
    rivals = list(rivals)
    if any(rival.name == feed.name for rival in rivals) and not reads_that(known, feed):
        # A copy with the same name: where it reads something else, the stored offsets are not its own.
        return False
    others = ((control.feed(rival.name), rival) for rival in rivals if rival.name != feed.name)
    return not any(snapshot is not None and writes_there(snapshot, rival) for snapshot, rival in others)


def writes_there(known: FeedSnapshot, feed: Claimant) -> bool:
    """Return whether the feed's output is that of its open or newest batch; a feed without a batch may write anywhere.

    Compared without ``..``: batches keep the path as KAFKA_INGEST_DATA spells it, since a path without ``..`` may lead
    elsewhere: ``..`` after a symbolic link is its target's parent.
    """
    used = [known.open_batch.plan.output] if known.open_batch is not None else []
    used += [known.published_to] if known.published_to is not None else []
    if not used:
        return True
    return feed.output is not None and feed.output.normalised in [output.normalised for output in used]


def reads_that(known: FeedSnapshot, feed: Claimant) -> bool:
    if feed.topic_pattern is not None or known.topic_pattern is not None:
        return feed.topic_pattern == known.topic_pattern
    return set(feed.topics) == set(known.topics)
