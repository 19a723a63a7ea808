"""What planning needs to know of a feed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.offsets import Isolation, OffsetsPolicy
from kafka_ingest.planning.start_rules import StartRule


@dataclass(frozen=True, slots=True)
class FeedPlanSettings:
    """A feed as the planner sees it; limits are in records, None means no limit."""

    name: str
    start_rules: Mapping[str, StartRule]
    isolation: Isolation
    offsets_policy: OffsetsPolicy
    sink_format: str
    output_path: Path
    max_records: int | None = None
    max_records_per_partition: int | None = None

    @property
    def topics(self) -> list[str]:
        """The feed's topics, in order."""
        return sorted(self.start_rules)
