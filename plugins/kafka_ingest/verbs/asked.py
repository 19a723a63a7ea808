"""What the form of ``operate_feed`` asks for, with what answers it."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line, number
from kafka_ingest.assembly import FeedParts, assemble_named, control_tables, sinks_of
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import InvalidOperationError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import listing
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.operate_form import Action, OperateForm
from kafka_ingest.verbs.decided import Decided, reason_given

MOST_LISTED: Final = 20
"""How many batches an error lists."""

WITHOUT_VALUES: Final = "what the records hold is not shown: show_values shows it, in this log and in the XCom"


@dataclass(frozen=True)
class Asked:
    """One request of a form, and who made it."""

    form: OperateForm
    actor: str
    find_connection: FindConnection

    @cached_property
    def control(self) -> SqlControlTables:
        """The control tables."""
        return control_tables(self.find_connection)

    @cached_property
    def sinks(self) -> Sinks:
        """Finds the sink of any output."""
        return sinks_of(self.find_connection)

    @cached_property
    def parts(self) -> FeedParts:
        """The parts of the feed that was chosen."""
        return assemble_named(self.feed_name, self.find_connection)

    @cached_property
    def feed_name(self) -> str:
        """The feed that was chosen; raises InvalidOperationError, which says which ones there are."""
        if self.form.feed is not None:
            return self.form.feed
        names = [file.feed.name for file in read_feed_files(feeds_directory()) if file.feed is not None]
        raise InvalidOperationError(
            f"expected a feed with action {self.form.action}, found none. Feeds: {listing(names) or 'none'}. Nothing "
            "was changed."
        )

    @cached_property
    def decided(self) -> Decided | None:
        """The decision, None where this is a dry run; raises WrongUseError where it has no reason."""
        return Decided(self.actor, reason_given(self.form.reason, "a reason")) if self.form.decides else None

    def shown_in_part(self, answer: Answer, *lists: str) -> Answer:
        """Return an answer that says, where one of its lists is of records, how their contents are shown."""
        if self.form.show_values or not any(answer.document[each] for each in lists):
            return answer
        return replace(answer, shown=[*answer.shown, Line(WITHOUT_VALUES)])

    @property
    def named_batch_id(self) -> UUID:
        """The batch that was named, whichever feed's it is; raises InvalidOperationError where there is none."""
        if self.form.batch_id is None:
            raise self.missing("a batch's id")
        return self.form.batch_id

    @cached_property
    def batch_id(self) -> UUID:
        """The batch that was named; raises InvalidOperationError where there is none, or where it is another feed's."""
        batch_id = self.named_batch_id
        self.check_batch_of_feed()
        return batch_id

    def check_batch_of_feed(self) -> None:
        """Raise InvalidOperationError where a feed was chosen and the batch is another's."""
        if self.form.batch_id is None or self.form.feed is None:
            return
        owner = self.control.batch(self.form.batch_id).feed_name
        if owner != self.form.feed:
            raise InvalidOperationError(
                f"expected a batch of feed {self.form.feed}, found {self.form.batch_id}, which is of feed {owner}. "
                f"{self.what_there_is()} Nothing was changed."
            )

    def missing(self, wanted: str) -> InvalidOperationError:
        """Return the error about what the action needs and the form does not say, with what the feed has."""
        text = f"expected {wanted} with action {self.form.action}, found none"
        return InvalidOperationError(f"{text}. {self.what_there_is()} Nothing was changed.")

    def what_there_is(self) -> str:
        """Return what an operator can decide about: batches, topics, what is held."""
        name = self.form.feed
        feed = self.control.feed(name) if name is not None else None
        if name is None or feed is None:
            names = [summary.name for summary in self.control.feed_summaries()]
            return f"Feeds in the control tables: {listing(names) or 'none'}."
        if self.form.action is Action.RESTORE:
            return f"Feed {name} has abandoned batches: {self.abandoned(name)}."
        if self.form.action is Action.GIVE_UP_DEAD_LETTERS:
            return f"Feed {name} has batches with dead letters: {self.with_dead_letters(feed)}."
        live = [feed.open_batch] if feed.open_batch is not None else []
        open_batches = live + self.control.open_backfills(feed.feed_id)
        batches = [f"{each.batch_id} ({each.plan.kind}, {each.state})" for each in open_batches]
        held = [f"{hold.topic_partition or hold.topic} ({hold.reason})" for hold in feed.holds]
        return (
            f"Feed {name} has open batches: {listing(batches) or 'none'}; held: {listing(held) or 'nothing'}; topics: "
            f"{listing(sorted(feed.topics)) or 'none'}."
        )

    def abandoned(self, feed_name: str) -> str:
        """Return a feed's newest abandoned batches, for a message."""
        found = self.control.batch_summaries(
            feed_name, kinds=[], states=[BatchState.ABANDONED], since=None, limit=MOST_LISTED
        )
        return listing(f"{each.batch_id} ({each.reason})" for each in found) or "none"

    def with_dead_letters(self, feed: FeedSnapshot) -> str:
        """Return a feed's batches with dead letters that no replay has taken up, the newest first, for a message."""
        rows = self.control.coverage(feed.name)
        counted: Counter[UUID] = Counter()
        for each in rows.dead_letters if rows is not None else ():
            counted[each.batch_id] += each.left
        batches = sorted((each for each in counted.items() if each[1]), reverse=True)[:MOST_LISTED]
        return listing(f"{batch_id} ({number(records)})" for batch_id, records in batches) or "none"
