"""What the steps of a batch touch, as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from kafka_ingest.errors import NotOfThisFormatError

if TYPE_CHECKING:
    from kafka_ingest.model.place import OutputLocation
    from kafka_ingest.ports.cluster import KafkaCluster
    from kafka_ingest.ports.control import OperatorTables
    from kafka_ingest.ports.outputs import Sinks

Role = TypeVar("Role")

REPLACE_ROWS = "replace rows in one commit"
REPLAY_DEAD_LETTERS = "have dead letters that can be replayed"


def role_of(output: OutputLocation, role: Role | None, what: str) -> Role:
    """Return a role of an output's sink; raises NotOfThisFormatError, which names what the format cannot do."""
    if role is None:
        raise NotOfThisFormatError(
            f"an output of format {output.format} cannot {what}: expected another format, found {output}. Nothing was "
            "changed. docs/sinks.md says what each format can do, and what to use instead."
        )
    return role


class Parts(Protocol):
    """One feed's control tables and Kafka, and the sinks of outputs: made once, and passed from step to step."""

    @property
    def control(self) -> OperatorTables:
        """The control tables."""

    @property
    def kafka(self) -> KafkaCluster:
        """The questions asked of Kafka."""

    @property
    def sinks(self) -> Sinks:
        """Finds the sink of an output."""
