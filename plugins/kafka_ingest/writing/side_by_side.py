"""Several attempts in one driver: each in a thread of its own, as many at once as there are processors."""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from queue import Empty, Queue
from threading import Thread, local

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_ingest.foundation.tried import Tried, tried
from kafka_ingest.model.spark_settings import SparkSettings
from kafka_ingest.writing.kafka_records import activate, is_gone, set_options
from kafka_ingest.writing.session import AT_ONCE, fix_meaning


class TookTooLongError(Exception):
    """An attempt was at work longer than it may be; the others continue."""


class SparkGoneError(Exception):
    """Spark has ended under its attempts: what they then report is of no attempt, and none can be begun."""


@dataclass(frozen=True, slots=True)
class Step:
    """One attempt: what its thread and Spark's jobs are called, what is to be done, and how long it may take."""

    name: str
    do: Callable[[], None]
    limit_s: float


def attempts_at_once(context: SparkContext, number: int) -> int:
    """Return how many of so many attempts are at work at a time.

    What tasks hold is bounded by how many of them Spark runs at once, whichever attempts they are of. Without pinned
    threads Java does not know which attempt a job is of.
    """
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return 1
    return max(1, min(number, context.defaultParallelism, os.cpu_count() or 1))


def own_session(spark: SparkSession, settings: SparkSettings, at_once: int) -> SparkSession:
    """Return a session for one of ``at_once`` attempts of an application, with settings and views of its own."""
    session = spark.newSession()
    fix_meaning(session, activate(session), settings)
    session.conf.set(AT_ONCE, str(at_once))
    answer_by_thread()
    OWN.session = session
    return session


class Own(local):
    """What is a thread's own."""

    session: SparkSession | None = None


OWN = Own()


@cache
def answer_by_thread() -> None:
    """Let a ``transform`` that asks pyspark for its session get its attempt's own, with the views of that.

    To pyspark the active session is the one that made a DataFrame last, in whichever thread; at first it is the
    application's.
    """
    active, get_or_create = SparkSession.getActiveSession, SparkSession.Builder.getOrCreate

    def active_here() -> SparkSession | None:
        return OWN.session or active()

    def got_here(builder: SparkSession.Builder) -> SparkSession:
        if OWN.session is None:
            return get_or_create(builder)
        set_options(OWN.session, builder)
        return OWN.session

    for owner, name, answer in (
        (SparkSession, "getActiveSession", staticmethod(active_here)),
        (SparkSession.Builder, "getOrCreate", got_here),
    ):
        setattr(owner, name, answer)


def side_by_side(
    context: SparkContext, steps: Sequence[Step], at_once: int, ended: Callable[[int, Tried[None]], None]
) -> None:
    """Take all steps, and call ``ended`` in this thread after each, with its place among them.

    Spark's jobs of one that takes too long are cancelled. What it does besides cannot be ended: it is no longer waited
    for, and ends with this process at the latest. Raises SparkGoneError before it would speak of any as failed.
    """
    results: Queue[tuple[int, Tried[None]]] = Queue()
    waiting, deadlines = deque(range(len(steps))), dict[int, float]()
    while waiting or deadlines:
        if waiting:
            check_there(context)
        while waiting and len(deadlines) < at_once:
            place = waiting.popleft()
            deadlines[place] = time.monotonic() + steps[place].limit_s
            asked = context, steps[place], place, results
            Thread(target=take, args=asked, name=steps[place].name, daemon=True).start()
        try:
            place, result = results.get(timeout=max(0.0, min(deadlines.values()) - time.monotonic()))
        except Empty:
            place = min(deadlines, key=lambda each: deadlines[each])
            check_there(context)
            limit = timedelta(seconds=steps[place].limit_s)
            result = Tried(error=TookTooLongError(f"not done within {limit} (airflow.execution_timeout of the feed)"))
            context.cancelJobGroup(steps[place].name)
        if deadlines.pop(place, None) is not None:  # else it was ended before
            if result.error is not None:
                check_there(context)
            ended(place, result)


def check_there(context: SparkContext) -> None:
    if is_gone(context):
        raise SparkGoneError("Spark has ended")


def take(context: SparkContext, step: Step, place: int, results: "Queue[tuple[int, Tried[None]]]") -> None:
    """Take a step in this thread, which is one to Java, too: with a job group and a share of the processors."""

    def do(_: None) -> None:
        context.setJobGroup(step.name, step.name, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", step.name)
        step.do()

    results.put((place, tried(do, None)))
