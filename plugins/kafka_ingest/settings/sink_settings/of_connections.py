"""Outputs that a connection leads to: tables in PostgreSQL, and topics."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.foundation.stores.kinds import SCHEMES_IN_WORDS
from kafka_ingest.model.dead_letters import SUFFIX
from kafka_ingest.model.partition_term import SUFFIX as LATE
from kafka_ingest.model.partition_term import TIME, terms_of
from kafka_ingest.model.table_options import (
    APPLY,
    CURRENT,
    DECODED,
    DEFAULT,
    MARKS,
    RECORDS,
    REMOVE,
    CurrentState,
    OnNewColumns,
    TableOptions,
)
from kafka_ingest.settings.setting_types import is_topic_name, not_blank
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\.[A-Za-z_][A-Za-z0-9_]{0,48}", re.ASCII)
"""What is added to a table's name has to fit into the 63 bytes of a name, too."""
LONGEST_WITH_LATE = 46
"""With _late_p2026013105."""

PERIODS = (f"day({TIME})", f"hour({TIME})")
OF_CURRENT = frozenset({"deleted", "on_truncate", "null_keys"})
"""The settings of mode: current alone."""
OP = "get_json_object(to_json(struct(value)), '$.value{}.op')"
KEY = "from_json(to_json(struct(key), map('ignoreNullFields', 'false')), 'key {}').key{}"
FIELDS, PAYLOAD = KEY.format("map<string,string>", ""), KEY.format("struct<payload: map<string,string>>", ".payload")
"""The fields of a key, and of one in an envelope; null where it has none."""
NO_KEY = (
    f"(key is null or exists(map_values({FIELDS}), x -> x is null) or "
    f"size({FIELDS}) = 1 and exists(map_values({PAYLOAD}), x -> x is null))"
)
HAS_KEY = (
    f"if({NO_KEY} and coalesce({OP.format('')}, {OP.format('.payload')}, '') not in ('t', 'm'), "
    "raise_error('expected a key without nulls, found none: null_keys is dead_letter'), true)"
)
"""Truncations and messages have none. Where an expression fails, a record is a dead letter."""


class PostgresqlSink(LocalDirectorySink):
    """A table in PostgreSQL; ``path`` is what batches are staged beside."""

    not_on_object_stores: ClassVar[str] = f"batches are staged on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True

    format: Literal["postgresql"]
    conn_id: Annotated[str, AfterValidator(not_blank)]
    table: str
    mode: Literal["append", "current"] = "append"
    deleted: Literal["mark", "remove"] = "mark"
    on_truncate: Literal["stop", "apply"] = "stop"
    null_keys: Literal["stop", "dead_letter"] = "stop"
    on_new_columns: OnNewColumns = OnNewColumns.STOP
    on_refused: Literal["stop", "dead_letter"] = "stop"
    partition_by: Annotated[tuple[str, ...], Field(max_length=1)] = ()

    @field_validator("partition_by")
    @classmethod
    def _is_a_period(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        if any(text not in PERIODS for text in texts):
            raise ValueError(
                f"expected [{'] or ['.join(PERIODS)}], of which PostgreSQL makes range partitions, found "
                f"{', '.join(texts)}; for others make the table yourself"
            )
        return texts

    @field_validator("table")
    @classmethod
    def _has_a_schema(cls, table: str) -> str:
        if not NAME.fullmatch(table):
            raise ValueError(
                "expected a schema and a table of letters, digits and '_', the table's name of up to 49 characters, "
                f"such as shop.orders, found {table!r}"
            )
        return table

    @model_validator(mode="after")
    def _of_one_mode(self) -> Self:
        if self.mode == CURRENT and self.on_new_columns is OnNewColumns.IGNORE:
            raise ValueError(
                "expected on_new_columns stop or add with mode: current, whose rows need kafka_topic_id, found ignore"
            )
        if self.mode == CURRENT and self.partition_by:
            raise ValueError(
                "expected partition_by with mode: append only, found mode: current, whose rows are of keys"
            )
        if self.mode == CURRENT and self.keeps_refused:
            raise ValueError(
                "expected on_refused: stop with mode: current, found dead_letter: without a key's newest event the row "
                "would show an older state as the present one"
            )
        if self.mode != CURRENT and (given := OF_CURRENT & self.model_fields_set):
            raise ValueError(f"expected {min(given)} with mode: current only, found mode: {self.mode}")
        return self

    @property
    def table_options(self) -> TableOptions:
        state = CurrentState(self.deleted == REMOVE, self.on_truncate == APPLY) if self.mode == CURRENT else None
        return TableOptions(self.on_new_columns, terms_of(self.partition_by), current=state)

    @property
    def where(self) -> str | None:
        """What of a record makes it a dead letter by failing, as an expression over key and value."""
        return HAS_KEY if self.null_keys == "dead_letter" else None

    @property
    def keeps_refused(self) -> bool:
        return self.on_refused == "dead_letter"

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table in the same schema, named as the last name of its path."""
        schema = self.table.partition(".")[0]
        table = {"conn_id": self.conn_id, "table": f"{schema}.{Path(path).name}"}
        modes = {"mode", *OF_CURRENT} & self.model_fields_set
        written = {name: getattr(self, name) for name in ("on_new_columns", "partition_by", *sorted(modes))}
        return {**super().of_copy(path), **table, **written}

    @property
    def address(self) -> Mapping[str, str]:
        return {"conn_id": self.conn_id, "table": self.table}

    @property
    def why_no_late_rows(self) -> str | None:
        if self.mode == CURRENT:
            return "mode: current, whose rows are of keys"
        if len(self.table.partition(".")[2]) > LONGEST_WITH_LATE:
            return f"a table with a name of more than {LONGEST_WITH_LATE} characters"
        return None

    def addresses(self, *, letters: bool, late: bool) -> list[Mapping[str, str]]:
        tables = ("", LATE) if late else ("",)
        rest = [f"{each}{DEFAULT}" for each in tables] if self.partition_by else []
        added = (*tables, MARKS, *([SUFFIX] if letters else ()), *rest)
        return [{**self.address, "table": f"{self.table}{each}"} for each in added]

    @property
    def options(self) -> Mapping[str, str]:
        """How the table is reached and written, stored in each plan."""
        return {**self.table_options.as_options(), **self.address}

    def options_of(self, *, decoded: bool) -> Mapping[str, str]:
        return {**self.options, **({RECORDS: DECODED} if decoded else {})}


LONGEST_NAME = 230
"""What is added to the name for the topic of its marks has to fit into Kafka's 249 characters, too."""


class KafkaSink(LocalDirectorySink):
    """A topic; ``path`` is what batches are staged beside."""

    not_on_object_stores: ClassVar[str] = f"batches are staged on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True
    takes_columns: ClassVar[bool] = False

    format: Literal["kafka"]
    conn_id: Annotated[str, AfterValidator(not_blank)]
    topic: str
    partitions: Literal["same", "by_key"] = "same"

    @field_validator("topic")
    @classmethod
    def _is_a_topic(cls, topic: str) -> str:
        if not is_topic_name(topic, LONGEST_NAME):
            raise ValueError(f"expected a topic of up to 230 letters, digits, '.', '_' and '-', found {topic!r}")
        return topic

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Raise InvalidFeedError: what reads a topic, or writes to it besides, no feed file says for sure."""
        raise InvalidFeedError(
            f"expected an output that can be copied elsewhere, found topic {self.topic}: copies are made of files and "
            f"tables only. Write a feed with a sink.topic of its own instead of copying to {path}."
        )

    @property
    def address(self) -> Mapping[str, str]:
        """What the topic is, for every feed."""
        return {"conn_id": self.conn_id, "topic": self.topic}

    @property
    def written_topic(self) -> tuple[str, str]:
        return self.conn_id, self.topic

    @property
    def options(self) -> Mapping[str, str]:
        """How the topic is reached and written, stored in each plan."""
        by_key = {"partitions": self.partitions} if self.partitions != "same" else {}
        return {**super().options, **self.address, **by_key}
