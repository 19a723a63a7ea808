"""What tasks share: their feed's parts, actor name, what an error means to Airflow, and how ranges are shown."""

import contextlib
import faulthandler
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import structlog
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Context

from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.errors import KafkaIngestError, RetryableError, UnknownBatchError
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.settings.connections import find_connection_in_task
from kafka_ingest.settings.feed import Feed

if TYPE_CHECKING:
    from kafka_ingest.assembly import FeedParts

log = logging.getLogger(__name__)


STDERR: Final = 2


def parts_of(feed: Feed) -> "FeedParts":
    from kafka_ingest.assembly import assemble  # noqa: PLC0415 - reading a DAG file needs none of the parts

    return assemble(feed, find_connection_in_task)


def parts_of_run(feed: Feed | None, context: Context) -> "FeedParts":
    """Return the parts of the DAG's feed, or without one, of the feed that the run names in its params."""
    if feed is not None:
        return parts_of(feed)
    from kafka_ingest.assembly import assemble_named  # noqa: PLC0415 - as above

    return assemble_named(name_in_run(feed, context), find_connection_in_task)


def name_in_run(feed: Feed | None, context: Context) -> str:
    return feed.name if feed is not None else str(context["params"]["feed"])


def id_of_batch(text: str) -> UUID:
    """Return the batch id from the plan task's XCom; raises UnknownBatchError where there is none."""
    try:
        return UUID(text)
    except ValueError as error:
        raise UnknownBatchError(
            f"expected a batch's id from task plan, found {text!r}. Was plan marked as success by hand? Clear it."
        ) from error


def run_of(context: Context) -> str:
    """Return the actor for the audit journal: one name for all tries of all tasks of a DAG run."""
    dag_run = context["dag_run"]
    return f"airflow:{dag_run.dag_id}/{dag_run.run_id}"


@contextlib.contextmanager
def errors_for_airflow() -> Iterator[None]:
    """Let Airflow retry what may succeed later; everything else fails at once, since a retry would only hide it.

    A named error says what to do; a stack trace in the task's log would only hide that.
    """
    let_faults_end_the_process()
    try:
        yield
    except RetryableError:
        log_without_traceback()
        raise
    except KafkaIngestError as error:
        log_without_traceback()
        raise AirflowFailException(f"{error.code}: {error}") from error


def let_faults_end_the_process() -> None:
    """Take away the handler of SIGSEGV that Airflow's import of a DAG file leaves in a task.

    A handler in Python returns to the instruction that failed, for ever, and no time limit of Airflow's ends that. A
    process that ends is a failed try, which is made again; its stack is in the task's log.
    """
    if callable(signal.getsignal(signal.SIGSEGV)) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        faulthandler.enable(file=STDERR)


def log_without_traceback() -> None:
    """Let this process log named errors as one message; Airflow's task runner logs every exception with a traceback."""
    processors = structlog.get_config()["processors"]
    if leave_out_traceback not in processors:
        processors.insert(0, leave_out_traceback)


def leave_out_traceback(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Put a named error's message in the place of its traceback; a processor of structlog."""
    found = event.get("exc_info")
    error = found if isinstance(found, BaseException) else sys.exc_info()[1] if found else None
    named = error.__cause__ if isinstance(error, AirflowFailException) else error
    if isinstance(named, KafkaIngestError):
        del event["exc_info"]
        event["event"] = f"{event['event']}: {named.code}: {named}"
    return event


MOST: Final = 100
"""Of a batch's ranges so many are shown; ``kafka-ingest batches`` has all of them."""

HEADINGS: Final = ("topic", "partition", "from offset", "to before", "offsets")


def lines_of_ranges(ranges: Sequence[OffsetRange]) -> Iterator[str]:
    rows = [
        (each.topic, str(each.partition), f"{each.start_offset:,}", f"{each.end_offset:,}", f"{each.span:,}")
        for each in ranges[:MOST]
    ]
    sums = ("", f"{len(ranges):,}", "", "", f"{sum(each.span for each in ranges):,}")
    widths = [max(map(len, cells)) for cells in zip(HEADINGS, *rows, sums, strict=True)]
    for topic, *numbers in (HEADINGS, *rows):
        yield in_columns(topic, numbers, widths)
    if more := len(ranges) - len(rows):
        yield f"and {more:,} more"
    yield in_columns(sums[0], sums[1:], widths)


def in_columns(topic: str, numbers: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join([topic.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])


def label_of(batch: Batch) -> str:
    """Return by what a chunk of a backfill is found among others."""
    return f"{listing(batch.plan.ranges, limit=1)}, batch {batch.batch_id}"


OPENLINEAGE: Final = "airflow.providers.openlineage"


def lineage_of(committed: Committed, parts: "FeedParts") -> Any:  # noqa: ANN401 - a class of OpenLineage's provider
    """Return the lineage of what a caller committed; None where it is not wanted, and where it cannot be found.

    A batch does not fail for its lineage: the log says why there is none.
    """
    try:
        if not committed.by_us or not is_asked():
            return None
        from kafka_ingest.airflow_tasks.openlineage_facets import found_lineage  # noqa: PLC0415 - its provider is there

        return found_lineage(committed, parts)
    except Exception:
        log.warning("batch %s is committed, and its lineage is not sent", committed.batch.batch_id, exc_info=True)
        return None


def is_asked() -> bool:
    """Whether OpenLineage's provider is installed, and knows where events go."""
    if find_spec(OPENLINEAGE) is None:
        return False
    from airflow.providers.openlineage import conf  # noqa: PLC0415 - it may not be there

    return not conf.is_disabled()
