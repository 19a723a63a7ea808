"""A feed whose output was moved to another path: each output alone shows where every partition stands."""

from typing import Any

import pytest
from tests.integration.test_adopt import DO_IT, back_up, lose_control_tables, restore
from tests.kafka_faults import plain_records, produce, recreate_topic
from tests.quick_project import QuickProject, spans


def move_output(quick: QuickProject, name: str) -> None:
    """Let the feed write to another path from its next plan on."""
    quick.edit_feed(sink={"format": "parquet", "path": name})


def rows_of_partitions(quick: QuickProject) -> list[tuple[Any, ...]]:
    """Return what is stored of each partition."""
    return [
        (entry["topic_id"], entry["partition"], entry["first_offset"], entry["stored_offset"])
        for entry in quick.status()["partitions"]
    ]


def positions(quick: QuickProject, *outputs: str) -> list[tuple[int, int]]:
    """Return partition and offset of all rows of several outputs, repetitions included."""
    return sorted(position for output in outputs for position in quick.positions(output))


EVERY_RECORD = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]


@pytest.fixture
def moved(quick: QuickProject, orders: str) -> str:
    """Partitions 0 and 1 were read to 4 and 5 into one output, then only partition 0 to 7 into another. The topic."""
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4", "--end-offset", f"{orders}:1=5")
    move_output(quick, "elsewhere")
    quick.run("orders", "--end-offset", f"{orders}:0=7")
    assert spans(quick.batches()[0]) == {0: (4, 7)}
    assert positions(quick, "elsewhere") == [(0, 4), (0, 5), (0, 6)]
    return orders


def test_back_in_the_first_output_its_receipts_record_what_was_read_into_the_other_since(
    quick: QuickProject, servers: str, moved: str
) -> None:
    move_output(quick, "orders")
    produce(servers, moved, 2, plain_records(2))
    quick.run("orders", "--end-offset", f"{moved}:2=1")
    assert spans(quick.batches()[0]) == {2: (0, 1)}
    before = rows_of_partitions(quick)
    assert quick.stored_offsets() == {0: 7, 1: 5, 2: 1}

    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert rows_of_partitions(quick) == before
    quick.run()
    assert spans(quick.batches()[0]) == {0: (7, 10), 2: (1, 2)}
    assert positions(quick, "orders", "elsewhere") == [*EVERY_RECORD, (2, 0), (2, 1)]


def test_the_output_that_was_left_shows_how_far_it_came_itself_and_no_further(quick: QuickProject, moved: str) -> None:
    lose_control_tables(quick)
    move_output(quick, "orders")
    shown = quick.answer("adopt", "orders")
    assert [(row["partition"], row["stored_offset"]) for row in shown["partitions"]] == [(0, 4), (1, 5), (2, 0)], moved


def test_a_copy_from_before_the_move_continues_where_the_new_output_ends(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4", "--end-offset", f"{orders}:1=3")
    older = back_up(quick)
    quick.run("orders", "--end-offset", f"{orders}:1=5")
    move_output(quick, "elsewhere")
    quick.run("orders", "--end-offset", f"{orders}:0=7")
    before = rows_of_partitions(quick)

    restore(quick, older)
    assert quick.refusal("run", "orders")[:2] == (3, "OUTPUT_UNKNOWN")
    quick.answer("adopt", "orders", *DO_IT)
    assert rows_of_partitions(quick) == before
    quick.run()
    assert positions(quick, "orders", "elsewhere") == EVERY_RECORD


def test_gaps_and_a_topic_that_started_over_before_the_move_are_reported_in_the_new_output(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    recreate_topic(servers, orders, 3)
    produce(servers, orders, 0, plain_records(10))
    produce(servers, orders, 1, plain_records(5))
    quick.answer("topic-changed", "orders", "--choice", "start-over", "--execute", "--reason", "made again")
    quick.run("orders", "--end-offset", f"{orders}:1=1")
    quick.answer("skip", "orders", orders, "1", "1-3", "--reason", "poisoned")
    quick.answer("skip", "orders", orders, "0", "6-8", "--reason", "poisoned, too")
    move_output(quick, "elsewhere")
    quick.run("orders", "--end-offset", f"{orders}:0=2")
    before, gaps = rows_of_partitions(quick), quick.gaps()
    assert gaps == [(0, 6, 8, "skipped", "ahead"), (1, 1, 3, "skipped", "open")]

    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert (rows_of_partitions(quick), quick.gaps()) == (before, gaps)
    quick.run("orders", "--until-caught-up")
    assert positions(quick, "elsewhere") == [(0, n) for n in (0, 1, 2, 3, 4, 5, 8, 9)] + [(1, 3), (1, 4)]


def test_a_batch_that_is_open_when_the_file_is_edited_is_published_where_it_was_planned(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    quick.plan("--end-offset", f"{orders}:0=4")
    move_output(quick, "elsewhere")
    quick.run()
    assert quick.positions("orders") == [(0, n) for n in range(4)]
    quick.run()
    before = rows_of_partitions(quick)
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert rows_of_partitions(quick) == before
    assert positions(quick, "orders", "elsewhere") == EVERY_RECORD


def test_both_outputs_are_adopted_one_after_the_other_and_neither_takes_the_feed_back(
    quick: QuickProject, moved: str
) -> None:
    before = rows_of_partitions(quick)
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    move_output(quick, "orders")
    assert quick.refusal("run", "orders")[:2] == (3, "OUTPUT_UNKNOWN")
    quick.answer("adopt", "orders", *DO_IT)
    assert rows_of_partitions(quick) == before
    assert [batch["state"] for batch in quick.batches()] == ["COMMITTED", "COMMITTED"]

    quick.run("orders", "--end-offset", f"{moved}:0=8")
    assert positions(quick, "orders") == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 7), *((1, n) for n in range(5))]
    before = rows_of_partitions(quick)
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert rows_of_partitions(quick) == before
    quick.run()
    assert positions(quick, "orders", "elsewhere") == EVERY_RECORD
