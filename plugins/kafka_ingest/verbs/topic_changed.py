"""``topic-changed``: show the topics that changed under the stored offsets, and decide."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from kafka_ingest.assembly import kafka_at
from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.control_rows import StartOver
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.settings.run_request import InForm, Lines, Text, blank_is_none
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, mirror_lines, number, row_document
from kafka_ingest.verbs.found_offsets import Mirrored, mirrored_offsets, said_of
from kafka_ingest.verbs.request import TOPICS, Call, Option, Request
from kafka_ingest.verbs.topic_changes import (
    CHOICE_IN_WORDS,
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
    rows_to_mirror,
)


class TopicChanged(Request):
    """Show the topics that changed under the stored offsets, and decide: resolves a stop by topic id or cluster id."""

    verb = command = "topic-changed"
    does = "shows which topics changed under the stored offsets, and applies a choice"
    to_do = "nothing was changed: --choice shows what it would do, with --execute --reason … it is done"

    topics: Annotated[Lines, TOPICS, Option("Only this topic; may be repeated.", flag="--topic")] = Field(
        default_factory=list
    )
    choice: Annotated[
        Choice | None,
        BeforeValidator(blank_is_none),
        InForm(
            "What the topics hold now",
            "The dry run says which choices fit, and shows what each would do.",
            "topic-changed",
        ),
        Option(
            "Other records: read from the beginning. The same under another id: keep the offsets. Copies in another "
            "cluster: by their times. Gone for good: end."
        ),
    ] = None
    old_connection: Annotated[
        Text,
        InForm("The old cluster's connection", "For by-time: the cluster of the stored offsets.", "topic-changed"),
        Option("For by-time: the connection that still leads to the cluster of the stored offsets.", metavar="CONN_ID"),
    ] = None
    open_batch: Annotated[
        BatchChoice | None,
        BeforeValidator(blank_is_none),
        InForm(
            "The open batch",
            "What to do with a batch that was read while its topic changed. accept comes alone.",
            "topic-changed",
        ),
        Option("What to do with an open batch that was read while its topic changed.", flag="--batch"),
    ] = None

    def answer(self, call: Call) -> Answer:
        choice, batch, decided = self.choice, self.open_batch, call.decided
        named, accept = call.named("choice"), f"{call.named('open_batch')} accept"
        if decided is not None and choice is None and batch is not BatchChoice.ACCEPT:
            raise call.missing(f"{named}, or {accept},")
        if choice is not None and batch is BatchChoice.ACCEPT:
            raise WrongUseError(
                f"expected {named} or {accept}, found both: a batch that is accepted is committed first "
                "(`kafka-ingest run`), and the topic decided then. Nothing was changed."
            )
        parts = call.parts
        parts.check_output_known()
        name = parts.feed.name
        changes = changes_of(name, self.topics, parts.plan_settings, parts.control, parts.kafka)
        mirrored = self.mirrored(changes, call)
        after = rows_after(changes, choice, parts.plan_settings, mirrored) if choice is not None else None
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
            change_document(changes, choices, after, executed=executed)
            | ({"by_time": mirrored_document(mirrored)} if choice is Choice.BY_TIME else {})
            | {"mirror_failure": mirror_failure},
            chain(
                lines_of(changes, choices, after, batch, call.named, executed=executed),
                map(Line, said_of(mirrored) if choice is Choice.BY_TIME else ()),
                mirror_lines(mirror_failure),
            ),
            only_shown=bool(changes.topics) and not executed,
        )

    def mirrored(self, changes: Changes, call: Call) -> dict[TopicPartition, Mirrored]:
        if (self.choice is Choice.BY_TIME) != (self.old_connection is not None):
            raise WrongUseError(
                f"expected {call.named('choice')} by-time and {call.named('old_connection')} together, found only one. "
                "Nothing was changed."
            )
        if self.choice is not Choice.BY_TIME:
            return {}
        settings = call.parts.plan_settings
        rows = rows_to_mirror(changes, settings)
        old = kafka_at(None, self.old_connection, call.find_connection)
        return mirrored_offsets(rows, changes.feed, settings.isolation, old, call.parts.kafka)


def mirrored_document(mirrored: Mapping[TopicPartition, Mirrored]) -> list[dict[str, Any]]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": each.offset,
            "time": each.time.isoformat() if each.time is not None else None,
            "read_twice_at_most": each.again,
            "may_miss": each.may_miss,
        }
        for tp, each in sorted(mirrored.items())
    ]


def change_document(
    changes: Changes, choices: Mapping[str, Sequence[Choice]], after: list[StartOver] | None, *, executed: bool
) -> dict[str, Any]:
    return {
        "feed": changes.feed.name,
        "cluster_id": {"was": changes.feed.cluster_id, "is": changes.cluster_id},
        "open_batch": str(changes.affected.batch_id) if changes.affected else None,
        "topics": [
            {
                "topic": change.topic,
                "topic_id": {"was": change.known_id, "is": change.found_id},
                "exists": change.found is not None,
                "log_ended_at": [
                    {"partition": tp.partition, "offset": end} for tp, end in sorted(change.log_ends.items())
                ],
                "choices": [choice.value for choice in choices[change.topic]],
                "stored": [row_document(row) for row in change.stored],
            }
            for change in changes.topics
        ],
        "after": None if after is None else [row_document(row) for topic in after for row in topic.rows],
        "executed": executed,
    }


def changes_table(changes: Changes, after: list[StartOver] | None) -> FittingTable:
    numbers = ("partition", "stored offset", "log ended at", "after")
    made = FittingTable(
        f"what changed under feed {changes.feed.name}",
        *("topic", "topic id then", "topic id now", *numbers),
        numbers=numbers,
    )
    rows_after = {row.topic_partition: row for topic in after or [] for row in topic.rows}
    for change in changes.topics:
        rows_now = {row.topic_partition: row for row in change.stored}
        for tp in sorted(rows_now.keys() | {tp for tp in rows_after if tp.topic == change.topic}):
            row, new = rows_now.get(tp), rows_after.get(tp)
            shown = "" if after is None else "ends" if new is None else number(new.next_offset)
            ids = (change.known_id or "not known", change.found_id or ("not known" if change.found else "gone"))
            offsets = (row.next_offset if row else None, change.log_ends.get(tp))
            new_one = f"by {new.seeded_by}" if new is not None and new.is_pending else shown
            made.add_line(change.topic, *ids, str(tp.partition), *offsets, new_one)
    return made


def lines_of(
    changes: Changes,
    choices: Mapping[str, Sequence[Choice]],
    after: list[StartOver] | None,
    batch: BatchChoice | None,
    named: Callable[[str], str],
    *,
    executed: bool,
) -> Iterator[Line | FittingTable]:
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
        yield from lines_of_choices(choices, named)
    elif batch is BatchChoice.ACCEPT:
        yield Line("its receipt counts now: `kafka-ingest run` commits it")
    else:
        yield Line("done")


def lines_of_choices(choices: Mapping[str, Sequence[Choice]], named: Callable[[str], str]) -> Iterator[Line]:
    for fitting in dict.fromkeys(tuple(found) for found in choices.values()):
        topics = [topic for topic, found in choices.items() if tuple(found) == fitting]
        of_topics = f" of {listing(topics)} ({named('topics')})" if len(topics) < len(choices) else ""
        yield Line(f"choices{of_topics}:" if fitting else f"no choice fits{of_topics}")
        for choice in fitting:
            yield Line(f"  {named('choice')} {choice.value:<13} {CHOICE_IN_WORDS[choice]}")
