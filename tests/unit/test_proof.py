"""What a commit says of itself: small enough for a table's history, complete enough to check the rows against."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import BATCH_ID, CLUSTER, a_file, a_plan, a_receipt, partition, span

from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.proof import MOST_LISTED, Proof, proof_of
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.receipt import Filtered, Receipt

PLAN = a_plan(span(0, 100, 200), span(1, 0, 50))
OTHER_BATCH = UUID("01990000-0000-7000-8000-00000000000a")


def some_of_all() -> Receipt:
    """Return a receipt of 90 rows, 4 dead letters and 3 filtered records of 100 offsets, and all 50 of the other."""
    rows, letters = a_file(span(0, 100, 200), 90), a_file(span(0, 192, 196), name="letters.parquet")
    filtered = (Filtered(partition(0), 3),)
    return a_receipt(PLAN, rows, a_file(span(1, 0, 50)), dead_letters=(letters,), filtered=filtered, rows_read=147)


def many(number: int) -> tuple[BatchPlan, Receipt]:
    """Return the plan and receipt of a batch of so many partitions."""
    plan = a_plan(*(span(each, 0, 10) for each in range(number)))
    return plan, a_receipt(plan, *(a_file(each, name=f"part-{each.partition}") for each in plan.ranges))


def test_a_proof_says_of_each_range_what_became_of_its_offsets() -> None:
    assert json.loads(proof_of(PLAN, some_of_all()).as_text()) == {
        "version": 1,
        "batch_id": str(BATCH_ID),
        "kind": "live",
        "plan_fingerprint": PLAN.fingerprint,
        "cluster_id": CLUSTER,
        "topic_ids": {"orders": "topic-id-1"},
        "columns": ["partition", "start_offset", "end_offset", "rows", "dead_letters", "filtered", "invisible"],
        "ranges": {"orders": [[0, 100, 200, 90, 4, 3, 3], [1, 0, 50, 50, 0, 0, 0]]},
        "ranges_sha256": sha256(b'{"orders":[[0,100,200,90,4,3,3],[1,0,50,50,0,0,0]]}').hexdigest(),
        "range_count": 2,
        "rows": 140,
        "dead_letters": 4,
        "filtered": 3,
        "invisible": 3,
    }


def test_a_proof_comes_back_from_its_text_whatever_else_a_later_version_says_in_it() -> None:
    proof = proof_of(PLAN, some_of_all())
    document = json.loads(proof.as_text())
    for numbers in document["ranges"]["orders"]:
        numbers.append("of a later version")

    found = Proof.from_text(json.dumps(document | {"later": {"a": 1}}))

    assert found.as_text() == proof.as_text()


def test_of_more_ranges_than_a_proof_lists_it_has_their_number_their_sums_and_their_digest() -> None:
    assert proof_of(*many(MOST_LISTED)).ranges is not None
    more, changed = many(MOST_LISTED + 1), many(MOST_LISTED + 1)
    changed = (changed[0], replace(changed[1], files=(a_file(span(0, 0, 10), 9, name="part-0"), *changed[1].files[1:])))

    proof = proof_of(*more)

    assert (proof.ranges, proof.range_count, proof.rows) == (None, 101, 1_010)
    assert len(proof.as_text()) < 1_000
    assert Proof.from_text(proof.as_text()) == proof
    assert proof.ranges_sha256 == proof_of(*more, most=None).ranges_sha256
    assert proof.ranges_sha256 != proof_of(*changed).ranges_sha256


def test_a_hundred_ranges_of_large_offsets_take_a_few_kilobytes_of_each_commit() -> None:
    plan = a_plan(*(span(each, 10**12, 10**12 + 10**6) for each in range(MOST_LISTED)))
    assert len(proof_of(plan, a_receipt(plan)).as_text()) < 6_000


def test_a_proof_of_long_names_lists_nothing_and_takes_no_more() -> None:
    topics = [f"{number:03}{'x' * 240}" for number in range(MOST_LISTED)]
    ranges = [OffsetRange(TopicPartition(topic, 0), 0, 10) for topic in topics]
    plan = replace(a_plan(*ranges), topic_ids=dict.fromkeys(topics))
    proof = proof_of(plan, a_receipt(plan))
    assert (proof.ranges, proof.range_count, len(proof.as_text()) < 1_000) == (None, 100, True)


def test_a_proof_of_a_replacement_names_whose_rows_left() -> None:
    replaces = (ReplacedRange(span(0, 100, 200), OTHER_BATCH),)
    plan = a_plan(span(0, 100, 200), kind=BatchKind.REPLACE, replaces=replaces)

    proof = Proof.from_text(proof_of(plan, a_receipt(plan)).as_text())

    assert proof.replaces == ((OTHER_BATCH, partition(0)),)
    assert (proof.kind, Proof.from_text(proof_of(PLAN, some_of_all()).as_text()).replaces) == (BatchKind.REPLACE, ())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": 2}, "proof of format version 1, found 2"),
        ({"ranges": {"orders": [[0, 100, 200, 89, 4, 3, 4], [1, 0, 50, 50, 0, 0, 0]]}}, "expected ranges with SHA-256"),
        ({"ranges": {"orders": [[0, 100]]}}, "expected 'end_offset' in it, found none"),
        ({"ranges": [[0, 100]]}, "values of other types"),
        ({"replaces": [["no id", "orders", 0]]}, "badly formed"),
        ({"rows": "140"}, "expected rows to be a whole number"),
    ],
)
def test_a_proof_that_was_changed_or_cut_is_refused(changes: dict[str, Any], why: str) -> None:
    document = json.loads(proof_of(PLAN, some_of_all()).as_text()) | changes
    with pytest.raises(ForeignJsonError, match=why):
        Proof.from_document(document)
