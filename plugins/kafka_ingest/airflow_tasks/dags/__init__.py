"""All DAGs, for DAG files of one line.

Airflow reads a DAG file whenever it starts a task, and says which DAG it wants: only that one is made, and only its
module is imported.
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG, get_parsing_context

SINGLE: Final[Mapping[str, str]] = {
    "backfill_offsets": "backfill_dag",
    "check_feeds": "checking_dag",
    "maintain_feeds": "maintenance_dag",
    "operate_feed": "operating_dag",
}
"""The DAGs that there are once, by their ids: each is made by the function of this name, in the module of this name."""


def all_dags(dag_file: str) -> dict[str, DAG]:
    """Return a DAG for each feed file, and those that maintain, check, backfill and operate feeds.

    Feed files are in ``feeds/`` beside the DAG file where it is, unless KAFKA_INGEST_FEEDS names another folder: DAGs
    may come as a copy (a bundle of Airflow), whose place nothing else knows. Its tasks' processes read it, too.
    """
    beside = Path(dag_file).resolve().parent / "feeds"
    if beside.is_dir():
        os.environ.setdefault("KAFKA_INGEST_FEEDS", str(beside))
    of_feeds = {} if get_parsing_context().dag_id in SINGLE else made_by("feed_dags")()
    return of_feeds | {name: dag for dag_id in SINGLE for name, dag in single_dag(dag_id).items()}


def single_dag(dag_id: str) -> dict[str, DAG]:
    """Return one of the DAGs that there are once; nothing where Airflow starts a task of another one."""
    return {dag_id: made_by(SINGLE[dag_id])()} if get_parsing_context().dag_id in {None, dag_id} else {}


def made_by(name: str) -> Callable[[], Any]:
    made: Callable[[], Any] = getattr(import_module(f"{__name__}.{name}"), name)
    return made
