"""Rounds of reading: what is lost while reading is left out, and each round has fewer ranges than the one before."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from tests.fakes import a_plan, span

from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.writing.rounds import Staged, read_in_rounds

PLAN = a_plan(span(0, 0, 10), span(1, 0, 20), span(2, 0, 30))


class Reads:
    """A read that fails where the log of one of its ranges starts above it.

    Then logs start where they are said to start next.
    """

    def __init__(self, *log_starts: Mapping[int, int], fails_in_the_end: bool = False) -> None:
        self.log_starts = list(log_starts)
        self.now: Mapping[int, int] = {}
        self.fails_in_the_end = fails_in_the_end
        self.rounds: list[list[int]] = []
        self.asked = 0

    def stage(self, ranges: Sequence[OffsetRange], data: Path) -> int:
        self.rounds.append([each.partition for each in ranges])
        data.mkdir()
        (data / "part.parquet").write_text(f"round {len(self.rounds)}")
        if self.log_starts:
            self.now = self.log_starts.pop(0)
        elif self.fails_in_the_end:
            raise PySparkException("another reason")
        if any(self.now.get(each.partition, 0) > each.start_offset for each in ranges):
            raise PySparkException(f"round {len(self.rounds)}")
        return sum(each.span for each in ranges)

    def starts(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        self.asked += 1
        return {each.topic_partition: self.now.get(each.partition, 0) for each in ranges}


def test_a_read_that_goes_well_asks_nothing(tmp_path: Path) -> None:
    reads = Reads()
    assert read_in_rounds(PLAN, tmp_path / "data", reads.stage, reads.starts) == Staged(60, tmp_path / "data")
    assert (reads.rounds, reads.asked) == ([[0, 1, 2]], 0)


def test_what_is_lost_in_each_round_is_left_out_until_nothing_more_is_lost(tmp_path: Path) -> None:
    reads = Reads({1: 5}, {1: 5, 2: 7})
    staged = read_in_rounds(PLAN, tmp_path / "data", reads.stage, reads.starts)
    assert (staged.records, staged.place.name) == (10, "data-without-2")
    assert staged.left_out == (LeftOut(span(1, 0, 20), 5), LeftOut(span(2, 0, 30), 7))
    assert reads.rounds == [[0, 1, 2], [0, 2], [0]]
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "what was staged in earlier rounds is thrown away"
    assert (tmp_path / "data" / "part.parquet").read_text() == "round 3"


def test_where_nothing_is_lost_the_error_stands(tmp_path: Path) -> None:
    reads = Reads(fails_in_the_end=True)
    with pytest.raises(PySparkException, match="another reason"):
        read_in_rounds(PLAN, tmp_path / "data", reads.stage, reads.starts)
    assert reads.rounds == [[0, 1, 2]]


def test_where_everything_is_lost_the_first_error_stands(tmp_path: Path) -> None:
    reads = Reads({0: 1, 1: 1, 2: 1})
    with pytest.raises(PySparkException, match="round 1"):
        read_in_rounds(PLAN, tmp_path / "data", reads.stage, reads.starts)
    assert reads.rounds == [[0, 1, 2]]


def test_another_error_after_a_loss_stands(tmp_path: Path) -> None:
    reads = Reads({0: 1}, fails_in_the_end=True)
    with pytest.raises(PySparkException, match="another reason"):
        read_in_rounds(PLAN, tmp_path / "data", reads.stage, reads.starts)
    assert reads.rounds == [[0, 1, 2], [1, 2]]


def test_where_kafka_does_not_answer_the_error_stands(tmp_path: Path) -> None:
    reads = Reads({0: 1})
    with pytest.raises(PySparkException, match="round 1"):
        read_in_rounds(PLAN, tmp_path / "data", reads.stage, lambda _: {})


@pytest.mark.parametrize("kind", [BatchKind.BACKFILL, BatchKind.COPY])
def test_a_backfill_and_a_copy_leave_nothing_out(tmp_path: Path, kind: BatchKind) -> None:
    reads = Reads({0: 1})
    plan = a_plan(*PLAN.ranges, kind=kind)
    with pytest.raises(PySparkException, match="round 1"):
        read_in_rounds(plan, tmp_path / "data", reads.stage, reads.starts)
    assert reads.asked == 0


def test_a_task_of_an_earlier_round_that_continues_writes_elsewhere(tmp_path: Path) -> None:
    reads = Reads({0: 1})

    def stage(ranges: Sequence[OffsetRange], data: Path) -> int:
        if reads.rounds:
            late = tmp_path / "data" / "_temporary"
            late.mkdir(parents=True)
            (late / "late.parquet").write_text("late")
        return reads.stage(ranges, data)

    read_in_rounds(PLAN, tmp_path / "data", stage, reads.starts)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["part.parquet"]
