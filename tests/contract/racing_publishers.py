"""Processes of their own that publish and revoke at one moment; what each comes to is its error's name, or ``None``.

They are kept from race to race.
"""

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

from tests.contract.prepared_processes import prepared_processes
from tests.contract.rest_output import IcebergByRest
from tests.contract.sink_outputs import BESIDE, IN_OTHER_CLOUDS, IN_S3_PROXY, OUTPUTS, IcebergInStore
from tests.gcs_server import KEY_VARIABLE
from tests.kafka_outputs import SERVERS_VARIABLE
from tests.object_store import ENDPOINT_VARIABLES
from tests.postgresql_tables import URL_VARIABLE
from tests.rest_catalog import URI

from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.model.published_output import PublishedReceipt

if TYPE_CHECKING:
    import multiprocessing
    from multiprocessing.process import BaseProcess

PATIENCE_S = 120.0
MOST = 5
"""How many take part in a race."""

CameTo = list[str | None]


@dataclass(frozen=True)
class Step:
    """What one process does to a batch in a round."""

    path: Path
    directory: Path
    published: PublishedReceipt
    revokes: bool = False


def race(kind: str, processes: Sequence[Sequence[Step]]) -> list[CameTo]:
    """Let processes take their steps, round by round at one moment; return what each step of each came to."""
    return racers().race(kind, processes)


class Racers:
    """Processes that race whenever they are asked to; they end with this one."""

    def __init__(self) -> None:
        processes = prepared_processes()
        self._barriers = [processes.Barrier(count) for count in range(1, MOST + 1)]
        self._answers: multiprocessing.Queue[tuple[int, CameTo | str]] = processes.Queue()
        self._asked: list[multiprocessing.Queue[Any]] = [processes.Queue() for _ in range(MOST)]
        for number, asked in enumerate(self._asked):
            arguments = (number, asked, self._barriers, self._answers)
            processes.Process(target=take_part, args=arguments, daemon=True).start()

    def race(self, kind: str, processes: Sequence[Sequence[Step]]) -> list[CameTo]:
        self._barriers[len(processes) - 1].reset()
        stores = servers_now()
        for asked, steps in zip(self._asked[: len(processes)], processes, strict=True):
            asked.put((kind, list(steps), len(processes), stores))
        found = dict(self._answers.get(timeout=PATIENCE_S) for _ in processes)
        assert not (failed := [came_to for came_to in found.values() if isinstance(came_to, str)]), "".join(failed)
        return [found[number] for number in range(len(processes))]


def servers_now() -> dict[str, str]:
    """Return where the servers are that may have been started after a process was."""
    servers = (*ENDPOINT_VARIABLES.values(), KEY_VARIABLE, URI, URL_VARIABLE, SERVERS_VARIABLE)
    return {name: os.environ[name] for name in servers if name in os.environ}


def publishing(kind: str, path: Path, directory: Path, published: PublishedReceipt) -> "BaseProcess":
    """Return a process of its own that publishes a batch."""
    step = Step(path, directory, published)
    process = prepared_processes().Process(target=take_alone, args=(kind, step, servers_now()), daemon=True)
    process.start()
    return process


def take_alone(kind: str, step: Step, servers: dict[str, str]) -> None:
    """Take one step, without waiting for others."""
    os.environ.update(servers)
    take_steps(kind, [step], Barrier(1))  # prepared processes would be of this process, and import all again


@cache
def racers() -> Racers:
    return Racers()


def take_part(
    number: int, asked: "multiprocessing.Queue[Any]", barriers: Sequence[Barrier], answers: "multiprocessing.Queue[Any]"
) -> None:
    """Take part in one race after the other."""
    while True:
        kind, steps, together, stores = asked.get()
        os.environ.update(stores)
        barrier = barriers[together - 1]
        try:
            came_to = take_steps(kind, steps, barrier)
        except Exception:  # noqa: BLE001 - the test reports it
            barrier.abort()  # the others do not wait for this one
            answers.put((number, traceback.format_exc()))
        else:
            answers.put((number, came_to))


def take_steps(kind: str, steps: list[Step], barrier: Barrier) -> CameTo:
    """Take each step when all others are about to take theirs."""
    came_to: CameTo = []
    every = (*OUTPUTS, *BESIDE, IcebergInStore, *IN_S3_PROXY, *IN_OTHER_CLOUDS, IcebergByRest)
    made = next(each for each in every if each.name == kind)
    for step in steps:
        publisher = made(step.path).sink.publisher
        barrier.wait(timeout=PATIENCE_S - 20)
        try:
            if step.revokes:
                receipt = step.published.receipt
                publisher.revoke(step.directory, receipt.batch_id)
            else:
                publisher.publish(step.directory, step.published)
        except KafkaIngestError as error:
            came_to.append(f"{type(error).__name__}: {error}")
        else:
            came_to.append(None)
    return came_to
