"""Backfills on a real broker: what is read, what is left out, and that live positions never move."""

from datetime import UTC, datetime

import pytest
from tests.integration.conftest import Begun
from tests.kafka_faults import delete_records, plain_records, produce
from tests.quick_project import Killed, QuickProject, spans

Ranges = list[tuple[int, int, int]]


def ranges_of(entries: list[dict]) -> Ranges:
    return [(entry["partition"], entry["start_offset"], entry["end_offset"]) for entry in entries]


def chunks_of(answer: dict) -> list[Ranges]:
    return [ranges_of(chunk["ranges"]) for chunk in answer["chunks"]]


def offsets(project: QuickProject, partition: int = 0, name: str = "orders") -> list[int]:
    return [row["kafka_offset"] for row in project.rows(name) if row["kafka_partition"] == partition]


def live_positions(project: QuickProject) -> tuple[dict[int, int], dict[int, int]]:
    return project.stored_offsets(), project.group_offsets()


def begin(project: QuickProject, orders: str) -> None:
    """Read all of the topic, apart from offsets 2 to 6 of partition 0, which an operator skips."""
    project.write_feed(orders)
    project.run("orders", "--end-offset", f"{orders}:0=2")
    project.answer("skip", "orders", orders, "0", "2-7", "--reason", "poisoned")
    project.run()
    assert offsets(project) == [0, 1, 7, 8, 9]


@pytest.fixture
def skipped(begun: Begun) -> QuickProject:
    return begun.project


def test_open_gaps_are_read_after_all_and_closed_by_the_chunks_that_read_them(skipped: QuickProject) -> None:
    before = live_positions(skipped)

    done = skipped.answer("backfill", "orders", "gaps", "--max-records", "2", "--reason", "mended")

    assert chunks_of(done) == [[(0, 2, 4)], [(0, 4, 6)], [(0, 6, 7)]]
    assert [chunk["rows"] for chunk in done["chunks"]] == [2, 2, 1]
    assert offsets(skipped) == list(range(10))
    assert live_positions(skipped) == before
    assert skipped.partition(0)["rows"] == 10
    closed = skipped.answer("gaps", "orders")["gaps"]
    assert [(gap["start_offset"], gap["end_offset"], gap["state"]) for gap in closed] == [
        (2, 4, "closed"),
        (4, 6, "closed"),
        (6, 7, "closed"),
    ]
    assert [gap["closed_by_batch"] for gap in closed] == [chunk["batch_id"] for chunk in done["chunks"]]
    assert skipped.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


def test_what_is_in_the_output_already_is_left_out(skipped: QuickProject, orders: str) -> None:
    done = skipped.answer("backfill", "orders", f"{orders}:0=0-10")

    assert chunks_of(done) == [[(0, 2, 7)]]
    assert ranges_of(done["left_out"]["committed"]) == [(0, 0, 2), (0, 7, 10)]
    assert offsets(skipped) == list(range(10))


def test_what_lies_before_the_first_offset_is_read_and_listed_apart(
    quick: QuickProject, orders: str, servers: str
) -> None:
    quick.write_feed(orders, start="latest")
    quick.run()
    produce(servers, orders, 0, plain_records(3))
    quick.run()
    before = live_positions(quick)

    quick.answer("backfill", "orders", f"{orders}:0=4-10")

    assert offsets(quick) == list(range(4, 13))
    assert live_positions(quick) == before
    found = quick.answer("coverage", "orders", "--verify")
    [partition] = [each for each in found["partitions"] if each["partition"] == 0]
    assert ranges_of([{"partition": 0, **each} for each in partition["before_first"]]) == [(0, 4, 10)]
    assert (partition["first_offset"], partition["offsets"]["live"], partition["offsets"]["backfilled"]) == (10, 3, 6)
    assert found["accounted"]
    assert found["verified"]["differences"] == []


def test_offsets_between_two_times_are_read_up_to_the_stored_offset(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, start="latest")
    quick.run()

    # Records are a second apart, from 2026-01-01 on.
    done = quick.answer(
        "backfill", "orders", "from=2026-01-01T00:00:03Z", "to=2026-01-01T00:00:06Z", f"only={orders}:0"
    )

    assert chunks_of(done) == [[(0, 3, 6)]]
    assert [row["kafka_timestamp"] for row in quick.rows()] == [
        datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (3, 4, 5)
    ]


def test_a_copy_goes_to_another_output_and_means_nothing_to_the_feed(skipped: QuickProject, orders: str) -> None:
    before, coverage = live_positions(skipped), skipped.answer("coverage", "orders")

    done = skipped.answer("backfill", "orders", f"{orders}:0=0-10", f"{orders}:1=1-3", "--copy-to", "orders-again")

    assert chunks_of(done) == [[(0, 0, 10), (1, 1, 3)]]
    assert offsets(skipped, name="orders-again") == list(range(10))
    assert offsets(skipped, 1, name="orders-again") == [1, 2]
    assert offsets(skipped) == [0, 1, 7, 8, 9]
    assert live_positions(skipped) == before
    assert skipped.answer("coverage", "orders") == coverage
    assert skipped.run() == []


IN_AN_OUTPUT: list[str] = ["orders", "orders/again", "orders.kafka-ingest/again"]


def test_a_copy_into_a_feeds_output_is_refused(skipped: QuickProject, orders: str) -> None:
    for output in IN_AN_OUTPUT:
        exit_code, code, message = skipped.refusal("backfill", "orders", f"{orders}:0=0-10", "--copy-to", output)
        assert (exit_code, code) == (2, "INVALID_BACKFILL"), output
        assert "the output of feed orders" in message, output


@pytest.mark.parametrize("output", ["again/inner", "again.kafka-ingest/inner", "linked/inner", "outer"])
def test_a_copy_in_or_around_another_copy_is_refused(skipped: QuickProject, orders: str, output: str) -> None:
    first = "outer/again" if output == "outer" else "again"
    skipped.answer("backfill", "orders", f"{orders}:0=0-10", "--copy-to", first)
    (skipped.output / "linked").symlink_to(skipped.output / "again")

    exit_code, code, message = skipped.refusal("backfill", "orders", f"{orders}:0=0-10", "--copy-to", output)

    assert (exit_code, code) == (3, "OUTPUT_CONFLICT")
    assert f"{skipped.output / first}, the output of another copy of this feed" in message


def test_two_feeds_do_not_copy_into_one_directory(skipped: QuickProject, orders: str) -> None:
    skipped.write_feed(orders, name="second")
    skipped.run("second")
    skipped.answer("backfill", "orders", f"{orders}:0=0-10", "--copy-to", "again")

    refused = skipped.refusal("backfill", "second", f"{orders}:0=0-10", "--copy-to", "again")

    assert refused[:2] == (3, "OUTPUT_CONFLICT")
    assert "a copy of another feed" in refused[2]


def test_a_chunk_that_fails_holds_no_other_up_and_its_error_is_reported(
    skipped: QuickProject, orders: str, servers: str
) -> None:
    with skipped.stopping_before_the_commit(), pytest.raises(Killed):
        skipped.answer("backfill", "orders", "gaps", "--max-records", "3")
    chunks = [batch for batch in skipped.batches() if batch["kind"] == "backfill"]
    assert sorted(batch["state"] for batch in chunks) == ["PLANNED", "WRITTEN"]
    skipped.answer("abandon", max(batch["batch_id"] for batch in chunks), "--reason", "to be planned again")
    with skipped.stopping_before_the_commit(), pytest.raises(Killed):
        skipped.answer("backfill", "orders", f"{orders}:0=6-7", f"{orders}:0=5-6", "--max-records", "1")
    delete_records(servers, orders, 0, 7)

    found = skipped.kafka_ingest("backfill", "orders", "open", "--json")

    assert found.exit_code == 3
    reported = [
        (spans(chunk), chunk.get("state"), chunk.get("error", {}).get("code")) for chunk in found.document["chunks"]
    ]
    assert reported == [
        ({0: (2, 5)}, "COMMITTED", None),
        ({0: (5, 6)}, "COMMITTED", None),
        ({0: (6, 7)}, None, "RECORDS_DELETED"),
    ]


def test_open_takes_no_other_option(skipped: QuickProject) -> None:
    assert skipped.refusal("backfill", "orders", "open", "--copy-to", "elsewhere")[:2] == (2, "INVALID_BACKFILL")


def test_a_dry_run_shows_the_chunks_and_writes_nothing(skipped: QuickProject) -> None:
    batches = skipped.batches()

    shown = skipped.answer("backfill", "orders", "gaps", "--dry-run", "--max-records", "4")

    assert chunks_of(shown) == [[(0, 2, 6)], [(0, 6, 7)]]
    assert not shown["executed"]
    assert skipped.batches() == batches


def test_live_runs_continue_while_chunks_are_open(skipped: QuickProject, orders: str, servers: str) -> None:
    with skipped.stopping_before_the_commit(), pytest.raises(Killed):
        skipped.answer("backfill", "orders", "gaps")
    produce(servers, orders, 0, plain_records(4))

    [live] = skipped.run()
    skipped.answer("backfill", "orders", "open")

    assert live["rows"] == 4
    assert offsets(skipped) == list(range(14))
    assert skipped.stored_offsets()[0] == skipped.group_offsets()[0] == 14
    assert skipped.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


UNREADABLE: list[tuple[list[str], str]] = [
    (["{topic}:0=5-3"], "expected FROM below TO"),
    (["{topic}:0=3-3"], "expected FROM below TO"),
    (["{topic}:0=0-4", "{topic}:0=3-5"], "expected ranges that share no offset"),
    (["{topic}:7=0-4"], "found {topic}-7"),
    (["absent:0=0-4"], "found absent-0"),
    (["{topic}:0=0-99"], "stored offset 10"),
    (["{topic}:0=a-b"], "expected TOPIC:PARTITION=FROM-TO"),
    (["from=2026-01-01T00:00:00"], "from_timestamp"),
    (["from=yesterday"], "from_timestamp"),
    (["from=2026-01-02T00:00:00Z", "to=2026-01-01T00:00:00Z"], "from_timestamp before to_timestamp"),
    (["batch=orders"], "batch_id"),
    (["batch=01990000-0000-7000-8000-000000000000"], "no batch 01990000"),
    (["dag-run=manual__1"], "did neither"),
    (["gaps", "{topic}:0=0-4"], "found offset_ranges and open_gaps"),
    (["only={topic}"], "found none"),
    (["gaps", "only=absent"], "found absent"),
    (["everything"], "Found 'everything'"),
    (["gaps", "gaps=yes"], "Found 'gaps=yes'"),
]


def test_what_cannot_be_read_is_refused_and_nothing_is_planned(skipped: QuickProject, orders: str) -> None:
    batches = skipped.batches()
    for words, says in UNREADABLE:
        exit_code, _, message = skipped.refusal("backfill", "orders", *(word.format(topic=orders) for word in words))
        assert exit_code == 2, words
        assert says.format(topic=orders) in message, words
        assert skipped.batches() == batches, words
