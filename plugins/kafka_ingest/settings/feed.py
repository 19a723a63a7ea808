"""A feed's settings: what one pipeline ingests. Stays on the Airflow side; Spark sees only the plan."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from croniter import CroniterBadDateError, croniter
from pydantic import AfterValidator, Field, field_validator, model_validator

from kafka_ingest.errors import InvalidFeedError, WrongUseError
from kafka_ingest.model.alert import AlertRules, Stops
from kafka_ingest.model.batch_limits import BatchLimits, OnNeverFound
from kafka_ingest.model.completion import IN_OUTPUT, CompletionRules, OnLate, Unit
from kafka_ingest.model.decoding import Columns, Decoding
from kafka_ingest.model.offsets import Isolation, OffsetsPolicy
from kafka_ingest.model.partition_term import EXPECTED, TIME
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.spark_settings import SparkSettings, changes_values
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.topics import match_whole, why_not_the_same
from kafka_ingest.model.waiting import StartWhen
from kafka_ingest.model.written_columns import OnNewFields, Shape
from kafka_ingest.planning.settings import FeedPlanSettings, OnDataLoss, OnMissingTopic, OnTopicChanged, StartRule
from kafka_ingest.settings.feed_sections import (
    Alerts,
    Complete,
    ExplicitStart,
    Select,
    Start,
    Transform,
    Where,
    start_rule,
)
from kafka_ingest.settings.record_settings import RawRecords, RecordSettings, why_not_flat
from kafka_ingest.settings.setting_types import Duration, Offset, Records, Settings, as_text, is_topic_name, not_blank
from kafka_ingest.settings.sink_settings import Sink
from kafka_ingest.settings.sink_settings.local_directory import DATA_VARIABLE, in_object_store
from kafka_ingest.spark_launch.java_options import MEANING_OF_JAVA
from kafka_ingest.spark_launch.spark_submission import FIXED_CONF

# Airflow allows these in a DAG id, and a file system in a path: https://airflow.apache.org/docs (DAG ids).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
SHORTEST_WAIT = timedelta(seconds=10)
"""Logs are looked at every few seconds, and a run takes some."""
LEAST_RETENTION = timedelta(days=7)
"""Of control rows: runs, retries and the operators who watch them only ask about younger batches."""
DEFAULT_POOL = "default_pool"
"""Airflow's own, which is always there."""
CHECKING_DAG = "check_feeds"
PROJECT_DAGS = frozenset({"maintain_feeds", "backfill_offsets", "operate_feed", CHECKING_DAG})
LONGEST_PATTERN = 10_000
# Escapes that name a character by its number or its Unicode name: ranges between them take seconds to compile.
BY_NUMBER = re.compile(r"(?<!\\)(?:\\\\)*\\(?:[xuUN]|0)")

SECRET_NAMES = re.compile(r"password|secret|token|jaas|credential|(?:access|account).?key", re.IGNORECASE)
NOT_A_FEEDS = FIXED_CONF.keys() | {
    "spark.app.name",
    "spark.driver.extraClassPath",
    "spark.jars",
    "spark.master",
    "spark.submit.pyFiles",
}
# What Spark refuses only once it is started, or Java for it. Java takes the driver's memory as it is (-Xmx).
SPARK_VALUES = (
    (
        frozenset({"spark.driver.memory"}),
        re.compile(r"[1-9][0-9]*[kmgt]", re.IGNORECASE),
        "a number with k, m, g or t, such as 2g",
    ),
    (
        frozenset({"spark.executor.memory", "spark.driver.memoryOverhead", "spark.executor.memoryOverhead"}),
        re.compile(r"[1-9][0-9]*([kmgtp]?b?)", re.IGNORECASE),
        "a number with k, m, g or t, such as 2g",
    ),
    (
        frozenset(
            {"spark.driver.cores", "spark.executor.cores", "spark.executor.instances", "spark.cores.max"}
            | {"spark.default.parallelism", "spark.sql.shuffle.partitions", "spark.task.maxFailures", "spark.task.cpus"}
        ),
        re.compile(r"[1-9][0-9]*"),
        "a number above 0",
    ),
    (
        frozenset({"spark.authenticate", "spark.network.crypto.enabled"}),
        re.compile(r"true|false", re.IGNORECASE),
        "true or false",
    ),
)

# What Airflow's DAG takes as a schedule, apart from a cron expression.
PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})


def a_pattern(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"expected a pattern of at most {LONGEST_PATTERN:,} characters, found {len(pattern):,}")
    if not re.fullmatch("[ -~]*", pattern) or BY_NUMBER.search(pattern):
        raise ValueError(
            "expected a regular expression of printable ASCII, without characters by their number, found "
            f"{pattern!r}: topic names hold letters, digits, '.', '_' and '-'"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        # Python's own limits, as on "a{1,99999999999}" and on parentheses within parentheses within parentheses.
        raise ValueError(f"expected a regular expression, found {pattern!r}: {error}") from error
    if not pattern.strip():
        raise ValueError(f"expected a regular expression, found {pattern!r}")
    if (reason := why_not_the_same(pattern)) is not None:
        raise ValueError(f"expected a regular expression, found {pattern!r}: {reason}")
    return pattern


class Topic(Settings):
    """One entry of ``kafka.topics``; ``start`` overrides the feed's own."""

    name: str
    start: Start | None = None

    @field_validator("name")
    @classmethod
    def _is_a_topic_name(cls, name: str) -> str:
        if not is_topic_name(name):
            raise ValueError(f"expected a topic name (letters, digits, '.', '_', '-', at most 249), found {name!r}")
        return name


class Kafka(Settings):
    """What is read, and over which Airflow connection."""

    conn_id: str = "kafka_default"
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)] | None = None
    topic_pattern: Annotated[str, AfterValidator(a_pattern)] | None = None
    group: Annotated[str, AfterValidator(not_blank)] | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    offsets: OffsetsPolicy = OffsetsPolicy.AUTO

    @field_validator("topics", mode="before", json_schema_input_type=list[str | Topic] | None)
    @classmethod
    def _names_are_topics(cls, entries: object) -> object:
        if entries is None:
            return None
        if not isinstance(entries, list):
            raise ValueError(f"expected a list of topics, found {entries!r}")  # noqa: TRY004 - pydantic collects ValueErrors
        # A word that YAML takes for something else, such as an unquoted no, was meant as a name.
        return [entry if isinstance(entry, dict) else {"name": entry} for entry in entries]

    @field_validator("topics")
    @classmethod
    def _each_topic_once(cls, topics: tuple[Topic, ...] | None) -> tuple[Topic, ...] | None:
        if twice := duplicates(topic.name for topic in topics or ()):
            raise ValueError(f"expected each topic once, found {', '.join(twice)} more than once")
        return topics

    @model_validator(mode="after")
    def _topics_or_a_pattern(self) -> "Kafka":
        if (self.topics is None) == (self.topic_pattern is None):
            found = "neither" if self.topics is None else "both"
            raise ValueError(f"expected either topics or topic_pattern, found {found}")
        return self

    @property
    def listed(self) -> tuple[Topic, ...]:
        return self.topics or ()

    def described(self) -> str:
        return ", ".join(topic.name for topic in self.listed) or f"topics like {self.topic_pattern}"


Percent = Annotated[int, Field(ge=0, le=100, strict=True)]

OF_WRITTEN: Final = {"max_dead_letters", "max_dead_letter_percent", "max_filtered_percent"}
"""The limits that a batch is judged by once it is written; the others limit its plan, or each record."""


class Limits(Settings):
    """How large one batch may become; a larger backlog is worked off batch by batch, without waiting for the schedule.

    Where ``max_records`` is left out, the feed's own speed decides; null, or ``unlimited``, is no limit.
    """

    max_records: Records | None = None
    max_records_per_partition: Records | None = None
    min_records: Records | None = None
    max_wait: Duration | None = None
    skip_to_latest_when_behind: Records | None = None
    max_dead_letters: Offset | None = None
    max_dead_letter_percent: Percent | None = None
    max_filtered_percent: Percent | None = None
    max_record_bytes: Records | None = None

    @field_validator("max_records", mode="before", json_schema_input_type=Records | Literal["unlimited"] | None)
    @classmethod
    def _unlimited_is_no_limit(cls, value: object) -> object:
        return None if value == "unlimited" else value

    @property
    def of_plan(self) -> Mapping[str, Any]:
        return self.model_dump(exclude=OF_WRITTEN | {"max_record_bytes"})

    @property
    def of_written(self) -> Mapping[str, Any]:
        return self.model_dump(include=OF_WRITTEN)

    @property
    def limit_follows_speed(self) -> bool:
        return "max_records" not in self.model_fields_set

    @model_validator(mode="after")
    def _small_batches_do_not_wait_forever(self) -> "Limits":
        if (self.min_records is None) != (self.max_wait is None):
            raise ValueError(
                "expected min_records and max_wait together: a small batch waits for more records, but not forever, "
                "found " + ("only min_records" if self.max_wait is None else "only max_wait")
            )
        if self.min_records is not None and self.max_records is not None and self.min_records > self.max_records:
            raise ValueError(
                f"expected min_records up to max_records, found {self.min_records:,} and {self.max_records:,}"
            )
        return self


class Spark(Settings):
    """Over which Airflow connection Spark is reached, and Spark settings on top of the project's."""

    conn_id: str = "spark_default"
    conf: Mapping[str, str] = Field(default_factory=dict)
    max_wait_for_executors: Duration = timedelta(minutes=10)

    @field_validator("conf", mode="before", json_schema_input_type=Mapping[str, str | int | float | bool])
    @classmethod
    def _values_are_texts(cls, conf: object) -> object:
        return {key: as_text(value) for key, value in conf.items()} if isinstance(conf, dict) else conf

    @field_validator("conf")
    @classmethod
    def _no_secret(cls, conf: Mapping[str, str]) -> Mapping[str, str]:
        for key in conf:
            if not key.startswith("spark."):
                raise ValueError(f"expected Spark settings, which start with 'spark.', found {key!r}")
            if key in NOT_A_FEEDS:
                raise ValueError(
                    f"{key!r} is decided by the Spark connection and by this project, found it in a feed file"
                )
            if changes_values(key):
                raise ValueError(
                    f"{key!r} changes what values, types or names mean, which is the same for all feeds; found it in a "
                    "feed file. Say what you mean in where or select"
                )
            if key.endswith("JavaOptions") and (found := MEANING_OF_JAVA.search(conf[key])):
                raise ValueError(
                    f"{found[0]!r} changes what values mean: time zone, language and character set of Java are the "
                    f"same for all feeds; found it in {key!r}"
                )
            if SECRET_NAMES.search(key):
                raise ValueError(
                    f"{key!r} looks like a secret, and a command line would show what was found; use a connection"
                )
            for keys, pattern, expected in SPARK_VALUES:
                if key in keys and not pattern.fullmatch(conf[key]):
                    raise ValueError(f"expected {key} to be {expected}, found {conf[key][:80]!r}")
        return conf


class AirflowSettings(Settings):
    """Passed to the DAG."""

    retries: Annotated[int, Field(ge=0, le=1000, strict=True)] = 3
    execution_timeout: Duration = timedelta(hours=12)
    pool: str = DEFAULT_POOL
    owner: str = "kafka_ingest"
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()


def not_too_short(limit: timedelta) -> timedelta:
    """Refuse what no check could keep."""
    if limit < SHORTEST_WAIT:
        raise ValueError(f"expected {SHORTEST_WAIT.seconds}s or more, found {limit.seconds}s")
    return limit


def not_too_young(retention: timedelta) -> timedelta:
    if retention < LEAST_RETENTION:
        raise ValueError(f"expected {LEAST_RETENTION.days}d or more, found {retention / timedelta(days=1):g}d")
    return retention


class StartWhenSettings(Settings):
    """A run starts once so many records wait, or one that is older; one of them is enough."""

    records: Records | None = None
    or_older_than: Annotated[Duration, AfterValidator(not_too_short)] | None = None

    @model_validator(mode="after")
    def _names_something(self) -> "StartWhenSettings":
        if self.records is None and self.or_older_than is None:
            raise ValueError("expected records, or_older_than, or both, found neither")
        return self

    def rule(self) -> StartWhen:
        return StartWhen(self.records, self.or_older_than)


class Feed(Settings):
    """What one pipeline ingests. Only ``name``, ``kafka.topics`` and ``sink`` have no default."""

    name: str
    fleet: str | None = None
    schedule: str | None = "@hourly"
    start_when: StartWhenSettings | None = None
    kafka: Kafka
    start: Start = "earliest"
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    on_missing_topic: OnMissingTopic = OnMissingTopic.STOP
    on_topic_changed: OnTopicChanged = OnTopicChanged.STOP
    key: RecordSettings = RawRecords()
    value: RecordSettings = RawRecords()
    columns: Columns = Columns.NESTED
    where: Where | None = None
    select: Select | None = None
    keep_other_columns: bool = False
    transform: Transform | None = None
    on_new_fields: OnNewFields = OnNewFields.ADD
    on_never_found: OnNeverFound | None = None
    limits: Limits = Limits()
    control_retention: Annotated[Duration, AfterValidator(not_too_young)] | None = None
    sink: Sink
    spark: Spark = Spark()
    airflow: AirflowSettings = AirflowSettings()
    alerts: Alerts | None = None
    complete: Complete | None = None

    @field_validator("name", "fleet")
    @classmethod
    def _is_a_dag_id(cls, name: str | None) -> str | None:
        if name is None:
            return None
        if not NAME.fullmatch(name):
            raise ValueError(
                "expected up to 200 letters, digits, '_', '.' and '-', beginning with a letter or digit, found "
                f"{name!r}"
            )
        if name in PROJECT_DAGS:
            raise ValueError(f"expected a name that is not one of the project's own DAGs, found {name!r}")
        if name.startswith("feed_error__"):
            raise ValueError(
                f"expected a name that does not begin with 'feed_error__', as broken files' DAGs do, found {name!r}"
            )
        return name

    @field_validator("schedule")
    @classmethod
    def _airflow_takes_it(cls, schedule: str | None) -> str | None:
        # Airflow's own error would name neither the file nor the field, and leave the feed without a DAG.
        if schedule is not None and (reason := why_no_schedule(schedule)):
            raise ValueError(f"{reason}, found {schedule!r}")
        return schedule

    @model_validator(mode="after")
    def _waiting_starts_a_run(self) -> "Feed":
        if self.start_when is not None and self.schedule in {"@once", "@continuous"}:
            raise ValueError(f"expected start_when beside a cron expression or null, found schedule {self.schedule!r}")
        if self.start_when is not None and self.limits.min_records is not None:
            raise ValueError(
                "expected start_when without limits.min_records, found both: the run that is started would wait for "
                "more records. Take min_records and max_wait out, and let start_when and schedule say it"
            )
        return self

    @model_validator(mode="after")
    def _explicit_offsets_are_of_its_topics(self) -> "Feed":
        for topic in [None, *self.kafka.listed]:
            start = self.start if topic is None else topic.start
            if not isinstance(start, ExplicitStart):
                continue
            if topic is None and self.kafka.topic_pattern is not None:
                # Matched when the feed is planned: a pattern may backtrack without end, and all feeds' DAGs would wait.
                continue
            # A topic with its own start ignores these offsets.
            allowed = {each.name for each in self.kafka.listed if each.start is None} if topic is None else {topic.name}
            if unknown := sorted(start.offsets.keys() - allowed):
                raise ValueError(
                    f"start.offsets names {', '.join(unknown)}, expected only topics of this feed, without a start of "
                    f"their own: {', '.join(sorted(allowed)) or 'none'}"
                )
        return self

    @model_validator(mode="after")
    def _records_become_columns(self) -> "Feed":
        decoding = self.decoding()
        if decoding.columns is Columns.FLATTEN and (reason := why_not_flat(decoding.value)):
            raise ValueError(reason)
        if self.keep_other_columns and not self.select:
            raise ValueError("expected keep_other_columns together with select, found no select")
        if "on_new_fields" in self.model_fields_set and (decoding.is_raw or self.transform is not None):
            found = "transform" if self.transform is not None else "raw ones"
            raise ValueError(
                "expected on_new_fields with decoded records only, whose columns are known before they are written, "
                f"found {found}"
            )
        if not self.sink.takes_columns and not decoding.is_raw:
            raise ValueError(
                f"expected raw records for sink.format: {self.sink.format}, found that they are decoded or filtered: "
                "what another topic gets are the records' own bytes"
            )
        options = TableOptions.of(dict(self.sink.options))
        terms = options.partition_by
        names = decoding.shape.columns(["key", "value"])
        if options.current is not None and (decoding.columns is Columns.FLATTEN or not {"key", "value"} <= {*names}):
            found = "columns: flatten" if decoding.columns is Columns.FLATTEN else f"a select of {', '.join(names)}"
            raise ValueError(
                "expected records with their key and value, of which sink.mode: current makes rows, found "
                f"{found}; use keep_other_columns: true with select"
            )
        if decoding.is_raw and (others := [term.column for term in terms if not term.is_kafkas]):
            raise ValueError(f"expected sink.partition_by to name Kafka's columns, {EXPECTED}, found {others[0]}")
        if self.complete is not None and self.complete.success_file and self.sink.format != "parquet":
            raise ValueError(
                f"expected complete.success_file with a directory of Parquet files, found format {self.sink.format}: "
                "nothing waits for files beside a table"
            )
        if self.late_by is not None and (why_not := self.sink.why_no_late_rows) is not None:
            raise ValueError(
                "expected complete.on_late: announce or count, or an output beside which late rows can be, found "
                f"dataset with {why_not}"
            )
        of_time = {(term.column, term.transform.value) for term in terms}
        marked = self.complete is not None and self.complete.success_file == IN_OUTPUT and self.complete.by
        if marked and (TIME, marked) not in of_time:
            raise ValueError(
                f"expected sink.partition_by with folders by {marked}({TIME}), which get the file _SUCCESS "
                f"(complete.success_file: {IN_OUTPUT}), found {', '.join(map(str, terms)) or 'none'}"
            )
        return self

    def alert_rules(self) -> AlertRules | None:
        stops = Stops(
            on_loss=self.on_data_loss is OnDataLoss.FAIL,
            on_missing_topic=self.on_missing_topic is OnMissingTopic.STOP,
            on_changed_topic=self.on_topic_changed is OnTopicChanged.STOP,
        )
        return None if self.alerts is None else self.alerts.rules(stops)

    def complete_rules(self) -> CompletionRules:
        """Return when an hour or a day of this feed is complete; raises WrongUseError where it asks for none."""
        if self.complete is None:
            raise WrongUseError(
                f"feed {self.name}: expected complete in its file, such as complete: {{by: hour}}, found none: no hour "
                "or day of it is ever complete"
            )
        return self.complete.rules()

    @property
    def late_by(self) -> Unit | None:
        """By which of the two rows are late that go to a dataset of their own, None where none do."""
        return self.complete.by if self.complete is not None and self.complete.on_late is OnLate.DATASET else None

    def batch_limits(self) -> BatchLimits:
        fetched = {name for name, part in self.decoding().parts.items() if part.schema is None}
        return BatchLimits(**self.limits.of_written, on_never_found=self.on_never_found, fetched=fetched)

    def decoding(self) -> Decoding:
        selected = tuple(each.column() for each in self.select or ())
        where, also = self.where, self.sink.where
        if also is not None:  # what the feed leaves out cannot fail
            where = also if where is None else f"if({where}, {also}, false)"
        shape = Shape(selected, where, self.transform, self.keep_other_columns)
        settings, largest = SparkSettings(feed=self.spark.conf), self.limits.max_record_bytes
        return Decoding(self.value.decoding(), self.key.decoding(), self.columns, shape, settings, largest)

    def start_rules(self) -> dict[str, StartRule]:
        """Return the start rule of each named topic; raises InvalidFeedError on a topic that is not the feed's."""
        named = {topic.name: topic.start or self.start for topic in self.kafka.listed}
        if (pattern := self.kafka.topic_pattern) is not None and isinstance(self.start, ExplicitStart):
            if unmatched := sorted(name for name in self.start.offsets if match_whole(pattern, name) is None):
                raise InvalidFeedError(
                    f"feed {self.name}: start.offsets names {', '.join(unmatched)}, expected only topics that "
                    f"kafka.topic_pattern {pattern!r} matches as a whole"
                )
            named = dict.fromkeys(self.start.offsets, self.start)
        return {topic: start_rule(start, topic) for topic, start in named.items()}

    def output(self, environment: Mapping[str, str]) -> OutputLocation:
        """Return where the output goes; raises InvalidFeedError where there is nothing to make it absolute with."""
        options = self.sink.options_of(decoded=not self.decoding().is_raw)
        if in_object_store(self.sink.path):
            return OutputLocation.at(self.sink.format, self.sink.path, options)
        path = Path(self.sink.path)
        if path.is_absolute():
            return OutputLocation.local(self.sink.format, path, options)
        root = environment.get(DATA_VARIABLE)
        if not root or not Path(root).is_absolute():
            raise InvalidFeedError(
                f"feed {self.name}: sink.path {self.sink.path!r} is relative. Expected an absolute path, or "
                f"{DATA_VARIABLE} to name the absolute directory that it is below; found {DATA_VARIABLE}={root!r}."
            )
        return OutputLocation.local(self.sink.format, Path(root) / path, options)

    def _relative_path(self) -> Path | None:
        path = Path(self.sink.path)
        return None if path.is_absolute() or in_object_store(self.sink.path) else path

    def plan_settings(self, environment: Mapping[str, str]) -> FeedPlanSettings:
        return FeedPlanSettings(
            name=self.name,
            start_rules=self.start_rules(),
            isolation=self.kafka.isolation,
            offsets_policy=self.kafka.offsets,
            output=self.output(environment),
            relative_path=self._relative_path(),
            topic_pattern=self.kafka.topic_pattern,
            pattern_start=start_rule(self.start, None),
            on_data_loss=self.on_data_loss,
            on_missing_topic=self.on_missing_topic,
            on_topic_changed=self.on_topic_changed,
            limit_follows_speed=self.limits.limit_follows_speed,
            **self.limits.of_plan,
        )


@lru_cache(maxsize=10_000)  # asked two times a file, and most feeds share a few
def why_no_schedule(schedule: str) -> str | None:
    """Return what was expected where Airflow refuses a schedule, or it is never due; None where it can be used."""
    if schedule in PRESETS:
        return None
    if not croniter.is_valid(schedule):
        return f"expected a cron expression, one of {', '.join(sorted(PRESETS))}, or null"
    try:
        croniter(schedule, datetime.now(UTC)).get_next()
    except CroniterBadDateError:
        return "expected a cron expression that some date fits (for runs by hand: null)"
    return None


def duplicates(values: Iterable[str]) -> list[str]:
    return sorted(value for value, count in Counter(values).items() if count > 1)
