"""``verify``: which offsets an output holds, by itself alone: no control tables and no feed file are needed."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from kafka_ingest.assembly import kafka_at, output_at
from kafka_ingest.errors import OperatorDecisionError, OutputNotUsableError, UnknownTopicError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.proof import OffsetRuns
from kafka_ingest.observing.account_of_output import (
    MOST_LISTED,
    AccountOfOutput,
    PartitionAccount,
    account_of,
    with_kafka,
)
from kafka_ingest.ports.parts import role_of
from kafka_ingest.verbs.answer import Answer, FittingTable, Line
from kafka_ingest.verbs.request import Argument, Call, Deciding, Option, Request

COUNTS: Final = ("dead_letters", "filtered", "invisible", "removed", "lost", "gaps", "not_claimed", "unaccounted")
"""Who accounts for offsets that are not there; the last ones nobody does."""
MOST_SHOWN: Final = 5
ADDRESSES: Final = ("--catalog --table", "--database --table", "--cluster --output-topic")
"""How an output is known that is not in a directory."""


class Verify(Request):
    """Show which offsets an output holds, by itself alone, and whether each is there once. Exit code 3: not so."""

    verb = command = "verify"
    does = "shows which offsets an output holds, without control tables"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS
    command_names_feed = needs_feed = False

    output: Annotated[str, Argument("A directory, a table's location, or s3://… of one.", "OUTPUT")] = ""
    topic: Annotated[list[str], Option("Only this topic; may be repeated.")] = Field(default_factory=list)
    bootstrap: Annotated[str | None, Option("Also compare with Kafka at HOST:PORT.", metavar="SERVERS")] = None
    kafka: Annotated[str | None, Option("Also compare with Kafka of this connection.", metavar="CONN_ID")] = None
    catalog: Annotated[str | None, Option("The connection of an Iceberg table's catalog.", metavar="CONN_ID")] = None
    database: Annotated[str | None, Option("The connection of a table in PostgreSQL.", metavar="CONN_ID")] = None
    cluster: Annotated[str | None, Option("The connection of an output topic's cluster.", metavar="CONN_ID")] = None
    output_topic: Annotated[str | None, Option("The name of an output topic there.", metavar="NAME")] = None
    table: Annotated[str | None, Option("The name of a table there, or in the catalog.", metavar="NAMESPACE.NAME")] = (
        None
    )

    def answer(self, call: Call) -> Answer:
        self._check_address()
        conn_id, name = self.database or self.cluster, self.table or self.output_topic
        address = {"catalog": self.catalog, "conn_id": conn_id, "table": self.table, "topic": self.output_topic}
        asks_kafka = self.bootstrap is not None or self.kafka is not None
        kafka = kafka_at(self.bootstrap, self.kafka, call.find_connection) if asks_kafka else None
        output = output_at(self.output, call.find_connection, address)
        with without_garbage_collection():
            contents = role_of(output, call.sinks(output).contents, "be read without control tables")
            evidence = contents.evidence()
            account = account_of(evidence, *contents.held(evidence))
        if self.topic:
            account = account.only(self.topic)
        if kafka is not None:
            account = with_kafka(account, kafka, self.topic)
        if unknown := set(self.topic) - {each.held.topic_partition.topic for each in account.partitions}:
            raise UnknownTopicError(
                f"expected rows or proofs of topic {listing(sorted(unknown))} in {name or output}, found none"
            )
        if not (account.partitions or account.proofs or account.problems):
            raise OutputNotUsableError(
                f"expected an output in {name or output}, found no rows of Kafka's records and no receipts. Is "
                "it another place, is its storage mounted? An output without a batch is empty, too."
            )
        code = 0 if account.is_sound else OperatorDecisionError.exit_code
        document = document_of_account(output, account) | {"table": self.table}
        document["output_topic"] = self.output_topic
        return Answer(document, lines_of(f"{name or output} ({output.format})", account), code)

    def _check_address(self) -> None:
        """Raise WrongUseError where a connection of a table's or a topic's has no name, or the other way round."""
        given = {"--catalog": self.catalog, "--database": self.database, "--table": self.table}
        given |= {"--cluster": self.cluster, "--output-topic": self.output_topic}
        found = [name for name, value in given.items() if value is not None]
        if found not in ([], *(each.split() for each in ADDRESSES)):
            raise WrongUseError(
                "expected --table with --catalog or with --database, or --output-topic with --cluster, found "
                f"{' and '.join(found)}: a table in a database or in a catalog, and a topic, are known by their name "
                "and that connection"
            )


def document_of_account(output: OutputLocation, account: AccountOfOutput) -> dict[str, Any]:
    return {
        "output": str(output),
        "format": output.format,
        "sound": account.is_sound,
        "cluster_ids": sorted({each.cluster_id for each in account.proofs.values()}),
        "batches": len(account.proofs),
        "removed_batches": len(account.removed),
        "unproven_batches": [str(each) if each is not None else None for each in account.unproven],
        "foreign_rows": account.foreign_rows,
        "problems": list(account.problems),
        "notes": list(account.notes),
        "partitions": [partition_document(each) for each in account.partitions],
    }


def partition_document(account: PartitionAccount) -> dict[str, Any]:
    held, bounds = account.held, account.bounds
    return {
        "topic": held.topic_partition.topic,
        "topic_id": held.topic_id,
        "partition": held.topic_partition.partition,
        "rows": held.rows,
        "offsets": held.offsets.count,
        "ranges": intervals(held.offsets),
        "range_count": len(held.offsets),
        "doubled": [
            {"start_offset": start, "end_offset": end}
            | {"batch_ids": [str(each) if each else None for each in held.batches_of(start, end)]}
            | {"files": held.files_of(start, end)}
            for start, end in held.doubled.first(MOST_LISTED)
        ],
        "doubled_offsets": held.doubled.count,
        **{name: getattr(account, name) for name in COUNTS},
        "missing": [
            each.offset_range.as_document()
            | {"batch_id": str(each.batch_id) if each.batch_id else None, "offsets": each.offsets}
            | {"among": intervals(each.among), "among_count": len(each.among)}
            for each in account.missing[:MOST_LISTED]
        ],
        "surplus": list(account.surplus),
        "log_start_offset": bounds.log_start_offset if bounds is not None else None,
        "high_watermark": bounds.high_watermark if bounds is not None else None,
        "not_landed": account.not_landed,
        "not_compared": account.apart,
    }


def intervals(runs: OffsetRuns) -> list[dict[str, int]]:
    return [{"start_offset": start, "end_offset": end} for start, end in runs.first(MOST_LISTED)]


def lines_of(title: str, account: AccountOfOutput) -> Iterator[Line | FittingTable]:
    used = [name for name in COUNTS if name == "unaccounted" or any(getattr(each, name) for each in account.partitions)]
    compared = any(each.bounds is not None for each in account.partitions)
    names = ["first", "end", "rows", "doubled", *(name.replace("_", " ") for name in used)]
    names += ["not landed"] if compared else []
    made = FittingTable(title, "topic", "topic id", "partition", *names, numbers=("partition", *names))
    for each in account.partitions:
        held = each.held
        ends = (held.offsets.starts[0], held.offsets.ends[-1]) if held.offsets else (None, None)
        counts = [*(getattr(each, name) for name in used), *([each.not_landed] if compared else [])]
        topic, partition = held.topic_partition.topic, str(held.topic_partition.partition)
        made.add_line(topic, held.topic_id or None, partition, *ends, held.rows, held.doubled.count, *counts)
    yield made
    for each in account.partitions:
        yield from lines_of_partition(each)
    for note in account.notes:
        yield Line(note, "yellow")
    for problem in account.problems:
        yield Line(problem, "red")
    if account.unproven:
        unproven = listing(each if each is not None else "rows without a batch" for each in account.unproven)
        yield Line(
            f"neither a commit nor a receipt beside the output says what these batches read: {unproven}", "yellow"
        )
    if account.foreign_rows:
        yield Line(f"{counted(account.foreign_rows, 'row')} without a position were not counted: other programs' own")
    yield Line(result_of(account), "" if account.is_sound else "red")


def result_of(account: AccountOfOutput) -> str:
    rows = sum(each.held.rows for each in account.partitions)
    doubled = sum(each.held.doubled.count for each in account.partitions)
    unaccounted = sum(each.unaccounted for each in account.partitions)
    there = f"{counted(rows, 'row')} in {counted(len(account.partitions), 'partition')}"
    if account.is_sound:
        return f"{there}: each offset is there once, or accounted for"
    others = counted(len(account.problems) + sum(len(each.surplus) for each in account.partitions), "other problem")
    return f"{there}: {counted(doubled, 'offset')} more than once, {unaccounted:,} unaccounted for, {others}"


def lines_of_partition(account: PartitionAccount) -> Iterator[Line]:
    held = account.held
    for start, end in held.doubled.first(MOST_SHOWN):
        batches = listing(str(each or "no batch") for each in held.batches_of(start, end))
        files = listing(held.files_of(start, end))
        yield Line(f"{held.topic_partition}[{start}, {end}): there more than once, by {batches}, in {files}", "red")
    for each in account.missing[:MOST_SHOWN]:
        whose = f"batch {each.batch_id} has read" if each.batch_id is not None else "no batch accounts for"
        among = listing(f"[{start}, {end})" for start, end in each.among.first(MOST_SHOWN))
        yield Line(
            f"{each.offset_range}, which {whose}: {counted(each.offsets, 'offset')} missing, among {among}", "red"
        )
    for text in account.surplus[:MOST_SHOWN]:
        yield Line(f"{held.topic_partition}: {text}", "red")
    if account.apart is not None:
        yield Line(f"{held.topic_partition} was not compared with Kafka: {account.apart}", "yellow")
