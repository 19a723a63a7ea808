"""Where a SQLite file would be shared by several hosts."""

from pathlib import Path

import pytest

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.verbs import check_airflow
from kafka_ingest.verbs.check_airflow import check_one_host, file_system_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


def airflow(tmp_path: Path, executor: str | None) -> dict[str, str]:
    """Return an environment whose Airflow keeps this executor in its file."""
    if executor is not None:
        (tmp_path / "airflow.cfg").write_text(f"[core]\nexecutor = {executor}\nfernet_key = 100%\n")
    return {"AIRFLOW_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    "executor",
    [
        "CeleryExecutor",
        "KubernetesExecutor",
        "LocalExecutor,CeleryExecutor",
        "airflow.providers.edge3.executors.EdgeExecutor",
        "remote:airflow.providers.celery.executors.celery_executor.CeleryExecutor",
        "LocalExecutor;team1=CeleryExecutor",
    ],
)
@pytest.mark.parametrize("place", ["variable", "file"])
def test_an_executor_that_runs_tasks_elsewhere_is_refused_by_name(
    tmp_path: Path, file: Path, executor: str, place: str
) -> None:
    environment = (
        airflow(tmp_path, executor)
        if place == "file"
        else airflow(tmp_path, None) | {"AIRFLOW__CORE__EXECUTOR": executor}
    )
    with pytest.raises(InvalidConnectionError, match=r"control\.db and Airflow's \w+Executor, .*Use PostgreSQL"):
        check_one_host(file, environment)


@pytest.mark.parametrize(
    "executor", [None, "LocalExecutor", "SequentialExecutor", "airflow.executors.local_executor.LocalExecutor"]
)
def test_an_executor_of_one_host_is_accepted(tmp_path: Path, file: Path, executor: str | None) -> None:
    check_one_host(file, airflow(tmp_path, executor))


def test_the_variable_wins_over_the_file(tmp_path: Path, file: Path) -> None:
    check_one_host(file, airflow(tmp_path, "CeleryExecutor") | {"AIRFLOW__CORE__EXECUTOR": "LocalExecutor"})


def test_an_airflow_cfg_that_cannot_be_read_says_nothing(tmp_path: Path, file: Path) -> None:
    (tmp_path / "airflow.cfg").write_text("executor without a section")
    check_one_host(file, {"AIRFLOW_HOME": str(tmp_path)})


def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    listed = tmp_path / "mounts"
    listed.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(check_airflow, "MOUNTS", listed)


def test_a_file_on_a_network_file_system_is_refused(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(tmp_path, monkeypatch, "/dev/sda / ext4 rw 0 0", f"nas:/share {tmp_path} nfs4 rw 0 0")
    with pytest.raises(InvalidConnectionError, match=r"control\.db on nfs4: locks do not hold there"):
        check_one_host(file, airflow(tmp_path, None))


def test_the_deepest_mount_counts_and_of_two_at_one_place_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(
        tmp_path,
        monkeypatch,
        "nas:/ / nfs rw 0 0",
        "/dev/sda /srv/my\\040data ext4 rw 0 0",
        "nas:/new /srv nfs rw 0 0",
        "tmpfs /srv tmpfs rw 0 0",
    )
    assert file_system_of(Path("/srv/my data/control.db")) == "ext4"
    assert file_system_of(Path("/srv/control.db")) == "tmpfs"
    assert file_system_of(Path("/srvice/control.db")) == "nfs"


def test_this_machines_own_mounts_can_be_read(file: Path) -> None:
    assert file_system_of(file)
