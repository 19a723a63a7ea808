"""What is shown of records whose contents nobody asked to see: where they are, and nothing of what they hold."""

import json
from typing import Any

import pytest

from kafka_ingest.batches.preview import Preview
from kafka_ingest.commands.dead_letters import samples_of
from kafka_ingest.commands.shown_preview import preview_document, shown_preview
from kafka_ingest.model.dead_letters import DeadLetter, DecodingError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing.dead_letters import Cause

CARD = "4111-1111"
CAUSE = DecodingError("value", "NOT_JSON")
LETTER = DeadLetter(
    TopicPartition("orders", 0), 7, None, CAUSE, f"expected JSON, found {CARD}", CARD.encode(), CARD.encode()
)
ROW: dict[str, Any] = {"kafka_topic": "orders", "kafka_partition": 0, "kafka_offset": 6, "value": {"card": CARD}}


def preview_shown(*, show_values: bool) -> str:
    found = Preview([ROW], [LETTER], filtered=1)
    document = preview_document("orders", found, None, show_values=show_values)
    return json.dumps(document) + str(list(shown_preview("orders", found, offsets=3, show_values=show_values)))


def dead_letters_shown(*, show_values: bool) -> str:
    cause = Cause(CAUSE, 1, (LETTER,))
    document = cause.as_document(show_values=show_values)
    return json.dumps(document) + str(list(samples_of(cause, show_values=show_values)))


@pytest.mark.parametrize("shown", [preview_shown, dead_letters_shown])
def test_neither_values_nor_errors_that_quote_them_are_shown_without_being_asked_for(shown: Any) -> None:
    without = shown(show_values=False)
    assert CARD not in without
    assert "orders-0 offset 7" in without
    assert "NOT_JSON" in without
    assert shown(show_values=True).count(CARD) >= 3
