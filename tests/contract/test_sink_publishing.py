"""What publishing comes to in every kind of output: once and whole, or not at all, whatever happens in between."""

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.contract.builders import batch_id_of
from tests.contract.power_cut import PowerCut, power_cut
from tests.contract.racing_publishers import Step, race
from tests.contract.rival_programs import RIVAL, rival_of
from tests.contract.sink_outputs import (
    BESIDE,
    OUTPUTS,
    ROWS,
    DeltaInStore,
    DeltaOutput,
    Died,
    Fault,
    IcebergOutput,
    InMemoryOutput,
    InStore,
    KafkaOutput,
    LateRowsApart,
    Output,
    PostgresqlBeside,
    PostgresqlOutput,
    landed_states,
    made,
    opened,
    plan_to,
    publish,
    rows_of,
    without_late,
    written,
)

from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    KafkaIngestError,
    OutputConflictError,
)
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.table_options import TableOptions

pytestmark = pytest.mark.long

STORED = [kind for kind in (*OUTPUTS, *BESIDE) if kind is not InMemoryOutput]
ON_DISK = [kind for kind in STORED if not issubclass(kind, InStore)]
RACED = [kind for kind in STORED if kind not in {PostgresqlOutput, DeltaOutput, DeltaInStore}]
"""Of these the ones with late rows: their commit is the other's, and late rows are in it, or follow it."""
RACERS = 5
ROUNDS = 4
BATCHES_BESIDE_A_RIVAL = 6


@pytest.fixture(params=[*STORED, InMemoryOutput], ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    return made(request.param, tmp_path / "orders", request)


@pytest.fixture(params=[*ON_DISK, InMemoryOutput], ids=lambda kind: kind.name)
def without_store(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    """An output on a disk: what its step comes to is handled alike in a store, whose own faults are tried elsewhere."""
    return made(request.param, tmp_path / "orders", request)


@pytest.fixture(
    params=[kind for kind in RACED if kind in ON_DISK and kind not in {KafkaOutput, PostgresqlBeside}],
    ids=lambda kind: kind.name,
)
def on_disk(request: pytest.FixtureRequest) -> Callable[[Path], Output]:
    """Topics and tables in PostgreSQL have their receipts alone on this disk, kept as those of the other tables."""
    return lambda path: made(request.param, path, request)


class Stored(Protocol):
    """Makes outputs of one kind."""

    rounds: int
    """How often processes race: each request to a server takes as long as a round on a disk."""

    def __call__(self, path: Path) -> Output: ...


@pytest.fixture(params=RACED, ids=lambda kind: kind.name)
def stored(request: pytest.FixtureRequest) -> Stored:
    class Made:
        rounds = 2 if issubclass(request.param, InStore | KafkaOutput | PostgresqlOutput) else ROUNDS

        def __call__(self, path: Path) -> Output:
            return made(request.param, path, request)

    return Made()


def again(output: Output) -> Output:
    """Return the same output as another process has it."""
    return output if isinstance(output, InMemoryOutput) else type(output)(output.path)


def known(output: Output) -> list[str]:
    return again(output).sink.publisher.known_batches()


# ── Once ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_seen_with_all_its_rows_once_it_is_published_and_not_before_and_once_however_often(
    output: Output,
) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.staging.verify(directory, published.receipt)
    assert output.seen() == Counter()
    for _ in range(2):
        again(output).sink.publisher.publish(directory, published)
        assert output.seen() == rows_of(published)
    with pytest.raises(OutputConflictError):
        again(output).sink.publisher.can_take(directory, published.receipt)
    other_directory, of_another_plan = written(output, plan_to(output, 1, partitions=1), attempt=2)
    with pytest.raises(OutputConflictError):
        again(output).sink.publisher.publish(other_directory, of_another_plan)
    assert output.seen() == rows_of(published)


def test_an_empty_batch_is_published_and_shows_nothing(output: Output) -> None:
    published = publish(output, plan_to(output, 1), without_rows=True)
    assert output.seen() == Counter()
    assert known(output) == [str(batch_id_of(1))]
    with pytest.raises(BatchStateError):
        again(output).sink.publisher.revoke(
            output.sink.staging.attempt_directory(batch_id_of(1), 1), published.plan.batch_id
        )


def test_the_attempt_that_is_not_published_stays_unseen_and_is_removed_without_the_other(output: Output) -> None:
    plan = plan_to(output, 1)
    zombie, _ = written(output, plan, attempt=1)
    directory, published = written(output, plan, attempt=2)
    output.sink.publisher.publish(directory, published)
    for each in (zombie, directory):
        again(output).sink.staging.remove(each)
    assert output.seen() == rows_of(published)
    assert output.sink.staging.size_bytes(zombie) == 0


def test_staged_files_that_are_removed_leave_nothing_behind(output: Output) -> None:
    directory, _ = written(output, plan_to(output, 1))
    assert output.sink.staging.size_bytes(directory) > 0
    output.sink.staging.remove(directory)
    assert output.data_files() == []


# ── Every fault at the step that decides, then again ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "without_rows"),
    # What an empty batch leaves is the mark alone.
    [*((fault, False) for fault in Fault), (Fault.DIES_AFTER, True)],
)
def test_whatever_becomes_of_a_publishing_it_is_not_revoked_once_it_landed_and_the_next_one_completes_it(
    without_store: Output, fault: Fault, monkeypatch: pytest.MonkeyPatch, *, without_rows: bool
) -> None:
    output = without_store
    before = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2), without_rows=without_rows)
    with monkeypatch.context() as patch:
        output.with_fault(patch, fault)
        try:
            output.sink.publisher.publish(directory, published)
        except (Died, KafkaIngestError):
            pass
        else:
            assert output.seen() == rows_of(before) + rows_of(published), "it said that it was done"
    landed = [rows_of(before) + each for each in landed_states(output, published)]
    assert (seen := output.seen()) in (rows_of(before), *landed), "half a batch is seen"
    if fault is not Fault.DIES_BEFORE:
        assert seen in landed, "it landed without a word"
        with pytest.raises(BatchStateError):
            again(output).sink.publisher.revoke(directory, published.plan.batch_id)

    again(output).sink.publisher.publish(directory, published)

    assert output.seen() == rows_of(before) + rows_of(published)
    assert known(output) == [str(batch_id_of(number)) for number in (1, 2)]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize(
    "without_store",
    [kind for kind in (*ON_DISK, InMemoryOutput) if kind not in BESIDE],  # it asks nothing of late rows
    indirect=True,
    ids=lambda kind: kind.name,
)
def test_whatever_becomes_of_a_revocation_the_next_one_completes_it(
    without_store: Output, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = without_store
    directory, published = written(output, plan_to(output, 1))
    receipt = published.receipt
    with monkeypatch.context() as patch:
        output.with_fault(patch, fault)
        with contextlib.suppress(Died, KafkaIngestError):
            output.sink.publisher.revoke(directory, receipt.batch_id)

    again(output).sink.publisher.revoke(directory, receipt.batch_id)

    with pytest.raises(BatchRevokedError):
        again(output).sink.publisher.publish(directory, published)
    assert (output.seen(), known(output)) == (Counter(), [])


@pytest.mark.parametrize("revokes", [False, True], ids=["publishing", "revoking"])
def test_a_power_cut_at_any_call_to_the_file_system_is_repaired_by_the_next_try(
    on_disk: Callable[[Path], Output], tmp_path: Path, *, revokes: bool
) -> None:
    for crash in itertools.count():
        output = on_disk(tmp_path / f"{crash}" / "orders")
        directory, published = written(output, plan_to(output, 1))

        def take(step: Output, directory: Path = directory, published: PublishedReceipt = published) -> None:
            if revokes:
                step.sink.publisher.revoke(directory, published.plan.batch_id)
            else:
                step.sink.publisher.publish(directory, published)

        died = False
        with power_cut(after=crash):
            try:
                take(output)
            except PowerCut:
                died = True
        assert output.seen() in (Counter(), *landed_states(output, published))
        take(again(output))
        assert output.seen() == (Counter() if revokes else rows_of(published))
        if not died:
            break
    assert crash > 5


# ── Several at once, in processes of their own ────────────────────────────────────────────────────────────────────────


def test_of_several_publishers_of_one_batch_all_find_it_published_and_every_row_is_there_once(
    stored: Stored, tmp_path: Path
) -> None:
    rounds = [staged_alone(stored, tmp_path / f"{number}") for number in range(stored.rounds)]
    came_to = race(rounds[0][0].name, [[step for _, step in rounds]] * RACERS)
    assert came_to == [[None] * stored.rounds] * RACERS
    for output, step in rounds:
        assert output.seen() == rows_of(step.published)


def test_of_several_batches_at_once_each_is_there_once(stored: Stored, tmp_path: Path) -> None:
    output = stored(tmp_path / "orders")
    batches = iter(range(1, 1 + RACERS * stored.rounds))
    steps = [[staged(output, next(batches)) for _ in range(stored.rounds)] for _ in range(RACERS)]
    assert race(output.name, steps) == [[None] * stored.rounds] * RACERS
    expected = sum((rows_of(step.published) for step in itertools.chain.from_iterable(steps)), Counter())
    assert output.seen() == expected


def test_of_publishers_and_revokers_one_kind_wins_and_the_other_learns_it(stored: Stored, tmp_path: Path) -> None:
    rounds = [staged_alone(stored, tmp_path / f"{number}") for number in range(stored.rounds)]
    publishes = [step for _, step in rounds]
    revokes = [Step(step.path, step.directory, step.published, revokes=True) for step in publishes]
    first, second, *revoked = race(rounds[0][0].name, [publishes, publishes, revokes, revokes])
    for number, (output, step) in enumerate(rounds):
        said = {each[number] is None for each in (first, second)}, {each[number] is None for each in revoked}
        seen = output.seen()
        assert (seen, said) in [(rows_of(step.published), ({True}, {False})), (Counter(), ({False}, {True}))], [
            first[number],
            second[number],
            *(each[number] for each in revoked),
        ]


def staged_alone(stored: Stored, directory: Path) -> tuple[Output, Step]:
    """Stage a batch in an output of its own, so that its table is made in the race, too."""
    output = stored(directory / "orders")
    return output, staged(output, 1)


def staged(output: Output, number: int) -> Step:
    directory, published = written(output, plan_to(output, number))
    return Step(output.path, directory, published)


# ── A reader that reads all the time ──────────────────────────────────────────────────────────────────────────────────


def test_a_reader_never_sees_half_a_batch_or_a_row_twice(stored: Stored, tmp_path: Path) -> None:
    output = stored(tmp_path / "orders")
    steps = [written(output, plan_to(output, number, partitions=5)) for number in range(1, 1 + stored.rounds * 5 // 2)]
    done = threading.Event()

    def publish_all() -> None:
        try:
            for directory, published in steps:
                again(output).sink.publisher.publish(directory, published)
        finally:
            done.set()

    publisher = threading.Thread(target=publish_all)
    publisher.start()
    looks = 0
    while not done.is_set() or looks == 0:
        if output.format == "kafka":
            check_whole_partitions(output.seen())
        elif isinstance(output, LateRowsApart) and output.follows:
            check_whole_batches(output.seen(), [published for _, published in steps], late=True)
        else:
            check_whole_batches(output.seen(), [published for _, published in steps])
        looks += 1
    publisher.join()
    assert output.seen() == sum((rows_of(published) for _, published in steps), Counter())


@pytest.mark.parametrize("kind", [DeltaOutput, IcebergOutput], ids=lambda kind: kind.name)
def test_another_program_that_appends_compacts_and_cleans_all_the_time_takes_no_row_and_doubles_none(
    kind: type[Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    output = made(kind, tmp_path / "orders", request)
    if output.format == "delta":
        # Clean-ups delete each entry that a checkpoint sums up, not only those of a month ago.
        at_once = TableOptions(properties=(("delta.logRetentionDuration", "interval 0 seconds"),))
        output = kind(output.path, at_once)
    batches = [publish(output, plan_to(output, 1))]
    with rival_of(output) as rival:
        while len(batches) < BATCHES_BESIDE_A_RIVAL or not rival.has_done_all(2):
            # Otherwise the quicker one wins each time, and the other one never.
            rival.wait_for_one_more()
            directory, published = written(again(output), plan_to(output, len(batches) + 1))
            again(output).sink.publisher.can_take(directory, published.receipt)
            again(output).sink.publisher.publish(directory, published)
            batches.append(published)
            with rival.between_works():
                seen = output.seen()
            check_whole_batches(without_rival(seen), batches)
    seen = output.seen()
    assert without_rival(seen) == sum(map(rows_of, batches), Counter())
    assert seen.total() - without_rival(seen).total() == ROWS * rival.did["append"]
    looks = [again(output).sink.inspector.look_at(each.plan.batch_id) for each in batches]
    assert [(list(look.problems), sum(count.rows for count in look.counts)) for look in looks] == [
        ([], each.receipt.rows) for each in batches
    ]


def without_rival(seen: Counter[tuple[str, int, int]]) -> Counter[tuple[str, int, int]]:
    """Leave out the rows of another program."""
    return Counter({row: count for row, count in seen.items() if row[0] != RIVAL})


def check_whole_batches(
    seen: Counter[tuple[str, int, int]], batches: list[PublishedReceipt], *, late: bool = False
) -> None:
    """Each batch is seen with all its rows or none, and those that are seen come before those that are not.

    ``late``: late rows may follow the others.
    """
    shown = Counter(batch for batch, _, _ in (without_late(seen) if late else seen).elements())
    sizes = [shown[str(published.plan.batch_id)] for published in batches]
    assert set(sizes) <= {0, batches[0].receipt.rows - ROWS * late}
    assert sizes == sorted(sizes, reverse=True)
    assert set(seen.values()) <= {1}


def check_whole_partitions(seen: Counter[tuple[str, int, int]]) -> None:
    """A partition of a batch is seen with all its rows: Kafka ends a transaction in one partition after the other."""
    shown = Counter((batch, partition) for batch, partition, _ in seen.elements())
    assert set(shown.values()) <= {ROWS}
    assert set(seen.values()) <= {1}


def test_an_open_attempt_is_no_part_of_the_output(output: Output) -> None:
    opened(output, plan_to(output, 1))
    assert (output.seen(), known(output)) == (Counter(), [])
