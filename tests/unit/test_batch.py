"""Plans, attempt documents and the states of a batch."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import BATCH_ID, a_plan, partition, span

from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import (
    ADOPTIONS,
    AttemptDocument,
    BatchKind,
    BatchPlan,
    BatchState,
    DataNeeds,
    Transition,
    canonical_json,
    sha256,
)
from kafka_ingest.model.decoding import RAW, Columns, Decoding, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.offsets import Isolation, OffsetsPolicy
from kafka_ingest.model.partition_term import LateRows, terms_of
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.schema_source import ReadAs, WriterSchema
from kafka_ingest.model.spark_settings import SparkSettings
from kafka_ingest.model.written_columns import SelectedColumn, Shape

ANOTHER_VALUE: Mapping[str, Any] = {
    "batch_id": UUID(int=7),
    "kind": BatchKind.BACKFILL,
    "feed_id": UUID(int=8),
    "feed_name": "refunds",
    "cluster_id": "cluster-B",
    "topic_ids": {"orders": "topic-id-2"},
    "ranges": (span(0, 100, 201), span(1, 0, 50)),
    "isolation": Isolation.READ_UNCOMMITTED,
    "offsets_policy": OffsetsPolicy.DENSE,
    "output": OutputLocation("delta", "/data/elsewhere"),
    "planned_at": datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
    "capped": True,
    "leader_epochs": {partition(0): 5},
}

WAYS = {
    ("PLANNED", "WRITTEN"),
    ("PLANNED", "ABANDONED"),
    ("WRITTEN", "PLANNED"),
    ("WRITTEN", "COMMITTING"),
    ("WRITTEN", "ABANDONED"),
    ("COMMITTING", "COMMITTED"),
    ("COMMITTING", "ABANDONED"),
}
NO_WAYS = {(found.value, to.value) for found in BatchState for to in BatchState} - WAYS


def document_of(plan: BatchPlan) -> dict[str, Any]:
    """Return a plan's document as it comes back from a file or a JSON column."""
    return json.loads(json.dumps(plan.as_document()))


# ── What a plan refuses to be ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_without_ranges_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one range, found none"):
        a_plan(ranges=())


def test_a_plan_with_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="no empty ranges"):
        a_plan(span(0, 10, 10))


def test_a_plan_with_unsorted_ranges_is_refused() -> None:
    with pytest.raises(ValueError, match="sorted, one per partition"):
        a_plan(span(1, 0, 10), span(0, 0, 10))


def test_a_plan_with_two_ranges_of_one_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="sorted, one per partition"):
        a_plan(span(0, 0, 10), span(0, 10, 20))


def test_a_plan_that_does_not_name_a_topics_id_is_refused() -> None:
    with pytest.raises(ValueError, match=r"names the topic id of each topic, missing: \['orders'\]"):
        a_plan(topic_ids={"refunds": "id"})


# ── Documents ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_comes_back_from_its_document_as_it_was() -> None:
    plan = a_plan(capped=True, leader_epochs={partition(0): 5})
    assert BatchPlan.from_document(document_of(plan)) == plan


def test_a_plan_of_brokers_without_topic_ids_comes_back_as_it_was() -> None:
    plan = a_plan(topic_ids={"orders": None})
    assert BatchPlan.from_document(document_of(plan)) == plan


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_plan_of_an_unknown_version_is_refused(version: object) -> None:
    document = document_of(a_plan()) | {"version": version}
    with pytest.raises(ValueError, match=f"expected a plan of format version 1, found {version!r}"):
        BatchPlan.from_document(document)


def test_a_plan_without_a_version_is_refused() -> None:
    document = document_of(a_plan())
    del document["version"]
    with pytest.raises(ValueError, match="found None"):
        BatchPlan.from_document(document)


def test_a_plan_document_with_a_sentinel_in_it_is_refused() -> None:
    document = document_of(a_plan())
    document["ranges"][0]["start_offset"] = -2
    with pytest.raises(ValueError, match="0 or more, found -2"):
        BatchPlan.from_document(document)


OF_SOME_KINDS = {"folded", "replaces", "replays"}


@pytest.mark.parametrize("name", [each.name for each in fields(BatchPlan) if each.name not in OF_SOME_KINDS])
def test_a_plans_fingerprint_changes_with_every_field(name: str) -> None:
    plan = a_plan()
    assert replace(plan, **{name: ANOTHER_VALUE[name]}).fingerprint != plan.fingerprint


def test_a_folded_plan_keeps_its_fingerprint_and_has_no_ranges() -> None:
    plan = a_plan(span(0, 0, 10), span(1, 5, 7))
    folded = plan.without_ranges()

    assert (folded.ranges, folded.topic_ids, folded.leader_epochs) == ((), {}, {})
    assert folded.fingerprint == plan.fingerprint
    assert BatchPlan.from_document(document_of(folded)) == folded
    assert len(str(document_of(folded))) < 600


def test_a_folded_plan_with_ranges_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch that is folded has no ranges, found 1"):
        replace(a_plan(span(0, 0, 10)), folded="ab")


def test_a_plans_fingerprint_does_not_depend_on_the_order_of_its_topics() -> None:
    ranges = (span(0, 0, 1, "a"), span(0, 0, 1, "b"))
    assert a_plan(*ranges, topic_ids={"a": "1", "b": "2"}).fingerprint == (
        a_plan(*ranges, topic_ids={"b": "2", "a": "1"}).fingerprint
    )


def test_a_plans_fingerprint_survives_its_document() -> None:
    plan = a_plan()
    assert BatchPlan.from_document(document_of(plan)).fingerprint == plan.fingerprint


def test_the_fingerprint_of_a_plan_that_is_stored_somewhere_never_changes() -> None:
    # Another value here means that no receipt written before fits its plan any more: that wants a new plan version.
    assert a_plan().fingerprint == "13ffdae45a4b5b530af64361d6dbeab4f31ee46b8a0cd78762ba5a8a9703037e"


def test_a_plan_holds_at_most_as_many_rows_as_its_ranges_span() -> None:
    assert a_plan(span(0, 100, 200), span(1, 0, 50)).max_rows == 150


def test_canonical_json_is_sorted_compact_and_utf_8() -> None:
    assert canonical_json({"b": [1, 2], "a": "ü"}) == '{"a":"ü","b":[1,2]}'.encode()


# ── Attempt documents ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempt_document_comes_back_as_it_was() -> None:
    document = AttemptDocument(a_plan(), 2)
    content = document.as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)) == document


def test_an_attempt_document_that_is_not_the_one_handed_over_is_refused() -> None:
    content = AttemptDocument(a_plan(), 1).as_bytes()
    changed = content.replace(b'"end_offset":200', b'"end_offset":201')
    with pytest.raises(ValueError, match=f"with SHA-256 {sha256(content)}, found {sha256(changed)}"):
        AttemptDocument.from_bytes(changed, sha256(content))


def test_an_attempt_document_of_an_unknown_version_is_refused() -> None:
    content = AttemptDocument(a_plan(), 1).as_bytes().replace(b'"version":8}', b'"version":7}')
    with pytest.raises(ValueError, match="attempt document of format version 8, found 7"):
        AttemptDocument.from_bytes(content, sha256(content))


def test_schemas_that_records_are_read_by_come_back_with_the_document() -> None:
    writers = (WriterSchema(4, '"long"'), WriterSchema(7, None, "expected the value as Order, found Refund"))
    value = FieldDecoding(Format.JSON, "id int", writers=writers, unknown_ids=(8,))
    content = AttemptDocument(a_plan(), 1, Decoding(value)).as_bytes()

    assert AttemptDocument.from_bytes(content, sha256(content)).decode == Decoding(value)


@pytest.mark.parametrize("value", [FieldDecoding(), FieldDecoding(Format.JSON, "id int")])
@pytest.mark.parametrize(
    "shape",
    [
        Shape(where="id > 1"),
        Shape((SelectedColumn("id", "int", "value.id"), SelectedColumn("key", "binary", "key"))),
        Shape((SelectedColumn("id", "int", "value.id"),), keeps_others=True),
        Shape(transform="orders.totals:add"),
    ],
)
def test_a_shape_comes_back_with_the_document(value: FieldDecoding, shape: Shape) -> None:
    decoding = Decoding(value, shape=shape)
    content = AttemptDocument(a_plan(), 1, decoding).as_bytes()

    assert AttemptDocument.from_bytes(content, sha256(content)).decode == decoding
    assert not decoding.is_raw


def test_what_gives_sql_its_meaning_is_frozen_with_the_document() -> None:
    settings = SparkSettings(feed={"spark.sql.extensions": "a.B"})
    raw = AttemptDocument(a_plan(), 1, Decoding(settings=settings))
    assert AttemptDocument.from_bytes(raw.as_bytes(), sha256(raw.as_bytes())) == raw
    decoding = Decoding(FieldDecoding(Format.STRING), settings=settings)
    content = AttemptDocument(a_plan(), 1, decoding).as_bytes()

    assert AttemptDocument.from_bytes(content, sha256(content)).decode == decoding
    document = json.loads(content)
    assert document["decode"].pop("settings") == {
        "fixed": {
            "spark.sql.ansi.enabled": "true",
            "spark.sql.caseSensitive": "false",
            "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
            "spark.sql.execution.pyspark.binaryAsBytes": "false",
            "spark.sql.execution.pythonUDF.arrow.enabled": "false",
            "spark.sql.execution.pythonUDTF.arrow.enabled": "false",
            "spark.sql.legacy.timeParserPolicy": "CORRECTED",
            "spark.sql.legacy.truncateForEmptyRegexSplit": "true",
            "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.storeAssignmentPolicy": "ANSI",
            "spark.sql.timestampType": "TIMESTAMP_LTZ",
            "spark.sql.variable.substitute": "false",
        },
        "feed": {"spark.sql.extensions": "a.B"},
    }


def test_where_the_data_goes_comes_back_with_the_document() -> None:
    document = AttemptDocument(a_plan(), 1, RAW, DataNeeds(Path("/data/orders/batches/b/1"), batch_column=True))
    content = document.as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)) == document


def test_columns_that_are_left_out_come_back_with_the_document() -> None:
    needs = DataNeeds(Path("/data/orders/batches/b/1"), batch_column=True, without=("kafka_topic_id",))
    document = AttemptDocument(a_plan(), 1, RAW, needs)
    content = document.as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)) == document


def test_how_files_are_divided_comes_back_with_the_document() -> None:
    terms = terms_of(["kafka_topic", "day(kafka_timestamp)"])
    needs = DataNeeds(Path("/data/orders/b/1"), batch_column=True, partition_by=terms, own_columns=True)
    content = AttemptDocument(a_plan(), 1, RAW, needs).as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)).data == needs


def test_which_hours_were_complete_comes_back_with_the_document() -> None:
    late = LateRows(first=datetime(2026, 1, 31, tzinfo=UTC), before=datetime(2026, 1, 31, 5, tzinfo=UTC))
    content = AttemptDocument(a_plan(), 1, RAW, needs := DataNeeds(late=late)).as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)).data == needs
    assert b'"late":{"before":"2026-01-31T05:00:00+00:00","first":"2026-01-31T00:00:00+00:00"}' in content


def test_what_records_become_comes_back_with_the_document() -> None:
    of_value = FieldDecoding(Format.JSON, "id bigint", UnknownFields.REFUSE)
    document = AttemptDocument(a_plan(), 1, Decoding(of_value, FieldDecoding(Format.STRING), Columns.FLATTEN))
    content = document.as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)) == document


@pytest.mark.parametrize(
    "where", ["", "data", "decode", "decode value", "data place", "data batch_column", "decode value format"]
)
def test_an_attempt_document_that_lacks_a_part_is_refused(where: str) -> None:
    *above, name = where.split() or ["letters"]
    document = json.loads(AttemptDocument(a_plan(), 1).as_bytes())
    part: Any = document
    for each in above:
        part = part[each]
    del part[name]
    content = canonical_json(document)
    with pytest.raises((ValueError, KeyError), match=rf"all that it freezes|{name}"):
        AttemptDocument.from_bytes(content, sha256(content))


def test_how_fields_are_read_comes_back_as_what_it_is() -> None:
    value = FieldDecoding(Format.JSON, "id bigint", read_as={"id": ReadAs.SKIP})
    content = AttemptDocument(a_plan(), 1, Decoding(value)).as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)).decode.value.read_as["id"] is ReadAs.SKIP


def test_a_relative_place_of_data_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an absolute directory for data files, found batches"):
        DataNeeds(Path("batches"))


def test_two_attempts_of_one_batch_have_different_documents() -> None:
    assert AttemptDocument(a_plan(), 1).as_bytes() != AttemptDocument(a_plan(), 2).as_bytes()


# ── States ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("found", "to"), sorted(WAYS))
def test_a_batch_may_go_the_ways_of_the_design(found: str, to: str) -> None:
    Transition(BATCH_ID, BatchState(found), BatchState(to))


@pytest.mark.parametrize(("found", "to"), sorted(NO_WAYS))
def test_a_batch_may_go_no_other_way(found: str, to: str) -> None:
    with pytest.raises(BatchStateError, match=f"cannot become {to}: expected it to be .*, found {found}"):
        Transition(BATCH_ID, BatchState(found), BatchState(to))


@pytest.mark.parametrize("found", sorted(set(BatchState) - {BatchState.COMMITTED}))
def test_an_output_that_holds_a_batch_makes_it_committed_wherever_older_tables_say_that_it_is(found: str) -> None:
    Transition(BATCH_ID, BatchState(found), BatchState.COMMITTED, ADOPTIONS)


@pytest.mark.parametrize("to", sorted(set(BatchState) - {BatchState.COMMITTED}))
@pytest.mark.parametrize("found", sorted(BatchState))
def test_adopting_makes_no_batch_anything_but_committed(found: str, to: str) -> None:
    with pytest.raises(BatchStateError, match=f"cannot become {to}"):
        Transition(BATCH_ID, BatchState(found), BatchState(to), ADOPTIONS)


def test_a_batch_that_is_committed_is_not_adopted_again() -> None:
    with pytest.raises(
        BatchStateError, match=r"cannot become COMMITTED: expected it to be ABANDONED or .*found COMMITTED"
    ):
        Transition(BATCH_ID, BatchState.COMMITTED, BatchState.COMMITTED, ADOPTIONS)


def test_a_transition_that_its_table_does_not_allow_cannot_be_made() -> None:
    with pytest.raises(BatchStateError, match="cannot become WRITTEN: expected it to be PLANNED, found COMMITTED"):
        Transition(BATCH_ID, BatchState.COMMITTED, BatchState.WRITTEN)


def test_a_refused_transition_names_every_state_it_would_be_allowed_from() -> None:
    with pytest.raises(BatchStateError, match="expected it to be COMMITTING or PLANNED or WRITTEN, found COMMITTED"):
        Transition(BATCH_ID, BatchState.COMMITTED, BatchState.ABANDONED)


@pytest.mark.parametrize(
    ("state", "is_open"),
    [("PLANNED", True), ("WRITTEN", True), ("COMMITTING", True), ("COMMITTED", False), ("ABANDONED", False)],
)
def test_a_batch_holds_its_feed_until_it_is_committed_or_abandoned(state: str, *, is_open: bool) -> None:
    assert BatchState(state).is_open is is_open
