"""What tasks share: their feed's parts, who they are, and what an error means to Airflow."""

import contextlib
from collections.abc import Iterator
from uuid import UUID

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_ingest.assembly import FeedParts, assemble
from kafka_ingest.connections import find_connection_in_task
from kafka_ingest.errors import KafkaIngestError, RetryableError, UnknownBatchError
from kafka_ingest.feed import Feed
from kafka_ingest.feed_files import feed_named, feeds_directory


def parts_of(feed: Feed) -> FeedParts:
    """Return a feed's parts, with connections as a task finds them."""
    return assemble(feed, find_connection_in_task)


def parts_of_run(feed: Feed | None, context: Context) -> FeedParts:
    """Return the parts of the DAG's feed; where the DAG is of no one feed, of the one that the run names in its params."""
    return parts_of(feed if feed is not None else feed_named(str(context["params"]["feed"]), feeds_directory()))


def id_of_batch(text: str) -> UUID:
    """Return the batch id that the plan task handed on; raises UnknownBatchError where it handed none on."""
    try:
        return UUID(text)
    except ValueError as error:
        raise UnknownBatchError(
            f"expected a batch's id from task plan, found {text!r}. Was plan marked as success by hand? Clear it."
        ) from error


def run_of(context: Context) -> str:
    """Return who acts, for the audit journal: one name for all tries of all tasks of a DAG run."""
    dag_run = context["dag_run"]
    return f"airflow:{dag_run.dag_id}/{dag_run.run_id}"


@contextlib.contextmanager
def errors_for_airflow() -> Iterator[None]:
    """Let Airflow retry what may succeed later; everything else fails at once, since a retry would only hide it."""
    try:
        yield
    except RetryableError:
        raise
    except KafkaIngestError as error:
        raise AirflowFailException(f"{error.code}: {error}") from error
