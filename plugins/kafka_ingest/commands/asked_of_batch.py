"""The commands about batches and files as the form of the DAG ``operate_feed`` gives them."""

from dataclasses import replace
from uuid import UUID

from kafka_ingest.assembly import assemble_named
from kafka_ingest.commands.abandon import abandon
from kafka_ingest.commands.answer import Answer, Line
from kafka_ingest.commands.asked import Asked
from kafka_ingest.commands.clean import clean_all, clean_batch, clean_named
from kafka_ingest.commands.committed_lines import committed_lines
from kafka_ingest.commands.dead_letters import dead_letters
from kafka_ingest.commands.explain import explain_known
from kafka_ingest.commands.give_up_dead_letters import give_up_dead_letters
from kafka_ingest.commands.lost import lost
from kafka_ingest.commands.restore import restore


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
