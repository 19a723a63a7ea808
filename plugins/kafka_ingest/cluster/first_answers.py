"""Consumers' first answers at some offsets, taken by a process of its own that may not use more memory than a limit.

A record batch of some kilobytes may hold a record of gigabytes. librdkafka decompresses it whole, and where it gets no
memory it ends its process: so that must not be a task's, and not that of Airflow's API server.

This file is also that process's program. It knows nothing of this package, which need not be on its path.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, TopicPartition

MEMORY_MIB: Final = 512
"""What the process may use. A batch of one uncompressed record of 200 MB is read with it."""

STACK_KIB: Final = 512
"""Of each thread; librdkafka has one for each broker, and a thread's stack counts as memory in use."""

LIMITED: Final = f'ulimit -s {STACK_KIB} && ulimit -d {MEMORY_MIB * 1024} && exec "$@"'
"""Linux counts private memory that can be written (RLIMIT_DATA since 4.7); what cannot be had is refused at once."""

LITTLE: Final = {
    "auto.offset.reset": "error",
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1,
    # A record batch holds more than one message, so the queue is always full: librdkafka would wait a second then, and
    # got two partitions a second where batches are large; without waiting, a hundred.
    "fetch.queue.backoff.ms": 0,
    "fetch.wait.max.ms": 50,
}
"""Settings of a consumer that wants one record of each partition: a broker sends at least one whole batch (KIP-74)."""

Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """A record's place and time, or an error: its code, name and text in librdkafka's words.

    ``timestamp_ms`` is None where the record has none; ``by_broker``: the broker set it (LogAppendTime, KIP-32).
    ``is_too_large``: the record batch takes more memory than the limit.
    """

    offset: int | None = None
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
    found, is_ended = asked_in_a_process(settings, positions, timeout_s)
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
    settings: Mapping[str, object], positions: Collection[Position], timeout_s: float
) -> tuple[dict[tuple[str, int], FirstAnswer], bool]:
    """Return the answers that a process gave, and whether it ended before it was done."""
    question = json.dumps({"settings": settings, "positions": list(positions), "timeout_s": timeout_s})
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
        said, _ = process.communicate(question, timeout=timeout_s + 30)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    lines = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
    found = {(each.pop("topic"), each.pop("partition")): FirstAnswer(**each) for each in lines if each}
    return found, {} not in lines


def main() -> None:
    """Answer the question on stdin: a line of JSON for each position, and an empty object once all is said."""
    question = json.load(sys.stdin)
    for answer in answers(question["settings"], question["positions"], question["timeout_s"]):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    os._exit(0)  # a consumer that closes asks its brokers again


def answers(settings: dict[str, Any], positions: Collection[Position], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Yield the first answer at each position, until all are there or the time is over."""
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(*position) for position in sorted(positions)])
    missing = {(topic, partition) for topic, partition, _ in positions}
    ends_at = time.monotonic() + timeout_s
    while missing and (left_s := ends_at - time.monotonic()) > 0:
        message = consumer.poll(left_s)
        place = (message.topic(), message.partition()) if message is not None else None
        if message is not None and place in missing:
            missing.remove(place)
            consumer.pause([TopicPartition(*place)])
            yield {"topic": place[0], "partition": place[1], **answer_of(message)}


def answer_of(message: Message) -> dict[str, Any]:
    """Return what a message says."""
    error = message.error()
    if error is not None:
        return {"code": error.code(), "error": f"{error.name()}: {error.str()}"}
    kind, timestamp = message.timestamp()
    by_broker = kind == TIMESTAMP_LOG_APPEND_TIME
    return {"offset": message.offset(), "timestamp_ms": timestamp if kind else None, "by_broker": by_broker}


if __name__ == "__main__":
    main()
