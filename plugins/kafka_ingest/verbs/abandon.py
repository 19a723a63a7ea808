"""``abandon`` and ``restore``: give an open batch up, and publish the staged files of one that was given up."""

from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

from kafka_ingest.batches.commit_batch import pinned_attempt
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.batches.restore import RestoreDecision, decide_restore, restore
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import listing
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.run_request import InForm
from kafka_ingest.verbs.answer import Answer, Line, committed_lines
from kafka_ingest.verbs.request import BATCH, MOST_LISTED, Argument, BatchId, Call, Deciding, Needed, Option, Request


class Abandon(Request):
    """Abandon an open batch. No offset moves: the next plan reads its ranges again. Refused once it is published."""

    verb = command = "abandon"
    does = "gives an open batch up"
    deciding = Deciding.REASON
    command_names_feed = needs_feed = False

    batch_id: Annotated[BatchId, Needed("a batch's id"), Argument("The batch's id.", "BATCH")] = None
    lost_output: Annotated[
        bool,
        InForm(
            "Its output is gone",
            "For abandon: gone for good, and need not be asked whether it was published.",
            BATCH.section,
        ),
        Option("Its output is gone for good, and need not be asked."),
    ] = False

    def answer(self, call: Call) -> Answer:
        batch_id, decided = call.batch_named(self.batch_id), call.decided
        if decided is None:
            return would_abandon(batch_id, call.control, call.sinks, output_is_lost=self.lost_output)
        was = abandon(
            batch_id,
            call.control,
            call.sinks,
            reason=decided.reason,
            actor=decided.actor,
            output_is_lost=self.lost_output,
        )
        files = "its staged files were revoked" if was is BatchState.COMMITTING else "its files stay where they are"
        return Answer(
            {"batch_id": str(batch_id), "was": was.value, "state": BatchState.ABANDONED.value, "executed": True},
            [Line(f"batch {batch_id} is abandoned; {files}, and no offset moved")],
        )


def abandonable(
    batch_id: UUID, control: ControlTables, sinks: Sinks, *, output_is_lost: bool = False
) -> tuple[Batch, bool]:
    """Return a batch that may be abandoned, and whether it may be published already; nothing is written.

    A receipt is kept before its files become visible, so only revoking can find out which came first. Raises
    BatchStateError where the batch has ended or readers see its rows, OutputUnavailableError where its output is not
    available.
    """
    batch = control.batch(batch_id)
    if not batch.state.is_open:
        raise BatchStateError(ended(batch))
    if batch.state is not BatchState.COMMITTING or output_is_lost:
        return batch, False
    check_output_there(batch.plan.feed_id, batch.plan.output, control, sinks)
    sink = sinks(batch.plan.output)
    if str(batch_id) not in sink.publisher.known_batches(since=batch_id):
        return batch, False
    if sink.inspector is not None and sink.inspector.look_at(batch_id).counts:
        raise BatchStateError(
            f"batch {batch_id} is published already, so it cannot be abandoned any more: it only rolls forward. Run "
            "the feed, or its commit task, again. Nothing was changed."
        )
    return batch, True


def ended(batch: Batch) -> str:
    return f"batch {batch.batch_id} {batch.end}: there is nothing to abandon. Nothing was changed."


def abandon(
    batch_id: UUID, control: ControlTables, sinks: Sinks, *, reason: str, actor: str, output_is_lost: bool = False
) -> BatchState:
    """→ ABANDONED, and return the former state; no offset moves, so the next plan reads the ranges again.

    A COMMITTING batch is revoked first: its staged files are taken from a task that may be publishing them, and only
    then the control tables change. A crash in between leaves it COMMITTING and unpublishable; running this again
    finishes it. Raises BatchStateError where the batch is published or has ended, OutputUnavailableError where its
    output is not available: ``output_is_lost`` means that it never will be again.
    """
    batch = control.batch(batch_id)
    was = batch.state
    try:
        if was is BatchState.COMMITTING:
            revoke(batch, control, sinks, output_is_lost=output_is_lost)
            control.abandon(batch_id, only_from={BatchState.COMMITTING}, reason=reason, actor=actor)
        else:
            control.abandon(batch_id, reason=reason, actor=actor)
    except BatchStateError as error:
        found = control.batch(batch_id)
        if not found.state.is_open:
            raise BatchStateError(ended(found)) from error
        if found.state is was or found.state is not BatchState.COMMITTING:
            raise
        # A commit began in the meantime.
        return abandon(batch_id, control, sinks, reason=reason, actor=actor, output_is_lost=output_is_lost)
    return was


def revoke(batch: Batch, control: ControlTables, sinks: Sinks, *, output_is_lost: bool) -> None:
    sink = sinks(batch.plan.output)
    if output_is_lost:
        sink.publisher.prepare()
    else:
        check_output_there(batch.plan.feed_id, batch.plan.output, control, sinks)
    sink.publisher.revoke(pinned_attempt(batch, control).directory, batch.batch_id)


def would_abandon(batch_id: UUID, control: ControlTables, sinks: Sinks, *, output_is_lost: bool) -> Answer:
    batch, may_be_published = abandonable(batch_id, control, sinks, output_is_lost=output_is_lost)
    if may_be_published:
        files = "its commit has begun to publish it: refused if readers see it, else its staged files would be revoked"
    elif batch.state is BatchState.COMMITTING:
        files = "its staged files would be revoked"
    else:
        files = "its files would stay where they are"
    kind, ranges = batch.plan.kind, batch.plan.ranges
    return Answer(
        {
            "batch_id": str(batch_id),
            "was": batch.state.value,
            "state": batch.state.value,
            "feed": batch.feed_name,
            "kind": kind.value,
            "ranges": [each.as_document() for each in ranges],
            "may_be_published": may_be_published,
            "executed": False,
        },
        [
            Line(f"would abandon {kind} batch {batch_id} of feed {batch.feed_name}, which is {batch.state}; {files}"),
            Line(f"no offset would move: {listing(ranges)} can be planned again"),
        ],
        only_shown=True,
    )


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
