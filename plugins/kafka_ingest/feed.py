"""The feed file: one YAML file, one scheduled DAG. Stays on the Airflow side; Spark sees only the plan."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kafka_ingest.errors import InvalidFeedError, UnknownFeedError
from kafka_ingest.offsets import Isolation, OffsetsPolicy
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import AtOffsets, Earliest, Latest, StartRule

FEEDS_VARIABLE = "KAFKA_INGEST_FEEDS"
DATA_VARIABLE = "KAFKA_INGEST_DATA"

# Airflow allows these in a DAG id, and a file system in a path: https://airflow.apache.org/docs (DAG ids).
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
# Kafka's own rule: org.apache.kafka.common.internals.Topic.
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

Offset = Annotated[int, Field(ge=0, strict=True)]
Records = Annotated[int, Field(ge=1, strict=True)]


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
    group: str | None = None
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
        if "://" in path:
            raise ValueError(
                f"expected a local or mounted path, found {path!r}: on an object store a directory of Parquet files would "
                "show readers half a batch"
            )
        if not path.strip() or ".." in Path(path).parts:
            raise ValueError(f"expected a path without '..', found {path!r}")
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
            if re.search(r"password|secret|token|jaas", key, re.IGNORECASE):
                raise ValueError(f"{key!r} looks like a secret; it would be seen on the command line. Use a connection")
        return conf


class AirflowSettings(Settings):
    """Passed on to the DAG."""

    retries: Annotated[int, Field(ge=0, strict=True)] = 3
    pool: str = "default_pool"
    owner: str = "kafka_ingest"
    tags: tuple[str, ...] = ()


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
        return name

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


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A feed file and what is in it: a feed, or the error that says why it cannot be used."""

    path: Path
    feed: Feed | None
    error: InvalidFeedError | None = None


def start_rule(start: Start, topic: str) -> StartRule:
    """Return the planner's rule for what a feed file says."""
    if isinstance(start, ExplicitStart):
        otherwise = Earliest() if start.otherwise == "earliest" else Latest()
        return AtOffsets(dict(start.offsets[topic]), otherwise) if topic in start.offsets else otherwise
    return Earliest() if start == "earliest" else Latest()


def feeds_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of feed files: KAFKA_INGEST_FEEDS, or ``dags/feeds`` beside ``plugins/``."""
    named = environment.get(FEEDS_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[2] / "dags" / "feeds"


def read_feed_files(directory: Path) -> list[FeedFile]:
    """Return all feed files of a folder, by file name. A broken one carries its error and harms no other.

    Two feeds may not share a name, an output or a consumer group: nobody can know which was meant, so all of them are
    refused until it is settled.
    """
    if not directory.is_dir():
        raise InvalidFeedError(f"expected a folder of feed files, found none at {directory}. Set {FEEDS_VARIABLE}.")
    files = [read_feed_file(path) for path in sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])]
    return refuse_shared("name", refuse_shared("sink.path", refuse_shared("kafka.group", files)))


def read_feed_file(path: Path) -> FeedFile:
    """Return a feed file, with its error where it cannot be used."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=StrictLoader)  # noqa: S506 - derived from SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        return FeedFile(path, None, InvalidFeedError(f"{path}: cannot be read as YAML: {error}"))
    if not isinstance(document, dict):
        found = "an empty file" if document is None else type(document).__name__
        return FeedFile(
            path, None, InvalidFeedError(f"{path}: expected a mapping with name, kafka and sink, found {found}")
        )
    try:
        return FeedFile(path, Feed.model_validate(document))
    except ValidationError as error:
        return FeedFile(path, None, InvalidFeedError(f"{path}: {'; '.join(describe(error))}"))


def feed_named(name: str, directory: Path) -> Feed:
    """Return one feed; raises UnknownFeedError, or the error of the file that should hold it."""
    files = read_feed_files(directory)
    for file in files:
        if file.feed is not None and file.feed.name == name:
            return file.feed
    for file in files:
        if file.error is not None and (file.path.stem == name or re.search(rf"\b{re.escape(name)}\b", str(file.error))):
            raise file.error
    names = [file.feed.name for file in files if file.feed is not None]
    broken = [str(file.path) for file in files if file.error is not None]
    raise UnknownFeedError(
        f"expected one of the feeds in {directory}: {', '.join(names) or 'there are none'}; found {name!r}."
        + (f" These files cannot be used: {', '.join(broken)} (`kafka-ingest feeds` says why)." if broken else "")
    )


def refuse_shared(what: Literal["name", "sink.path", "kafka.group"], files: list[FeedFile]) -> list[FeedFile]:
    """Give an error to every feed that shares its name, output or group with another."""

    def key(feed: Feed) -> str | None:
        return {"name": feed.name, "sink.path": os.path.normpath(feed.sink.path), "kafka.group": feed.kafka.group}[what]

    owners: dict[str, list[Path]] = {}
    for file in files:
        if file.feed is not None and (value := key(file.feed)) is not None:
            owners.setdefault(value, []).append(file.path)
    return [
        file
        if file.feed is None or (value := key(file.feed)) is None or len(owners[value]) == 1
        else FeedFile(
            file.path,
            None,
            InvalidFeedError(
                f"{file.path}: {what} {value!r} is also that of "
                f"{', '.join(str(path) for path in owners[value] if path != file.path)}. Two feeds may not share it; all of "
                "them are off until one is changed."
            ),
        )
        for file in files
    ]


def describe(error: ValidationError) -> list[str]:
    """Return what is wrong, one text a field: where, what was expected, what was found."""
    texts: list[str] = []
    for problem in error.errors():
        # Positions inside a union carry the name of the alternative; the user wrote none of them.
        where = ".".join(
            str(part) for part in problem["loc"] if not str(part).startswith(("literal[", "ExplicitStart"))
        )
        if problem["type"] == "extra_forbidden":
            texts.append(f"{where}: unknown key")
        elif problem["type"] == "missing":
            texts.append(f"{where}: missing")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            found = "" if "found" in message else f", found {problem['input']!r}"
            texts.append(f"{where + ': ' if where else ''}{message[:1].lower()}{message[1:]}{found}")
    return list(dict.fromkeys(texts))


def duplicates(values: Iterable[str]) -> list[str]:
    """Return the values that come more than once, sorted."""
    return sorted(value for value, count in Counter(values).items() if count > 1)


class StrictLoader(yaml.SafeLoader):
    """YAML in which a key that comes twice is an error; plain YAML lets the last one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """Return a mapping; raises a YAML error at the second occurrence of a key."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} comes twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
