"""Who decides, and why. Without a decision a command shows what it would do, and changes nothing."""

from dataclasses import dataclass
from typing import Final

from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.storable_text import on_one_line

LONGEST_REASON: Final = 2_000


@dataclass(frozen=True, slots=True)
class Decided:
    """An operator's decision: the actor for the audit journal, and the reason that it keeps."""

    actor: str
    reason: str


def reason_given(reason: str | None, named: str = "--reason") -> str:
    """Return a reason; raises WrongUseError where there is none, or where it is an option that should follow it."""
    if reason is not None and reason.startswith("--"):
        raise WrongUseError(f"expected {named} with a few words, found the option {reason!r} in their place")
    if reason is None or not reason.strip():
        raise WrongUseError(f"expected {named} with a few words, found none: the audit journal keeps why it was done")
    if len(reason) > LONGEST_REASON:
        raise WrongUseError(f"expected {named} with at most {LONGEST_REASON:,} characters, found {len(reason):,}")
    return on_one_line(reason)
