"""JSON: one object that fits a schema, or any one value, as text.

Spark's ``from_json`` reads a value at the beginning of a text, and does not look at what is after it. So it is given
the text inside an object of ours, ``{"n": {"k": TEXT, "l": null}}``, whose names are made for each job and known to no
producer. Only where TEXT is exactly one value does that object have exactly the names k and l.
"""

import secrets
from dataclasses import dataclass
from typing import Self

from kafka_ingest.model.decoding import KEPT_UNKNOWN, DeadClass, UnknownFields
from kafka_ingest.model.record_schema import Struct, quoted, read_schema
from kafka_ingest.writing.decode_dates import convert_dates, has_dates, parsed_type
from kafka_ingest.writing.decode_decimals import has_decimals, has_huge_decimal, undecided
from kafka_ingest.writing.decode_limits import fields_that, has_twice, is_misfit, is_wrong
from kafka_ingest.writing.decoded_part import (
    UTF8,
    DecodedPart,
    PlainSchema,
    converted_name,
    first_of,
    is_utf8,
    once,
    parsed_name,
    plain_name,
    read_name,
    reason,
    text,
    text_of,
    texts,
)
from kafka_ingest.writing.plain_objects import FITS, SURE, VALUE, can_be_plain

ONE_VALUE = "expected exactly one JSON value, found text that is none, or more than one value"
ONE_OBJECT = "expected exactly one JSON object, found text that is not JSON, or more than one value"

HALF_A_PAIR = r"\\u[dD][89a-fA-F]"
WHOLE_PAIR = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]"
"""Of a character that JSON writes as two escapes; and an escaped backslash, after which a ``u`` means nothing."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The object around a text, and where Spark puts an object that it cannot read."""

    object: str
    key: str
    end: str
    corrupt: str

    @classmethod
    def sealed(cls) -> Self:
        """Return one with names that no producer knows."""
        return cls(*(f"k{secrets.token_hex(12)}" for _ in range(4)))

    def parse(self, value: str, ddl: str) -> str:
        """Return what parses a text to an object of the envelope; null where the text is."""
        begin, end = text(f'{{"{self.object}":{{"{self.key}":'), text(f',"{self.end}":null}}}}')
        schema = text(f"{self.object} map<string,{ddl}>, {self.corrupt} string")
        options = (
            f"'columnNameOfCorruptRecord', '{self.corrupt}', 'mode', 'PERMISSIVE', 'allowSingleQuotes', 'false', "
            "'allowNonNumericNumbers', 'false', 'locale', 'en-US', 'timeZone', 'UTC'"
        )
        return f"from_json(concat({begin}, {value}, {end}), {schema}, map({options}))"

    def holds_one(self, parsed: str) -> str:
        """Return whether a text was exactly one value, and fitted; never null."""
        found = f"{parsed}.{self.object}"
        return (
            f"coalesce({parsed}.{self.corrupt} is null and size({found}) = 2 "
            f"and get(map_keys({found}), 1) = '{self.end}', false)"
        )

    def value(self, parsed: str) -> str:
        """Return the value, or what could be read of it."""
        return f"get(map_values({parsed}.{self.object}), 0)"


def json_text(column: str, body: str) -> DecodedPart:
    """Return the text of any JSON value, as it is; its bytes are in the column ``body``."""
    envelope, parsed = Envelope.sealed(), parsed_name(column)
    wrong = f"not {envelope.holds_one(parsed)}"
    return DecodedPart(
        column,
        text_of(body),
        parsed=once(f"if({is_utf8(body)}, {envelope.parse(text_of(body), 'string')}, null)"),
        is_dead=f"{quoted(body)} is not null and {wrong}",
        reason=first_of(
            (
                (f"not {is_utf8(body)}", reason(column, DeadClass.INVALID_UTF8, text(UTF8))),
                ("true", reason(column, DeadClass.NOT_JSON, text(ONE_VALUE))),
            )
        ),
    )


def json_by_schema(
    column: str, body: str, ddl: str, unknown_fields: UnknownFields, *, plainly: bool = False
) -> DecodedPart:
    """Return an object that fits a schema; its bytes are in the column ``body``.

    ``plainly``: what fits so is read before, and nothing that follows is asked of it but for what its values can hold.
    """
    schema = read_schema(ddl)
    plain = (
        PlainSchema(body, schema, unknown_fields is UnknownFields.IGNORE) if plainly and can_be_plain(schema) else None
    )
    envelope, value, parsed, read = Envelope.sealed(), text_of(body), parsed_name(column), read_name(column)
    dated = has_dates(schema)
    converted = converted_name(column) if dated else read
    readable = is_utf8(body)
    if has_decimals(schema):
        as_texts = f"from_json({value}, {text(undecided(schema).ddl)}, map('allowSingleQuotes', 'false'))"
        readable += f" and not {has_huge_decimal(value, as_texts, schema)}"
    checks = Checks(column, body, schema, envelope, read, converted, is_plain=plain is not None)
    wrong = [checks.is_unread(), checks.half_characters()]
    later = [is_wrong(read, schema, converted), has_twice(read, schema, None), checks.other_case()]
    if unknown_fields is UnknownFields.REFUSE:
        later.append(checks.unknown_if_any())
    if unknown_fields is not UnknownFields.IGNORE:
        later.append(checks.duplicate_fields())
    keeps = unknown_fields is UnknownFields.KEEP
    wrong += [each for each in later if each]
    return DecodedPart(
        column,
        checks.with_unknown_fields() if keeps else converted,
        plain=plain,
        parsed=once(f"if({checks.unless_plain(readable)}, {envelope.parse(value, parsed_type(schema))}, null)"),
        read=checks.value_of(envelope.value(parsed)),
        converted=once(convert_dates(read, schema)) if dated else None,
        is_dead=f"{quoted(body)} is not null and ({' or '.join(wrong)})",
        reason=checks.reason(unknown_fields),
        fields=(*schema.names, *([KEPT_UNKNOWN] if keeps else [])),
    )


def in_lower_case(name: str) -> str:
    """Return a name in lower case as Spark has it; to ask Spark brings up its tables of all scripts, half a second."""
    return text(name.lower()) if name.isascii() else f"lower({text(name)})"


@dataclass(frozen=True, slots=True)
class Checks:
    """What Spark lets pass, of one object."""

    column: str
    body: str
    schema: Struct
    envelope: Envelope
    read: str
    converted: str
    is_plain: bool

    @property
    def value(self) -> str:
        """The text."""
        return text_of(self.body)

    @property
    def found_names(self) -> str:
        """The names that the object has, in their order, also twice."""
        return f"json_object_keys({self.value})"

    @property
    def names(self) -> str:
        """The names that the schema has."""
        return texts(self.schema.names)

    def unless_plain(self, condition: str) -> str:
        """Return a condition of what has not been read plainly."""
        return f"(not {plain_name(self.column)}.{FITS} and ({condition}))" if self.is_plain else condition

    def value_of(self, read: str) -> str:
        """Return the object that was read plainly, or by Spark."""
        plain = plain_name(self.column)
        return f"if({plain}.{FITS}, {plain}.{VALUE}, {read})" if self.is_plain else read

    def is_unread(self) -> str:
        """Whether Spark could not read the text as exactly one object of the schema."""
        return self.unless_plain(f"not {self.envelope.holds_one(parsed_name(self.column))} or {self.read} is null")

    def half_characters(self) -> str:
        """Whether there is an escape for half a character, which Spark reads as a question mark."""
        looked_at = f"regexp_replace({self.value}, r'{WHOLE_PAIR}', ' ')"
        some = f"contains({self.value}, r'\\ud') or contains({self.value}, r'\\uD')"
        # Most texts have no escape of this kind at all: that is one look at each byte instead of two.
        found = f"if(contains({self.value}, r'\\u') and ({some}), {looked_at} rlike r'{HALF_A_PAIR}', false)"
        return self.unless_plain(found)

    def other_case(self) -> str:
        """Whether a name that is missing is there in another case."""
        # Most objects with a missing field have no unknown one: finding that out is half as expensive.
        looked_at = f"if({self.unknown_fields()}, size({self.names_in_other_case()}) > 0, false)"
        found = f"if({self.some_null()}, {looked_at}, false)"
        plain = plain_name(self.column)
        return f"if({plain}.{FITS} and {plain}.{SURE}, false, {found})" if self.is_plain else found

    def some_null(self) -> str:
        """Whether a field is null, so that it may be missing."""
        return " or ".join(f"{self.read}.{quoted(name)} is null" for name in self.schema.names)

    def names_in_other_case(self) -> str:
        """Return the names that are those of missing fields but for their case."""
        missing = ", ".join(
            f"if({self.read}.{quoted(name)} is null, {in_lower_case(name)}, null)" for name in self.schema.names
        )
        return (
            f"filter({self.found_names}, k -> array_contains(filter(array({missing}), m -> m is not null), lower(k)) "
            f"and not array_contains({self.names}, k))"
        )

    def unknown_names(self) -> str:
        """Return the names that the schema does not have."""
        return f"array_except({self.found_names}, {self.names})"

    def unknown_fields(self) -> str:
        """Whether there is a name that the schema does not have."""
        return f"size({self.unknown_names()}) > 0"

    def unknown_if_any(self) -> str:
        """Whether there is a name that the schema does not have, where that is not known before."""
        return self.unless_plain(self.unknown_fields())

    def with_unknown_fields(self) -> str:
        """Return the object with what its schema does not have: texts as they are, all else as JSON."""
        own = ", ".join(f"{text(name)}, {self.converted}.{quoted(name)}" for name in self.schema.names)
        every = f"from_json({self.value}, 'map<string,string>', map('allowSingleQuotes', 'false'))"
        others = f"map_filter({every}, (k, v) -> not array_contains({self.names}, k))"
        kept = f"if({self.unknown_if_any()}, {others}, null)"
        return f"if({self.converted} is null, null, named_struct({own}, {text(KEPT_UNKNOWN)}, {kept}))"

    def duplicate_fields(self) -> str:
        """Whether there is a name twice."""
        return self.unless_plain(f"size(array_distinct({self.found_names})) < size({self.found_names})")

    def reason(self, unknown_fields: UnknownFields) -> str:
        """Return why an object is dead, the first reason that holds."""
        misfits = f"concat_ws(', ', {fields_that(is_misfit, self.read, self.schema, None)})"
        wrong = f"concat_ws(', ', {fields_that(is_wrong, self.read, self.schema, self.converted)})"
        twice = f"concat_ws(', ', {fields_that(has_twice, self.read, self.schema, None)})"
        checks = [
            (self.is_unread(), self.reason_of_unread()),
            (
                self.half_characters(),
                self.said(
                    DeadClass.DOES_NOT_FIT,
                    text("expected whole characters, found an escape \\u for half of one (a lone surrogate)"),
                ),
            ),
            (
                is_misfit(self.read, self.schema, None),
                self.said(
                    DeadClass.DOES_NOT_FIT,
                    f"concat({text('expected dates and times in the forms of ISO 8601, found others in ')}, {misfits})",
                ),
            ),
            (
                is_wrong(self.read, self.schema, self.converted),
                self.said(
                    DeadClass.OUT_OF_RANGE,
                    f"concat({text('expected values that their types can hold, found others in ')}, {wrong})",
                ),
            ),
            (
                has_twice(self.read, self.schema, None),
                self.said(
                    DeadClass.DUPLICATE_FIELD,
                    f"concat({text('expected each name once, found one more than once in ')}, {twice})",
                ),
            ),
            (
                self.other_case(),
                self.said(
                    DeadClass.OTHER_CASE,
                    f"concat({text('expected names as in the schema, found in other upper and lower case ')}, "
                    f"array_join({self.names_in_other_case()}, ', '))",
                ),
            ),
        ]
        if unknown_fields is UnknownFields.REFUSE:
            checks += [
                (
                    self.unknown_if_any(),
                    self.said(
                        DeadClass.UNKNOWN_FIELD,
                        f"concat({text('expected fields of the schema only, found ')}, "
                        f"array_join({self.unknown_names()}, ', '))",
                    ),
                )
            ]
        repeated = f"filter({self.found_names}, k -> size(filter({self.found_names}, l -> l = k)) > 1)"
        checks += [
            (
                "true",
                self.said(
                    DeadClass.DUPLICATE_FIELD,
                    f"concat({text('expected each name once, found more than once ')}, "
                    f"array_join(array_distinct({repeated}), ', '))",
                ),
            )
        ]
        return first_of((condition, found) for condition, found in checks if condition)

    def reason_of_unread(self) -> str:
        """Return why Spark could not read the text as an object of the schema."""
        anything = Envelope.sealed()
        is_one = anything.holds_one(anything.parse(self.value, "string"))
        first = f"left(trim(LEADING ' \\t\\n\\r' FROM {self.value}), 1)"
        kind = f"case {first} when '[' then 'an array' when '\"' then 'a text' when 'n' then 'null' "
        kind += "when 't' then 'true' when 'f' then 'false' when '{' then 'an object' else 'a number' end"
        present = (
            f"map_keys(map_filter(from_json({self.value}, 'map<string,string>', map('allowSingleQuotes', 'false')), "
            "(k, v) -> v is not null))"
        )
        fitting = f"coalesce(json_object_keys(to_json({self.read})), cast(array() as array<string>))"
        misfits = f"array_join(array_intersect(array_except({present}, {fitting}), {self.names}), ', ')"
        said = text("expected values that fit the schema, found others in ")
        return first_of(
            (
                (f"not {is_utf8(self.body)}", self.said(DeadClass.INVALID_UTF8, text(UTF8))),
                (f"not {is_one}", self.said(DeadClass.NOT_JSON, text(ONE_OBJECT))),
                (
                    f"{first} <> '{{'",
                    self.said(DeadClass.NOT_AN_OBJECT, f"concat('expected an object, found ', {kind})"),
                ),
                (
                    f"{parsed_name(self.column)} is null",
                    self.said(
                        DeadClass.OUT_OF_RANGE,
                        text("expected decimals with exponents of up to three digits, found one with more"),
                    ),
                ),
                (
                    "true",
                    self.said(
                        DeadClass.DOES_NOT_FIT,
                        f"concat({said}, coalesce(nullif({misfits}, ''), 'a field of a field'))",
                    ),
                ),
            )
        )

    def said(self, dead_class: DeadClass, said: str) -> str:
        """Return a reason."""
        return reason(self.column, dead_class, said)
