"""A feed with its whole life in this process: real control tables, a real output directory, real Parquet files.

Kafka is the fake with records in its partitions; Spark and Airflow are stand-ins that do what theirs do, and no more.
"""

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
from tests.fakes import GROUP, FakeKafkaCluster, feed_settings, log, topic
from tests.iceberg_lake import connections_beside, iceberg_at

from kafka_ingest.batches.commit_batch import Committed, commit_batch
from kafka_ingest.batches.fitting_columns import NO_RULES, ColumnRules
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.plan_batch import plan_batch
from kafka_ingest.errors import KafkaIngestError, RetryableError, SparkFailedError
from kafka_ingest.foundation.durable_files import write_durably
from kafka_ingest.foundation.storage import is_folder, make_folder, opened, read_whole, write_new
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.batch import Attempt, AttemptDocument, BatchState
from kafka_ingest.model.batch_limits import NO_LIMITS, BatchLimits
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters
from kafka_ingest.model.decoding import RAW, Decoding, FieldDecoding, Format
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import DATA, DOCUMENT, RECEIPT, OutputLocation, RemotePlace
from kafka_ingest.model.receipt import Filtered, Receipt
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.settings.run_request import RunRequest, why_no_run_follows
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.writing.stage_files import staged_files

TOPIC = "orders"
PARTITIONS = 3
RETRIES = 3
RUNS_UNTIL_REST = 8

JSON = Decoding(value=FieldDecoding(Format.JSON))
TEXT = Decoding(value=FieldDecoding(Format.STRING))

Record = tuple[str, int, int, bytes]
"""Topic, partition, offset and value: what distinguishes a record from every other."""


class Log:
    """What producers sent to a topic, and the cluster that holds it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.kafka = FakeKafkaCluster()
        self._refresh_cluster()

    def produce(self, partition: int, count: int) -> None:
        """Append records to a partition."""
        for offset in range(self.ends[partition], self.ends[partition] + count):
            self.records.append((TOPIC, partition, offset, f"{TOPIC}-{partition}@{offset}".encode()))
        self._grow(partition, count)

    def append_markers(self, partition: int, count: int) -> None:
        """Append offsets without a record, as transactions do."""
        self._grow(partition, count)

    def of(self, topic_partition: TopicPartition, start: int, end: int) -> list[Record]:
        """Return the records of an offset range."""
        return [each for each in self.records if each[:2] == tuple_of(topic_partition) and start <= each[2] < end]

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition."""
        return {TopicPartition(TOPIC, partition): end for partition, end in self.ends.items()}

    def _grow(self, partition: int, count: int) -> None:
        self.ends[partition] += count
        self._refresh_cluster()

    def _refresh_cluster(self) -> None:
        self.kafka.topics[TOPIC] = topic(*(log(0, end) for _, end in sorted(self.ends.items())))


def tuple_of(topic_partition: TopicPartition) -> tuple[str, int]:
    """Return a partition as a record names it."""
    return topic_partition.topic, topic_partition.partition


class SparkStandIn:
    """The steps in which Spark writes, each whole or not at all."""

    def write_half_a_data_file(self, path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])

    def write_data_file(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)

    def write_receipt(self, path: Path, content: bytes) -> None:
        write_durably(path, content)


class SparkOnAStore(SparkStandIn):
    """The same where the output is in a store: a file is an upload in parts, which is there once it is completed."""

    def __init__(self) -> None:
        self._begun: dict[str, Any] = {}

    def write_half_a_data_file(self, path: Any, content: bytes) -> None:
        bucket, _, key = path.path.partition("/")
        begun = path.fs.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
        self._begun[path.path] = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
        self._upload(path, content[: len(content) // 2])

    def write_data_file(self, path: Any, content: bytes) -> None:
        part = {"PartNumber": 1, "ETag": self._upload(path, content)["ETag"]}
        upload = self._begun.pop(path.path)
        path.fs.call_s3("complete_multipart_upload", MultipartUpload={"Parts": [part]}, **upload)

    def write_receipt(self, path: Any, content: bytes) -> None:
        write_new(path, content)

    def _upload(self, path: Any, content: bytes) -> dict[str, Any]:
        """Upload the only part of a file; a smaller one than 5 MiB has to be the last."""
        found: dict[str, Any] = path.fs.call_s3("upload_part", PartNumber=1, Body=content, **self._begun[path.path])
        return found


def write_like_spark(spark: SparkStandIn, produced: Log, attempt: Attempt, access: S3Access | None = None) -> None:
    """Do what the Spark job does: document → files of exactly the plan's records → receipt."""
    directory = opened(attempt.directory, access)
    document = AttemptDocument.from_bytes(read_whole(directory / DOCUMENT), attempt.document_sha256)
    plan = document.plan
    data = opened(document.data.place, access) if document.data.place is not None else directory / DATA
    letters = opened(staged_dead_letters(attempt.directory), access) / DATA
    if isinstance(data, Path):
        data.mkdir(parents=True)
    rows_read = 0
    filtered: list[Filtered] = []
    found = replayed_by(document, access) if plan.replays else None
    for number, planned in enumerate(plan.ranges):
        if found is None:
            records = produced.of(planned.topic_partition, planned.start_offset, planned.end_offset)
        else:
            records = [each for each in found if each[:2] == tuple_of(planned.topic_partition)]
        rows_read += len(records)
        good = [each for each in records if is_decodable(each, document.decode)]
        dead = [each for each in records if each not in good]
        if document.decode.shape.where is not None:
            passed = [each for each in good if not is_filtered(each)]
            filtered += [Filtered(planned.topic_partition, len(good) - len(passed))] if passed != good else []
            good = passed
        content = parquet_of(
            good, batch_id=plan.batch_id if document.data.batch_column else None, decided=document.columns or {}
        )
        path = data / f"part-{number:05}.parquet"
        spark.write_half_a_data_file(path, content)
        spark.write_data_file(path, content)
        if dead:
            make_folder(letters)
            dead_content = dead_letters_of(dead, plan.batch_id if document.data.batch_column else None)
            spark.write_half_a_data_file(letters / path.name, dead_content)
            spark.write_data_file(letters / path.name, dead_content)
    receipt = Receipt(
        batch_id=plan.batch_id,
        attempt=document.attempt,
        plan_fingerprint=plan.fingerprint,
        document_sha256=attempt.document_sha256,
        rows_read=rows_read,
        files=tuple(staged_files(data)),
        written_at=datetime.now(UTC),
        written_by="stand-in for Spark",
        dead_letters=tuple(staged_files(letters)) if is_folder(letters) else (),
        filtered=tuple(filtered),
        columns=document.columns,
    )
    spark.write_receipt(directory / RECEIPT, receipt.as_bytes())


def is_decodable(record: Record, decoding: Decoding = JSON) -> bool:
    """Whether a feed that decodes its records gets columns from this one.

    As JSON from those with even offsets; as text from all but every fifth one.
    """
    if decoding.is_raw:
        return True
    return record[2] % 5 != 0 if decoding.value == TEXT.value else record[2] % 2 == 0


def dead_letters_of(records: list[Record], batch_id: UUID | None) -> bytes:
    """Return records that cannot be decoded as the bytes of a Parquet file."""
    return _dead_letters_of(tuple(records), batch_id)


@lru_cache(maxsize=1_000)
def _dead_letters_of(records: tuple[Record, ...], batch_id: UUID | None) -> bytes:
    table = pyarrow.parquet.read_table(pa.BufferReader(_parquet_of(records, batch_id)))
    causes = ["NOT_JSON" if offset % 3 else "DOES_NOT_FIT" for *_, offset, _ in records]
    columns = {"error_part": ["value"] * len(records), "error_class": causes, "error": ["found: text"] * len(records)}
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    if "key" not in table.column_names:
        table = table.append_column("key", pa.nulls(len(records), pa.binary()))
    buffer = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue().to_pybytes()


def replayed_by(document: AttemptDocument, access: S3Access | None) -> list[Record]:
    """Return the dead letters that a replay takes up, from the files that its attempt names."""
    columns = ("kafka_topic", "kafka_partition", "kafka_offset", "value", "error_class")
    found: list[Record] = []
    for batch_id, files in document.letters.items():
        rows = [
            tuple(row[each] for each in columns)
            for path in files
            for row in pyarrow.parquet.read_table(io.BytesIO(read_whole(opened(path, access)))).to_pylist()
        ]
        found += [
            row[:4]
            for row in rows
            for each in document.plan.replays
            if each.batch_id == batch_id and tuple_of(each.topic_partition) == row[:2] and row[4] in each.causes
            if each.offset_range.start_offset <= row[2] < each.offset_range.end_offset
        ]
    return sorted(found)


def is_filtered(record: Record) -> bool:
    """Whether a feed with a ``where`` leaves this record out."""
    return record[2] % 10 in {4, 6, 7}


NOTHING_MORE: Mapping[str, str] = {}
PLAIN_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "date": pa.date32()}


def parquet_of(
    records: list[Record], *, batch_id: UUID | None = None, decided: Mapping[str, str] = NOTHING_MORE
) -> bytes:
    """Return records as the bytes of a Parquet file, which may have no rows.

    With a batch's id in all columns of the format. ``decided``: columns of plain types; null where there are no others.
    """
    return _parquet_of(tuple(records), batch_id, tuple(decided.items()))


@lru_cache(maxsize=1_000)
def _parquet_of(records: tuple[Record, ...], batch_id: UUID | None, decided: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Write a file once: hundreds of lives of a feed stage the same records."""
    topics, partitions, offsets, values = zip(*records, strict=True) if records else ((), (), (), ())
    table = pa.table(
        {
            "kafka_topic": pa.array(topics, pa.string()),
            "kafka_partition": pa.array(partitions, pa.int32()),
            "kafka_offset": pa.array(offsets, pa.int64()),
            "kafka_timestamp": pa.array([datetime(2026, 3, 1, tzinfo=UTC)] * len(records), pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.binary()),
        }
    )
    if batch_id is not None:
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        others = {"key": pa.binary(), "kafka_headers": pa.list_(header)}
        others |= {"kafka_topic_id": pa.string(), "kafka_timestamp_ms": pa.int64()}
        for name, kind in others.items():
            table = table.append_column(name, pa.nulls(len(records), kind))
        table = table.append_column("kafka_batch", pa.array([str(batch_id)] * len(records), pa.string()))
    for name, kind in decided:
        if name not in table.column_names and kind in PLAIN_TYPES:
            table = table.append_column(name, pa.nulls(len(records), PLAIN_TYPES[kind]))
    buffer = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue().to_pybytes()


class AirflowStandIn:
    """Remembers what it was called with; a run that exists already is not triggered a second time."""

    def __init__(self) -> None:
        self.announced: list[UUID] = []
        self.triggered: set[UUID] = set()

    def announce(self, batch_id: UUID) -> None:
        self.announced.append(batch_id)

    def trigger_next(self, batch_id: UUID) -> None:
        self.triggered.add(batch_id)


@dataclass
class WholeFeed:
    """One feed with all its parts, and the tasks of its DAG as methods. The parts may be replaced by watched ones."""

    settings: FeedPlanSettings
    control: Any
    sink: Any
    log: Log
    kafka: Any
    spark: Any
    airflow: Any
    letters: Any
    decoding: Decoding = RAW
    limits: BatchLimits = NO_LIMITS
    rules: ColumnRules = NO_RULES
    access: S3Access | None = None
    """What leads to the store, where the output is in one."""

    def plan(self, actor: str) -> UUID | None:
        """Run the plan task."""
        outcome = plan_batch(self.settings, self, actor=actor)
        return outcome.batch.batch_id if outcome.batch is not None else None

    def write(self, batch_id: UUID, actor: str) -> None:
        """Run the write task, with Spark only where it is needed."""
        attempt = open_attempt(batch_id, self, actor=actor, decoding=self.decoding, rules=self.rules)
        if attempt is not None:
            self.run_spark(attempt)
            pin_attempt(batch_id, attempt.attempt, self)

    def run_spark(self, attempt: Attempt) -> None:
        """Run Spark on an attempt; what goes wrong there is known to have gone wrong, and no more."""
        try:
            write_like_spark(self.spark, self.log, attempt, self.access)
        except OSError as error:
            raise SparkFailedError(f"Spark ended with exit code 1: {error}") from error

    def commit(self, batch_id: UUID, actor: str) -> Committed:
        """Run the commit task."""
        committed = commit_batch(batch_id, self, group=GROUP, actor=actor, limits=self.limits)
        if committed.by_us:
            self.airflow.announce(batch_id)
        return committed

    def next_batch(self, batch_id: UUID, actor: str) -> None:
        """Run the task that triggers the next run where records may be left behind."""
        if why_no_run_follows(self.control.batch(batch_id), RunRequest(), actor) is None:
            self.airflow.trigger_next(batch_id)

    def sinks(self, target: OutputLocation) -> Sink:
        """Find the sink of the feed's output, or of its dead letters."""
        if target == output_of_dead_letters(self.settings.output):
            return self.letters
        assert target == self.settings.output
        return self.sink

    def snapshot(self) -> FeedSnapshot:
        """Return the feed's control rows; the feed is known."""
        found = self.control.feed(self.settings.name)
        assert found is not None
        return found

    def states(self) -> Mapping[UUID, BatchState]:
        """Return every batch of the feed with its state, oldest first."""
        return dict(sorted(self.control.batch_states(self.snapshot().feed_id).items()))

    @property
    def output(self) -> Path:
        """The output's directory; of one in a store the directory beside which its catalog lies."""
        place = self.settings.output.place
        return place if isinstance(place, Path) else Path(f"/{place.key}")


def whole_feed(
    name: str, control: ControlTables, lake: Path, output_format: str = "parquet", access: S3Access | None = None
) -> WholeFeed:
    """Return a feed that was never planned, of a topic without records, with a folder of its own in the lake.

    ``access`` leads to a store that has a bucket of that name.
    """
    made = Log()
    (lake / name).mkdir()
    path = lake / name / "orders"
    place = path if access is None else RemotePlace(f"s3://{access.conn_id}@lake{path}")
    is_iceberg = output_format == "iceberg"
    output = iceberg_at(place) if is_iceberg else OutputLocation.at(output_format, str(place))
    settings = feed_settings(name=name, output=output)
    sink = sink_of(output, connections_beside(path, access))
    letters = sink_of(output_of_dead_letters(output), connections_beside(path, access))
    spark = SparkStandIn() if access is None else SparkOnAStore()
    return WholeFeed(settings, control, sink, made, made.kafka, spark, AirflowStandIn(), letters, access=access)


# ── Airflow's part: runs, one after the other ─────────────────────────────────────────────────────────────────────────


@dataclass
class DagRun:
    """A run of plan >> write >> commit >> next_batch.

    A task that died or failed for now is tried again, in its name.
    """

    actor: str
    batch_id: UUID | None = None
    left: list[str] = field(default_factory=lambda: ["plan", "write", "commit", "next_batch"])

    def resume(self, feed: WholeFeed) -> None:
        """Run what is left of it; raises what Airflow would not try again, or not once more."""
        while self.left:
            with_retries(lambda: self.run_task(feed, self.left[0]))
            self.left = self.left[1:] if self.batch_id is not None else []

    def run_task(self, feed: WholeFeed, task: str) -> None:
        """Run one task, once."""
        if task == "plan":
            self.batch_id = feed.plan(self.actor)
            return
        assert self.batch_id is not None
        getattr(feed, task)(self.batch_id, self.actor)


def with_retries(task: Callable[[], None]) -> None:
    """Try a task again as Airflow does: where its error says that this may help, and not forever."""
    for _ in range(RETRIES):
        try:
            return task()
        except RetryableError:
            continue
    return task()


class Scheduler:
    """Starts one run after the other. A run that died continues where Airflow survived, and ends there otherwise."""

    def __init__(self) -> None:
        self._numbers = iter(range(1, 1_000))
        self._run = self._new_run()

    def _new_run(self) -> DagRun:
        return DagRun(f"run {next(self._numbers)}")

    @property
    def batch_id(self) -> UUID | None:
        """The batch of the present run."""
        return self._run.batch_id

    def remembered(self) -> object:
        """Return what is known of the present run."""
        return self._run.actor, self._run.batch_id, list(self._run.left)

    def resume(self, feed: WholeFeed) -> None:
        """Run what is left of the present run."""
        self._run.resume(feed)

    def run_one_batch(self, feed: WholeFeed) -> None:
        """Bring one batch to its end, with as many runs as that takes."""
        for _ in range(RUNS_UNTIL_REST):
            with contextlib.suppress(KafkaIngestError):
                return self.resume(feed)
            self.lose_run()
        raise AssertionError(f"expected a batch to be finished in {RUNS_UNTIL_REST} runs")

    def lose_run(self) -> None:
        """Let the next run be a new one."""
        self._run = self._new_run()

    def run_until_rest(self, feed: WholeFeed) -> list[KafkaIngestError]:
        """Finish the present run, and start new ones until one finds nothing new; return how runs failed on the way."""
        failures: list[KafkaIngestError] = []
        for _ in range(RUNS_UNTIL_REST):
            try:
                self.resume(feed)
            except KafkaIngestError as error:
                failures.append(error)
            else:
                if self.batch_id is None:
                    return failures
            self.lose_run()
        raise AssertionError(
            f"expected the feed to come to rest in {RUNS_UNTIL_REST} runs, the last failed: {failures[-1:]}"
        )


def at_rest(feed: WholeFeed) -> WholeFeed:
    """Run a feed until nothing is new, which goes well; return it."""
    assert Scheduler().run_until_rest(feed) == []
    return feed
