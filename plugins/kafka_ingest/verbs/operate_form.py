"""The form ``operate_feed``: its verbs, in the order of its list, and how its fields are read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from kafka_ingest.errors import InvalidOperationError
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.run_request import Text, of_kind, without_lineage
from kafka_ingest.settings.setting_types import Settings, describe
from kafka_ingest.verbs.abandon import Abandon, Restore
from kafka_ingest.verbs.adopt import Adopt
from kafka_ingest.verbs.answer import Answer, Check
from kafka_ingest.verbs.clean import Clean
from kafka_ingest.verbs.coverage import Coverage
from kafka_ingest.verbs.database import Fold, Rename, Upgrade
from kafka_ingest.verbs.dead_letters import DeadLetters, GiveUpDeadLetters
from kafka_ingest.verbs.doctor import Doctor
from kafka_ingest.verbs.expire import Expire
from kafka_ingest.verbs.explain import Explain
from kafka_ingest.verbs.locate import Locate
from kafka_ingest.verbs.lost import Lost
from kafka_ingest.verbs.mending import MendStatistics, Mirror
from kafka_ingest.verbs.plan import Plan
from kafka_ingest.verbs.preview import PreviewRecords
from kafka_ingest.verbs.request import Call, Decided, Needed, Request, reason_given
from kafka_ingest.verbs.reset import Reset
from kafka_ingest.verbs.skip import Skip
from kafka_ingest.verbs.topic_changed import TopicChanged

IN_ORDER: Final[tuple[type[Request], ...]] = (
    *(Plan, Doctor, Coverage, Locate, Explain, PreviewRecords, DeadLetters),
    *(Skip, Reset, TopicChanged, Abandon, Restore, Mirror, Clean, Lost, GiveUpDeadLetters),
    *(Expire, Fold, MendStatistics, Adopt, Rename, Upgrade),
)
VERBS: Final = {verb.verb: verb for verb in IN_ORDER}


FIELDS: Final = {name: frozenset(verb.in_form()) for name, verb in VERBS.items()}
"""Which of the form's fields a verb takes; those of :class:`OfAll` are every verb's."""

IN_FORM: Final = frozenset().union(*FIELDS.values())


def a_verb(name: object) -> object:
    if name not in list(VERBS):
        raise ValueError(f"expected {', '.join(map(repr, VERBS))}")
    return name


class OfAll(Settings):
    """The fields that each verb has."""

    model_config = ConfigDict(extra="ignore")

    feed: Text = None
    action: Annotated[str, BeforeValidator(a_verb)]
    dry_run: Annotated[bool, Field(strict=True)] = True
    reason: Text = None


@dataclass(frozen=True, slots=True)
class OperateForm:
    """A form that was read: what all have, and the verb's own request."""

    of_all: OfAll
    request: Request

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "OperateForm":
        """Read a form; raises InvalidOperationError, which says what was expected."""
        model: type[Settings] = OfAll
        values = without_lineage(values)
        try:
            of_all = OfAll.model_validate(values)
            model = VERBS[of_all.action]
            check_fields(of_all.action, values)
            # What no verb has stays, to be refused by name.
            others = OfAll.model_fields.keys() | (IN_FORM - FIELDS[of_all.action])
            return cls(of_all, model.model_validate({key: values[key] for key in values if key not in others}))
        except ValidationError as error:
            raise InvalidOperationError(
                f"the form asks for what it cannot have: {'; '.join(describe(error, model))}. Nothing was changed."
            ) from error

    @property
    def verb(self) -> type[Request]:
        return type(self.request)

    @property
    def decides(self) -> bool:
        """Whether something is to be changed, rather than shown."""
        return not self.of_all.dry_run and not self.verb.only_shows

    def answer(self, actor: str, find_connection: FindConnection, on_check: Callable[[Check], object]) -> Answer:
        """Do what the form asks for, or show what would be done; ``on_check`` is called after each of doctor's checks.

        Raises InvalidOperationError where it leaves out what the verb needs, WrongUseError where a decision has no
        reason.
        """
        decided = Decided(actor, reason_given(self.of_all.reason, "a reason")) if self.decides else None
        call = Call(self.verb, self.of_all.feed, decided, find_connection, on_check)
        if self.verb.needs_feed:
            _ = call.feed_name
        for name, needed in of_kind(self.verb, Needed):
            if name in FIELDS[self.verb.verb] and getattr(self.request, name) is None:
                raise call.missing(needed.wanted)
        answer = self.request.answer(call)
        return replace(answer, shown=[*call.told, *answer.shown]) if call.told else answer


def check_fields(action: str, values: Mapping[str, Any]) -> None:
    taken = FIELDS[action]
    others = {name for name in values.keys() & IN_FORM - taken if not is_blank(values[name])}
    of_commands = VERBS[action].model_fields.keys() - taken
    if wrong := sorted(others | (values.keys() & of_commands)):
        raise InvalidOperationError(
            f"expected with action {action} {' and '.join(sorted(taken)) or 'no other field'} at most, found "
            f"{' and '.join(wrong)}. Nothing was changed."
        )


def is_blank(value: object) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, Iterable):
        return all(map(is_blank, value))
    return value is None or value is False
