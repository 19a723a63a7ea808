"""When a feed's hours or days are complete, and what follows."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from kafka_ingest.model.completion import CompletionRules, OnLate, Unit
from kafka_ingest.settings.setting_types import Duration, Settings


class Complete(Settings):
    """Hours or days by the records' timestamps, in UTC; ``delay`` and ``idle_after`` begin at the end of each."""

    by: Unit
    delay: Duration = timedelta(minutes=10)
    idle_after: Duration = timedelta(hours=1)
    on_late: OnLate = OnLate.ANNOUNCE
    success_file: Annotated[bool, Field(strict=True)] = False

    def rules(self) -> CompletionRules:
        """Return when one is complete."""
        return CompletionRules(**self.model_dump())
