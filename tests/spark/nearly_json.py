"""Texts that are JSON by a schema, or nearly so."""

import json
import random

from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct

SCHEMA = (
    "id bigint, small smallint, n int, name string, amount double, ratio float, price decimal(12,3), paid boolean, "
    "at timestamp, local timestamp_ntz, day date, tags array<string>, days array<date>, sizes array<double>, "
    "prices map<string,decimal(5,1)>, address struct<city: string, since: date, at: struct<x: double, t: timestamp>>, "
    "rows array<struct<id: int, at: timestamp>>"
)
NUMBERS = [
    *("0", "-0", "1", "-1", "1.0", "1.5", "0.1", "1e2", "1E-2", "1e308", "1e309", "-1e400", "3.5e38", "1e-400"),
    *("32767", "32768", "-32769", "2147483648", "9223372036854775807", "9223372036854775808", "1e1000", "1e9999"),
    *("123456789.12345", "99999.95", "0.30000000000000004", "12345678901234567890123", "1e-9999"),
    *("01", "+1", ".5", "5.", "0x1F", "NaN", "Infinity", "-Infinity", "1e", "--1", "\u0661"),
]
TEXT = [
    *(
        "",
        "x",
        "é😀",
        "\0",
        "\\",
        '"',
        "NaN",
        "1",
        "1.5",
        "1,000.5",
        "1e3",
        "1e9999",
        "1e9,9999",
        "-",
        "+5",
        " 5",
        "null",
    ),
    *("2026-01-31", "2026-02-29", "2024-02-29", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "2026-1-1"),
    *("2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T12:00:00.123456789+05:30", "2026-01-31T24:00:00Z"),
    *("2026-01-31T12:00:60Z", "12:00", "2026", "2026-01-31T12:00:00z", "2026-01-31T12:00:00+19:00", "9999-12-31T00:00"),
    *(
        "2026-01-31T12:00.5Z",
        "2026-01-31T12:00:00 UTC",
        "0001-01-01T00:00:00",
        "2026-01-31T12:00:00Z\n",
        "now",
        "\u0662\u0660\u0662\u0666",
    ),
]
ESCAPES = [
    "\\u0041",
    "\\ud800",
    "\\udc00",
    "\\ud83d\\ude00",
    "\\\\ud800",
    "\\\\\\ud800",
    "\\n",
    "\\x",
    "\\u12",
    "\\/",
    "\\u0065",
]
BYTES = [
    b"",
    b" ",
    b"\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\0",
    b"x",
    b"{}",
    b"}",
    b"]",
    b",",
    b"'",
]
BEHIND = [
    b"",
    b"",
    b"",
    b" ",
    b" x",
    b"}",
    b"}}",
    b",",
    b', "x": 2',
    b', "x": {}',
    b"}, {",
    b"{}",
    b"//",
    b"\0",
    b"\xff",
]


class Writer:
    """Writes objects that fit the schema, but for a mistake here and there."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.mistakes = 0.0

    def now_and_then(self) -> bool:
        return self.random.random() < self.mistakes

    def record(self, schema: Struct) -> bytes:
        self.mistakes = self.random.choice((0.0, 0.02, 0.1, 0.4))
        raw = self.value_of(schema, 0).encode()
        raw = self.random.choice(BYTES[:4] if self.now_and_then() else BYTES[:3]) + raw
        if self.now_and_then():
            raw += self.random.choice(BEHIND)
        if self.now_and_then():
            at = self.random.randrange(len(raw) + 1)
            raw = raw[:at] + self.random.choice(BYTES) + raw[at + self.random.randrange(3) :]
        return raw

    def value(self, kind: RecordType | None, depth: int) -> str:
        if self.now_and_then():
            kind = self.random.choice((None, Scalar("string"), Scalar("double"), ArrayOf(Scalar("int")), kind))
        if kind is None:
            some = (Scalar("double"), ArrayOf(Scalar("date")), MapOf(Scalar("string")))
            odd = ("true", "tru", "[]", "{}", "'x'", "[" * 1100 + "]" * 1100)
            return self.random.choice(odd) if depth > 3 else self.value(self.random.choice(some), depth + 1)
        return "null" if self.random.random() < 0.05 else self.value_of(kind, depth)

    def value_of(self, kind: RecordType, depth: int) -> str:
        match kind:
            case Struct(fields):
                names = [(field.name, field.type) for field in fields if self.random.random() < 0.7]
                if self.now_and_then():
                    names.append(self.random.choice([(each.name, each.type) for each in fields]))
                self.random.shuffle(names)
                return self.object([(self.name(name), self.value(inner, depth + 1)) for name, inner in names])
            case ArrayOf(inner):
                return "[" + ",".join(self.value(inner, depth + 1) for _ in range(self.random.randrange(3))) + "]"
            case MapOf(inner):
                keys = [self.random.choice("abc") if self.now_and_then() else f"k{i}" for i in range(3)]
                return self.object([(self.text(key), self.value(inner, depth + 1)) for key in keys])
            case Scalar(name):
                return self.scalar(name)

    def object(self, pairs: list[tuple[str, str]]) -> str:
        comma = ",," if self.now_and_then() and self.now_and_then() else ", "
        return "{" + comma.join(f"{name}: {value}" for name, value in pairs) + "}"

    def name(self, name: str) -> str:
        if self.now_and_then():
            name = self.random.choice((name.upper(), name.title(), name + " ", "x"))
        return self.text(name)

    def text(self, text: str) -> str:
        written = json.dumps(text, ensure_ascii=self.random.random() < 0.5)
        if self.now_and_then():
            written = written[:-1] + self.random.choice(ESCAPES) + '"'
        if self.now_and_then() and self.now_and_then():
            written = written.replace('"', "'")
        return written

    def scalar(self, name: str) -> str:
        if self.now_and_then():
            return self.random.choice(NUMBERS) if self.random.random() < 0.5 else self.text(self.random.choice(TEXT))
        year, zone = self.random.randrange(2, 9999), self.random.choice(("", "Z", "+02:00", "-11:30"))
        seconds = self.random.choice(("", ":59", ":00.5", ":01.123456"))
        time = f"{year:04d}-12-24{self.random.choice('T ')}23:15{seconds}"
        some = {
            "string": lambda: self.text(self.random.choice(TEXT)),
            "boolean": lambda: self.random.choice(("true", "false")),
            "double": lambda: self.random.choice((repr(self.random.uniform(-1e6, 1e6)), "0", "-0.0", "1e10")),
            "float": lambda: self.random.choice((repr(self.random.uniform(-1e6, 1e6)), "7", "1e10")),
            "date": lambda: f'"{year:04d}-0{self.random.randrange(1, 10)}-1{self.random.randrange(10)}"',
            "timestamp": lambda: f'"{time}{zone}"',
            "timestamp_ntz": lambda: f'"{time}"',
        }
        decimals = ("1.5", "0", "-12.25", '"7.1"', "1e2", "1234.5")
        whole = str(self.random.randrange(-100, 100))
        return some.get(name, lambda: self.random.choice(decimals) if "decimal" in name else whole)()
