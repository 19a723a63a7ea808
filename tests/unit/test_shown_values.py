"""What is shown of records whose contents nobody asked to see: where they are, and nothing of what they hold."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from kafka_ingest.batches.preview import Preview
from kafka_ingest.errors import InvalidExpressionError, SparkFailedError
from kafka_ingest.model.dead_letters import DeadLetter, DecodingError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.verbs.dead_letters import Cause, samples_of
from kafka_ingest.verbs.preview import log_for_errors, preview_document, shown_preview, spark_says

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


def test_a_record_is_shown_in_one_line_of_bounded_length_and_each_column_with_its_type() -> None:
    wide = ROW | {f"column_{number}": "x" * 50 for number in range(300)}
    columns = {"kafka_topic": "string", "value": "struct", "value.card": "string", "tags": "array", "tags[]": "bigint"}
    letter = replace(LETTER, error="y" * 500)
    lines = [
        each.text for each in shown_preview("orders", Preview([wide], [letter], columns), offsets=2, show_values=True)
    ]
    assert lines[0].startswith("orders-0 offset 6: value={'card': '4111-1111'}, column_0='xxx")
    assert [len(lines[0]), len(lines[5]), lines[0][-1]] == [200, 200, "…"]
    assert lines[1:5] == ["  value: struct", "  value.card: string", "  tags: array", "  tags[]: bigint"]

    many = Preview([ROW], [], {f"c{number}": "int" for number in range(102)})
    lines = [each.text for each in shown_preview("orders", many, offsets=1, show_values=False)]
    assert lines[98:] == [
        "  c98: int",
        "  c99: int",
        "  and 2 more columns",
        "1 of 1 record can be decoded; nothing was committed",
    ]
    assert len(preview_document("orders", many, None, show_values=False)["types"]) == 102


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


@pytest.mark.parametrize("show_values", [True, False])
def test_where_spark_fails_its_log_may_quote_records_and_is_named_only(*, show_values: bool) -> None:
    said = f"Spark ended with exit code 1; nothing it wrote is visible. The end of /tmp/x.log:\nbad {CARD}"
    named = pytest.raises(SparkFailedError, match=r"ended with exit code 1; .* The end of /tmp/x\.log:")
    with named as found, spark_says(show_values=show_values):
        raise SparkFailedError(said)
    assert (CARD in str(found.value)) is show_values
    assert ("ask with show_values" in str(found.value)) is not show_values


@pytest.mark.parametrize(
    ("error", "stays"),
    [(None, False), (InvalidExpressionError, False), (KeyboardInterrupt, False), (SparkFailedError, True)],
)
def test_the_log_of_a_preview_stays_only_where_an_error_names_it(
    error: type[BaseException] | None, *, stays: bool
) -> None:
    with suppress(KeyboardInterrupt, InvalidExpressionError, SparkFailedError), log_for_errors() as log:
        if error is not None:
            raise error("no")
    assert log.exists() is stays
    log.unlink(missing_ok=True)
