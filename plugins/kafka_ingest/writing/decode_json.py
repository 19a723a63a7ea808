"""JSON by Spark's own expressions: an object that fits a schema, or any one value, as text, where that is certain.

What is certain has exactly the value that :mod:`.json_values` gives it. All else is called dead here, and decided on
there; so these expressions need not know what is dead, nor why.

Spark's ``from_json`` reads a value at the beginning of a text, and does not look at what is after it. So it is given
the text inside an object of ours, ``{"n": {"k": TEXT, "l": null}}``, whose names are made for each job and known to no
producer. Only where TEXT is exactly one value does that object have exactly the names k and l.
"""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from kafka_ingest.model.decoding import KEPT_UNKNOWN, UnknownFields
from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct, kinds_in, quoted, read_schema
from kafka_ingest.writing.decode_limits import (
    convert_dates,
    has_decimals,
    has_key_twice,
    has_odd_decimal,
    leaf_is_wrong,
    no_leaf,
    textual,
    walked,
)
from kafka_ingest.writing.decoded_part import (
    FITS,
    SURE,
    VALUE,
    DecodedPart,
    PlainSchema,
    converted_name,
    is_utf8,
    once,
    parsed_name,
    plain_name,
    read_name,
    text,
    text_of,
    texts,
)
from kafka_ingest.writing.json_values import MANY_BYTES, MOST_ELEMENTS

OPTIONS = {
    "mode": "PERMISSIVE",
    # What is no JSON.
    "allowComments": "false",
    "allowUnquotedFieldNames": "false",
    "allowSingleQuotes": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
    "multiLine": "false",
    # What decides about values. Dates and times are read as texts (decode_limits.py), so no format of theirs matters.
    "primitivesAsString": "false",
    "prefersDecimal": "false",
    "dropFieldIfAllNull": "false",
    "enableDateTimeParsingFallback": "false",
    "locale": "en-US",
    "timeZone": "UTC",
    "maxNestingDepth": "1000",
}
"""Each option of Spark's JSON reader that is lenient, or that a setting of the session could change (JSONOptions)."""

HALF_A_PAIR = r"\\u[dD][89a-fA-F]"
WHOLE_PAIR = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]"
"""Of a character that JSON writes as two escapes; and an escaped backslash, after which a ``u`` means nothing."""


NO_TEXT = r"(?:[{\[]|-0|-?[0-9]++[.eE])"
"""How a value begins in the source that is no text, and that Spark writes as a text in its own way."""

NO_TEXT_INSIDE = rf"[:,\[]\s*+{NO_TEXT}"

PLAIN_NAME = re.compile(r"[^\\\"/]*")
"""Of a name that can be escaped by a code point only."""


def options(**more: str) -> str:
    return f"map({', '.join(f'{text(name)}, {text(value)}' for name, value in (OPTIONS | more).items())})"


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
        return (
            f"from_json(concat({begin}, {value}, {end}), {schema}, {options(columnNameOfCorruptRecord=self.corrupt)})"
        )

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


def has_few_elements(body: str) -> str:
    """Return whether a text has not so many elements that reading it takes all memory; commas in strings count, too."""
    value = text_of(body)
    commas = f"octet_length({value}) - octet_length(replace({value}, ',', ''))"
    return f"(length({quoted(body)}) < {MANY_BYTES} or {commas} < {MOST_ELEMENTS})"


def json_text(column: str, body: str) -> DecodedPart:
    """Return the text of any JSON value, as it is; its bytes are in the column ``body``."""
    envelope, parsed = Envelope.sealed(), parsed_name(column)
    wrong = f"not {envelope.holds_one(parsed)}"
    return DecodedPart(
        column,
        text_of(body),
        parsed=once(
            f"if({is_utf8(body)} and {has_few_elements(body)}, {envelope.parse(text_of(body), 'string')}, null)"
        ),
        is_dead=f"{quoted(body)} is not null and {wrong}",
    )


def can_be_plain(kind: RecordType) -> bool:
    """Whether Arrow reads all values of a type as Spark does."""
    return not any(isinstance(each, MapOf) for each in kinds_in(kind))


def json_by_schema(
    column: str, body: str, ddl: str, unknown_fields: UnknownFields, *, plainly: bool = False
) -> DecodedPart:
    """Return an object that certainly fits a schema; its bytes are in the column ``body``.

    ``plainly``: what fits so is read before, and nothing that follows is asked of it but for what its values can hold.
    """
    schema = read_schema(ddl)
    plain = (
        PlainSchema(body, schema, unknown_fields is UnknownFields.IGNORE) if plainly and can_be_plain(schema) else None
    )
    envelope, value, parsed, read = Envelope.sealed(), text_of(body), parsed_name(column), read_name(column)
    parsed_as = textual(schema)
    dated = parsed_as != schema
    converted = converted_name(column) if dated else read
    readable = f"{is_utf8(body)} and {has_few_elements(body)}"
    if has_decimals(schema):
        readable += f" and not {has_odd_decimal(value)}"
    checks = Checks(column, body, schema, envelope, read, converted, is_plain=plain is not None)
    wrong = [checks.is_unread(), checks.half_characters()]
    later = [
        walked(read, schema, converted, leaf_is_wrong),
        walked(read, schema, None, no_leaf, of_map=has_key_twice),
        checks.rewritten(),
        checks.other_case(),
    ]
    if unknown_fields is UnknownFields.REFUSE:
        later.append(checks.unknown_if_any())
    if unknown_fields is not UnknownFields.IGNORE:
        later.append(checks.duplicate_fields())
    if keeps := unknown_fields is UnknownFields.KEEP:
        later.append(checks.rewritten_unknown())
    wrong += [each for each in later if each]
    return DecodedPart(
        column,
        checks.with_unknown_fields() if keeps else converted,
        plain=plain,
        parsed=once(f"if({checks.unless_plain(readable)}, {envelope.parse(value, parsed_as.ddl)}, null)"),
        read=checks.value_of(envelope.value(parsed)),
        converted=once(convert_dates(read, schema)) if dated else None,
        is_dead=f"{quoted(body)} is not null and ({' or '.join(wrong)})",
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
        return text_of(self.body)

    @property
    def found_names(self) -> str:
        """The names that the object has, in their order, also twice."""
        return f"if({has_few_elements(self.body)}, json_object_keys({self.value}), null)"

    @property
    def names(self) -> str:
        return texts(self.schema.names)

    def unless_plain(self, condition: str) -> str:
        """Return a condition of what has not been read plainly."""
        return f"(not {plain_name(self.column)}.{FITS} and ({condition}))" if self.is_plain else condition

    def value_of(self, read: str) -> str:
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

    def unknown_fields(self) -> str:
        return f"size(array_except({self.found_names}, {self.names})) > 0"

    def unknown_if_any(self) -> str:
        """Whether there is a name that the schema does not have, where that is not known before."""
        return self.unless_plain(self.unknown_fields())

    def rewritten(self) -> str:
        """Whether a text may be what Spark makes of what is none in the source; an empty text where there are none.

        A text with a name is one in the source unless the source has that name before what is none. Other texts are in
        lists and maps: there the source may have none of it anywhere.
        """
        of_names, of_others = (
            walked(self.read, self.schema, None, leaf) for leaf in (field_is_rewritten, inner_is_rewritten)
        )
        names = list(dict.fromkeys(names_of_texts(self.schema)))
        escape = text("\\u" if all(map(PLAIN_NAME.fullmatch, names)) else "\\")
        any_name = "|".join(re.escape(name) for name in names)
        named = text(f'"(?:{any_name})"\\s*+:\\s*+{NO_TEXT}')
        found = [
            f"if({condition}, {looked_at}, false)"
            for condition, looked_at in (
                (of_names, f"contains({self.value}, {escape}) or {self.value} rlike {named}"),
                (of_others, self.has_other_values()),
            )
            if condition
        ]
        return self.unless_plain(" or ".join(found)) if found else ""

    def has_other_values(self) -> str:
        """Whether the source may have what is no text, and is rewritten as one, below its first level."""
        return f"{self.value} rlike {text(NO_TEXT_INSIDE)}"

    def rewritten_unknown(self) -> str:
        """Whether a field that the schema does not have may be kept as another text than its own."""
        some = f"exists(map_values({self.unknown_values()}), v -> coalesce({is_rewritten('v')}, false))"
        return f"if({self.unknown_if_any()}, {self.has_other_values()} and {some}, false)"

    def unknown_values(self) -> str:
        """Return the fields that the schema does not have, as texts."""
        every = f"from_json({self.value}, 'map<string,string>', {options()})"
        return f"map_filter({every}, (k, v) -> not array_contains({self.names}, k))"

    def with_unknown_fields(self) -> str:
        """Return the object with what its schema does not have: texts as they are, all else as JSON."""
        own = ", ".join(f"{text(name)}, {self.converted}.{quoted(name)}" for name in self.schema.names)
        kept = f"if({self.unknown_if_any()}, {self.unknown_values()}, null)"
        return f"if({self.converted} is null, null, named_struct({own}, {text(KEPT_UNKNOWN)}, {kept}))"

    def duplicate_fields(self) -> str:
        return self.unless_plain(f"size(array_distinct({self.found_names})) < size({self.found_names})")


def names_of_texts(kind: RecordType) -> Iterator[str]:
    match kind:
        case Struct(fields):
            for field in fields:
                yield from [field.name] if field.type == Scalar("string") else names_of_texts(field.type)
        case ArrayOf(inner) | MapOf(inner):
            yield from names_of_texts(inner)


def is_rewritten(found: str) -> str:
    """Return whether a text may be what Spark makes of an object, a list, a fraction or -0; null where it is.

    Each text of each record is checked, most only at its first byte: a regular expression would take a tenth of all
    that decoding takes.
    """
    number = f"{found} < ':' and (contains({found}, '.') or {found} = '0' or startswith({found}, '\"'))"
    return f"({number} or startswith({found}, '[') or startswith({found}, '{{'))"


def field_is_rewritten(found: str, kind: Scalar, _: str | None) -> str:
    """Return the same of a text that is a field: its expression ends with the field's name."""
    return is_rewritten(found) if kind.name == "string" and found.endswith("`") else ""


def inner_is_rewritten(found: str, kind: Scalar, _: str | None) -> str:
    """Return the same of a text in a list or map."""
    return is_rewritten(found) if kind.name == "string" and not found.endswith("`") else ""
