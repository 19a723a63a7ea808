"""What a feed says about its table, and how plans keep it."""

import pytest

from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, OnNewColumns, TableOptions

HAS = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value", "kafka_batch")
LATER = ("kafka_headers", "kafka_topic_id", "kafka_timestamp_ms")


def test_a_plan_of_an_earlier_version_means_stop() -> None:
    assert TableOptions.of({}) == TableOptions.of({"catalog": "lake", "table": "shop.orders"}) == NO_TABLE_OPTIONS
    assert NO_TABLE_OPTIONS.on_new_columns is OnNewColumns.STOP
    assert NO_TABLE_OPTIONS.as_options() == {}, "a plan is stored as earlier versions stored it"


@pytest.mark.parametrize("choice", [OnNewColumns.ADD, OnNewColumns.IGNORE])
def test_a_plan_keeps_what_its_feed_said(choice: OnNewColumns) -> None:
    assert TableOptions.of(TableOptions(choice).as_options()) == TableOptions(choice)


def test_a_word_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'rename' is not a valid OnNewColumns"):
        TableOptions.of({"on_new_columns": "rename"})


def test_which_columns_a_table_may_lack_follows_from_the_choice() -> None:
    def may_lack(choice: OnNewColumns) -> set[str]:
        return {name for name in (*HAS, *LATER) if TableOptions(choice).takes_without(name)}

    assert may_lack(OnNewColumns.STOP) == set()
    assert may_lack(OnNewColumns.IGNORE) == set(LATER)
    assert may_lack(OnNewColumns.ADD) == {"kafka_timestamp", "key", "value", "kafka_batch", *LATER}


def test_missing_columns_are_either_left_out_of_files_or_added() -> None:
    written = (*HAS, *LATER)
    assert TableOptions(OnNewColumns.IGNORE).left_out((*HAS, "kafka_topic_id")) == (
        "kafka_headers",
        "kafka_timestamp_ms",
    )
    assert TableOptions(OnNewColumns.ADD).to_add(written, (*HAS, "note")) == list(LATER)
    for other in (OnNewColumns.STOP, OnNewColumns.ADD):
        assert TableOptions(other).left_out(HAS) == ()
    for other in (OnNewColumns.STOP, OnNewColumns.IGNORE):
        assert TableOptions(other).to_add(written, HAS) == []
