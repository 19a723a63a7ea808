"""The records of a topic, which are the same in every run: what each is made of, and their values.

Some thousand templates are made, and each record is one of them with a number of its own.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from order_values import Order, length_of_note, order_of
from topic_data import TopicData

AT_ONCE = 5_000
FIRST_ORDER = 1_000_000_000
ORDERS = 9_000_000_000
"""Numbers of ten digits, so that every value has the same length."""

CUSTOMERS = 5_000
TEMPLATES = 20_000
RANDOM_CHARACTERS = 8_000_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
PHRASES = (
    "leave at the door", "call before delivery", "gift wrapping", "no substitutes", "second floor on the left",
    "deliver after six", "paid in advance", "express", "return of a former order", "ring twice",
)  # fmt: skip
NOTES = 200
"""With this number zstd finds most notes again, snappy only some: of a record of 200 bytes they leave 18 and 69."""
CODE_CHARACTERS = 60

Make: TypeAlias = Callable[[int, Any], bytes | None]
"""What makes a value of an order's number and the rest of a template."""


class Template(NamedTuple):
    """A record but for its number."""

    key: bytes
    rest: bytes | Order


def templates(data: TopicData) -> list[Template]:
    """Return records without their numbers; the same for the same data.

    Those of four fields are all of one length.
    """
    chance = random.Random(data.seed)  # noqa: S311  (repeatable, not secret)
    noise = "".join(chance.choices(ALPHABET, k=RANDOM_CHARACTERS)) if data.incompressible else ""
    frame = len(value_of(FIRST_ORDER, rest_of("customer-1000", 10_000, "")))
    length = length_of_note(data.record_bytes) if data.form else data.record_bytes - frame
    notes = [note_of(length, chance) for _ in range(NOTES)]
    found = []
    for _ in range(TEMPLATES):
        customer = f"customer-{chance.randrange(1_000, 1_000 + CUSTOMERS)}"
        note = noise_of(noise, length, chance) if noise else chance.choice(notes)
        cents = chance.randrange(10_000, 100_000)
        rest = order_of(customer, cents, note, chance) if data.form else rest_of(customer, cents, note)
        found.append(Template(customer.encode(), rest))
    return found


def rest_of(customer: str, cents: int, note: str) -> bytes:
    """Return what follows an order's number in a value."""
    return f', "customer": "{customer}", "amount": {cents // 100}.{cents % 100:02}, "note": "{note}"}}'.encode()


def value_of(order: int, rest: bytes) -> bytes:
    """Return the value of a record, JSON."""
    return b'{"order_id": %d%b' % (order, rest)


def noise_of(noise: str, length: int, chance: random.Random) -> str:
    """Return characters in which nothing repeats; JSON leaves six bits of eight."""
    start = chance.randrange(len(noise) - length)
    return noise[start : start + length]


def note_of(length: int, chance: random.Random) -> str:
    """Return a note of exactly this length: a code in which nothing repeats, then phrases."""
    code = "".join(chance.choices(ALPHABET, k=CODE_CHARACTERS))
    return f"{code} {'; '.join(chance.choices(PHRASES, k=length))}"[:length]


def records(
    data: TopicData, partition: int, count: int, made: Sequence[Template], make: Make
) -> Iterator[list[dict[str, object]]]:
    """Yield a partition's records, some thousand at a time; IN_A_TRANSACTION is a multiple of that."""
    for first, chosen in numbered(data, partition, count, made):
        yield [{"key": key, "value": make(number, rest)} for number, (key, rest) in enumerate(chosen, first)]


def numbered(data: TopicData, partition: int, count: int, made: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yield what each of a partition's records is made of, some thousand at a time, and the first one's number."""
    chance = random.Random(data.seed * 1_000 + partition)  # noqa: S311  (repeatable, not secret)
    order = FIRST_ORDER + partition * min(100_000_000, ORDERS // data.partitions)
    for start in range(0, count, AT_ONCE):
        yield order + start, chance.choices(made, k=min(AT_ONCE, count - start))
