"""Fields that the requests of several verbs have."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import BeforeValidator, Field

from kafka_ingest.settings.form_fields import blank_is_none
from kafka_ingest.verbs.request import InForm

BATCH: Final = InForm(
    "Batch",
    "Its id. abandon without one says which batches are open. clean with one: that batch alone, at once, last "
    "copies included. dead-letters without one: of all batches. restore and give-up-dead-letters without one "
    "say which there are, where a feed is chosen.",
    "abandon, restore, clean, lost, dead-letters, give-up-dead-letters",
)
BatchId = Annotated[UUID | None, BeforeValidator(blank_is_none), BATCH]

BEFORE: Final = InForm(
    "Written before, or committed before",
    "A date, a time with a zone, or how long ago: 2026-01-31, 2026-01-31T12:00:00Z, 90d. fold without one: "
    "the feed's control_retention decides.",
    "expire, fold",
)

RESET: Final = "reset, topic-changed"
TOPICS: Final = InForm(
    "Only these topics", "One per line; empty: all. For reset also TOPIC:0,1, some of its partitions.", RESET
)

ShowValues = Annotated[
    bool,
    Field(strict=True),
    InForm(
        "Show what records hold",
        "Rows, or the beginnings of keys and values, and errors that may quote them: in the log and in the XCom, for "
        "all who may read those of this DAG. Without it: where the records are, their columns and causes.",
        "preview, dead-letters",
    ),
]
WITHOUT_VALUES: Final = "what the records hold is not shown: show_values shows it, in this log and in the XCom"
