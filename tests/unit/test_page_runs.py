"""The DAG runs that a batch's view links to, and where Airflow has their tasks' logs."""

from kafka_ingest.page.one_batch import Run, runs_of


def test_each_run_that_acted_is_linked_once_in_the_order_in_which_they_did() -> None:
    first, second = "airflow:orders/scheduled__2026-01-31T00:00:00+00:00", "airflow:orders/manual__1"
    found = runs_of([second, first, "cli:ops@host/1", second, "adopted"])
    assert found == [Run("orders", "manual__1"), Run("orders", "scheduled__2026-01-31T00:00:00+00:00")]
    assert found[0].logs == (("plan", "plan"), ("write", "write"), ("commit", "commit"))


def test_the_tasks_of_a_backfills_chunks_are_mapped() -> None:
    [run] = runs_of(["airflow:backfill_offsets/manual__1"])
    assert [path for _, path in run.logs] == ["plan", "chunk.write/mapped", "chunk.commit/mapped"]
