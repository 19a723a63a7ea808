"""A feed's settings: what one pipeline ingests. Stays on the Airflow side; Spark sees only the plan."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from croniter import croniter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.offsets import Isolation, OffsetsPolicy
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import AtOffsets, Earliest, Latest, StartRule
from kafka_ingest.submitting.spark_submission import A_FEED_MAY_CHANGE, PROJECT_CONF

DATA_VARIABLE = "KAFKA_INGEST_DATA"

# Airflow allows these in a DAG id, and a file system in a path: https://airflow.apache.org/docs (DAG ids).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
# Kafka's own rule: org.apache.kafka.common.internals.Topic.
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

SECRET_NAMES = re.compile(r"password|secret|token|jaas|credential|access.?key", re.IGNORECASE)
NOT_A_FEEDS = (PROJECT_CONF.keys() - A_FEED_MAY_CHANGE) | {
    "spark.app.name",
    "spark.driver.extraClassPath",
    "spark.jars",
    "spark.master",
    "spark.submit.deployMode",
    "spark.submit.pyFiles",
}
# What Airflow's DAG takes as a schedule, apart from a cron expression.
PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})

Offset = Annotated[int, Field(ge=0, strict=True)]
Records = Annotated[int, Field(ge=1, strict=True)]


def not_blank(text: str) -> str:
    """Refuse a text without anything in it."""
    if not text.strip():
        raise ValueError(f"expected a name, found {text!r}")
    return text


class Settings(BaseModel):
    """A part of a feed file: unknown keys are errors, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ExplicitStart(Settings):
    """``start: {offsets: {orders: {0: 1200}}, otherwise: earliest}``."""

    offsets: Mapping[str, Mapping[Offset, Offset]]
    otherwise: Literal["earliest", "latest"]


Start = Literal["earliest", "latest"] | ExplicitStart


class Topic(Settings):
    """One entry of ``kafka.topics``; ``start`` overrides the feed's own."""

    name: str
    start: Start | None = None

    @field_validator("name")
    @classmethod
    def _is_a_topic_name(cls, name: str) -> str:
        if not TOPIC.fullmatch(name) or name in {".", ".."}:
            raise ValueError(f"expected a topic name (letters, digits, '.', '_', '-', at most 249), found {name!r}")
        return name


class Kafka(Settings):
    """What is read, and over which Airflow connection."""

    conn_id: str = "kafka_default"
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)]
    group: Annotated[str, AfterValidator(not_blank)] | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    offsets: OffsetsPolicy = OffsetsPolicy.AUTO

    @field_validator("topics", mode="before")
    @classmethod
    def _names_are_topics(cls, entries: object) -> object:
        if not isinstance(entries, list):
            raise ValueError(f"expected a list of topics, found {entries!r}")  # noqa: TRY004 - pydantic collects ValueErrors
        return [{"name": entry} if isinstance(entry, str) else entry for entry in entries]

    @field_validator("topics")
    @classmethod
    def _each_topic_once(cls, topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
        if twice := duplicates(topic.name for topic in topics):
            raise ValueError(f"expected each topic once, found {', '.join(twice)} more than once")
        return topics


class Limits(Settings):
    """How large one batch may become; a larger backlog is worked off batch by batch, without waiting for the schedule."""

    max_records: Records | None = None
    max_records_per_partition: Records | None = None


class ParquetSink(Settings):
    """Where the output goes. ``shared``: the path is mounted at the same place on every Spark machine."""

    format: Literal["parquet"]
    path: str
    shared: bool = False

    @field_validator("path")
    @classmethod
    def _is_a_local_path(cls, path: str) -> str:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path):
            raise ValueError(
                f"expected a local or mounted path, found {path!r}: on an object store a directory of Parquet files would "
                "show readers half a batch"
            )
        if not path.isprintable():
            raise ValueError(f"expected a path of printable characters, found {path!r}")
        if not path.strip() or ".." in Path(path).parts:
            raise ValueError(f"expected a path without '..', found {path!r}")
        if not Path(path).name:
            raise ValueError(f"expected a directory of the feed's own, found {path!r}")
        if path.startswith("~"):
            raise ValueError(
                f"expected an absolute path, or one under {DATA_VARIABLE}, found {path!r}: '~' is not expanded"
            )
        return path


class Spark(Settings):
    """Over which Airflow connection Spark is reached, and Spark settings on top of the project's."""

    conn_id: str = "spark_default"
    conf: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("conf", mode="before")
    @classmethod
    def _values_are_texts(cls, conf: object) -> object:
        if not isinstance(conf, dict):
            return conf
        return {
            key: str(value).lower()
            if isinstance(value, bool)
            else str(value)
            if isinstance(value, int | float)
            else value
            for key, value in conf.items()
        }

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
            if SECRET_NAMES.search(key):
                raise ValueError(
                    f"{key!r} looks like a secret, and a command line would show what was found; use a connection"
                )
        return conf


class AirflowSettings(Settings):
    """Passed on to the DAG."""

    retries: Annotated[int, Field(ge=0, le=1000, strict=True)] = 3
    pool: str = "default_pool"
    owner: str = "kafka_ingest"
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()


class Feed(Settings):
    """What one pipeline ingests. Only ``name``, ``kafka.topics`` and ``sink`` have no default."""

    name: str
    schedule: str | None = "@hourly"
    kafka: Kafka
    start: Start = "earliest"
    on_data_loss: Literal["fail"] = "fail"
    on_missing_topic: Literal["stop"] = "stop"
    limits: Limits = Limits()
    sink: ParquetSink
    spark: Spark = Spark()
    airflow: AirflowSettings = AirflowSettings()

    @field_validator("name")
    @classmethod
    def _is_a_dag_id(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"expected letters, digits, '_', '.' and '-', beginning with a letter or digit, found {name!r}"
            )
        if name.startswith("feed_error__"):
            raise ValueError(
                f"expected a name that does not begin with 'feed_error__', as broken files' DAGs do, found {name!r}"
            )
        return name

    @field_validator("schedule")
    @classmethod
    def _airflow_takes_it(cls, schedule: str | None) -> str | None:
        # Airflow's own error would name neither the file nor the field, and leave the feed without a DAG.
        if schedule is not None and schedule not in PRESETS and not croniter.is_valid(schedule):
            raise ValueError(
                f"expected a cron expression, one of {', '.join(sorted(PRESETS))}, or null, found {schedule!r}"
            )
        return schedule

    @model_validator(mode="after")
    def _explicit_offsets_are_of_its_topics(self) -> "Feed":
        topics = {topic.name for topic in self.kafka.topics}
        for topic in [None, *self.kafka.topics]:
            start = self.start if topic is None else topic.start
            allowed = topics if topic is None else {topic.name}
            if isinstance(start, ExplicitStart) and (unknown := sorted(start.offsets.keys() - allowed)):
                raise ValueError(
                    f"start.offsets names {', '.join(unknown)}, expected only topics of this feed: {', '.join(sorted(allowed))}"
                )
        return self

    def start_rules(self) -> dict[str, StartRule]:
        """Return the start rule of each topic."""
        return {topic.name: start_rule(topic.start or self.start, topic.name) for topic in self.kafka.topics}

    def output_path(self, environment: Mapping[str, str]) -> Path:
        """Return the absolute path of the output; raises InvalidFeedError where there is nothing to make it absolute with."""
        path = Path(self.sink.path)
        if path.is_absolute():
            return path
        root = environment.get(DATA_VARIABLE)
        if not root or not Path(root).is_absolute():
            raise InvalidFeedError(
                f"feed {self.name}: sink.path {self.sink.path!r} is relative. Expected an absolute path, or {DATA_VARIABLE} to "
                f"name the absolute directory it lies under; found {DATA_VARIABLE}={root!r}."
            )
        return Path(root) / path

    def plan_settings(self, environment: Mapping[str, str]) -> FeedPlanSettings:
        """Return the feed as the planner sees it."""
        return FeedPlanSettings(
            name=self.name,
            start_rules=self.start_rules(),
            isolation=self.kafka.isolation,
            offsets_policy=self.kafka.offsets,
            sink_format=self.sink.format,
            output_path=self.output_path(environment),
            max_records=self.limits.max_records,
            max_records_per_partition=self.limits.max_records_per_partition,
        )


def start_rule(start: Start, topic: str) -> StartRule:
    """Return the planner's rule for what a feed file says."""
    if isinstance(start, ExplicitStart):
        otherwise = Earliest() if start.otherwise == "earliest" else Latest()
        return AtOffsets(dict(start.offsets[topic]), otherwise) if topic in start.offsets else otherwise
    return Earliest() if start == "earliest" else Latest()


def duplicates(values: Iterable[str]) -> list[str]:
    """Return the values that come more than once, sorted."""
    return sorted(value for value, count in Counter(values).items() if count > 1)
