"""Where outputs may be, and which of two feeds that claim one name, output or group keeps running."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.place import OutputLocation, Place
from kafka_ingest.ports.control import ControlTables


def is_taken(places: Iterable[Place], others: Iterable[Place]) -> bool:
    """Whether one of an output's places is one of another's, is inside it, or contains it.

    Symbolic links are followed, and connections do not count: two may lead to one bucket.
    """
    mine, theirs = ([folders_to(each) for each in some] for some in (places, others))
    return any(one[0] in there or there[0] in one for one in mine for there in theirs)


def folders_to(place: Place) -> list[str]:
    """Return a place and the folders that it is in, as texts that are equal where they are one."""
    if isinstance(place, Path):
        resolved = place.resolve()
        return [str(each) for each in (resolved, *resolved.parents)]
    found = [place.without_connection]
    while found[-1].parent != found[-1]:
        found.append(found[-1].parent)
    return [str(each) for each in found]


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
