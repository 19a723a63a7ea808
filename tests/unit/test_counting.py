"""Numbers stand beside the right form of their nouns."""

import re
from pathlib import Path

import pytest

from kafka_ingest.foundation.counting import are, counted, were

PACKAGE = Path(__file__).resolve().parents[2] / "plugins" / "kafka_ingest"
NOT_COUNTED = re.compile(r"\{[^{}]*:,\} (?:batche|record|partition|offset|row|file|gap|attempt|topic|dead letter)s\b")


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "batch", "1 batch"),
        (0, "batch", "0 batches"),
        (1_200, "dead letter", "1,200 dead letters"),
        (2, "entry", "2 entries"),
        (1, "entry", "1 entry"),
        (2, "key", "2 keys"),
        (None, "record", "- records"),
    ],
)
def test_a_number_has_its_noun_in_the_right_form(number: int | None, noun: str, said: str) -> None:
    assert counted(number, noun) == said


def test_verbs_follow_the_number() -> None:
    assert [(are(number), were(number)) for number in (0, 1, 2)] == [("are", "were"), ("is", "was"), ("are", "were")]


def test_no_message_has_a_plural_beside_a_number_that_may_be_one() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {text}"
        for path in PACKAGE.rglob("*.py")
        for text in NOT_COUNTED.findall(path.read_text())
        if not re.match(r"\{(?:[A-Z_]+|most|limit)", text)
    }
    assert found == set()
