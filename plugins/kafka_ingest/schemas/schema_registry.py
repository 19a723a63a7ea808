"""Confluent's API of schema registries, which others speak as well, over HTTP.

An answer is JSON of a known shape, or none of a registry.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import requests
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util.retry import Retry

from kafka_ingest.errors import SchemaRegistryRefusedError, SchemaRegistryUnavailableError, SubjectMissingError
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json
from kafka_ingest.model.schema_source import GUID, RegisteredSchema
from kafka_ingest.schemas import RegistrySettings

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


CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 20.0
"""Between two pieces of an answer."""

ANSWER_TIMEOUT_S: Final = 60.0
"""For the whole body of an answer, so that one that comes byte by byte ends as well."""

PAUSES_S: Final = (0.2, 1.0)
"""Before all URLs are asked once more, unless one of them asks for a longer pause."""

LONGEST_PAUSE_S: Final = 30.0

MOST_BYTES: Final = 16 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
MOST_REFERENCES: Final = 200
LARGEST_ID: Final = 2**31 - 1
NOT_FOUND: Final = 404
REFUSALS: Final = {401: "the credentials were not accepted", 403: "they lack the right to read"}
BUSY: Final = 429
CLIENTS_FAULT: Final = 400
SERVERS_FAULT: Final = 500

Found = TypeVar("Found")

Read = Callable[[Answer], Found]
"""Reads an answer; raises NoAnswerError where it is none of a schema registry."""


class BearerToken(AuthBase):
    """Sends a token; a login in the user's .netrc file would replace a plain header."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class HttpSchemaRegistry:
    """A registry behind one or more URLs. A URL that fails is passed over, and asked again after the others."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._wait = wait
        self._clock = clock
        self._versions: dict[tuple[str, int], SchemaAnswer] = {}
        """Versions never change: each is asked for once."""
        self._ids: dict[int | str, RegisteredSchema] = {}
        """Nor do the schemas of ids."""
        self._known_urls: set[str] = set()
        """Those behind which there is a registry: one of them has answered a question."""

    def versions(self, subject: str) -> Sequence[int]:
        try:
            found = self._get(f"subjects/{quote(subject, safe='')}/versions", versions_of)
        except NoUseError as error:
            raise self._missing(subject, None, str(error)) from None
        if found is None:
            raise self._missing(subject, None)
        return found

    def version(self, subject: str, version: int | None) -> RegisteredSchema:
        try:
            found = self._version(subject, version)
        except NoUseError as error:
            raise self._missing(subject, version, str(error)) from None
        if found is None:
            raise self._missing(subject, version)
        return self._schema(found.schema_id or 0, found)

    def by_id(self, schema_id: int | str) -> RegisteredSchema | None:
        """Return the schema of an id or a GUID; None where the registry knows none, in whatever words it says so.

        Where its answer is none that can be used, the schema lacks everything. That counts only where a question was
        answered at the same URL before: a wrong path knows no id either.
        """
        if isinstance(schema_id, int) and not 0 < schema_id <= LARGEST_ID:
            return None
        if schema_id not in self._ids:
            try:
                found = self._get(
                    f"schemas/{'ids' if isinstance(schema_id, int) else 'guids'}/{schema_id}", SchemaAnswer.of
                )
            except NoUseError as error:
                if not self._known_urls:
                    raise self._unavailable(str(error)) from None
                return RegisteredSchema(schema_id, "", lacks=str(error)) if isinstance(error, NoSchemaError) else None
            if found is None:
                return None  # it may be registered in the next moment
            self._ids[schema_id] = self._schema(schema_id, found)
        return self._ids[schema_id]

    def _schema(self, schema_id: int | str, found: SchemaAnswer) -> RegisteredSchema:
        references: dict[str, str] = {}
        lacks = self._collect(found, references)
        known = tuple(references.items())
        return RegisteredSchema(schema_id, found.text, found.kind, found.version, known, lacks, found.guid)

    def _collect(self, found: SchemaAnswer, references: dict[str, str]) -> str | None:
        """Ask for what a schema refers to, and for what that refers to; return why some of it cannot be had."""
        for reference in found.references:
            if reference.name in references:
                continue
            if len(references) >= MOST_REFERENCES:
                return f"expected a schema with at most {MOST_REFERENCES} references, found more"
            # What was deleted softly is still what the schema refers to.
            what = f"expected version {reference.version} of subject {reference.subject!r}, to which it refers, in the"
            try:
                referred = self._version(reference.subject, reference.version, deleted=True)
            except NoUseError as error:
                return f"{what} schema registry, found another answer: {error}"
            if referred is None:
                return f"{what} schema registry, found none"
            references[reference.name] = referred.text
            if lacks := self._collect(referred, references):
                return lacks
        return None

    def _version(self, subject: str, version: int | None, *, deleted: bool = False) -> SchemaAnswer | None:
        if version is not None and (subject, version) in self._versions:
            return self._versions[subject, version]
        path = f"subjects/{quote(subject, safe='')}/versions/{version or 'latest'}"
        found = self._get(f"{path}?deleted=true" if deleted else path, SchemaAnswer.of_version)
        if found is not None and (number := version or found.version) is not None:
            self._versions[subject, number] = found
        return found

    def _get(self, path: str, read: Read[Found]) -> Found | None:
        """Return the answer to a question; None where the registry says that there is nothing of the kind.

        Raises NoUseError where the last answer of all URLs is one that would be the same later.
        """
        problems: dict[str, NoAnswerError] = {}
        asked_for = 0.0
        for pause in (0.0, *PAUSES_S):
            if pause:
                self._wait(max(pause, min(asked_for, LONGEST_PAUSE_S)))
            asked_for = 0.0
            for url in self._settings.urls:
                try:
                    found = self._ask(url, path, read)
                except NoAnswerError as error:
                    problems[url] = error
                    asked_for = max(asked_for, error.pause_s)
                else:
                    self._known_urls.add(url)
                    return found
        said = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
        if all(isinstance(problem, NoUseError) for problem in problems.values()):
            raise (NoSchemaError if isinstance(problems[url], NoSchemaError) else NoUseError)(said)
        raise self._unavailable(said)

    def _ask(self, url: str, path: str, read: Read[Found]) -> Found | None:
        end = self._clock() + ANSWER_TIMEOUT_S
        try:
            with self._session.get(
                f"{url}/{path}",
                timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
                allow_redirects=False,
                stream=True,
                # A session's own would give way to REQUESTS_CA_BUNDLE.
                verify=self._settings.ca_file or True,
            ) as answer:
                return self._answer(url, answer, read, end)
        except requests.exceptions.SSLError as error:
            raise SchemaRegistryRefusedError(
                f"connection {self._settings.conn_id!r}: expected {url} to have a certificate of a known authority, "
                f"for that host's name, found another, or it asked for ours ({cause_of(error)}). Name the authority in "
                "ssl.ca.location of its extra, or correct the host."
            ) from None
        except HTTPError as error:  # within the body of an answer, requests leaves its library's own errors as they are
            raise NoAnswerError(cause_of(error)) from None
        except OSError as error:  # a certificate's file that cannot be read, or what requests calls the network's fault
            if isinstance(error, requests.exceptions.RequestException):
                raise NoAnswerError(cause_of(error)) from None
            raise SchemaRegistryRefusedError(
                f"connection {self._settings.conn_id!r}: expected the files of its certificates, found one that cannot "
                f"be read: {error}"
            ) from None

    def _answer(self, url: str, answer: requests.Response, read: Read[Found], end: float) -> Found | None:
        status = answer.status_code
        if status in REFUSALS:
            raise SchemaRegistryRefusedError(
                f"connection {self._settings.conn_id!r}: expected {url} to answer, found HTTP {status}: "
                f"{REFUSALS[status]}. Correct the connection's login and password, or its bearer.auth.token, or grant "
                "the right to read. Nothing was moved."
            )
        if status == BUSY or status >= SERVERS_FAULT or 300 <= status < CLIENTS_FAULT:  # noqa: PLR2004 - a redirect
            raise NoAnswerError(f"HTTP {status}", pause_of(answer))
        if status in NOT_THE_QUESTIONS:
            raise NoAnswerError(no_registrys(status))
        try:
            found = read_foreign_json(self._content(answer, end))
        except ForeignJsonError as error:
            if status >= CLIENTS_FAULT:
                raise NoUseError(no_registrys(status)) from None
            raise NoAnswerError(str(error)) from None
        if status == NOT_FOUND and says_nothing_of_the_kind(found):
            return None
        if status >= CLIENTS_FAULT:
            raise NoUseError(no_registrys(status))
        return read(found)

    def _content(self, answer: requests.Response, end: float) -> bytes:
        """Return an answer's body, read in pieces: a read of all of it would wait for each byte anew."""
        content = bytearray()
        while piece := answer.raw.read1(PIECE_BYTES, decode_content=True):
            content += piece
            if len(content) > MOST_BYTES:
                raise NoSchemaError(f"expected at most {MOST_BYTES:,} bytes, found more")
            if self._clock() > end:
                raise NoAnswerError(f"expected the whole answer within {ANSWER_TIMEOUT_S:.0f} s")
        return bytes(content)

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
        if self._settings.token is not None:
            session.auth = BearerToken(self._settings.token)
        elif self._settings.user is not None:
            session.auth = HTTPBasicAuth(self._settings.user.encode(), (self._settings.password or "").encode())
        session.cert = self._settings.certificate
        return session

    def _missing(self, subject: str, version: int | None, said: str | None = None) -> SubjectMissingError:
        what = f"subject {subject!r}" if version is None else f"version {version} of subject {subject!r}"
        found, url = (f"another answer: {said}", "the path of the connection's URL, ") if said else ("none", "")
        return SubjectMissingError(
            f"connection {self._settings.conn_id!r}: expected {what} in the schema registry, found {found}. Correct "
            f"{url}subject or version in the feed file, or register the schema. Nothing was moved."
        )

    def _unavailable(self, said: str) -> SchemaRegistryUnavailableError:
        return SchemaRegistryUnavailableError(
            f"connection {self._settings.conn_id!r}: expected an answer of the schema registry, found none: {said}. "
            "Nothing was moved; a retry asks again."
        )


def no_registrys(status: int) -> str:
    """Return the problem of an answer such as a proxy's, of another kind of registry, or of one at a wrong path."""
    return f"HTTP {status}, which is no schema registry's answer"


def pause_of(answer: requests.Response) -> float:
    """Return for how many seconds a registry asks to be left alone, or until which time; 0 where it names none."""
    try:
        return Retry().parse_retry_after(answer.headers.get("Retry-After", "0"))
    except (InvalidHeader, OverflowError):
        return 0.0


def cause_of(error: BaseException) -> str:
    """Return what the network said, without the objects that the libraries name."""
    while (inner := next((each for each in error.args if isinstance(each, BaseException)), None)) is not None:
        error = inner
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return cause_of(reason)
    return str(error).rpartition(">: ")[2][:200] or type(error).__name__
