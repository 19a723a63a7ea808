"""The commands by which an operator decides what the pipeline must not decide."""

from typing import Annotated

import typer

from kafka_ingest.answers.tables import gaps_table
from kafka_ingest.assembly import control_tables
from kafka_ingest.cli.arguments import (
    DryRun,
    Execute,
    FeedName,
    Json,
    Reason,
    ReasonToExecute,
    actor,
    decided_if,
    feed_parts,
)
from kafka_ingest.cli.output import TO_EXECUTE, answers, out, print_json, show
from kafka_ingest.errors import InvalidRangeError, WrongUseError
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.operating.topic_changed import BatchChoice, Choice
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed_files import feed_named, feeds_directory
from kafka_ingest.verbs.adopt import adopt as adopt_output
from kafka_ingest.verbs.decided import Decided, reason_given
from kafka_ingest.verbs.mirror import mirror as mirror_offsets
from kafka_ingest.verbs.rename import rename
from kafka_ingest.verbs.skip import skip
from kafka_ingest.verbs.topic_changed import check_choices
from kafka_ingest.verbs.topic_changed import topic_changed as decide_topics


def gaps(feed_name: Annotated[str | None, typer.Argument(metavar="[FEED]")] = None, *, as_json: Json = False) -> None:
    """List the gap ledger: which offsets are not ingested, who or what decided it, when and why."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        names = [summary.name for summary in control.feed_summaries()] if feed_name is None else [feed_name]
        feeds = {name: control.feed(name) for name in names}
        if feed_name is not None and feeds[feed_name] is None:
            feed_named(feed_name, feeds_directory())  # never planned, so it has none; an unknown one is an error
        found = [(name, gap) for name, feed in feeds.items() if feed for gap in control.gaps(feed.feed_id)]
        if as_json:
            print_json({"gaps": [{"feed": name, "state": gap.state, **gap.as_document()} for name, gap in found]})
        else:
            out.print(gaps_table(found))


def skip_interval(
    feed_name: FeedName,
    topic: Annotated[str, typer.Argument()],
    partition: Annotated[int, typer.Argument(min=0)],
    interval: Annotated[str, typer.Argument(metavar="FROM-TO", help="FROM is skipped, TO is the next to read.")],
    *,
    reason: Reason,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Jump over an interval of offsets and file it as a gap. FROM above the stored offset: read up to it, then jump."""
    with answers(as_json=as_json):
        parts = feed_parts(feed_name)
        offset_range = interval_of(TopicPartition(topic, partition), interval)
        decided = Decided(actor(), reason_given(reason))
        show(skip(parts, offset_range, None if only_show else decided), as_json=as_json)


def topic_changed(
    feed_name: FeedName,
    *,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may come again.")] = None,
    choice: Annotated[
        Choice | None,
        typer.Option(
            help="Other records: read from the beginning. The same under another id: keep the offsets. Gone for good: "
            "end."
        ),
    ] = None,
    batch: Annotated[
        BatchChoice | None,
        typer.Option(help="What to do with an open batch that was read while its topic changed."),
    ] = None,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Show the topics that changed under the stored offsets, and decide: resolves a stop by topic id or cluster id."""
    with answers(as_json=as_json):
        if execute and choice is None and batch is not BatchChoice.ACCEPT:
            raise WrongUseError("expected --choice or --batch accept with --execute, found neither")
        check_choices(choice, batch)
        decided = decided_if(reason, execute=execute)
        answer = decide_topics(feed_parts(feed_name), topic or [], choice, batch, decided)
        show(
            answer,
            as_json=as_json,
            to_do="nothing was changed: --choice shows what it would do, with --execute --reason … it is done",
        )


def mirror(
    feed_name: FeedName,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Set the group to the stored offsets now.")] = False,
    as_json: Json = False,
) -> None:
    """Show how far the consumer group is from the stored offsets; --repair sets it to them. Exit code 1: not equal."""
    with answers(as_json=as_json):
        show(mirror_offsets(feed_parts(feed_name), actor=actor() if repair else None), as_json=as_json)


def adopt(
    feed_name: FeedName, *, execute: Execute = False, reason: ReasonToExecute = None, as_json: Json = False
) -> None:
    """Rebuild a feed's control rows from its output's receipts: after they were lost, or restored from a backup."""
    with answers(as_json=as_json):
        decided = decided_if(reason, execute=execute)
        show(adopt_output(feed_parts(feed_name), decided), as_json=as_json, to_do=TO_EXECUTE)


def rename_feed(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The feed's name in the control tables.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name in its file from now on.")],
    *,
    reason: Reason,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Rename a feed and keep its offsets and history. Then change `name` in its file: until then its runs stop."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        decided = Decided(actor(), reason_given(reason))
        show(rename(control, old, new, None if only_show else decided), as_json=as_json)


def interval_of(topic_partition: TopicPartition, text: str) -> OffsetRange:
    """Return the interval that FROM-TO names."""
    start, dash, end = text.replace(",", "").replace("_", "").partition("-")
    if not (text.isascii() and dash and start.isdecimal() and end.isdecimal() and int(start) < int(end)):
        raise InvalidRangeError(f"expected FROM-TO with FROM below TO, such as 1200-1210, found {text!r}")
    return OffsetRange(topic_partition, int(start), int(end))


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(gaps)
    app.command("skip")(skip_interval)
    app.command("topic-changed")(topic_changed)
    app.command()(mirror)
    app.command()(adopt)
    app.command("rename-feed")(rename_feed)
