"""A web shop's order events, as they look in a topic that has been in production for a while.

Every market has a partition, and the markets differ in size, so one partition is hot and one nearly quiet. Orders move
through their life as events of one key. Not everything is tidy: guests' orders have no key, erased customers leave
tombstones, an old producer writes no headers, and a gateway that tries again adds its own trace id to the one there.
"""

import itertools
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from json import JSONEncoder
from typing import Final, TypedDict

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where it is defined: `admin` has it too, but does not export it to mypy

from repeatable_random import repeatable_random

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class OrderEvent:
    """One record of the topic. `key` None: a guest's order; `value` None: a tombstone; header names may repeat."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Market:
    country: str
    currency: str
    share: int


_MARKETS: Final = (
    _Market("DE", "EUR", 48),
    _Market("US", "USD", 24),
    _Market("GB", "GBP", 13),
    _Market("FR", "EUR", 8),
    _Market("JP", "JPY", 5),
    _Market("CH", "CHF", 2),
)
PARTITIONS: Final = len(_MARKETS)

_PRODUCTS: Final = tuple((f"SKU-{number:04d}", 190 + number * number * 37 % 24_800) for number in range(400))
# One place per percent, so that a single draw finds the market.
_PARTITION_OF: Final = tuple(partition for partition, market in enumerate(_MARKETS) for _ in range(market.share))
_LIFE: Final = ("CREATED", "PAID", "SHIPPED", "DELIVERED")
_OPEN_ORDERS: Final = 500
_FIRST_TIMESTAMP_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_MEAN_GAP_MS: Final = 20

_NEW_ORDER: Final = 0.35
_CANCELLED: Final = 0.04
_ERASED: Final = 0.03
_GUEST: Final = 0.02
_NO_HEADERS: Final = 0.03
_TRIED_AGAIN: Final = 0.02

_to_json = JSONEncoder(separators=(",", ":")).encode


class _Item(TypedDict):
    sku: str
    quantity: int
    unit_price_minor: int


@dataclass(slots=True)
class _Order:
    """An order under way. `document` is the JSON of what never changes, written once for all its events."""

    partition: int
    key: bytes | None
    document: str
    status: str = _LIFE[0]
    erased: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ("DELIVERED", "CANCELLED")


def order_events(count: int, seed: int, timestamps_ms: Iterable[int] | None = None) -> Iterator[OrderEvent]:
    """`count` events; the same arguments give the same events, and order ids do not repeat between seeds.

    Without `timestamps_ms` (milliseconds since 1970, one per event) they start at 2026-01-01 and are about 20 ms apart.
    """
    rng = repeatable_random(seed)
    ticks = iter(timestamps_ms) if timestamps_ms is not None else _simulated_clock(rng)
    order_ids = (f"{seed:x}-{number:08d}" for number in itertools.count(1))
    open_orders: list[_Order] = []
    for timestamp_ms in itertools.islice(ticks, count):
        if not open_orders or (rng.random() < _NEW_ORDER and len(open_orders) < _OPEN_ORDERS):
            order = _new_order(rng, next(order_ids), timestamp_ms)
            open_orders.append(order)
        else:
            place = int(rng.random() * len(open_orders))
            order = open_orders[place]
            _advance(rng, order)
            if order.erased or (order.ended and not (order.key and rng.random() < _ERASED)):
                open_orders[place] = open_orders[-1]
                open_orders.pop()
        yield _event(rng, order, timestamp_ms)


def _simulated_clock(rng: random.Random) -> Iterator[int]:
    now = float(_FIRST_TIMESTAMP_MS)
    while True:
        yield int(now)
        now += rng.random() * 2 * _MEAN_GAP_MS


def _new_order(rng: random.Random, order_id: str, timestamp_ms: int) -> _Order:
    partition = _PARTITION_OF[int(rng.random() * len(_PARTITION_OF))]
    market = _MARKETS[partition]
    guest = rng.random() < _GUEST
    items = [_item(rng) for _ in range(1 + int(rng.random() ** 2 * 5))]
    document = {
        "order_id": order_id,
        "country": market.country,
        "currency": market.currency,
        # Few customers order often, most once: the square of a uniform number leans to the small ones.
        "customer": None if guest else f"C-{int(rng.random() ** 2 * 100_000):06d}",
        "items": items,
        "total_minor": sum(item["quantity"] * item["unit_price_minor"] for item in items),
        "created_at": _iso(timestamp_ms),
    }
    return _Order(partition, None if guest else order_id.encode(), _to_json(document))


def _item(rng: random.Random) -> _Item:
    sku, price = _PRODUCTS[int(rng.random() * len(_PRODUCTS))]
    return {"sku": sku, "quantity": 1 + int(rng.random() ** 3 * 4), "unit_price_minor": price}


def _advance(rng: random.Random, order: _Order) -> None:
    """Move the order on. One that is through its life and still here waits for its customer to be erased."""
    if order.ended:
        order.erased = True
    elif rng.random() < _CANCELLED:
        order.status = "CANCELLED"
    else:
        order.status = _LIFE[_LIFE.index(order.status) + 1]


def _event(rng: random.Random, order: _Order, timestamp_ms: int) -> OrderEvent:
    value = None if order.erased else _value(order, timestamp_ms)
    return OrderEvent(order.partition, order.key, value, _headers(rng), timestamp_ms)


def _value(order: _Order, timestamp_ms: int) -> bytes:
    return f'{order.document[:-1]},"status":"{order.status}","updated_at":"{_iso(timestamp_ms)}"}}'.encode()


def _headers(rng: random.Random) -> Headers:
    chance = rng.random()
    if chance < _NO_HEADERS:
        return ()
    trace: Headers = (("trace-id", b"%032x" % rng.getrandbits(128)),)
    if chance > 1 - _TRIED_AGAIN:
        trace += (("trace-id", b"%032x" % rng.getrandbits(128)),)
    return (*trace, ("schema-version", b"3"), ("source", b"checkout"))


def _iso(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


_PRODUCER: Final = {
    "acks": "all",
    # Keeps the order over a retry, as an idempotent producer would, who needs half a second for its id first.
    "max.in.flight.requests.per.connection": 1,
    "linger.ms": 20,
    "compression.type": "lz4",
    "message.timeout.ms": 60_000,
    "delivery.report.only.error": True,
    "log_level": 0,  # failures are raised
}
_TOPIC_TIMEOUT_S: Final = 30.0


class DeliveryError(RuntimeError):
    """At least one event did not reach the topic."""


class TopicError(RuntimeError):
    """The topic is not as it has to be."""


def produce(bootstrap_servers: str, topic: str, events: Iterable[OrderEvent]) -> int:
    """Send the events, each to its partition, and return how many; every one of them was acknowledged.

    Raises DeliveryError for the first one that was not. The events may be endless: they are sent as they come. Where
    the connection breaks before an acknowledgement is read, events are sent again, and may be in the topic twice.
    """
    failures: list[str] = []

    def remember(error: KafkaError | None, message: Message) -> None:
        failures.append(f"{error} (partition {message.partition()}, key {message.key()!r})")

    count = 0
    with Producer({"bootstrap.servers": bootstrap_servers, "on_delivery": remember, **_PRODUCER}) as producer:
        for event in events:
            _send(producer, topic, event)
            producer.poll(0)
            count += 1
            if failures:
                break
        producer.flush()  # returns when nothing is under way any more: message.timeout.ms limits every event
    if failures:
        raise DeliveryError(f"expected all of {count} events in {topic}, {len(failures)} failed, first: {failures[0]}")
    return count


def _send(producer: Producer, topic: str, event: OrderEvent) -> None:
    while True:
        try:
            producer.produce(
                topic,
                value=event.value,
                key=event.key,
                partition=event.partition,
                timestamp=event.timestamp_ms,
                headers=list(event.headers),
            )
        except BufferError:  # the queue is full: wait until some were sent
            producer.poll(0.1)
        else:
            return


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Make sure that there is such a topic; on return every partition has a leader.

    A topic that is there already with another number of partitions is a TopicError.
    """
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}) as admin:
        created = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic]
        try:
            created.result(_TOPIC_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        found = _led_partitions(admin, topic)
    if found != partitions:
        raise TopicError(
            f"expected topic {topic} with {partitions} partitions, found it with {found}: "
            "delete it, or choose another name"
        )


def _led_partitions(admin: AdminClient, topic: str) -> int:
    """Wait until the broker leads all of the topic, some milliseconds for a new one; return how many that are."""
    deadline = time.monotonic() + _TOPIC_TIMEOUT_S
    while True:
        answer = admin.describe_topics(TopicCollection([topic]))[topic]
        try:
            partitions = answer.result(_TOPIC_TIMEOUT_S).partitions
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        else:
            if all(partition.leader is not None for partition in partitions):
                return len(partitions)
        if time.monotonic() > deadline:
            raise TopicError(f"expected a leader for every partition of {topic} within {_TOPIC_TIMEOUT_S:.0f} s")
        time.sleep(0.02)
