"""Rows beside what an output says of itself: each offset is there once, or accounted for, or named."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import BATCH_ID, CLUSTER, FakeKafkaCluster, FakeTopic, a_plan, a_receipt, partition, span

from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.offsets import FirstRecord, LogBounds, OffsetRange, Unavailable
from kafka_ingest.model.proof import Evidence, HeldLog, OffsetRuns, Proof, proof_of
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.observing.account_of_output import AccountOfOutput, PartitionAccount, account_of, with_kafka

NEXT, LATER = (UUID(f"01990000-0000-7000-8000-00000000000{number}") for number in (2, 3))
ID = "topic-id-1"
Runs = Sequence[tuple[int, int]]


def proof(batch_id: UUID, *counts: RangeCount, **changes: Any) -> Proof:
    """Return a batch's proof of some ranges, each with its counts."""
    plan = a_plan(*(each.offset_range for each in counts), batch_id=batch_id)
    sums = {name: sum(getattr(each, name) for each in counts) for name in ("rows", "dead_letters", "filtered")}
    made = replace(proof_of(plan, a_receipt(plan)), ranges=counts, topic_ids={"orders": ID}, **sums)
    return replace(made, **changes)


def count(offset_range: OffsetRange, rows: int | None = None, dead_letters: int = 0, filtered: int = 0) -> RangeCount:
    """Return what was written of a range: all of it, unless ``rows`` says fewer."""
    return RangeCount(offset_range, offset_range.span if rows is None else rows, None, None, dead_letters, filtered)


def offsets(*runs: tuple[int, int]) -> OffsetRuns:
    return OffsetRuns([start for start, _ in runs], [end for _, end in runs])


def log(by_batch: Mapping[UUID | None, Runs], doubled: Runs = (), topic_id: str | None = ID) -> HeldLog:
    """Return what the output holds of ``orders-0``."""
    there = sorted({each for runs in by_batch.values() for start, end in runs for each in range(start, end)})
    starts = [each for each in there if each - 1 not in there]
    ends = [each + 1 for each in there if each + 1 not in there]
    rows = sum(end - start for runs in by_batch.values() for start, end in runs)
    batches = {batch: offsets(*runs) for batch, runs in by_batch.items()}
    return HeldLog(partition(0), topic_id, rows, OffsetRuns(starts, ends), offsets(*doubled), batches)


def account(proofs: Sequence[Proof], held: Sequence[HeldLog], **evidence: Any) -> AccountOfOutput:
    """Return the account of an output that says this of itself."""
    return account_of(Evidence({each.batch_id: each for each in proofs}, **evidence), held)


def only(found: AccountOfOutput) -> PartitionAccount:
    [each] = found.partitions
    return each


def missing(found: AccountOfOutput) -> list[tuple[str, UUID | None, int, list[tuple[int, int]]]]:
    """Return what is missing: of which range, by whose account, how many, and among which."""
    return [(str(each.offset_range), each.batch_id, each.offsets, each.among.first(10)) for each in only(found).missing]


def test_an_output_whose_rows_are_those_of_its_proofs_is_sound() -> None:
    found = account(
        [proof(BATCH_ID, count(span(0, 0, 10))), proof(NEXT, count(span(0, 10, 20)))],
        [log({BATCH_ID: [(0, 10)], NEXT: [(10, 20)]})],
    )
    assert (found.is_sound, only(found).unaccounted, only(found).reached, found.unproven) == (True, 0, 20, [])


def test_dead_letters_filtered_records_and_offsets_without_a_record_are_accounted_for() -> None:
    found = account([proof(BATCH_ID, count(span(0, 0, 10), 4, 3, 2))], [log({BATCH_ID: [(1, 5)]})])
    one = only(found)
    assert (found.is_sound, one.dead_letters, one.filtered, one.invisible) == (True, 3, 2, 1)


def test_one_row_less_than_the_proof_says_is_missing_among_those_that_are_not_there() -> None:
    found = account([proof(BATCH_ID, count(span(0, 0, 10), 5, 3, 1))], [log({BATCH_ID: [(1, 5)]})])
    assert not found.is_sound
    assert missing(found) == [("orders-0[0, 10)", BATCH_ID, 1, [(0, 1), (5, 10)])]


def test_a_batch_of_which_no_row_is_left_is_missing() -> None:
    found = account([proof(BATCH_ID, count(span(0, 0, 10)))], [])
    assert missing(found) == [("orders-0[0, 10)", BATCH_ID, 10, [(0, 10)])]


def test_offsets_between_ranges_are_missing_by_no_batchs_account_unless_a_gap_says_so() -> None:
    proofs = [proof(BATCH_ID, count(span(0, 0, 10))), proof(NEXT, count(span(0, 20, 30)))]
    held = [log({BATCH_ID: [(0, 10)], NEXT: [(20, 30)]})]

    assert missing(account(proofs, held)) == [("orders-0[10, 20)", None, 10, [(10, 20)])]
    gap = account(proofs, held, gaps=[(ID, span(0, 5, 20))])
    assert (gap.is_sound, only(gap).gaps) == (True, 10)
    of_another_topic = account(proofs, held, gaps=[("an older id", span(0, 10, 20))])
    assert only(of_another_topic).unaccounted == 10


def test_where_rows_are_newest_states_offsets_of_which_only_sums_are_known_are_not_called_missing() -> None:
    proofs = [proof(BATCH_ID, count(span(0, 0, 10)), ranges=None, range_count=101), proof(NEXT, count(span(0, 10, 20)))]
    found = account(proofs, [log({BATCH_ID: [(8, 9)], NEXT: [(12, 20)]})], of_newest_states=True)
    assert missing(found) == []
    assert [each.partition(", which only its receipt says")[0] for each in found.problems] == [
        f"batch {BATCH_ID}: expected its 101 ranges"
    ]


def test_below_the_first_scheduled_run_an_output_claims_what_backfills_read_and_no_more() -> None:
    backfills = [
        proof(BATCH_ID, count(span(0, 100, 110)), kind=BatchKind.BACKFILL),
        proof(LATER, count(span(0, 300, 310)), kind=BatchKind.BACKFILL),
    ]
    rows = {BATCH_ID: [(100, 110)], LATER: [(300, 310)]}
    alone = account(backfills, [log(rows)])
    assert (alone.is_sound, only(alone).not_claimed) == (True, 190)

    live = proof(NEXT, count(span(0, 1000, 1010)))
    both = account([*backfills, live], [log({**rows, NEXT: [(1000, 1010)]})], gaps=[(ID, span(0, 900, 1000))])
    assert (both.is_sound, only(both).not_claimed, only(both).gaps) == (True, 190 + 590, 100)
    short = account([*backfills, live], [log({**rows, LATER: [(301, 310)], NEXT: [(1000, 1010)]})])
    assert missing(short) == [("orders-0[300, 310)", LATER, 1, [(300, 301)])]


def test_from_the_first_scheduled_run_on_and_from_rows_of_an_unknown_batch_on_nothing_may_be_missing() -> None:
    proofs = [proof(BATCH_ID, count(span(0, 0, 10))), proof(NEXT, count(span(0, 20, 30)), kind=BatchKind.BACKFILL)]
    held = log({BATCH_ID: [(0, 10)], NEXT: [(20, 30)]})
    assert missing(account(proofs, [held])) == [("orders-0[10, 20)", None, 10, [(10, 20)])]
    unknown = log({None: [(0, 10)], NEXT: [(20, 30)]})
    assert missing(account(proofs[1:], [unknown])) == [("orders-0[0, 20)", None, 10, [(10, 20)])]


def test_offsets_of_two_rows_are_not_sound() -> None:
    found = account([proof(BATCH_ID, count(span(0, 0, 10)))], [log({BATCH_ID: [(0, 10)]}, doubled=[(3, 4)])])
    assert not found.is_sound


def test_rows_without_a_proof_are_named_and_what_is_missing_between_them_is_unaccounted() -> None:
    found = account([], [log({BATCH_ID: [(0, 5), (7, 9)]})])
    assert (found.unproven, missing(found)) == ([BATCH_ID], [("orders-0[0, 9)", None, 2, [(5, 7)])])
    assert account([], [log({BATCH_ID: [(0, 5)]})]).is_sound


def test_rows_that_a_rewrite_left_without_their_batch_count_where_they_are() -> None:
    found = account([proof(BATCH_ID, count(span(0, 0, 10), 9))], [log({None: [(0, 9)]})])
    assert (found.is_sound, found.unproven) == (True, [None])


def test_rows_of_a_removed_batch_are_accounted_for_and_too_many_where_they_are_there() -> None:
    read = [proof(BATCH_ID, count(span(0, 0, 10))), proof(NEXT, count(span(0, 10, 20)))]
    removed = frozenset({BATCH_ID})

    gone = account(read, [log({NEXT: [(10, 20)]})], removed=removed)
    assert (gone.is_sound, only(gone).removed) == (True, 10)
    there = account(read, [log({BATCH_ID: [(0, 10)], NEXT: [(10, 20)]})], removed=removed)
    assert only(there).surplus == [f"batch {BATCH_ID}: 10 offsets of orders-0[0, 10), expected 0"]


def test_a_batch_that_replaced_anothers_rows_counts_in_its_place() -> None:
    was = proof(BATCH_ID, count(span(0, 0, 10), 8, 2))
    by = proof(NEXT, count(span(0, 0, 10)), kind=BatchKind.REPLACE, replaces=((BATCH_ID, partition(0)),))

    found = account([was, by], [log({NEXT: [(0, 10)]})])
    assert (found.is_sound, only(found).dead_letters) == (True, 0)
    half = account([was, by], [log({NEXT: [(0, 9)]})])
    assert missing(half) == [("orders-0[0, 10)", NEXT, 1, [(9, 10)])]


def test_dead_letters_that_were_replayed_are_rows() -> None:
    was = proof(BATCH_ID, count(span(0, 0, 10), 6, 4))
    replay = proof(NEXT, count(span(0, 2, 9), 2, 1), kind=BatchKind.REPLAY)
    rows: dict[UUID | None, Runs] = {BATCH_ID: [(0, 2), (4, 8)], NEXT: [(2, 3), (8, 9)]}

    found = account([was, replay], [log(rows)])
    assert (found.is_sound, only(found).dead_letters, only(found).invisible) == (True, 2, 0)
    less = account([was, replay], [log({**rows, BATCH_ID: [(0, 2), (4, 7)]})])
    assert missing(less) == [("orders-0[0, 10)", BATCH_ID, 1, [(3, 4), (7, 8), (9, 10)])], "no replayed row hides it"
    gone = account([was, replay], [log({BATCH_ID: rows[BATCH_ID]})])
    assert [each[1:3] for each in missing(gone)] == [(NEXT, 2)], "nor does a row that was there before the replay"


def test_rows_of_a_file_that_was_recorded_as_lost_are_accounted_for_and_no_others() -> None:
    was = [proof(BATCH_ID, count(span(0, 0, 10)))]
    lost = {(BATCH_ID, partition(0)): 3}

    found = account(was, [log({BATCH_ID: [(0, 7)]})], lost=lost)
    assert (found.is_sound, only(found).lost) == (True, 3)
    assert only(account(was, [log({BATCH_ID: [(0, 6)]})], lost=lost)).unaccounted == 1
    again = [*was, proof(NEXT, count(span(0, 7, 10)), kind=BatchKind.BACKFILL)]
    assert account(again, [log({BATCH_ID: [(0, 7)], NEXT: [(7, 10)]})], lost=lost).is_sound
    masked = account(again, [log({BATCH_ID: [(0, 6)], NEXT: [(7, 10)]})], lost=lost)
    assert missing(masked) == [("orders-0[0, 10)", BATCH_ID, 1, [(6, 7)])]


def test_a_batch_that_is_being_published_misses_nothing() -> None:
    read = [proof(BATCH_ID, count(span(0, 0, 10))), proof(NEXT, count(span(0, 10, 20)))]
    one = log({BATCH_ID: [(0, 10)]})
    assert account(read, [one], unpublished=frozenset({NEXT})).is_sound
    assert not account(read, [one]).is_sound
    half = log({BATCH_ID: [(0, 10)], NEXT: [(10, 15)]})
    assert only(account(read, [half], unpublished=frozenset({NEXT}))).unaccounted == 5


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (log({BATCH_ID: [(0, 12)]}), "2 offsets outside orders-0[0, 10)"),
        (log({BATCH_ID: [(0, 10)]}, topic_id="id-2"), "has not read: its topic ids are {'orders': 'topic-id-1'}"),
    ],
)
def test_rows_that_no_proof_names_are_too_many(held: HeldLog, why: str) -> None:
    found = account([proof(BATCH_ID, count(span(0, 0, 10)))], [held])
    assert not found.is_sound
    assert why in str([each.surplus for each in found.partitions])


def test_of_many_ranges_without_their_receipt_the_sums_are_compared() -> None:
    sums = proof(BATCH_ID, count(span(0, 0, 10), 8, 2), ranges=None, range_count=101)
    assert account([sums], [log({BATCH_ID: [(0, 4), (5, 9)]})]).is_sound
    [problem] = account([sums], [log({BATCH_ID: [(0, 4), (5, 8)]})]).problems
    assert problem.startswith(f"batch {BATCH_ID}: expected 8 rows of 101 ranges, found 7")


def test_a_topic_without_an_id_is_the_one_that_the_rows_name() -> None:
    old = proof(BATCH_ID, count(span(0, 0, 10)), topic_ids={"orders": None})
    assert account([old], [log({BATCH_ID: [(0, 10)]})]).is_sound


# ── Beside Kafka ──────────────────────────────────────────────────────────────────────────────────────────────────────


HELD = log({BATCH_ID: [(0, 10), (12, 20)]})


def beside(
    topics: Mapping[str, FakeTopic], *, held: HeldLog = HELD, firsts: Any = None, **asked: Any
) -> AccountOfOutput:
    """Return the account of an output without proofs beside a cluster's logs."""
    cluster = FakeKafkaCluster(topics)
    cluster.firsts = firsts or {}
    return with_kafka(account([], [held]), cluster, **asked)


def test_kafka_says_how_many_offsets_are_above_all_that_the_output_has() -> None:
    logs = {"orders": FakeTopic({0: LogBounds(0, 25, 30), 1: LogBounds(5, 9, 9)}, ID)}
    found = beside(logs, held=log({BATCH_ID: [(0, 20)]}))
    assert found.is_sound
    assert [each.not_landed for each in found.partitions] == [5, 4]


def test_a_topic_that_was_made_again_or_is_gone_is_not_compared() -> None:
    again = beside({"orders": FakeTopic({0: LogBounds(0, 25, 30)}, "id-2")})
    assert (only(again).not_landed, only(again).apart) == (None, "in Kafka the topic has id id-2: it was made again")
    assert only(beside({})).apart == "Kafka has no such topic"


@pytest.mark.parametrize(
    ("first", "unaccounted"),
    [
        (FirstRecord(1, by_broker=True, offset=12), 0),
        (None, 0),
        (FirstRecord(1, by_broker=True, offset=11), 2),
        (Unavailable("no answer"), 2),
    ],
    ids=["the next record", "no record", "a record", "no answer"],
)
def test_what_no_batch_accounts_for_is_looked_for_in_kafka(first: Any, unaccounted: int) -> None:
    logs = {"orders": FakeTopic({0: LogBounds(0, 25, 30)}, ID)}
    found = only(beside(logs, firsts={partition(0): first}))
    assert (found.unaccounted, found.invisible) == (unaccounted, 2 - unaccounted)


def test_what_retention_has_deleted_cannot_be_looked_for() -> None:
    assert only(beside({"orders": FakeTopic({0: LogBounds(11, 25, 30)}, ID)})).unaccounted == 2


def test_another_cluster_than_the_one_that_was_read_is_named() -> None:
    cluster = FakeKafkaCluster({"orders": FakeTopic({0: LogBounds(0, 20, 20)}, ID)}, cluster_id="cluster-B")
    read = account([proof(BATCH_ID, count(span(0, 0, 10)))], [log({BATCH_ID: [(0, 10)]})])
    [problem] = with_kafka(read, cluster).problems
    assert problem == f"expected Kafka cluster {CLUSTER}, which the output names, found cluster-B"
