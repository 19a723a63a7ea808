"""The commands as the form of the DAG ``operate_feed`` gives them: those of the command line, one an action."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.committed_lines import committed_lines
from kafka_ingest.assembly import assemble_named
from kafka_ingest.checks.doctor import Check
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.operating.topic_changed import BatchChoice
from kafka_ingest.settings.connections import CONTROL_CONN_ID, control_database
from kafka_ingest.settings.operate_form import ONLY_SHOW, WITHOUT_FEED, Action
from kafka_ingest.settings.run_request import RunRequest
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.adopt import adopt
from kafka_ingest.verbs.asked import Asked
from kafka_ingest.verbs.clean import clean_all, clean_batch, clean_named
from kafka_ingest.verbs.coverage import coverage
from kafka_ingest.verbs.dead_letters import dead_letters
from kafka_ingest.verbs.doctor import doctor
from kafka_ingest.verbs.expire import expire
from kafka_ingest.verbs.explain import explain_known
from kafka_ingest.verbs.fold import fold
from kafka_ingest.verbs.give_up_dead_letters import give_up_dead_letters
from kafka_ingest.verbs.locate import locate
from kafka_ingest.verbs.lost import lost
from kafka_ingest.verbs.mend_statistics import mend_statistics
from kafka_ingest.verbs.mirror import mirror
from kafka_ingest.verbs.plan import plan
from kafka_ingest.verbs.preview import RECORDS, preview
from kafka_ingest.verbs.rename import rename
from kafka_ingest.verbs.reset import reset
from kafka_ingest.verbs.reset_options import named_partitions, reset_target
from kafka_ingest.verbs.restore import restore
from kafka_ingest.verbs.skip import skip
from kafka_ingest.verbs.topic_changed import check_choices, topic_changed


def abandon_asked(asked: Asked) -> Answer:
    """Give a batch up."""
    return abandon(asked.batch_id, asked.control, asked.sinks, asked.decided, output_is_lost=asked.form.lost_output)


def restore_asked(asked: Asked) -> Answer:
    """Publish an abandoned batch's staged files, and say what became of them."""
    batch_id = asked.batch_id
    parts = assemble_named(asked.control.batch(batch_id).feed_name, asked.find_connection)
    committed: list[Line] = []

    def commit(each: UUID) -> None:
        committed.extend(committed_lines(parts.commit(each, actor=asked.actor)))

    answer = restore(parts, batch_id, asked.decided, commit)
    return replace(answer, shown=[*committed, *answer.shown])


def clean_asked(asked: Asked) -> Answer:
    """Remove staged output: one batch's, or what has expired of a feed or of all."""
    form = asked.form
    if form.batch_id is not None:
        return clean_batch(asked.batch_id, asked.control, asked.sinks, asked.decided)
    if form.feed is not None:
        return clean_named(form.feed, asked.find_connection, only_show=form.dry_run)
    return clean_all(asked.find_connection, only_show=form.dry_run)


def dead_letters_asked(asked: Asked) -> Answer:
    """Count what could not be decoded, of a feed or of one of its batches."""
    asked.check_batch_of_feed()
    answer = dead_letters(
        asked.control,
        asked.sinks,
        asked.find_connection,
        asked.feed_name,
        batch_id=asked.form.batch_id,
        show_values=asked.form.show_values,
    )
    return asked.shown_in_part(answer, "causes")


def give_up_asked(asked: Asked) -> Answer:
    """Give a batch's dead letters up."""
    return give_up_dead_letters(asked.batch_id, asked.control, asked.sinks, asked.decided)


def explain_asked(asked: Asked) -> Answer:
    """Say what a data file holds."""
    if asked.form.file is None:
        raise asked.missing("file, the absolute path of a data file,")
    return explain_known(asked.form.file, asked.form.feed, asked.control, asked.sinks)


def lost_asked(asked: Asked) -> Answer:
    """File gaps for what is lost of a batch's files."""
    batch_id = asked.named_batch_id
    return lost(asked.parts, batch_id, asked.decided)


FIELD_OF: Final = {
    "to": "to",
    "shift-by": "shift_by",
    "topic": "topics",
    "choice": "choice",
    "before": "before",
    "records": "records",
}
OPTION: Final = re.compile(rf"`[^`]*`|(?<![\w.-])--({'|'.join(FIELD_OF)})(?![\w-])")
"""Commands, or options that are no part of a longer name: topics and paths may hold ``--to``."""


@dataclass(frozen=True)
class Operation(Asked):
    """A request that answers itself. ``on_check`` is called after each of doctor's checks."""

    on_check: Callable[[Check], None]

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
            replace(each, text=in_words_of_form(each.text)) if isinstance(each, Line) and not each.quotes else each
            for each in answer.shown
        )
        return replace(answer, shown=shown)


def in_words_of_form(text: str) -> str:
    """Return a text in which options of the command line are fields of the form; whole commands stay as they are."""
    return OPTION.sub(lambda found: FIELD_OF[found[1]] if found[1] is not None else found[0], text)


def skip_asked(asked: Asked) -> Answer:
    """Skip offsets."""
    interval = asked.form.interval()
    if interval is None:
        raise asked.missing("an offset range, such as orders:0=1200-1210,")
    return skip(asked.parts, interval, asked.decided)


def reset_asked(asked: Asked) -> Answer:
    """Move stored offsets."""
    form = asked.form
    if form.to is None and form.shift_by is None:
        raise asked.missing("to or shift_by")
    target = reset_target(form.to, form.shift_by)
    named = named_partitions(form.topics, target)
    return reset(asked.parts, target, named, asked.decided, keep_group=form.keep_group)


def topic_changed_asked(asked: Asked) -> Answer:
    """Decide what became of topics."""
    form = asked.form
    if asked.decided is not None and form.choice is None and form.open_batch is not BatchChoice.ACCEPT:
        raise asked.missing("choice, or open_batch accept,")
    check_choices(form.choice, form.open_batch, named=("choice", "open_batch accept"))
    return topic_changed(asked.parts, form.topics, form.choice, form.open_batch, asked.decided)


def rename_asked(asked: Asked) -> Answer:
    """Rename the feed that was chosen, or another to its name, where its file has been changed already."""
    form, name = asked.form, asked.feed_name
    if (form.new_name is None) == (form.old_name is None):
        raise asked.missing("either new_name or old_name")
    old, new = (name, form.new_name) if form.new_name is not None else (form.old_name or "", name)
    return rename(asked.control, old, new, asked.decided)


def mirror_asked(asked: Asked) -> Answer:
    """Set the consumer group to the stored offsets."""
    return mirror(asked.parts, actor=asked.decided.actor if asked.decided is not None else None)


def upgrade_asked(asked: Asked) -> Answer:
    """Upgrade the control tables."""
    from kafka_ingest.verbs.upgrade import upgrade  # noqa: PLC0415 - Alembic, for this action only

    settings = control_database(asked.find_connection(CONTROL_CONN_ID))
    return upgrade(settings, create=asked.form.create, execute=not asked.form.dry_run)


def locate_asked(asked: Asked) -> Answer:
    """Say what happened to one offset."""
    place = asked.form.place()
    if place is None:
        raise asked.missing("record, such as orders:0=1200,")
    return locate(asked.control, asked.sinks, asked.feed_name, *place)


def expire_asked(asked: Asked) -> Answer:
    """Remove old batches from the output."""
    if asked.form.before is None:
        raise asked.missing("before, such as 2026-01-31 or 90d,")
    return expire(asked.parts, asked.form.before, asked.decided)


def preview_asked(asked: Asked) -> Answer:
    """Decode a few of the newest records."""
    records = asked.form.records or RECORDS
    answer = preview(asked.parts, records, show_values=asked.form.show_values)
    return asked.shown_in_part(answer, "rows", "dead_letters")


def fold_asked(asked: Asked) -> Answer:
    """Sum up old batches' control rows."""
    decided = asked.decided
    actor, reason = (decided.actor, decided.reason) if decided is not None else (None, None)
    return fold(asked.parts, asked.form.before, actor=actor, reason=reason)


def verify_asked(asked: Asked) -> Answer:
    """Count the output, batch by batch."""
    with without_garbage_collection():
        return coverage(asked.control, asked.feed_name, asked.sinks, verify=True)


COMMANDS: Final[Mapping[Action, Callable[[Operation], Answer]]] = {
    Action.PLAN: lambda asked: plan(asked.parts, RunRequest(), actor=None),
    Action.DOCTOR: lambda asked: doctor(asked.form.feed, asked.find_connection, asked.on_check),
    Action.VERIFY_COVERAGE: verify_asked,
    Action.LOCATE: locate_asked,
    Action.EXPLAIN: explain_asked,
    Action.PREVIEW: preview_asked,
    Action.DEAD_LETTERS: dead_letters_asked,
    Action.SKIP: skip_asked,
    Action.RESET: reset_asked,
    Action.TOPIC_CHANGED: topic_changed_asked,
    Action.ABANDON: abandon_asked,
    Action.RESTORE: restore_asked,
    Action.MIRROR: mirror_asked,
    Action.CLEAN: clean_asked,
    Action.LOST: lost_asked,
    Action.GIVE_UP_DEAD_LETTERS: give_up_asked,
    Action.EXPIRE: expire_asked,
    Action.FOLD: fold_asked,
    Action.MEND_STATISTICS: lambda asked: mend_statistics(asked.parts, asked.decided),
    Action.ADOPT: lambda asked: adopt(asked.parts, asked.decided),
    Action.RENAME: rename_asked,
    Action.DB_UPGRADE: upgrade_asked,
}
