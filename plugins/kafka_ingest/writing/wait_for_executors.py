"""A Spark application that gets no executor is ended after a limit; Spark itself would wait for cores forever."""

import time

from py4j.java_gateway import JavaObject

from kafka_ingest.model.attempt_directory import MAX_WAIT_FOR_EXECUTORS, NO_EXECUTORS

POLL_S = 0.2


class NoExecutorsError(Exception):
    """The cluster gave no executor within the limit."""


def wait_for_executors(java_context: JavaObject) -> None:
    """Wait until the application has an executor, as long as its setting says; raises NoExecutorsError.

    Spark only warns that its job has not accepted any resources (TaskSchedulerImpl), and waits.
    """
    limit = java_context.getConf().getOption(MAX_WAIT_FOR_EXECUTORS)
    if java_context.isLocal() or limit.isEmpty():
        return
    limit_s = float(limit.get())
    deadline = time.monotonic() + limit_s
    # The driver is one of those whose memory is known.
    while java_context.getExecutorMemoryStatus().size() <= 1:
        if time.monotonic() > deadline:
            raise NoExecutorsError(
                f"{NO_EXECUTORS}: expected an executor within {limit_s:,.0f} s (spark.max_wait_for_executors), found "
                f"none: {java_context.master()} has no free cores or memory for it"
            )
        time.sleep(POLL_S)
