"""Consumers' first answers at some offsets, and the large records of ranges: read by a process of limited memory.

A record batch of some kilobytes may hold a record of gigabytes. librdkafka decompresses it whole, and where it gets no
memory it ends its process: so that must not be a task's, and not that of Airflow's API server.

This file is also that process's program. It knows nothing of this package, which need not be on its path.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, TopicPartition

MEMORY_MIB: Final = 512
"""What the process may use. A batch of one uncompressed record of 200 MB is read with it."""

MEMORY_BYTES: Final = MEMORY_MIB * 1024 * 1024

STACK_KIB: Final = 512
"""Of each thread; librdkafka has one for each broker, and a thread's stack counts as memory in use."""

LIMITED: Final = f'ulimit -c 0 && ulimit -s {STACK_KIB} && ulimit -d {MEMORY_MIB * 1024} && exec "$@"'
"""Linux counts private memory that can be written (RLIMIT_DATA since 4.7); what cannot be had is refused at once.

What the process had in memory, passwords and all, is not kept in a file where it ends.
"""

LITTLE: Final = {
    "auto.offset.reset": "error",
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1,
    # A record batch holds more than one message, so the queue is always full: librdkafka would wait a second then, and
    # got two partitions a second where batches are large; without waiting, a hundred.
    "fetch.queue.backoff.ms": 0,
    "fetch.wait.max.ms": 50,
    # librdkafka decompresses zstd up to this size only, and calls the batch damaged beyond it. Memory is the limit.
    "receive.message.max.bytes": 2**31 - 1,
}
"""Settings of a consumer that wants one record of each partition: a broker sends at least one whole batch (KIP-74)."""

MUCH: Final = {"queued.min.messages": 10_000, "queued.max.messages.kbytes": 16_384, "fetch.message.max.bytes": 2**20}
"""What is different where ranges are read."""

NO_MEMORY: Final = 52
"""The exit code where Python gets no memory. Where librdkafka gets none, it ends by a signal."""

ENDS_WITHOUT_MEMORY: Final = frozenset({NO_MEMORY, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS})

MOST_ANSWERS: Final = 100_000
"""Of one process: another one can ask for more."""

Place = tuple[str, int]
"""Topic, partition."""

Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """A record's place and time, or an error: its code, name and text in librdkafka's words.

    ``timestamp_ms`` is None where the record has none; ``by_broker``: the broker set it (LogAppendTime, KIP-32).
    ``size``: the bytes of key, value and headers. ``is_too_large``: the record batch takes more memory than the limit.
    """

    offset: int | None = None
    size: int = 0
    timestamp_ms: int | None = None
    by_broker: bool = False
    code: int | None = None
    error: str = ""
    is_too_large: bool = False


TOO_LARGE: Final = FirstAnswer(
    error=f"its record batch takes more than {MEMORY_MIB} MiB of memory once it is decompressed", is_too_large=True
)


def first_answers(
    settings: Mapping[str, object], positions: Collection[Position], timeout_s: float
) -> dict[tuple[str, int], FirstAnswer]:
    """Return the first answer at each position, by topic and partition; those without one in time are left out.

    Where a batch is too large, the process ends without an answer for any. Each half is then asked by itself.
    """
    said, is_ended = asked_in_a_process(
        {"settings": settings, "positions": list(positions), "timeout_s": timeout_s}, timeout_s
    )
    found = dict(said)
    left = sorted(position for position in positions if position[:2] not in found)
    if not is_ended or not left:
        return found
    if len(left) == 1:
        return found | {left[0][:2]: TOO_LARGE}
    middle = len(left) // 2
    for half in (left[:middle], left[middle:]):
        found |= first_answers(settings, half, timeout_s)
    return found


def asked_in_a_process(
    question: Mapping[str, object], timeout_s: float
) -> tuple[list[tuple[Place, FirstAnswer]], bool]:
    """Return the answers that a process gave, and whether it ended for lack of memory."""
    # A login by a role is a function: the process gets what it returns, a token that holds for some minutes.
    sent = json.dumps(question, default=lambda token: token(""))
    process = subprocess.Popen(
        ["/bin/sh", "-c", LIMITED, "sh", sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Each thread would take some of the address space for itself before it needs any.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        text=True,
    )
    try:
        # Not on the command line, where others may read passwords.
        said, _ = process.communicate(sent, timeout=timeout_s + 30)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    lines = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
    found = [((each.pop("topic"), each.pop("partition")), answer_from(each)) for each in lines]
    return found, process.returncode in ENDS_WITHOUT_MEMORY


def answer_from(said: dict[str, Any]) -> FirstAnswer:
    return TOO_LARGE if said.get("code") == KafkaError._CRIT_SYS_RESOURCE else FirstAnswer(**said)


def main() -> None:
    """Answer the question on stdin: a line of JSON for each answer."""
    question = json.load(sys.stdin)
    try:
        found = records_passed(**question) if "ranges" in question else answers(**question)
        for answer in islice(found, MOST_ANSWERS):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    except MemoryError:
        os._exit(NO_MEMORY)
    os._exit(0)  # a consumer that closes asks its brokers again


def answers(settings: dict[str, Any], positions: Collection[Position], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Yield the first answer at each position, until all are there or the time is over."""
    missing = {(topic, partition) for topic, partition, _ in positions}
    for place, consumer, message in messages(settings, positions, timeout_s, missing):
        missing.remove(place)
        consumer.pause([TopicPartition(*place)])
        yield {"topic": place[0], "partition": place[1], **answer_of(message)}


def records_passed(
    settings: dict[str, Any], ranges: Collection[tuple[str, int, int, int]], timeout_s: float, at_least_each: int
) -> Iterator[dict[str, Any]]:
    """Yield of each range the records that are larger than all before, and some others, to say how far it was read.

    The last answer of a range that is read to its end is an error, or a record just before that end or later.
    ``ranges``: topic, partition, start, end.
    """
    ends = {(topic, partition): end for topic, partition, _, end in ranges}
    largest = dict.fromkeys(ends, -1)
    read = messages(settings, [each[:3] for each in ranges], timeout_s, ends)
    for number, (place, consumer, message) in enumerate(read):
        answer = answer_of(message)
        is_last = "code" in answer or answer["offset"] >= ends[place] - 1
        if is_last:
            del ends[place]
            consumer.pause([TopicPartition(*place)])
        if is_last or answer["size"] > largest[place] or number % at_least_each == 0:
            largest[place] = max(largest[place], answer.get("size", 0))
            yield {"topic": place[0], "partition": place[1], **answer}


def messages(
    settings: dict[str, Any], positions: Collection[Position], timeout_s: float, wanted: Collection[Place]
) -> Iterator[tuple[Place, Consumer, Message]]:
    """Yield what a consumer gets from some positions on, as long as partitions are wanted and there is time."""
    if "oauth_cb" in settings:
        token, until_s = settings["oauth_cb"]
        settings = settings | {"oauth_cb": lambda _: (token, until_s)}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(*position) for position in sorted(positions)])
    ends_at = time.monotonic() + timeout_s
    while wanted and (left_s := ends_at - time.monotonic()) > 0:
        message = consumer.poll(left_s)
        if message is None:
            continue
        topic, partition = message.topic(), message.partition()
        # Errors of brokers are of no partition.
        if topic is not None and partition is not None and (topic, partition) in wanted:
            yield (topic, partition), consumer, message


def answer_of(message: Message) -> dict[str, Any]:
    error = message.error()
    if error is not None:
        return {"code": error.code(), "error": f"{error.name()}: {error.str()}"}
    kind, timestamp = message.timestamp()
    by_broker = kind == TIMESTAMP_LOG_APPEND_TIME
    parts = [message.key(), message.value(), *(part for header in message.headers() or () for part in header)]
    return {
        "offset": message.offset(),
        "timestamp_ms": timestamp if kind else None,
        "by_broker": by_broker,
        "size": sum(len(part) for part in parts if part is not None),
    }


if __name__ == "__main__":
    main()
