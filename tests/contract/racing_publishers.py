"""Processes of their own that publish and revoke at one moment; what each comes to is its error's name, or ``None``."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from tests.contract.sink_outputs import IN_STORES, OUTPUTS

from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.model.published_output import PublishedReceipt

SPAWN = multiprocessing.get_context("spawn")  # a fork of a process that has Delta's library loaded panics


@dataclass(frozen=True)
class Step:
    """What one process does to a batch in a round."""

    path: Path
    directory: Path
    published: PublishedReceipt
    revokes: bool = False


def race(kind: str, processes: Sequence[Sequence[Step]]) -> list[list[str | None]]:
    """Let processes take their steps, round by round at one moment; return what each step of each came to."""
    barrier, answers = SPAWN.Barrier(len(processes)), SPAWN.Queue()
    running = [
        SPAWN.Process(target=take_steps, args=(kind, number, list(steps), barrier, answers), daemon=True)
        for number, steps in enumerate(processes)
    ]
    for process in running:
        process.start()
    found = dict(answers.get(timeout=120) for _ in running)
    for process in running:
        process.join()
    return [found[number] for number in range(len(processes))]


def take_steps(
    kind: str, number: int, steps: list[Step], barrier: Barrier, answers: "multiprocessing.Queue[Any]"
) -> None:
    """Take each step when all others are about to take theirs."""
    came_to: list[str | None] = []
    made = next(each for each in (*OUTPUTS, *IN_STORES) if each.name == kind)
    for step in steps:
        publisher = made(step.path).sink.publisher
        barrier.wait(timeout=100)
        try:
            if step.revokes:
                receipt = step.published.receipt
                publisher.revoke(step.directory, receipt.batch_id, rows=receipt.rows)
            else:
                publisher.publish(step.directory, step.published)
        except KafkaIngestError as error:
            came_to.append(f"{type(error).__name__}: {error}")
        else:
            came_to.append(None)
    answers.put((number, came_to))
