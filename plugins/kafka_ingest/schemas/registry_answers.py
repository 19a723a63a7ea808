"""What a registry's answers say: JSON of a known shape, or no answer of a registry."""

from dataclasses import dataclass
from typing import Any, Final, Self

from kafka_ingest.model.schema_source import GUID

Answer = Any
"""What JSON has."""

NOTHING_OF_THE_KIND: Final = (40401, 40402, 40403)
"""Confluent's codes of errors: no such subject, no such version, no such schema. A wrong path has another, or none."""


NOT_THE_QUESTIONS: Final = frozenset({407, 408, 425})
"""Of the statuses that are the client's fault, those that a later try need not have."""


class NoAnswerError(Exception):
    """There is no answer, or none that a schema registry gives. ``pause_s``: seconds before the next request."""

    def __init__(self, problem: str, pause_s: float = 0.0) -> None:
        super().__init__(problem)
        self.pause_s = pause_s


class NoUseError(NoAnswerError):
    """An answer that a later try most likely finds again: a refusal, in words that not all registries have."""


class NoSchemaError(NoUseError):
    """An answer that should be a schema, and cannot be used as one."""


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
        raise NoSchemaError("expected references with name, subject and version, found JSON of another shape")


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """A schema. An answer to a question by id names no id, and perhaps no version; ``guid``: its other id."""

    text: str
    kind: str
    references: tuple[Reference, ...]
    version: int | None
    schema_id: int | None
    guid: str | None = None

    @classmethod
    def of(cls, found: Answer) -> Self:
        """Return it; raises NoAnswerError."""
        match found:
            case {"schema": str(text)}:
                kind, references = found.get("schemaType") or "AVRO", found.get("references") or []
                version, schema_id, guid = found.get("version"), found.get("id"), found.get("guid")
                if (
                    isinstance(kind, str)
                    and isinstance(references, list)
                    and isinstance(version, int | None)
                    and isinstance(schema_id, int | None)
                ):
                    of_form = guid if isinstance(guid, str) and GUID.fullmatch(guid) else None
                    return cls(text, kind, tuple(map(Reference.of, references)), version, schema_id, of_form)
        raise NoSchemaError("expected a schema, found JSON of another shape")

    @classmethod
    def of_version(cls, found: Answer) -> Self:
        """Return the schema of a subject's version; raises NoAnswerError."""
        answer = cls.of(found)
        if answer.schema_id is None:
            raise NoSchemaError("expected a schema with its id, found JSON of another shape")
        return answer


def versions_of(found: Answer) -> list[int]:
    """Return a subject's versions, in ascending order; raises NoAnswerError."""
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise NoUseError("expected a list of versions, found JSON of another shape")
    return sorted(found)


def says_nothing_of_the_kind(found: Answer) -> bool:
    """Whether a registry says that it has no such thing, and no proxy or wrong path does."""
    return isinstance(found, dict) and found.get("error_code") in NOTHING_OF_THE_KIND
