"""What `make bench-plan` makes of its measurements: growth, and what exceeds a limit."""

import pytest
from one_step import STEPS, Measured, Work
from plan_partitions import COMMIT, Row, growth, table, verdict


def row(step: str, partitions: int, seconds: float, *, peak_mb: float = 150.0, database: str = "sqlite") -> Row:
    return Row(step, database, partitions, 1, 0.5, Measured(seconds, seconds, 70.0, peak_mb, Work(partitions, "00ff")))


FINE = [row("first plan", 10_000, 4.9), row("second plan", 10_000, 2.0), row(COMMIT, 10_000, 1.4)]


def test_a_commit_is_a_step_that_is_measured() -> None:
    assert COMMIT in STEPS


def test_growth_is_reported_beside_that_of_the_partitions_from_the_medians_of_the_smallest_and_the_largest() -> None:
    rows = [
        *(row(COMMIT, 100, seconds) for seconds in (0.02, 0.01, 0.9)),
        *(row(COMMIT, 10_000, seconds) for seconds in (0.3, 0.2, 0.1)),
        row(COMMIT, 1_000, 7.0),
    ]

    assert growth(rows)[2:] == [f"| {COMMIT} | sqlite | 100 to 10,000 | 100 | 10.0 |"]


def test_each_step_and_kind_of_control_tables_grows_by_itself() -> None:
    rows = [
        row(step, partitions, seconds, database=database)
        for step, database, few, many in [
            (COMMIT, "sqlite", 1, 2),
            (COMMIT, "postgresql", 1, 3),
            ("status", "sqlite", 1, 4),
        ]
        for partitions, seconds in [(10, float(few)), (20, float(many))]
    ]

    factors = sorted(line.rpartition("| 2 | ")[2] for line in growth(rows)[2:])

    assert factors == ["2.0 |", "3.0 |", "4.0 |"]
    assert len(table(rows)) == 2 + 6


def test_what_is_under_every_limit_is_within() -> None:
    reported, within = verdict(FINE)

    assert within
    assert "NOT" not in reported


@pytest.mark.parametrize(
    ("over", "reported"),
    [
        (row("plan, batch open", 10_000, 5.0), "planning is NOT within 5 s and 500 MB"),
        (row("first plan", 10, 1.0, peak_mb=500.0), "planning is NOT within 5 s and 500 MB"),
        (row(COMMIT, 10_000, 1.5), "Moving the stored offsets is NOT within 1.5 s: the slowest of 2 took 1.50 s"),
    ],
)
def test_one_plan_or_commit_over_a_limit_is_enough(over: Row, reported: str) -> None:
    found, within = verdict([*FINE, over])

    assert not within
    assert reported in found


def test_more_partitions_than_the_limits_are_for_are_not_judged() -> None:
    assert verdict([*FINE, row(COMMIT, 20_000, 3.0), row("first plan", 20_000, 12.0)])[1]
