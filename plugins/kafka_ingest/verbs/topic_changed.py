"""``topic-changed``: show the topics that changed under the stored offsets, and decide."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from kafka_ingest.answers.answer import Answer, Line, mirror_lines
from kafka_ingest.answers.documents import change_document
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import changes_table
from kafka_ingest.assembly import FeedParts
from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.control_rows import StartOver
from kafka_ingest.model.offsets import listing
from kafka_ingest.operating.topic_changed import (
    BatchChoice,
    Changes,
    Choice,
    accept_batch,
    acceptable,
    apply_choice,
    changes_of,
    check_applicable,
    choices_of,
    rows_after,
)
from kafka_ingest.verbs.decided import Decided

CHOICE_IN_WORDS: Final = {
    Choice.START_OVER: "other records: read from the topic's beginning, on another cluster by the start rule",
    Choice.START_RULE: "a topic that appeared, and is not new: begin as the feed file's start says",
    Choice.REWIND: "the log was truncated: continue from where it ended",
    Choice.SAME_RECORDS: "the same records: keep the stored offsets",
    Choice.FORGET: "the topic is gone for good: its stored offsets end",
}


def check_choices(
    choice: Choice | None, batch: BatchChoice | None, named: tuple[str, str] = ("--choice", "--batch accept")
) -> None:
    """Raise WrongUseError where what is chosen excludes one another; ``named`` is what both are called."""
    if choice is not None and batch is BatchChoice.ACCEPT:
        raise WrongUseError(
            f"expected {' or '.join(named)}, found both: a batch that is accepted is committed first "
            "(`kafka-ingest run`), and the topic decided then. Nothing was changed."
        )


def topic_changed(
    parts: FeedParts,
    topics: Collection[str],
    choice: Choice | None,
    batch: BatchChoice | None,
    decided: Decided | None,
) -> Answer:
    """Apply a choice, or show what changed and what each choice would do."""
    parts.check_output_known()
    name = parts.feed.name
    changes = changes_of(name, topics, parts.plan_settings, parts.control, parts.kafka)
    after = rows_after(changes, choice, parts.plan_settings) if choice is not None else None
    choices = {change.topic: choices_of(change, changes, parts.plan_settings) for change in changes.topics}
    mirror_failure = None
    if batch is BatchChoice.ACCEPT:
        acceptable(changes, parts.control, parts.sinks)
    elif after is not None:
        check_applicable(changes, discard_batch=batch is BatchChoice.DISCARD)
    if decided is not None and batch is BatchChoice.ACCEPT:
        accept_batch(changes, parts.control, parts.sinks, reason=decided.reason, actor=decided.actor)
    elif decided is not None and after is not None:
        apply_choice(
            changes,
            after,
            parts.control,
            discard_batch=batch is BatchChoice.DISCARD,
            reason=decided.reason,
            actor=decided.actor,
        )
        mirror_failure = parts.mirror(actor=decided.actor).failure
    executed = decided is not None
    return Answer(
        change_document(changes, choices, after, executed=executed) | {"mirror_failure": mirror_failure},
        chain(lines_of(changes, choices, after, batch, executed=executed), mirror_lines(mirror_failure)),
        only_shown=bool(changes.topics) and not executed,
    )


def lines_of(
    changes: Changes,
    choices: Mapping[str, Sequence[Choice]],
    after: list[StartOver] | None,
    batch: BatchChoice | None,
    *,
    executed: bool,
) -> Iterator[Line | FittingTable]:
    """Yield what changed, what becomes of an open batch, and what was done or can be chosen."""
    if not changes.topics:
        yield Line(f"feed {changes.feed.name}: its cluster and all its topics are what they were")
        return
    yield changes_table(changes, after)
    if changes.is_other_cluster:
        yield Line(f"cluster {changes.feed.cluster_id} → {changes.cluster_id}")
    if changes.affected is not None:
        abandons = {(True, True): "; it is abandoned", (False, True): "; it would be abandoned"}
        fate = abandons.get((executed, batch is BatchChoice.DISCARD), "")
        yield Line(
            f"open batch {changes.affected.batch_id} was {changes.affected.state} and was planned on what changed{fate}"
        )
    if not executed:
        yield from lines_of_choices(choices)
    elif batch is BatchChoice.ACCEPT:
        yield Line("its receipt counts now: `kafka-ingest run` commits it")
    else:
        yield Line("done")


def lines_of_choices(choices: Mapping[str, Sequence[Choice]]) -> Iterator[Line]:
    """Yield what can be chosen, and for which topics where they differ."""
    for fitting in dict.fromkeys(tuple(found) for found in choices.values()):
        topics = [topic for topic, found in choices.items() if tuple(found) == fitting]
        of_topics = f" of {listing(topics)} (--topic)" if len(topics) < len(choices) else ""
        yield Line(f"choices{of_topics}:" if fitting else f"no choice fits{of_topics}")
        for choice in fitting:
            yield Line(f"  --choice {choice.value:<13} {CHOICE_IN_WORDS[choice]}")
