"""The commands by which an operator decides what the pipeline must not decide."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import typer

from kafka_ingest.assembly import control_tables
from kafka_ingest.cli.arguments import (
    DryRun,
    Execute,
    FeedName,
    Json,
    Reason,
    ReasonToExecute,
    actor,
    feed_parts,
    reason_given,
)
from kafka_ingest.cli.documents import adoption_document, change_document
from kafka_ingest.cli.output import answers, out, print_json, progress
from kafka_ingest.cli.tables import adoption_table, changes_table, gaps_table
from kafka_ingest.errors import InvalidRangeError, WrongUseError
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.model.published_output import FilesState
from kafka_ingest.operating.adopt import AdoptDecision, decide_adoption
from kafka_ingest.operating.adopt import adopt as adopt_output
from kafka_ingest.operating.known_feed import known_feed
from kafka_ingest.operating.skip import decide_skip, skip
from kafka_ingest.operating.topic_changed import Choice, accept_batch, apply_choice, changes_of, choices_of, rows_after
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed import NAME
from kafka_ingest.settings.feed_files import feed_named, feeds_directory


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
        parts.check_output_known()
        offset_range = interval_of(TopicPartition(topic, partition), interval)
        decision = decide_skip(feed_name, offset_range, reason_given(reason), parts.control, parts.kafka)
        gap_id, mirror_failure = None, None
        if not only_show:
            gap_id = str(skip(decision, parts.control, actor=actor()).gap_id)
            mirror_failure = parts.mirror(actor=actor()).failure if decision.moves_stored_offset else None
        if as_json:
            print_json(
                {
                    "feed": feed_name,
                    "gap_id": gap_id,
                    "topic": topic,
                    "partition": partition,
                    "start_offset": offset_range.start_offset,
                    "end_offset": offset_range.end_offset,
                    "moves_stored_offset_now": decision.moves_stored_offset,
                    "executed": not only_show,
                    "mirror_failure": mirror_failure,
                }
            )
            return
        moved = (
            f"the stored offset {'would move' if only_show else 'is now'} "
            f"{'to ' if only_show else ''}{offset_range.end_offset:,}"
            if decision.moves_stored_offset
            else f"reading continues up to {offset_range.start_offset:,}, then jumps"
        )
        out.print(
            f"{'would file' if only_show else 'filed'} gap {offset_range}, {offset_range.span:,} offsets; {moved}"
        )
        print_mirror_failure(mirror_failure)


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
        Literal["accept", "discard"] | None,
        typer.Option(help="What to do with an open batch that was read while its topic changed."),
    ] = None,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Show the topics that changed under the stored offsets, and decide: resolves a stop by topic id or cluster id."""
    with answers(as_json=as_json):
        if execute and choice is None and batch != "accept":
            raise WrongUseError("expected --choice or --batch accept with --execute, found neither")
        if choice is not None and batch == "accept":
            raise WrongUseError(
                "expected --choice or --batch accept, found both: a batch that is accepted is committed first "
                "(`kafka-ingest run`), and the topic decided then. Nothing was changed."
            )
        parts = feed_parts(feed_name)
        parts.check_output_known()
        changes = changes_of(feed_name, topic or [], parts.plan_settings, parts.control, parts.kafka)
        after = rows_after(changes, choice, parts.plan_settings) if choice is not None else None
        choices = {change.topic: choices_of(change, changes, parts.plan_settings) for change in changes.topics}
        mirror_failure = None
        if execute and batch == "accept":
            accept_batch(changes, parts.control, parts.sinks, reason=reason_given(reason), actor=actor())
        elif execute and after is not None:
            apply_choice(
                changes,
                after,
                parts.control,
                discard_batch=batch == "discard",
                reason=reason_given(reason),
                actor=actor(),
            )
            mirror_failure = parts.mirror(actor=actor()).failure
        if as_json:
            found = change_document(changes, choices, after, executed=execute)
            print_json(found | {"mirror_failure": mirror_failure})
            return
        if not changes.topics:
            out.print(f"feed {feed_name}: its cluster and all its topics are what they were")
            return
        out.print(changes_table(changes, after))
        if changes.is_other_cluster:
            out.print(f"cluster {changes.feed.cluster_id} → {changes.cluster_id}")
        if changes.affected is not None:
            abandons = {(True, True): "; it is abandoned", (False, True): "; it would be abandoned"}
            fate = abandons.get((execute, batch == "discard"), "")
            out.print(
                f"open batch {changes.affected.batch_id} was {changes.affected.state} and was planned on what "
                f"changed{fate}"
            )
        if execute:
            done = "its receipt counts now: `kafka-ingest run` commits it" if batch == "accept" else "done"
            out.print(done)
        else:
            print_choices(choices)
            out.print("nothing was changed: --choice shows what it would do, with --execute --reason … it is done")
        print_mirror_failure(mirror_failure)


CHOICE_IN_WORDS = {
    Choice.START_OVER: "other records: read from the topic's beginning, on another cluster by the start rule",
    Choice.START_RULE: "a topic that appeared, and is not new: begin as the feed file's start says",
    Choice.REWIND: "the log was truncated: continue from where it ended",
    Choice.SAME_RECORDS: "the same records: keep the stored offsets",
    Choice.FORGET: "the topic is gone for good: its stored offsets end",
}


def print_choices(choices: Mapping[str, Sequence[Choice]]) -> None:
    """Print what can be chosen, and for which topics where they differ."""
    for fitting in dict.fromkeys(tuple(found) for found in choices.values()):
        topics = [topic for topic, found in choices.items() if tuple(found) == fitting]
        of_topics = f" of {listing(topics)} (--topic)" if len(topics) < len(choices) else ""
        out.print(f"choices{of_topics}:" if fitting else f"no choice fits{of_topics}", markup=False, soft_wrap=True)
        for choice in fitting:
            out.print(f"  --choice {choice.value:<13} {CHOICE_IN_WORDS[choice]}", markup=False, soft_wrap=True)


def mirror(
    feed_name: FeedName,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Set the group to the stored offsets now.")] = False,
    as_json: Json = False,
) -> None:
    """Show how far the consumer group is from the stored offsets; --repair sets it to them. Exit code 1: not equal."""
    with answers(as_json=as_json):
        parts = feed_parts(feed_name)
        feed, group = known_feed(parts.control, feed_name), parts.feed.kafka.group
        if group is None:
            raise WrongUseError(f"feed {feed_name} names no kafka.group: it leaves Kafka untouched")
        if repair:
            parts.check_output_known()
        failure = parts.mirror(actor=actor()).failure if repair else None
        stored = {
            tp: row.next_offset for tp, row in feed.stored.items() if tp.topic in feed.topics and not row.is_pending
        }
        found = parts.kafka.group_offsets(group, stored.keys())
        drift = {tp: offset for tp, offset in sorted(found.items()) if offset != stored[tp]}
        if as_json:
            print_json(
                {
                    "feed": feed_name,
                    "group": group,
                    "failure": failure,
                    "drift": [
                        {
                            "topic": tp.topic,
                            "partition": tp.partition,
                            "group_offset": offset,
                            "stored_offset": stored[tp],
                        }
                        for tp, offset in drift.items()
                    ],
                }
            )
        else:
            print_mirror_failure(failure)
            for tp, offset in drift.items():
                out.print(f"{tp}: group {'has none' if offset is None else f'{offset:,}'}, stored {stored[tp]:,}")
            if not drift and failure is None:
                out.print(f"consumer group {group} is at the stored offsets of all {len(stored):,} partitions")
        if drift or failure:
            raise typer.Exit(1)


def adopt(
    feed_name: FeedName, *, execute: Execute = False, reason: ReasonToExecute = None, as_json: Json = False
) -> None:
    """Rebuild a feed's control rows from its output's receipts: after they were lost, or restored from a backup."""
    with answers(as_json=as_json):
        parts = feed_parts(feed_name)
        sink = parts.sinks(parts.plan_settings.output)
        decision = decide_adoption(parts.plan_settings, parts.control, sink)
        mirror_failure = None
        if execute and not decision.is_nothing:
            letters = parts.sinks(output_of_dead_letters(parts.plan_settings.output))
            adopt_output(decision, parts.control, sink, reason=reason_given(reason), actor=actor(), letters=letters)
            mirror_failure = parts.mirror(actor=actor()).failure
        if as_json:
            executed = execute and not decision.is_nothing
            print_json(adoption_document(feed_name, decision, executed=executed) | {"mirror_failure": mirror_failure})
            return
        if decision.is_nothing:
            out.print(
                f"nothing to adopt: the control tables know all {decision.known:,} batches of the output",
                soft_wrap=True,
            )
            return
        out.print(adoption_table(feed_name, decision))
        adoption = decision.adoption
        verb = "adopted" if execute else "would adopt"
        out.print(
            f"{verb} {len(adoption.batches):,} batches and {len(adoption.gaps):,} gaps of feed "
            f"{decision.target.feed_id}"
        )
        if adoption.abandoned is not None:
            out.print(
                f"{'abandoned' if execute else 'would abandon'} open batch {adoption.abandoned}: later batches read "
                "its ranges"
            )
        print_files(decision, executed=execute)
        if not execute:
            out.print("nothing was changed: --execute --reason … does it")
        print_mirror_failure(mirror_failure)


def print_files(decision: AdoptDecision, *, executed: bool) -> None:
    """Print which batches' files differ from their receipts, and what happens to those batches."""
    fates = {
        FilesState.CHANGED: "taken as it is: `kafka-ingest coverage --verify` counts it",
        FilesState.GONE: f"{'' if executed else 'would be '}recorded as removed",
        FilesState.EXPIRED: "it expired",
        FilesState.STAGED: f"{'' if executed else 'would be '}published now: its commit ended half way",
    }
    for batch_id, found in decision.adoption.files.items():
        text = f"batch {batch_id}: {found.difference}; {fates[found.state]}"
        progress.print(text, style="yellow", markup=False, soft_wrap=True)


def rename_feed(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The feed's name in the control tables.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name in its file from now on.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Rename a feed and keep its offsets and history. Then change `name` in its file: until then its runs stop."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        feed = known_feed(control, old)
        if control.feed(new) is not None:
            raise WrongUseError(
                f"the control tables know a feed {new!r} already; a name is one feed's. Nothing was changed."
            )
        if not NAME.fullmatch(new):
            raise WrongUseError(f"expected a name that a feed file can have, found {new!r}. Nothing was changed.")
        control.rename_feed(feed, new, reason=reason_given(reason), actor=actor())
        if as_json:
            print_json({"feed_id": str(feed.feed_id), "was": old, "is": new})
        else:
            out.print(f"feed {old} is now {new}; its offsets and batches are kept")


def interval_of(topic_partition: TopicPartition, text: str) -> OffsetRange:
    """Return the interval that FROM-TO names."""
    start, dash, end = text.replace(",", "").replace("_", "").partition("-")
    if not (text.isascii() and dash and start.isdecimal() and end.isdecimal() and int(start) < int(end)):
        raise InvalidRangeError(f"expected FROM-TO with FROM below TO, such as 1200-1210, found {text!r}")
    return OffsetRange(topic_partition, int(start), int(end))


def print_mirror_failure(failure: str | None) -> None:
    """Print why the consumer group is not at the stored offsets."""
    if failure is not None:
        progress.print(f"the consumer group was not moved: {failure}", style="yellow", markup=False, soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(gaps)
    app.command("skip")(skip_interval)
    app.command("topic-changed")(topic_changed)
    app.command()(mirror)
    app.command()(adopt)
    app.command("rename-feed")(rename_feed)
