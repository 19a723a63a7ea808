"""What a registry's answers say: JSON of a known shape, or no answer of a registry."""

from dataclasses import dataclass
from typing import Any, Final, Self

Answer = Any
"""What JSON has."""

NOTHING_OF_THE_KIND: Final = (40401, 40402, 40403)
"""Confluent's codes of errors: no such subject, no such version, no such schema. A wrong path has another, or none."""


class NoAnswerError(Exception):
    """There is no answer, or none that a schema registry gives. ``pause_s``: seconds before the next request."""

    def __init__(self, problem: str, pause_s: float = 0.0) -> None:
        super().__init__(problem)
        self.pause_s = pause_s


@dataclass(frozen=True, slots=True)
class Reference:
    """What a schema refers to: its name there, and where it is registered."""

    name: str
    subject: str
    version: int

    @classmethod
    def of(cls, found: Answer) -> Self:
        """Return it; raises NoAnswerError."""
        match found:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                return cls(name, subject, version)
        raise NoAnswerError("expected references with name, subject and version, found JSON of another shape")


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """A schema. An answer to a question by id names no id, and perhaps no version."""

    text: str
    kind: str
    references: tuple[Reference, ...]
    version: int | None
    schema_id: int | None

    @classmethod
    def of(cls, found: Answer) -> Self:
        """Return it; raises NoAnswerError."""
        match found:
            case {"schema": str(text)}:
                kind, references = found.get("schemaType") or "AVRO", found.get("references") or []
                version, schema_id = found.get("version"), found.get("id")
                if (
                    isinstance(kind, str)
                    and isinstance(references, list)
                    and isinstance(version, int | None)
                    and isinstance(schema_id, int | None)
                ):
                    return cls(text, kind, tuple(map(Reference.of, references)), version, schema_id)
        raise NoAnswerError("expected a schema, found JSON of another shape")

    @classmethod
    def of_version(cls, found: Answer) -> Self:
        """Return the schema of a subject's version; raises NoAnswerError."""
        answer = cls.of(found)
        if answer.schema_id is None:
            raise NoAnswerError("expected a schema with its id, found JSON of another shape")
        return answer


def versions_of(found: Answer) -> list[int]:
    """Return a subject's versions, in ascending order; raises NoAnswerError."""
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise NoAnswerError("expected a list of versions, found JSON of another shape")
    return sorted(found)


def says_nothing_of_the_kind(found: Answer) -> bool:
    """Whether a registry says that it has no such thing, and no proxy or wrong path does."""
    return isinstance(found, dict) and found.get("error_code") in NOTHING_OF_THE_KIND
