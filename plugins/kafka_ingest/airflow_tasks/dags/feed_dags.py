"""A scheduled DAG for each feed file: plan >> write >> commit >> next_batch."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, get_parsing_context

from kafka_ingest.airflow_tasks.asset_events import CompleteOperator
from kafka_ingest.airflow_tasks.dag_arguments import BY_ASSETS, MANUAL, SCHEDULED, TRIGGERED, only_runs, params_of
from kafka_ingest.airflow_tasks.feed_tasks import (
    CommitOperator,
    FeedErrorOperator,
    NextBatchOperator,
    PlanOperator,
    WriteOperator,
)
from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.offsets import listing
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, error_id, unusable
from kafka_ingest.settings.files_for_dags import Fleet, files_for_dags, fleets_of
from kafka_ingest.settings.plain_yaml import text_of
from kafka_ingest.settings.run_request import RunRequest
from kafka_ingest.settings.setting_types import cut

MAX_TOPICS = 500
"""Characters of the topics' names."""

TEXT = """\
Reads {topics} into {output} ({format}), from the stored offsets on: `plan` decides up to which offsets, `write` reads
them with Spark, `commit` publishes what was written and then moves the stored offsets. Where a task failed, clear it,
or let the next run continue: no offset is moved before its records are in the output.

`kafka-ingest status {name}` shows stored offsets and lag, `kafka-ingest doctor {name}` what stands in the feed's way.
A run by hand may end at a number of records, at a time or at offsets. Earlier offsets are read by the DAG
`backfill_offsets`. What `_defaults.yaml` adds to this file, `kafka-ingest feeds --show {name}` prints.

{file}:

{fence}yaml
{content}
{fence}
"""


def documentation(feed: Feed, file: FeedFile) -> str:
    try:
        content = text_of(file.path).rstrip()
    except (OSError, ValueError) as error:
        content = f"# cannot be read now: {error}"
    return TEXT.format(
        topics=as_code(cut(feed.kafka.described(), MAX_TOPICS)),
        output=as_code(str(feed.sink.path)),
        format=feed.sink.format,
        name=feed.name,
        file=as_code(file.path.name),
        fence=fence_of(content),
        content=storable(content),
    )


def documentation_of_error(file: FeedFile) -> str:
    """Return Markdown: why a feed file cannot be used. The error quotes what is in the file, code fences included."""
    said = str(file.error)
    fence = fence_of(said)
    return f"This feed file cannot be used:\n\n{fence}\n{said}\n{fence}\n"


def as_code(text: str) -> str:
    plain = storable(text).replace("`", "'").replace("\n", " ")
    return f"`{plain}`"


def fence_of(content: str) -> str:
    """Return a code fence that nothing in the content ends (CommonMark 4.5)."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))


START_DATE = datetime(2024, 1, 1, tzinfo=UTC)


def default_args(feed: Feed) -> dict[str, Any]:
    return {
        "owner": feed.airflow.owner,
        "pool": feed.airflow.pool,
        "retries": feed.airflow.retries,
        "retry_delay": timedelta(seconds=30),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=10),
        "execution_timeout": feed.airflow.execution_timeout,
        # Where many feeds are due at once: commit what is written before another feed's Spark is started.
        "weight_rule": "upstream",
    }


def starts_of_dag(
    dag_id: str, schedule: str | None, feeds: Sequence[Feed], of_topics: Sequence[Feed] = ()
) -> dict[str, Any]:
    """Return the arguments of DAG that say when the runs of these feeds start, and of those of topics."""
    if not any(feed.start_when for feed in (*feeds, *of_topics)):
        # A backfill by dates would make live batches; offsets know no dates.
        return {"schedule": schedule, **only_runs(SCHEDULED, MANUAL, TRIGGERED)}
    from kafka_ingest.airflow_tasks.asset_events import starts_by_what_waits  # noqa: PLC0415 - few feeds need it

    return starts_by_what_waits(dag_id, schedule, feeds, of_topics)


def starts_by_fleet(feed: Feed) -> dict[str, Any]:
    """Return the same for a feed of a fleet, which has the schedule: large batches and runs by hand are left to it."""
    from kafka_ingest.airflow_tasks.asset_events import asset_of_starts  # noqa: PLC0415 - few feeds need it

    return {
        "schedule": [asset_of_starts(feed.name)],
        "is_paused_upon_creation": False,
        **only_runs(MANUAL, TRIGGERED, BY_ASSETS),
    }


def fleet_dag(fleet: Fleet) -> DAG:
    from kafka_ingest.airflow_tasks.fleet_tasks import (  # noqa: PLC0415 - few feeds need it
        FleetCommitOperator,
        FleetPlanOperator,
        FleetReportOperator,
        FleetWriteOperator,
        NextFleetOperator,
    )

    longest = max(feed.airflow.execution_timeout for feed in fleet.feeds)
    found = [f"one for each topic like {each.topics.pattern}" for each in fleet.sources if each.topics is not None]
    with DAG(
        dag_id=fleet.name,
        description=f"The feeds {listing([*(each.feed.name for each in fleet.members), *found])}",
        **starts_of_dag(fleet.name, fleet.first.schedule, [each.feed for each in fleet.members], fleet.specimens),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        tags=["kafka_ingest", "fleet"],
        # Each attempt has its own feed's limit.
        default_args=default_args(fleet.first) | {"execution_timeout": 2 * longest},
    ) as dag:
        plan = FleetPlanOperator(task_id="plan", fleet=fleet)
        write = FleetWriteOperator(task_id="write", fleet=fleet)
        commit = FleetCommitOperator(task_id="commit", fleet=fleet)
        plan >> write >> commit
        commit >> NextFleetOperator(task_id="next_batch", fleet=fleet)
        commit >> FleetReportOperator(task_id="report", fleet=fleet, retries=0)
    return dag


def feed_dag(feed: Feed, file: FeedFile) -> DAG:
    """Return the feed's DAG. Its runs continue at the stored offsets; dates decide only when they start."""
    with DAG(
        dag_id=feed.name,
        description=f"Kafka {feed.kafka.described()} → {feed.sink.path}",
        **(starts_of_dag(feed.name, feed.schedule, [feed]) if feed.fleet is None else starts_by_fleet(feed)),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        tags=["kafka_ingest", *feed.airflow.tags],
        # What a run by hand may ask for; a scheduled one asks for nothing.
        params=params_of(RunRequest),
        # Nobody reads it where a task is started.
        doc_md=documentation(feed, file) if get_parsing_context().task_id is None else None,
        default_args=default_args(feed),
    ) as dag:
        plan = PlanOperator(task_id="plan", feed=feed, file=file)
        batch_id = "{{ ti.xcom_pull(task_ids='plan') }}"
        write = WriteOperator(task_id="write", feed=feed, batch_id=batch_id)
        commit = CommitOperator(task_id="commit", feed=feed, batch_id=batch_id)
        next_batch = NextBatchOperator(task_id="next_batch", feed=feed, batch_id=batch_id)
        plan >> write >> commit >> next_batch
        if feed.complete is not None:
            commit >> CompleteOperator(task_id="complete", feed=feed)
    return dag


def feed_error_dag(file: FeedFile) -> DAG:
    """Return a DAG that fails with a feed file's error when the feed would be due; raising would stop the others."""
    with DAG(
        dag_id=error_id(file.path),
        description=f"{storable(file.path.name)} cannot be used",
        schedule=file.schedule,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        # Airflow would pause a DAG that it has not seen before, and no run would fail.
        is_paused_upon_creation=False,
        tags=["kafka_ingest", "feed-error"],
        doc_md=documentation_of_error(file),
    ) as dag:
        FeedErrorOperator(task_id="feed_error", file=file, retries=0)
    return dag


def dags_of(file: FeedFile) -> list[DAG]:
    """Return the DAGs of one file; an error in it concerns this file alone.

    A contested feed has both: whether it is the one that keeps running is decided when it is planned, by the control
    tables.
    """
    feed = file.feed or file.contested
    if feed is None:
        # The feeds of many topics have the DAG of their fleet alone.
        return [feed_error_dag(file)] if file.topics is None else []
    try:
        dag = feed_dag(feed, file)
        dag.validate()
    except Exception as error:  # noqa: BLE001 - Airflow has more rules, and an error here would stop all feeds
        return [feed_error_dag(unusable(file.path, f"Airflow refuses its DAG: {error}", schedule=file.schedule))]
    return [dag] if file.error is None else [dag, feed_error_dag(file)]


def dags_of_fleet(fleet: Fleet) -> list[DAG]:
    refused = [feed_error_dag(file) for file in fleet.refused]
    return [fleet_dag(fleet), *refused] if fleet.feeds else refused


def feed_dags() -> dict[str, DAG]:
    """Return the DAGs of all feeds and fleets; where Airflow starts a task, only its own."""
    asked = get_parsing_context().dag_id
    files = files_for_dags(asked)
    with without_garbage_collection():
        # Names that are no identifiers: a feed called like something in the DAG file must not replace it.
        made = {f"dag of {dag.dag_id}": dag for file in files for dag in dags_of(file)}
        fleets = (fleet for fleet in fleets_of(files) if asked is None or fleet.name == asked)
        return made | {f"dag of {dag.dag_id}": dag for fleet in fleets for dag in dags_of_fleet(fleet)}
