"""An operator's request as the form of the DAG ``operate_feed`` writes it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BeforeValidator, Field, ValidationError

from kafka_ingest.batches.preview import MOST_RECORDS
from kafka_ingest.errors import InvalidOperationError
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.operating.topic_changed import BatchChoice, Choice
from kafka_ingest.settings.form_fields import Lines, Text, blank_is_none, range_named, record_named
from kafka_ingest.settings.run_request import without_lineage
from kafka_ingest.settings.setting_types import Settings
from kafka_ingest.settings.wrong_settings import describe


class Action(StrEnum):
    """What an operator can ask for."""

    PLAN = "plan"
    DOCTOR = "doctor"
    VERIFY_COVERAGE = "verify-coverage"
    LOCATE = "locate"
    EXPLAIN = "explain"
    PREVIEW = "preview"
    DEAD_LETTERS = "dead-letters"
    SKIP = "skip"
    RESET = "reset"
    TOPIC_CHANGED = "topic-changed"
    ABANDON = "abandon"
    RESTORE = "restore"
    MIRROR = "mirror"
    CLEAN = "clean"
    LOST = "lost"
    GIVE_UP_DEAD_LETTERS = "give-up-dead-letters"
    EXPIRE = "expire"
    FOLD = "fold"
    MEND_STATISTICS = "mend-statistics"
    ADOPT = "adopt"
    RENAME = "rename"
    DB_UPGRADE = "db-upgrade"


ONLY_SHOW: Final = frozenset(
    {
        Action.PLAN,
        Action.DOCTOR,
        Action.VERIFY_COVERAGE,
        Action.LOCATE,
        Action.EXPLAIN,
        Action.PREVIEW,
        Action.DEAD_LETTERS,
    }
)
"""They change nothing, dry run or not."""

WITHOUT_FEED: Final = frozenset(
    {
        Action.DOCTOR,
        Action.EXPLAIN,
        Action.ABANDON,
        Action.RESTORE,
        Action.CLEAN,
        Action.GIVE_UP_DEAD_LETTERS,
        Action.DB_UPGRADE,
    }
)
"""They can do without a feed: they mean all of them, a batch, a file, or the control tables."""

FIELDS: Final[Mapping[Action, frozenset[str]]] = {
    Action.PLAN: frozenset(),
    Action.DOCTOR: frozenset(),
    Action.VERIFY_COVERAGE: frozenset(),
    Action.LOCATE: frozenset({"record"}),
    Action.EXPLAIN: frozenset({"file"}),
    Action.PREVIEW: frozenset({"records", "show_values"}),
    Action.DEAD_LETTERS: frozenset({"batch_id", "show_values"}),
    Action.SKIP: frozenset({"offset_range"}),
    Action.RESET: frozenset({"to", "shift_by", "topics", "keep_group"}),
    Action.TOPIC_CHANGED: frozenset({"topics", "choice", "open_batch"}),
    Action.ABANDON: frozenset({"batch_id", "lost_output"}),
    Action.RESTORE: frozenset({"batch_id"}),
    Action.MIRROR: frozenset(),
    Action.CLEAN: frozenset({"batch_id"}),
    Action.LOST: frozenset({"batch_id"}),
    Action.GIVE_UP_DEAD_LETTERS: frozenset({"batch_id"}),
    Action.EXPIRE: frozenset({"before"}),
    Action.FOLD: frozenset({"before"}),
    Action.MEND_STATISTICS: frozenset(),
    Action.ADOPT: frozenset(),
    Action.RENAME: frozenset({"new_name", "old_name"}),
    Action.DB_UPGRADE: frozenset({"create"}),
}
"""Which of the form's fields an action takes; feed, dry run and reason are every action's."""

OF_ALL: Final = frozenset({"feed", "action", "dry_run", "reason"})

LONGEST_PATH: Final = 4_096


class OperateForm(Settings):
    """One field for each Param of ``operate_feed``."""

    feed: Text = None
    action: Action
    dry_run: Annotated[bool, Field(strict=True)] = True
    reason: Text = None
    record: Text = None
    file: Annotated[Annotated[str, Field(max_length=LONGEST_PATH)] | None, BeforeValidator(blank_is_none)] = None
    records: Annotated[int | None, Field(strict=True, ge=1, le=MOST_RECORDS)] = None
    show_values: Annotated[bool, Field(strict=True)] = False
    offset_range: Text = None
    to: Text = None
    shift_by: Annotated[int | None, Field(strict=True)] = None
    topics: Lines = Field(default_factory=list)
    keep_group: bool = False
    choice: Annotated[Choice | None, BeforeValidator(blank_is_none)] = None
    open_batch: Annotated[BatchChoice | None, BeforeValidator(blank_is_none)] = None
    batch_id: Annotated[UUID | None, BeforeValidator(blank_is_none)] = None
    lost_output: bool = False
    before: Text = None
    new_name: Text = None
    old_name: Text = None
    create: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "OperateForm":
        """Read a form; raises InvalidOperationError, which says what was expected."""
        try:
            form = cls.model_validate(without_lineage(values))
        except ValidationError as error:
            raise InvalidOperationError(
                f"the form asks for what it cannot have: {'; '.join(describe(error, cls))}. Nothing was changed."
            ) from error
        form.check_fields()
        return form

    def check_fields(self) -> None:
        """Raise InvalidOperationError where the form says what its action does not take."""
        given = self.model_dump(exclude_defaults=True).keys() - OF_ALL
        taken = FIELDS[self.action]
        if wrong := sorted(given - taken):
            raise InvalidOperationError(
                f"expected with action {self.action} {' and '.join(sorted(taken)) or 'no other field'} at most, found "
                f"{' and '.join(wrong)}. Nothing was changed."
            )

    @property
    def decides(self) -> bool:
        """Whether something is to be changed, rather than shown."""
        return not self.dry_run and self.action not in ONLY_SHOW

    def place(self) -> tuple[TopicPartition, int] | None:
        """Return the record to locate, None where none is named; raises InvalidRangeError where it cannot be read."""
        return record_named(self.record) if self.record is not None else None

    def interval(self) -> OffsetRange | None:
        """Return the offsets to skip, None where none are given; raises InvalidRangeError where they cannot be read."""
        return range_named(self.offset_range) if self.offset_range is not None else None
