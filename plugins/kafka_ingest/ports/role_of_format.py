"""What an output's format can do: the roles of a sink that it may lack."""

from typing import TypeVar

from kafka_ingest.errors import NotOfThisFormatError
from kafka_ingest.model.output_location import OutputLocation

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
