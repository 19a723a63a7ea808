"""The commands as the form of the DAG ``operate_feed`` gives them: those of the command line, one an action."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kafka_ingest.assembly import FeedParts, assemble_named, control_tables, sinks_of
from kafka_ingest.checks.doctor import Check
from kafka_ingest.commands.abandon import abandon
from kafka_ingest.commands.adopt import adopt
from kafka_ingest.commands.answer import Answer, Line
from kafka_ingest.commands.clean import clean_all, clean_batch, clean_named
from kafka_ingest.commands.coverage import coverage
from kafka_ingest.commands.dead_letters import dead_letters
from kafka_ingest.commands.decided import Decided, reason_given
from kafka_ingest.commands.doctor import doctor
from kafka_ingest.commands.expire import expire
from kafka_ingest.commands.locate import locate
from kafka_ingest.commands.lost import lost
from kafka_ingest.commands.mirror import mirror
from kafka_ingest.commands.plan import plan
from kafka_ingest.commands.rename import rename
from kafka_ingest.commands.reset import reset
from kafka_ingest.commands.reset_options import named_partitions, reset_target
from kafka_ingest.commands.skip import skip
from kafka_ingest.commands.topic_changed import check_choices, topic_changed
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import InvalidOperationError, WrongUseError
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.offsets import listing
from kafka_ingest.operating.topic_changed import BatchChoice
from kafka_ingest.settings.connections import CONTROL_CONN_ID, FindConnection, control_database
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.operate_form import ONLY_SHOW, WITHOUT_FEED, Action, OperateForm
from kafka_ingest.settings.run_request import RunRequest

FIELD_OF: Final = {"to": "to", "shift-by": "shift_by", "topic": "topics", "choice": "choice", "before": "before"}
OPTION: Final = re.compile(rf"`[^`]*`|--({'|'.join(FIELD_OF)})\b")


@dataclass(frozen=True)
class Operation:
    """One request of a form, and who made it. ``on_check`` is called after each of doctor's checks."""

    form: OperateForm
    actor: str
    find_connection: FindConnection
    on_check: Callable[[Check], None]

    @cached_property
    def control(self) -> SqlControlTables:
        """The control tables."""
        return control_tables(self.find_connection)

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

    def answer(self) -> Answer:
        """Do what the form asks for, or show what it comes to."""
        if self.form.action not in WITHOUT_FEED:
            _ = self.feed_name
        if self.form.action not in ONLY_SHOW:
            _ = self.decided
        try:
            answer = COMMANDS[self.form.action](self)
        except WrongUseError as error:
            # Only this class itself is about arguments, which the form calls otherwise.
            if type(error) is WrongUseError:
                raise WrongUseError(in_words_of_form(str(error))) from error
            raise
        shown = (
            replace(each, text=in_words_of_form(each.text)) if isinstance(each, Line) else each for each in answer.shown
        )
        return replace(answer, shown=shown)

    def missing(self, wanted: str) -> InvalidOperationError:
        """Return the error about what the action needs and the form does not say, with what the feed has."""
        text = f"expected {wanted} with action {self.form.action}, found none"
        return InvalidOperationError(f"{text}. {self.what_there_is()} Nothing was changed.")

    def what_there_is(self) -> str:
        """Return what an operator can decide about: topics, open batches, what is held."""
        name = self.form.feed
        feed = self.control.feed(name) if name is not None else None
        if name is None or feed is None:
            names = [summary.name for summary in self.control.feed_summaries()]
            return f"Feeds in the control tables: {listing(names) or 'none'}."
        live = [feed.open_batch] if feed.open_batch is not None else []
        open_batches = live + self.control.open_backfills(feed.feed_id)
        batches = [f"{each.batch_id} ({each.plan.kind}, {each.state})" for each in open_batches]
        held = [f"{hold.topic_partition or hold.topic} ({hold.reason})" for hold in feed.holds]
        return (
            f"Feed {name} has open batches: {listing(batches) or 'none'}; held: {listing(held) or 'nothing'}; topics: "
            f"{listing(sorted(feed.topics)) or 'none'}."
        )


def in_words_of_form(text: str) -> str:
    """Return a text in which options of the command line are fields of the form; whole commands stay as they are."""
    return OPTION.sub(lambda found: FIELD_OF[found[1]] if found[1] is not None else found[0], text)


def skip_asked(asked: Operation) -> Answer:
    """Skip offsets."""
    interval = asked.form.interval()
    if interval is None:
        raise asked.missing("an offset range, such as orders:0=1200-1210,")
    return skip(asked.parts, interval, asked.decided)


def reset_asked(asked: Operation) -> Answer:
    """Move stored offsets."""
    form = asked.form
    if form.to is None and form.shift_by is None:
        raise asked.missing("to or shift_by")
    target = reset_target(form.to, form.shift_by)
    named = named_partitions(form.topics, target)
    return reset(asked.parts, target, named, asked.decided, keep_group=form.keep_group)


def topic_changed_asked(asked: Operation) -> Answer:
    """Decide what became of topics."""
    form = asked.form
    if asked.decided is not None and form.choice is None and form.open_batch is not BatchChoice.ACCEPT:
        raise asked.missing("choice, or open_batch accept,")
    check_choices(form.choice, form.open_batch, named=("choice", "open_batch accept"))
    return topic_changed(asked.parts, form.topics, form.choice, form.open_batch, asked.decided)


def abandon_asked(asked: Operation) -> Answer:
    """Give a batch up."""
    batch_id = asked.form.batch_id
    if batch_id is None:
        raise asked.missing("a batch's id")
    check_batch_of_feed(asked)
    sinks = sinks_of(asked.find_connection)
    return abandon(batch_id, asked.control, sinks, asked.decided, output_is_lost=asked.form.lost_output)


def clean_asked(asked: Operation) -> Answer:
    """Remove staged output: one batch's, or what has expired of a feed or of all."""
    form = asked.form
    if form.batch_id is not None:
        check_batch_of_feed(asked)
        return clean_batch(form.batch_id, asked.control, sinks_of(asked.find_connection), asked.decided)
    if form.feed is not None:
        return clean_named(form.feed, asked.find_connection, only_show=form.dry_run)
    return clean_all(asked.find_connection, only_show=form.dry_run)


def check_batch_of_feed(asked: Operation) -> None:
    """Raise InvalidOperationError where a feed was chosen and the batch is another's."""
    if asked.form.batch_id is None or asked.form.feed is None:
        return
    owner = asked.control.batch(asked.form.batch_id).feed_name
    if owner != asked.form.feed:
        raise InvalidOperationError(
            f"expected a batch of feed {asked.form.feed}, found {asked.form.batch_id}, which is of feed {owner}. "
            f"{asked.what_there_is()} Nothing was changed."
        )


def rename_asked(asked: Operation) -> Answer:
    """Rename the feed that was chosen, or another to its name, where its file has been changed already."""
    form, name = asked.form, asked.feed_name
    if (form.new_name is None) == (form.old_name is None):
        raise asked.missing("either new_name or old_name")
    old, new = (name, form.new_name) if form.new_name is not None else (form.old_name or "", name)
    return rename(asked.control, old, new, asked.decided)


def mirror_asked(asked: Operation) -> Answer:
    """Set the consumer group to the stored offsets."""
    return mirror(asked.parts, actor=asked.decided.actor if asked.decided is not None else None)


def upgrade_asked(asked: Operation) -> Answer:
    """Upgrade the control tables."""
    from kafka_ingest.commands.upgrade import upgrade  # noqa: PLC0415 - Alembic, for this action only

    settings = control_database(asked.find_connection(CONTROL_CONN_ID))
    return upgrade(settings, create=asked.form.create, execute=not asked.form.dry_run)


def locate_asked(asked: Operation) -> Answer:
    """Say what happened to one offset."""
    place = asked.form.place()
    if place is None:
        raise asked.missing("record, such as orders:0=1200,")
    return locate(asked.control, sinks_of(asked.find_connection), asked.feed_name, *place)


def dead_letters_asked(asked: Operation) -> Answer:
    """Count what could not be decoded, of a feed or of one of its batches."""
    check_batch_of_feed(asked)
    sinks = sinks_of(asked.find_connection)
    return dead_letters(asked.control, sinks, asked.find_connection, asked.feed_name, batch_id=asked.form.batch_id)


def lost_asked(asked: Operation) -> Answer:
    """File gaps for what is lost of a batch's files."""
    if asked.form.batch_id is None:
        raise asked.missing("a batch's id")
    return lost(asked.parts, asked.form.batch_id, asked.decided)


def expire_asked(asked: Operation) -> Answer:
    """Remove old batches from the output."""
    if asked.form.before is None:
        raise asked.missing("before, such as 2026-01-31 or 90d,")
    return expire(asked.parts, asked.form.before, asked.decided)


def verify_asked(asked: Operation) -> Answer:
    """Count the output, batch by batch."""
    with without_garbage_collection():
        return coverage(asked.control, asked.feed_name, sinks_of(asked.find_connection), verify=True)


COMMANDS: Final[Mapping[Action, Callable[[Operation], Answer]]] = {
    Action.PLAN: lambda asked: plan(asked.parts, RunRequest(), actor=None),
    Action.DOCTOR: lambda asked: doctor(asked.form.feed, asked.find_connection, asked.on_check),
    Action.VERIFY_COVERAGE: verify_asked,
    Action.LOCATE: locate_asked,
    Action.DEAD_LETTERS: dead_letters_asked,
    Action.SKIP: skip_asked,
    Action.RESET: reset_asked,
    Action.TOPIC_CHANGED: topic_changed_asked,
    Action.ABANDON: abandon_asked,
    Action.MIRROR: mirror_asked,
    Action.CLEAN: clean_asked,
    Action.LOST: lost_asked,
    Action.EXPIRE: expire_asked,
    Action.ADOPT: lambda asked: adopt(asked.parts, asked.decided),
    Action.RENAME: rename_asked,
    Action.DB_UPGRADE: upgrade_asked,
}
