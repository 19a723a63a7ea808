"""The DAGs that the page leads to, besides the feeds' own."""

from typing import Final

BACKFILL_DAG: Final = "backfill_offsets"
OPERATE_DAG: Final = "operate_feed"
