"""``restore``: publish the staged files of an abandoned batch."""

from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line, mirror_lines
from kafka_ingest.backfilling.restore import RestoreDecision, decide_restore, restore
from kafka_ingest.committing.commit_batch import IN_ONE, Committed
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.dead_letters import where_they_are
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import listing
from kafka_ingest.verbs.fields import BatchId
from kafka_ingest.verbs.request import MOST_LISTED, Argument, Call, Needed, Request


class Restore(Request):
    """Publish the staged files of an abandoned batch: new batches hold those of its offsets that no other batch has."""

    verb = command = "restore"
    does = "publishes the staged files of an abandoned batch"
    command_names_feed = needs_feed = False

    batch_id: Annotated[BatchId, Needed("a batch's id"), Argument("The abandoned batch's id.", "BATCH")] = None

    def answer(self, call: Call) -> Answer:
        batch_id, decided = call.batch_named(self.batch_id), call.decided
        parts = call.parts_of(call.control.batch(batch_id).feed_name)
        decision = decide_restore(batch_id, parts)
        parts.check_output_known()
        into: list[UUID] = []
        if decided is not None:
            into = restore(decision, parts, reason=decided.reason, actor=decided.actor)
            for each in into:
                with call.step("commit"):
                    committed = parts.commit(each, actor=decided.actor)
                for line in committed_lines(committed):
                    call.tell(line)
        executed = decided is not None and not decision.is_nothing
        return Answer(
            {
                "feed": parts.feed.name,
                "batch_id": str(batch_id),
                "attempt": decision.attempt.attempt,
                **document_of(decision, "live", "fill", "held", "cut_off"),
                "begun": [str(each.batch_id) for each in decision.begun],
                "into": [str(each) for each in into],
                "executed": executed,
            },
            shown_restored(decision, into),
            only_shown=not executed and not decision.is_nothing,
        )

    @classmethod
    def what_there_is(cls, call: Call, feed_name: str) -> str:
        """Return a feed's newest abandoned batches."""
        batches = call.control.batch_summaries(
            feed_name, kinds=[], states=[BatchState.ABANDONED], since=None, limit=MOST_LISTED
        )
        found = listing(f"{each.batch_id} ({each.reason})" for each in batches)
        return f"Feed {feed_name} has abandoned batches: {found or 'none'}."


def shown_restored(decision: RestoreDecision, into: list[UUID]) -> Iterator[Line]:
    texts = (
        (decision.live, "from the stored offset on, which moves"),
        (decision.fill, "below the stored offset, where it closes the gaps"),
        (decision.held, "left out: other batches hold it, or are about to"),
        (decision.cut_off, "left out: the log was truncated since, and other records are there now"),
    )
    for ranges, text in texts:
        for each in ranges:
            yield Line(f"{each}: {text}")
    for begun in decision.begun:
        yield Line(f"batch {begun.batch_id} was planned by an earlier call and is {begun.state}")
    if decision.is_nothing:
        yield Line(f"nothing of batch {decision.batch.batch_id} is left to restore")
    elif into:
        yield Line(f"committed with {', '.join(map(str, into))}")


def committed_lines(committed: Committed) -> Iterator[Line]:
    output = committed.batch.plan.output
    rows = sum(count.rows for count in committed.counts)
    done = "committed" if committed.by_us else f"{committed.batch.committed_by} was first and committed"
    yield Line(f"{done} {counted(rows, 'row')} into {output}{IN_ONE if committed.in_one else ''}")
    if letters := sum(count.dead_letters for count in committed.counts):
        yield Line(f"{counted(letters, 'record')} became dead letters: {where_they_are(output)}")
    if filtered := sum(count.filtered for count in committed.counts):
        yield Line(f"{counted(filtered, 'record')} {were(filtered)} filtered")
    yield from mirror_lines(committed.mirrored.failure)
