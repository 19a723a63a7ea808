"""Several attempts in one driver, without Spark: what is said of which of them when it, or a disk, goes away."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from kafka_ingest.foundation.tried import Tried
from kafka_ingest.model.place import FAILURE, JobSettings
from kafka_ingest.writing import write_batch
from kafka_ingest.writing.side_by_side import SparkGoneError, Step, side_by_side


class Context:
    """Spark's context, as far as attempts side by side ask it anything."""

    def __init__(self, *, away: bool = False) -> None:
        self.stopped, self.away = False, away
        self.setJobGroup = self.setLocalProperty = lambda *_, **__: None
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=self.is_stopped))

    def is_stopped(self) -> bool:
        if self.stopped and self.away:
            raise Py4JNetworkError("connection refused")
        return self.stopped


@pytest.mark.parametrize("context", [Context(), Context(away=True)], ids=["stopped", "away"])
def test_where_spark_ends_under_its_attempts_none_is_said_to_have_failed_and_none_is_begun(context: Context) -> None:
    begun: list[str] = []
    said: list[int] = []

    def step(name: str, *, dies: bool = False) -> Step:
        def do() -> None:
            begun.append(name)
            if dies:
                context.stopped = True
                raise RuntimeError("Job 3 cancelled because SparkContext was shut down")

        return Step(name, do, 60.0)

    steps = [step("a"), step("b", dies=True), step("c")]
    with pytest.raises(SparkGoneError):
        side_by_side(context, steps, 1, lambda place, _: said.append(place))  # type: ignore[arg-type]
    assert (begun, said) == (["a", "b"], [0])


def settings_of(tmp_path: Path, names: str) -> list[str]:
    """Return the job's arguments for attempts in directories of these names, of which ``x`` is not there."""
    JobSettings([{}] * len(names), None, [60.0] * len(names)).write(tmp_path / "settings.json")
    for name in names.replace("x", ""):
        (tmp_path / name).mkdir()
    attempts = [word for name in names for word in ("--attempt", str(tmp_path / name), "--document-sha256", "0")]
    return [*attempts, "--settings", str(tmp_path / "settings.json")]


def failing(places: range, error: Exception) -> Callable[..., None]:
    """Return what stands for writing: it ends these places with an error."""

    def write(_attempts: Any, _limits: Any, _begun: Any, ended: Callable[[int, Tried[None]], None]) -> None:
        for place in places:
            ended(place, Tried(error=error))

    return write


def test_a_job_whose_spark_has_ended_notes_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> None:
        raise SparkGoneError("Spark has ended")

    monkeypatch.setattr(write_batch, "write_attempts", write)
    with pytest.raises(SystemExit) as ended:
        write_batch.main(settings_of(tmp_path, "ab"))
    assert ended.value.code == 69
    assert not list(tmp_path.rglob(FAILURE))


def test_a_reason_that_cannot_be_written_keeps_no_other_attempt_from_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write_batch, "write_attempts", failing(range(3), ValueError("no such field")))
    with pytest.raises(SystemExit):
        write_batch.main(settings_of(tmp_path, "axb"))
    assert [(tmp_path / name / FAILURE).read_text() for name in "ab"] == ["no such field"] * 2
    assert "could not be written" in capsys.readouterr().err


def test_what_ends_the_job_is_noted_of_all_that_are_left_also_where_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> None:
        raise RuntimeError("no executor")

    monkeypatch.setattr(write_batch, "write_attempts", write)
    with pytest.raises(RuntimeError, match="no executor"):
        write_batch.main(settings_of(tmp_path, "xab"))
    assert [(tmp_path / name / FAILURE).read_text() for name in "ab"] == ["no executor"] * 2


def test_where_nobody_reads_what_the_job_says_each_reason_is_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(write_batch, "write_attempts", failing(range(2), ValueError("no such field")))
    monkeypatch.setattr("sys.stderr", Closed())
    with pytest.raises(SystemExit):
        write_batch.main(settings_of(tmp_path, "ab"))
    assert [(tmp_path / name / FAILURE).read_text() for name in "ab"] == ["no such field"] * 2
