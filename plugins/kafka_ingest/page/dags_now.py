"""DAGs as the page shows them."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DagNow:
    """What Airflow's scheduler does with a DAG: nothing by itself while it is paused."""

    is_paused: bool
    next_run_at: datetime | None
