"""Whether the columns of an attempt go with those of the output's files."""

from dataclasses import replace

import pytest
from tests.fakes import FeedInMemory, log, sinks, topic

from kafka_ingest.batches.fitting_columns import ColumnRules, ComparedColumns, compare_columns
from kafka_ingest.batches.freeze_schemas import Schemas
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.preview import NOBODY, Compare, open_preview
from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.batch import Attempt, AttemptDocument, BatchState
from kafka_ingest.model.decoding import RAW, Columns, Decoding, FieldDecoding, Format
from kafka_ingest.model.record_schema import Struct
from kafka_ingest.model.written_columns import OnNewFields, SelectedColumn, Shape, written_columns
from kafka_ingest.schemas import message_types


def no_registry(conn_id: str) -> None:
    raise AssertionError(conn_id)


def no_file(path: str) -> bytes:
    raise AssertionError(path)


SCHEMAS = Schemas(no_registry, no_file, message_types)  # type: ignore[arg-type]


def json_of(schema: str, **changes: object) -> Decoding:
    return replace(Decoding(FieldDecoding(Format.JSON, schema)), **changes)  # type: ignore[arg-type]


ORDER = json_of("id int, city struct<name: string>")
MORE = json_of("id int, city struct<name: string, zip: string>, total decimal(10,2)")


def ask(feed: FeedInMemory, decoding: Decoding, on_new_fields: OnNewFields = OnNewFields.ADD) -> Attempt:
    """Plan and open an attempt at a batch of all that is left to read."""
    planned = feed.planned()
    rules = ColumnRules(SCHEMAS.columns, on_new_fields)
    attempt = open_attempt(planned.batch_id, feed, actor="run 1", decoding=decoding, rules=rules)
    assert attempt is not None
    return attempt


def commit(feed: FeedInMemory, decoding: Decoding, on_new_fields: OnNewFields = OnNewFields.ADD) -> AttemptDocument:
    """Commit a batch; return what Spark was given."""
    attempt = ask(feed, decoding, on_new_fields)
    document = AttemptDocument.from_bytes(feed.sink.documents[attempt.directory], attempt.document_sha256)
    feed.spark_writes(attempt)
    feed.pin(attempt)
    feed.commit(attempt.batch_id)
    (read,) = feed.kafka.topics.values()
    feed.kafka.topics = {
        "orders": topic(*(log(0, each.readable_end(document.plan.isolation) + 10) for each in read.logs.values()))
    }
    return document


def test_the_receipt_keeps_the_columns_of_a_batch_and_the_next_one_may_have_the_same(feed: FeedInMemory) -> None:
    first, second = commit(feed, ORDER), commit(feed, ORDER)

    assert first.columns == second.columns
    assert first.columns == {
        "key": "binary",
        "value": "struct",
        "value.id": "int",
        "value.city": "struct",
        "value.city.name": "string",
    }
    assert feed.sink.archive.receipt(first.plan.batch_id).columns == first.columns


def test_new_fields_are_added_and_from_then_on_they_belong_to_the_output(feed: FeedInMemory) -> None:
    commit(feed, ORDER)

    assert commit(feed, MORE).decode == MORE
    with pytest.raises(ColumnsChangedError, match=r"value\.total +decimal\(10,2\) +\(none\)"):
        ask(feed, ORDER)


def test_new_fields_are_ignored_by_a_select_of_the_others_for_as_long_as_the_feed_says_so(feed: FeedInMemory) -> None:
    before = commit(feed, ORDER).columns
    flat = replace(MORE.shape, where="value.total > 0")

    for _ in range(2):
        document = commit(feed, replace(MORE, shape=flat), OnNewFields.IGNORE)

        assert document.columns == before
        assert document.decode.value == MORE.value
        assert document.decode.shape.where == "value.total > 0"
        assert [column.name for column in document.decode.shape.select] == ["key", "value"]
        assert document.decode.shape.select[1].type == "struct<`id`:int,`city`:struct<`name`:string>>"

    assert commit(feed, ORDER, OnNewFields.IGNORE).decode == ORDER


def test_new_fields_stop_the_feed_before_an_attempt_exists_and_added_ones_let_it_go_on(feed: FeedInMemory) -> None:
    first = commit(feed, ORDER).plan

    with pytest.raises(ColumnsChangedError) as stopped:
        ask(feed, MORE, OnNewFields.STOP)

    assert stopped.value.exit_code == 3
    for said in (str(first.batch_id), "value.city.zip", "value.total", "on_new_fields: stop", "add", "ignore"):
        assert said in str(stopped.value)
    batch = feed.control.feed("orders").open_batch
    assert batch.state is BatchState.PLANNED
    assert feed.control.attempts(batch.batch_id) == []
    assert commit(feed, MORE).plan == batch.plan


@pytest.mark.parametrize("on_new_fields", OnNewFields)
@pytest.mark.parametrize(
    ("later", "shown"),
    [
        (json_of("id bigint, city struct<name: string>"), "value.id  int                   bigint"),
        (json_of("id int, city string"), "value.city       struct                string"),
        (json_of("id int"), "value.city.name  string                (none)"),
        (json_of("id int, city struct<name: string>", key=FieldDecoding(Format.STRING)), "key"),
        (json_of("id int, city struct<name: string>", columns=Columns.FLATTEN), "value.id"),
        (Decoding(FieldDecoding(Format.STRING)), "value            struct                string"),
        (json_of("id int", shape=Shape((SelectedColumn("id", "int", "value.id"),))), "value"),
    ],
)
def test_other_types_and_missing_fields_stop_the_feed_whatever_it_says_of_new_ones(
    feed: FeedInMemory, later: Decoding, shown: str, on_new_fields: OnNewFields
) -> None:
    commit(feed, ORDER)

    with pytest.raises(ColumnsChangedError, match=r"sink\.path") as stopped:
        ask(feed, later, on_new_fields)

    assert shown in str(stopped.value)


def test_a_feed_keeps_its_columns_through_a_change_by_a_select(feed: FeedInMemory) -> None:
    commit(feed, replace(ORDER, shape=Shape((SelectedColumn("id", "int", "value.id"),))))

    cast = Shape((SelectedColumn("id", "int", "cast(value.id as int)"),))
    assert commit(feed, json_of("id bigint", shape=cast)).columns == {"id": "int"}


def test_one_column_is_cast_while_all_others_stay_in_their_places(feed: FeedInMemory) -> None:
    added = SelectedColumn("day", "date", "to_date(kafka_timestamp)")
    shape = Shape((added, SelectedColumn("Id", "int", "cast(id as int)")), keeps_others=True)
    wide = json_of("id bigint, city string, paid boolean", shape=shape, columns=Columns.FLATTEN)

    types = {"key": "binary", "Id": "int", "city": "string", "paid": "boolean", "day": "date"}
    assert commit(feed, wide).columns == types
    assert (SCHEMAS.columns(wide) or Struct(())).names == tuple(types)
    wider = json_of("id bigint, city string, paid boolean, tip int", shape=shape, columns=Columns.FLATTEN)
    kept = commit(feed, wider, OnNewFields.IGNORE).decode.shape
    assert [column.name for column in kept.select] == list(types)
    assert not kept.keeps_others


@pytest.mark.parametrize("unknown", [RAW, json_of("id int", shape=Shape(transform="shop:cleaned"))])
def test_nothing_is_compared_with_batches_whose_columns_are_not_known(feed: FeedInMemory, unknown: Decoding) -> None:
    assert commit(feed, unknown).columns is None
    assert commit(feed, ORDER, OnNewFields.STOP).columns is not None
    assert commit(feed, unknown).columns is None


def test_another_output_has_columns_of_its_own(feed: FeedInMemory) -> None:
    commit(feed, ORDER)
    feed.settings = replace(feed.settings, output=replace(feed.settings.output, uri="/data/other"))

    assert ask(feed, json_of("id bigint")).attempt == 1


# ── A table ───────────────────────────────────────────────────────────────────────────────────────────────────────────


OF_ORDER = written_columns(SCHEMAS.columns(ORDER) or Struct(()))


def test_a_table_says_which_columns_there_are_before_any_batch_has_and_may_have_more(feed: FeedInMemory) -> None:
    feed.sink.columns_of_table = {**OF_ORDER, "note": "string", "value.id": "bigint"}
    with pytest.raises(
        ColumnsChangedError, match=r"that the table .* has, found others:\n.*\n +value.id +bigint +int\n"
    ):
        ask(feed, ORDER)
    feed.sink.columns_of_table = {**OF_ORDER, "note": "string"}
    assert commit(feed, ORDER).columns == OF_ORDER


def test_a_field_that_a_table_lacks_is_added_left_out_or_stops_the_feed(feed: FeedInMemory) -> None:
    feed.sink.columns_of_table = OF_ORDER
    with pytest.raises(ColumnsChangedError, match=r"value\.total +\(none\) +decimal\(10,2\)"):
        ask(feed, MORE, OnNewFields.STOP)
    assert commit(feed, MORE, OnNewFields.IGNORE).columns == OF_ORDER
    assert commit(feed, MORE).columns == written_columns(SCHEMAS.columns(MORE) or Struct(()))


def test_of_a_table_only_what_batches_have_written_is_missed_and_never_by_another_case_of_letters(
    feed: FeedInMemory,
) -> None:
    commit(feed, MORE)
    feed.sink.columns_of_table = {**written_columns(SCHEMAS.columns(MORE) or Struct(())), "note": "string"}
    with pytest.raises(ColumnsChangedError) as stopped:
        ask(feed, ORDER)
    assert "value.total" in str(stopped.value)
    assert "note" not in str(stopped.value)
    # A column that was dropped from the table is gone from both.
    feed.sink.columns_of_table = {**OF_ORDER, "note": "string"}
    with pytest.raises(ColumnsChangedError, match=r"value\.id +int +\(none\)"):
        ask(feed, json_of("ID int, city struct<name: string>"))
    assert commit(feed, ORDER).columns == OF_ORDER


def test_a_field_that_a_table_could_not_take_stops_the_feed_before_an_attempt_exists_unless_it_is_left_out(
    feed: FeedInMemory,
) -> None:
    feed.sink.columns_of_table, feed.sink.not_in_table = OF_ORDER, ["value.total"]
    with pytest.raises(ColumnsChangedError, match=r"expected fields that .* can have, found value\.total"):
        ask(feed, MORE)
    assert feed.control.attempts(feed.control.feed("orders").open_batch.batch_id) == []
    assert commit(feed, MORE, OnNewFields.IGNORE).columns == OF_ORDER


def test_a_batch_that_was_planned_for_raw_records_is_not_opened_for_decoded_ones(feed: FeedInMemory) -> None:
    feed.sink.only_decoded = False
    with pytest.raises(ColumnsChangedError, match="expected other records"):
        ask(feed, ORDER)
    assert commit(feed, RAW).columns is None


def compared(feed: FeedInMemory, decoding: Decoding, on_new_fields: OnNewFields = OnNewFields.ADD) -> ComparedColumns:
    known = feed.control.feed("orders")
    feed_id = known.feed_id if known is not None else NOBODY
    rules = ColumnRules(SCHEMAS.columns, on_new_fields)
    return compare_columns("orders", feed_id, feed.settings.output, decoding, feed, rules)


def test_how_columns_go_with_those_of_the_output_is_known_without_an_attempt(feed: FeedInMemory) -> None:
    assert compared(feed, ORDER).before is None
    commit(feed, ORDER)

    assert compared(feed, ORDER).new == ()
    new = ("value.city.zip", "value.total")
    added, ignored, stopped = (compared(feed, MORE, each) for each in OnNewFields)
    assert (added.new, added.left_out, added.refused) == (new, (), None)
    assert (ignored.new, ignored.left_out, ignored.refused) == (new, new, None)
    assert "on_new_fields: stop" in (stopped.refused or "")
    wider = compared(feed, json_of("id bigint, city struct<name: string>"))
    assert "value.id  int                   bigint" in (wider.refused or "")


def previewed(feed: FeedInMemory, compare: Compare) -> tuple[AttemptDocument, ComparedColumns]:
    """Open a preview of all there is; return what Spark is given."""
    plan = feed.planned()
    attempt, found = open_preview(plan, MORE, sinks(feed.sink), SCHEMAS.frozen, [], compare)
    return AttemptDocument.from_bytes(feed.sink.documents[attempt.directory], attempt.document_sha256), found


def test_a_preview_decodes_as_an_attempt_would_and_as_the_feed_says_where_that_one_would_be_refused(
    feed: FeedInMemory,
) -> None:
    before = commit(feed, ORDER).columns

    document, _ = previewed(feed, lambda decoding: compared(feed, decoding, OnNewFields.IGNORE))
    assert document.columns == before
    assert [column.name for column in document.decode.shape.select] == ["key", "value"]

    document, found = previewed(feed, lambda decoding: compared(feed, decoding, OnNewFields.STOP))
    assert document.decode == MORE
    assert "value.total" in (found.refused or "")

    feed.sink.only_decoded = False
    assert previewed(feed, lambda decoding: compared(feed, decoding))[1].refused == "expected other records"
