"""The JSON Schema of feed files and of ``_defaults.yaml``, for editors: made from the model that reads them."""

import json
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from kafka_ingest.settings.alert_settings import DOTTED_PATH
from kafka_ingest.settings.defaults import FOR_EACH, OF_ONE_FEED, ONE_VALUE, Place
from kafka_ingest.settings.feed import NAME, PROJECT_DAGS, Feed
from kafka_ingest.settings.key_meanings import MEANINGS
from kafka_ingest.settings.record_settings import FULL_NAME, RawRecords
from kafka_ingest.settings.setting_types import DURATION_UNITS, LONGEST_TOPIC, TOPIC
from kafka_ingest.settings.shape_settings import FUNCTION
from kafka_ingest.settings.sink_settings import iceberg, postgresql
from kafka_ingest.settings.sink_settings.kafka_topic import LONGEST_NAME
from kafka_ingest.settings.topics_file import OF_THE_FILE
from kafka_ingest.settings.wrong_settings import models_in

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
    "IcebergSink.table": matching(iceberg.NAME.pattern),
    "PostgresqlSink.conn_id": NOT_BLANK,
    "PostgresqlSink.table": matching(postgresql.NAME.pattern),
    "KafkaSink.conn_id": NOT_BLANK,
    "KafkaSink.topic": {**matching(OF_A_TOPIC), "maxLength": LONGEST_NAME},
    "Spark.conf": {"propertyNames": {"pattern": r"^spark\."}},
    "Notify.notifier": matching(DOTTED_PATH.pattern),
}
"""What an editor can see of what the model's own checks refuse, by the names of MEANINGS."""


class AsWritten(GenerateJsonSchema):
    """Shows defaults as a feed file writes them; of a mapping each key has its own."""

    def encode_default(self, dft: object) -> object:
        """Return a default of JSON."""
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
    """Return the schema of a whole feed, with what each key means, and since when there is one."""
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
    """Yield a model and all that are in it."""
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
    """Return the schema of what a file says, which defaults may say, too; or of a part that says not all."""
    found = described_schema()
    leave_to_defaults(found, found, (), without=without)
    return found


def schema_text(*, of_defaults: bool = False) -> str:
    """Return the schema as a file has it."""
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
    """Return the schema of a key that may also be null."""
    noted: dict[str, Any] = {name: of_key[name] for name in ("description", "since", "default") if name in of_key}
    kind = {name: value for name, value in of_key.items() if name not in noted}
    either = kind["anyOf"] if kind.keys() == {"anyOf"} else [kind]
    return of_key if NULL in either else {"anyOf": [*either, NULL], **noted}
