"""Odd values of ``format: string``."""

from tests.values.odd_value import OddValue

from kafka_ingest.model.decoding import DeadClass, FieldDecoding, Format

TITLE = "Text (`format: string`)"

DECODING = FieldDecoding(Format.STRING)

NO_TEXT = DeadClass.INVALID_UTF8

ROWS = [
    OddValue("string", written, raw, "", becomes)
    for written, raw, becomes in (
        ("no bytes", b"", ""),
        (" text ", b" text ", " text "),
        ("the bytes c3 a9", b"\xc3\xa9", "é"),
        ("the byte ff", b"\xff", NO_TEXT),
        ("the byte c3, cut off", b"\xc3", NO_TEXT),
        ("the bytes ed a0 80, half of a character", b"\xed\xa0\x80", NO_TEXT),
        ("the bytes c0 80, a NUL in too many bytes", b"\xc0\x80", NO_TEXT),
    )
]
