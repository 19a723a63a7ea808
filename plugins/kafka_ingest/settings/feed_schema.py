"""The JSON Schema of feed files and of ``_defaults.yaml``, for editors: from the model, with what each key means."""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from kafka_ingest.settings.defaults import FOR_EACH, OF_ONE_FEED, ONE_VALUE, Place
from kafka_ingest.settings.feed import NAME, PROJECT_DAGS, Feed
from kafka_ingest.settings.feed_sections import DOTTED_PATH, FUNCTION
from kafka_ingest.settings.record_settings import FULL_NAME, RawRecords
from kafka_ingest.settings.setting_types import DURATION_UNITS, LONGEST_TOPIC, TOPIC, models_in
from kafka_ingest.settings.sink_settings import of_connections, table
from kafka_ingest.settings.sink_settings.of_connections import LONGEST_NAME
from kafka_ingest.settings.topics_file import OF_THE_FILE

MEANINGS: Final[Mapping[str, str]] = {
    "Feed.name": "The feed's identity, and its DAG's. Call the file after it.",
    "Feed.fleet": "Feeds of one fleet share a scheduled DAG of this name.",
    "Feed.schedule": "A cron expression or one of Airflow's presets; null for runs by hand.",
    "Feed.start_when": "The records that wait start a run, beside the schedule.",
    "Feed.kafka": "What is read, and over which connection.",
    "Feed.start": "Where partitions without a stored offset begin, once.",
    "Feed.on_data_loss": "What follows where retention deleted records before they were read.",
    "Feed.on_missing_topic": "What follows where a topic of the feed is gone.",
    "Feed.on_topic_changed": "What follows where a topic was deleted and created again.",
    "Feed.key": "What the bytes of keys are.",
    "Feed.value": "What the bytes of values are.",
    "Feed.columns": "Whether each field of the value is a column of its own.",
    "Feed.where": "A Spark SQL expression; records for which it is not true are filtered.",
    "Feed.select": "Columns in the place of key and value.",
    "Feed.keep_other_columns": "The columns that select does not name stay.",
    "Feed.transform": "A Python function that gets all rows and returns rows: package.module:function.",
    "Feed.on_new_fields": "What follows where records have fields that the output lacks. Of decoded records.",
    "Feed.on_never_found": "What follows where no record of a batch has a field of JSON. "
    "Without it the first batch stops, and later ones warn.",
    "Feed.limits": "How large a batch may become, and what keeps it from being committed.",
    "Feed.control_retention": "Older batches in the control tables become sums; 7d at least. Without it: never.",
    "Feed.sink": "The output.",
    "Feed.spark": "Over which connection Spark is reached, and settings of its own.",
    "Feed.airflow": "What Airflow's DAG gets.",
    "Feed.alerts": "What to notify of, and by which notifiers.",
    "Feed.complete": "When an hour or a day has landed completely.",
    "Kafka.conn_id": "An Airflow connection of type kafka; its extra is librdkafka configuration.",
    "Kafka.topics": "The topics, or topic_pattern.",
    "Kafka.topic_pattern": "A Python regular expression that matches the whole name of each topic.",
    "Kafka.group": "The consumer group that is kept in step. Without it Kafka is only read.",
    "Kafka.isolation": "Whether records of transactions that are open or aborted are read.",
    "Kafka.offsets": "With dense, an offset without a record is an error.",
    "Topic.name": "The topic's name.",
    "Topic.start": "Where this topic begins, in the place of the feed's start.",
    "StartWhenSettings.records": "A run starts once so many offsets can be read.",
    "StartWhenSettings.or_older_than": "A run starts once a record waits that is older; 10s at least.",
    "ExplicitStart.offsets": "Of each topic the offset that each partition begins with.",
    "Settings.otherwise": "Where partitions begin that are not named.",
    "GroupStart.group": "Partitions begin where this consumer group stands.",
    "TimestampStart.timestamp": "Partitions begin with the first record of this time or later.",
    "Limits.max_records": "Of a batch. Without it, what the feed's newest batches read in ten minutes; "
    "null or unlimited: no limit.",
    "Limits.max_records_per_partition": "Of a batch, of each partition.",
    "Limits.min_records": "A smaller batch waits for more records, at most max_wait.",
    "Limits.max_wait": "How long a batch below min_records waits.",
    "Limits.skip_to_latest_when_behind": "A partition that is further behind jumps to its end, and records a gap.",
    "Limits.max_dead_letters": "A batch with more records that cannot be decoded is not committed.",
    "Limits.max_dead_letter_percent": "The same, of the records read. Without it 99 of an output's first batch.",
    "Limits.max_filtered_percent": "The same of filtered records. Without it 99 of an output's first batch.",
    "Limits.max_record_bytes": "A record with more bytes of key, value and headers is a dead letter.",
    "Spark.conn_id": "An Airflow connection of type spark.",
    "Spark.conf": "Spark's settings on top of the project's; no secrets.",
    "Spark.max_wait_for_executors": "A cluster without free cores ends the attempt after that.",
    "AirflowSettings.retries": "How often Airflow tries a task again.",
    "AirflowSettings.execution_timeout": "How long a task may take.",
    "AirflowSettings.pool": "The pool of the tasks.",
    "AirflowSettings.owner": "The owner that Airflow shows.",
    "AirflowSettings.tags": "The tags that Airflow shows.",
    "Settings.format": "What the bytes are.",
    "FromSchema.registry": "An Airflow connection to a schema registry.",
    "FromSchema.subject": "The subject of the schema to read as; {topic} stands for the topic.",
    "FromSchema.version": "The version of the schema to read as. Without it the latest.",
    "FromSchema.as": "What the schema's values at some paths become.",
    "FromSchema.required": "Fields that must be there and not null; else the record is a dead letter.",
    "FromSchema.other_records": "What records of other types are. With a registry.",
    "JsonRecords.schema": "A list of fields in Spark's types, or the path of a file with a JSON Schema.",
    "JsonRecords.unknown_fields": "What follows where a record has a field that the schema does not name.",
    "AvroRecords.schema": "The path of a file with an Avro schema, where no registry is named.",
    "ProtobufRecords.descriptors": "The path of a descriptor set, where no registry is named.",
    "ProtobufRecords.message": "The full name of the message, such as shop.Order.",
    "SelectSettings.name": "The column's name.",
    "SelectSettings.type": "The column's type, in Spark's DDL.",
    "SelectSettings.sql": "A Spark SQL expression over the columns of a record.",
    "LocalDirectorySink.format": "What the output is.",
    "LocalDirectorySink.path": "Absolute, or under KAFKA_INGEST_DATA; of a table also s3://, gs:// or abfss://.",
    "LocalDirectorySink.shared": "The path is mounted at the same place on every Spark machine.",
    "LocalDirectorySink.staging_retention": "How long staged files stay after their batch was committed or abandoned.",
    "ParquetSink.partition_by": "Folders within a batch's, the outermost first, such as dt: day(kafka_timestamp).",
    "TableSink.partition_by": "How a new table is partitioned, such as [kafka_topic, day(kafka_timestamp)].",
    "TableSink.table_properties": "The engine's properties that a new table gets.",
    "TableSink.on_new_columns": "What follows where the table lacks columns that are written.",
    "IcebergSink.catalog": "An Airflow connection to the table's catalog.",
    "IcebergSink.table": "Namespace and name, such as shop.orders.",
    "PostgresqlSink.conn_id": "An Airflow connection of type postgres.",
    "PostgresqlSink.table": "Schema and name, such as shop.orders.",
    "PostgresqlSink.mode": "append: each record is a row. current: a row is the newest state of a key.",
    "PostgresqlSink.deleted": "What becomes of a key that is deleted. With mode: current.",
    "PostgresqlSink.on_truncate": "What a truncation does. With mode: current.",
    "PostgresqlSink.null_keys": "What a record without a key is. With mode: current.",
    "PostgresqlSink.partition_by": "Range partitions of a new table: [day(kafka_timestamp)] or hour(…).",
    "PostgresqlSink.on_new_columns": "What follows where the table lacks columns that are written.",
    "PostgresqlSink.on_refused": "What records are whose rows the table refuses, by a constraint say.",
    "KafkaSink.conn_id": "An Airflow connection of type kafka.",
    "KafkaSink.topic": "The topic that records are written to.",
    "KafkaSink.partitions": "A record keeps the number of its partition, or gets one by the hash of its key.",
    "Alerts.lag": "More offsets than this can be read.",
    "Alerts.behind": "Records that are older wait to be read.",
    "Alerts.headroom": "Retention deletes unread records within that time.",
    "Alerts.open_batch": "A batch has not changed its state for that long.",
    "Alerts.held": "A topic, or some of its partitions, takes no part in batches.",
    "Alerts.gap": "Offsets were passed over.",
    "Alerts.stopped": "The next plan stops until an operator decides.",
    "Alerts.filtered_percent": "More of the newest batch's records were filtered.",
    "Alerts.dead_letters": "More dead letters are left.",
    "Alerts.notify": "Who is notified; without it the page alone shows alerts.",
    "Notify.notifier": "A notifier of Airflow's, by the dotted path of its class.",
    "Notify.arguments": "What the notifier is made with; no secrets.",
    "Complete.by": "Hours or days, in UTC, by the records' timestamps.",
    "Complete.delay": "An hour is due that long after its end.",
    "Complete.idle_after": "A partition without later records counts as idle that long after the end.",
    "Complete.on_late": "What follows where rows of a complete hour land; dataset: they land in one of their own.",
    "Complete.success_file": "A file _SUCCESS of each, for a directory of Parquet files: beside it, or in_output, too.",
}
"""By the class that has the key, which may be above the one that is written."""


NULL: Final = {"type": "null"}
FIRST: Final = "0.1.0"
SINCE: Final[dict[str, str]] = {}
"""The version that a key came with, where that is not the first one; by the names of MEANINGS."""


EITHER: Final = [
    {"required": [key], "properties": {key: {"type": kind}}}
    for key, kind in (("topics", "array"), ("topic_pattern", "string"))
]
"""A key with null is none."""


def matching(pattern: str) -> dict[str, Any]:
    """Return what a text must be as a whole; one with a placeholder is known only once that is filled."""
    return {"pattern": rf"^(?:{pattern})$|\{{"}


NOT_BLANK: Final = {"pattern": r"\S"}
OF_A_TOPIC: Final = rf"(?!\.\.?$){TOPIC.pattern}"
OF_A_NAME: Final = matching(rf"(?!feed_error__|(?:{'|'.join(sorted(PROJECT_DAGS))})$){NAME.pattern}")
ALSO: Final[dict[str, dict[str, Any]]] = {
    "Feed.name": OF_A_NAME,
    "Feed.fleet": OF_A_NAME,
    "Feed.schedule": matching(r"@[a-z]+|\s*\S+(?:\s+\S+){4,6}\s*"),
    "StartWhenSettings.or_older_than": {"not": {"pattern": "^[1-9]s$"}},
    "Kafka.topics": {"minItems": 1, "uniqueItems": True, "items": {**matching(OF_A_TOPIC), "maxLength": LONGEST_TOPIC}},
    "Kafka.topic_pattern": {"pattern": "^[ -~]*[!-~][ -~]*$"},
    "Kafka.group": NOT_BLANK,
    "Topic.name": {**matching(OF_A_TOPIC), "maxLength": LONGEST_TOPIC},
    "GroupStart.group": NOT_BLANK,
    "TimestampStart.timestamp": {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}"},
    "Feed.where": NOT_BLANK,
    "SelectSettings.name": NOT_BLANK,
    "SelectSettings.type": NOT_BLANK,
    "SelectSettings.sql": NOT_BLANK,
    "Feed.transform": matching(FUNCTION.pattern),
    # No unit is refused: 168h, 10080m and 604800s are 7d.
    "Feed.control_retention": {"pattern": "^(?:[7-9]|[0-9]{2,})d$|[0-9]{3}h$|[0-9]{5}m$|[0-9]{6}s$"},
    "FromSchema.subject": NOT_BLANK,
    "FromSchema.version": {"minimum": 1},
    "ProtobufRecords.message": matching(FULL_NAME),
    "LocalDirectorySink.path": matching(r"(?!~|\.$)(?!(?:.*/)?\.\.(?:/|$)).*[^\s/].*"),
    "IcebergSink.catalog": NOT_BLANK,
    "IcebergSink.table": matching(table.NAME.pattern),
    "PostgresqlSink.conn_id": NOT_BLANK,
    "PostgresqlSink.table": matching(of_connections.NAME.pattern),
    "KafkaSink.conn_id": NOT_BLANK,
    "KafkaSink.topic": {**matching(OF_A_TOPIC), "maxLength": LONGEST_NAME},
    "Spark.conf": {"propertyNames": {"pattern": r"^spark\."}},
    "Notify.notifier": matching(DOTTED_PATH.pattern),
}
"""What an editor can see of what the model's own checks refuse, by the names of MEANINGS."""


class AsWritten(GenerateJsonSchema):
    """Shows defaults as a feed file writes them; of a mapping each key has its own."""

    def encode_default(self, dft: object) -> object:
        match dft:
            case timedelta():
                units = {unit: timedelta(**{word: 1}) for unit, word in DURATION_UNITS.items()}
                return next(f"{dft // units[unit]}{unit}" for unit in "dhms" if not dft % units[unit])
            case RawRecords():
                return dft.format
            case BaseModel():
                return {}
        return super().encode_default(dft)


def described_schema() -> dict[str, Any]:
    found = Feed.model_json_schema(schema_generator=AsWritten)
    for model in set(models_of(Feed)):
        of_model = found if model is Feed else found["$defs"].get(model.__name__, {})
        of_model.pop("title", None)
        for key, of_key in of_model.get("properties", {}).items():
            name = next(name for each in model.__mro__ if (name := f"{each.__name__}.{key}") in MEANINGS)
            of_key.pop("title", None)
            of_key.update(ALSO.get(name, {}), description=MEANINGS[name], since=SINCE.get(name, FIRST))
    return found


def models_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            yield from models_of(inner)


def feed_schema(*, of_defaults: bool = False) -> dict[str, Any]:
    """Return the schema of a feed file that may have defaults, or of ``_defaults.yaml``.

    What is missing in a file may be in its defaults, so only what no defaults say is required.
    """
    if of_defaults:
        return {"$schema": AsWritten.schema_dialect, "title": "_defaults.yaml of kafka_ingest", **part(OF_ONE_FEED)}
    one, each = part(), part(OF_THE_FILE)
    one["$defs"]["Kafka"]["oneOf"] = EITHER
    of_each = json.loads(json.dumps(each.pop("$defs")).replace("#/$defs/", "#/$defs/Each"))
    each = json.loads(json.dumps(each).replace("#/$defs/", "#/$defs/Each"))
    texts = {key: one["properties"][key] for key in ("fleet", "schedule")}
    overrides = {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#/$defs/EachFeed"}, NULL]}}
    keys = {FOR_EACH: {"type": "string"}, **texts, "feed": {"$ref": "#/$defs/EachFeed"}, "overrides": overrides}
    several = {"type": "object", "properties": keys, "required": [FOR_EACH, "feed"], "additionalProperties": False}
    names = {**one.pop("$defs"), **{f"Each{name}": of_name for name, of_name in of_each.items()}}
    return {
        "$schema": AsWritten.schema_dialect,
        "title": "A feed of kafka_ingest",
        "if": {"required": [FOR_EACH]},
        "then": {"$ref": "#/$defs/Topics"},
        "else": {"$ref": "#/$defs/Feed"},
        "$defs": {**names, "Feed": one, "EachFeed": each, "Topics": several},
    }


def part(without: Collection[Place] = ()) -> dict[str, Any]:
    found = described_schema()
    leave_to_defaults(found, found, (), without=without)
    return found


def schema_text(*, of_defaults: bool = False) -> str:
    return json.dumps(feed_schema(of_defaults=of_defaults), indent=1) + "\n"


def leave_to_defaults(whole: dict[str, Any], node: dict[str, Any], place: Place, *, without: Collection[Place]) -> None:
    """Let a mapping lack what defaults may say, and take it away by null; ``without`` some, it may lack everything."""
    if "oneOf" in node:
        node["anyOf"] = node.pop("oneOf")  # without its format, a mapping may be several
    meant = [whole["$defs"][node["$ref"].rpartition("/")[2]]] if "$ref" in node else node.get("anyOf", [])
    for each in meant:
        leave_to_defaults(whole, each, place, without=without)
    own = {at[len(place)] for at in OF_ONE_FEED if at[: len(place)] == place and at != place}
    if "required" in node:
        node["required"] = [key for key in node["required"] if key in own and not without]
    keys = node.get("properties", {})
    for key, of_key in list(keys.items()):
        at = (*place, key)
        if at in without:
            del keys[key]
            continue
        if at not in ONE_VALUE:
            leave_to_defaults(whole, of_key, at, without=without)
        if key not in own:
            keys[key] = or_null(of_key)


def or_null(of_key: dict[str, Any]) -> dict[str, Any]:
    noted: dict[str, Any] = {name: of_key[name] for name in ("description", "since", "default") if name in of_key}
    kind = {name: value for name, value in of_key.items() if name not in noted}
    either = kind["anyOf"] if kind.keys() == {"anyOf"} else [kind]
    return of_key if NULL in either else {"anyOf": [*either, NULL], **noted}
