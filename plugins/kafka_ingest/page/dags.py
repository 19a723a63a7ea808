"""DAGs as the page shows them, and those that it leads to besides the feeds' own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

BACKFILL_DAG: Final = "backfill_offsets"
OPERATE_DAG: Final = "operate_feed"


@dataclass(frozen=True, slots=True)
class DagNow:
    """What Airflow's scheduler does with a DAG: nothing by itself while it is paused."""

    is_paused: bool
    next_run_at: datetime | None
