"""JSON's odd values."""

from tests.values.odd_value import OddValue

from kafka_ingest.model.decoding import DeadClass, FieldDecoding, Format

TITLE = "JSON"

NO_FIT, BEYOND, NO_JSON = DeadClass.DOES_NOT_FIT, DeadClass.OUT_OF_RANGE, DeadClass.NOT_JSON

BIGINT = "9223372036854775807"
DIGITS = "12345678901234567890123456789012345678"

VALUES: dict[str, dict[str, str | DeadClass]] = {
    "string": {
        '"text"': "text",
        '""': "",
        "null": "null",
        "1.10": "1.10",
        "-0": "-0",
        "1e999": "1e999",
        "0.1234567890123456789": "0.1234567890123456789",
        "true": "true",
        '{"k": 1.10, "p" : [ ]}': '{"k": 1.10, "p" : [ ]}',
        '"{\\"k\\": 1.10}"': '{"k": 1.10}',
        r'"\u00e9\ud83d\ude00"': "é😀",
        r'"\ud800"': NO_FIT,
    },
    "boolean": {"true": "true", "1": NO_FIT, '"true"': NO_FIT},
    "smallint": {"32767": "32767", "32768": NO_FIT},
    "int": {"1.0": "1", "100E-2": "1", "2147483647.0": "2147483647", "2147483648": NO_FIT, "1.5": NO_FIT},
    "bigint": {
        "1.0": "1",
        "1e2": "100",
        "-0": "0",
        "0e999999999999999999999": "0",
        "1e-999999999999999999999": NO_FIT,
        BIGINT: BIGINT,
        f"{BIGINT}.0": BIGINT,
        "9223372036854775808": NO_FIT,
        "1e400": NO_FIT,
        "1e-400": NO_FIT,
        '"1"': NO_FIT,
        "true": NO_FIT,
        '""': NO_FIT,
    },
    "float": {"16777217": "1.6777216E7", "3.5e38": BEYOND, "1e-400": "0.0", '"NaN"': NO_FIT},
    "double": {
        "1": "1.0",
        "0.1": "0.1",
        "-0": "0.0",
        "-0.0": "-0.0",
        "9007199254740993": "9.007199254740992E15",
        "1e309": BEYOND,
        "NaN": NO_JSON,
        "Infinity": NO_JSON,
        '"Infinity"': NO_FIT,
        '"1.5"': NO_FIT,
    },
    "decimal(10,2)": {
        "12.3": "12.30",
        '"12.3"': "12.30",
        '"+12."': "12.00",
        '"1e2"': "100.00",
        "1.005": "1.01",
        "-1.005": "-1.01",
        "99999999.994": "99999999.99",
        "99999999.995": NO_FIT,
        '"5,5"': NO_FIT,
        '"1,234"': NO_FIT,
        '"1,000.5"': NO_FIT,
        r'"1\u002c5"': NO_FIT,
        '" 5"': NO_FIT,
        '"\N{ARABIC-INDIC DIGIT FIVE}"': NO_FIT,
        '"NaN"': NO_FIT,
        '""': NO_FIT,
        "1e1000000000": NO_FIT,
        '"1e1000000000"': NO_FIT,
        "1e999999999999999999999": NO_FIT,
        "1e-999": "0.00",
        "1e-1000000000": "0.00",
        '"1e-999999999999999999999"': "0.00",
        "0e1000": "0.00",
        "0e999999999999999999999": "0.00",
        "1e000000000000000000002": "100.00",
        '"1e"': NO_FIT,
        '"0E"': NO_FIT,
        '"1E+"': NO_FIT,
    },
    "decimal(38,0)": {DIGITS: DIGITS, f"{DIGITS}9": NO_FIT},
    "array<decimal(10,2)>": {'[1, "2.5", null]': "[1.00, 2.50, null]", '["5,5"]': NO_FIT},
    "map<string,decimal(10,2)>": {'{"a": "5,5"}': NO_FIT, '{"a": 1, "a": 2}': DeadClass.DUPLICATE_FIELD},
    "struct<d: decimal(10,2)>": {'{"d": "2.5"}': "{2.50}", '{"d": "5,5"}': NO_FIT, '{"D": 1}': "{null}", "[]": NO_FIT},
    "array<string>": {'[1.10, "x", {"a" : 1}]': '[1.10, x, {"a" : 1}]', '"x"': NO_FIT},
    "map<string,string>": {'{"a": 1.10, "b": [ ]}': "{a -> 1.10, b -> [ ]}"},
    "date": {
        '"0001-01-01"': "0001-01-01",
        '"9999-12-31"': "9999-12-31",
        '"2024-02-30"': BEYOND,
        '"0000-01-01"': BEYOND,
        '"10000-01-01"': BEYOND,
        '"20240131"': NO_FIT,
        '"2024-1-31"': NO_FIT,
        '"2024-01-31T00:00:00Z"': NO_FIT,
        "19753": NO_FIT,
    },
    "timestamp": {
        '"2024-01-31T12:00:00.000+0000"': "2024-01-31 12:00:00",
        '"2024-01-31T12:00:00+02:00"': "2024-01-31 10:00:00",
        '"2024-01-31T12:00:00+02"': "2024-01-31 10:00:00",
        '"2024-01-31 12:00:00-05:30"': "2024-01-31 17:30:00",
        '"2024-01-31t12:00:00z"': "2024-01-31 12:00:00",
        '"2024-01-31T12:00"': "2024-01-31 12:00:00",
        '"2024-01-31T12:00:00,5Z"': "2024-01-31 12:00:00.5",
        '"2024-01-31T12:00:00.123456789Z"': "2024-01-31 12:00:00.123456",
        '"0001-01-01T00:00:00Z"': "0001-01-01 00:00:00",
        '"9999-12-31T23:59:59.999999999Z"': "9999-12-31 23:59:59.999999",
        '"0001-01-01T00:00:00+00:01"': BEYOND,
        '"9999-12-31T23:59:59-00:01"': BEYOND,
        '"2024-01-31T24:00:00Z"': BEYOND,
        '"2024-01-31T12:00:60Z"': BEYOND,
        '"2024-01-31T12:00:00+18:01"': BEYOND,
        '"20240131T120000Z"': NO_FIT,
        '"2024-01-31T12:00:00 UTC"': NO_FIT,
        '"2024-01-31"': NO_FIT,
        "1706702400": NO_FIT,
    },
    "timestamp_ntz": {
        '"9999-12-31T23:59:59.999999"': "9999-12-31 23:59:59.999999",
        '"2024-03-31T02:30:00"': "2024-03-31 02:30:00",
        '"2024-01-31T12:00:00Z"': NO_FIT,
    },
}
"""By type, what a record may hold, and what becomes of it."""

FIELDS = {kind: f"f{number}" for number, kind in enumerate(VALUES)}

DECODING = FieldDecoding(Format.JSON, ", ".join(f"{name} {kind}" for kind, name in FIELDS.items()))

RECORD, ID = "the whole record, with f int", FIELDS["int"]

RECORDS: dict[str, str | DeadClass] = {
    "{}": "null",
    ' {"f": 1}\n': "1",
    '{"f": 1, "f": 2}': "2",
    '{"f": 1, "x": {"y": 1e400}}': "1",
    '{"F": 1}': DeadClass.OTHER_CASE,
    "": NO_JSON,
    '{"f": 01}': NO_JSON,
    '{"f": 1,}': NO_JSON,
    '{"f": 1} x': NO_JSON,
    '{"f": 1}{"f": 2}': NO_JSON,
    "{'f': 1}": NO_JSON,
    '{"f": 1 /* one */}': NO_JSON,
    '{"f": NaN}': NO_JSON,
    '\ufeff{"f": 1}': NO_JSON,
    '{"f": 1}\0': NO_JSON,
    "[1]": DeadClass.NOT_AN_OBJECT,
    "null": DeadClass.NOT_AN_OBJECT,
}
"""What is odd about a record as a whole; its field is called f here."""

HOSTILE: dict[str, tuple[bytes, str | DeadClass]] = {
    "bytes that are no UTF-8": (b'{"f": "\xff"}', DeadClass.INVALID_UTF8),
    "998 levels": (b'{"x": ' + b"[" * 997 + b"]" * 997 + b"}", "null"),
    "999 levels": (b'{"x": ' + b"[" * 998 + b"]" * 998 + b"}", NO_JSON),
    "100,000 levels": (b"[" * 100_000, NO_JSON),
    "a number of 100,000 digits for f": (b'{"f": ' + b"1" * 100_000 + b"}", NO_FIT),
    "a number of 100,000 digits for another field": (b'{"x": ' + b"1" * 100_000 + b"}", "null"),
    "an array of 1,000,000 elements for another field": (b'{"x": [' + b"[]," * 999_999 + b"[]]}", "null"),
    "3,000,000 empty objects for an array<string>": (
        f'{{"{FIELDS["array<string>"]}": ['.encode() + b"{}," * 2_999_999 + b"{}]}",
        DeadClass.TOO_LARGE,
    ),
    "1,000,000 commas in a text for another field": (b'{"x": "' + b"," * 1_000_000 + b" " * 1_000_000 + b'"}', "null"),
}


def written_out(text: str) -> str:
    """Return a text with characters that nobody sees as their escapes."""
    return text.replace("\ufeff", "\\ufeff").replace("\0", "\\0")


ROWS = [
    *(
        OddValue(kind, written, f'{{"{FIELDS[kind]}": {written}}}'.encode(), FIELDS[kind], becomes)
        for kind, values in VALUES.items()
        for written, becomes in values.items()
    ),
    *(
        OddValue(
            RECORD,
            written_out(text),
            text.replace('"f"', f'"{ID}"').replace('"F"', f'"{ID.upper()}"').encode(),
            ID,
            becomes,
        )
        for text, becomes in RECORDS.items()
    ),
    *(
        OddValue(RECORD, what, raw.replace(b'"f"', f'"{ID}"'.encode()), ID, becomes)
        for what, (raw, becomes) in HOSTILE.items()
    ),
]
