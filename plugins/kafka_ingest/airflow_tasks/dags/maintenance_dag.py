"""Maintains all feeds once a day.

Removes expired staged output, folds old batches in the control tables, repairs mirrors, and warns about headroom.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, BaseOperator, Context, get_parsing_context

from kafka_ingest.airflow_tasks.feed_tasks import FeedErrorOperator
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, parts_of, run_of
from kafka_ingest.airflow_tasks.metrics import MIRROR_FAILURES, send_count, send_standing
from kafka_ingest.assembly import FeedParts, assemble_all, feed_files
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.errors import KafkaIngestError, may_retry
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.tried import tried
from kafka_ingest.model.offsets import listing
from kafka_ingest.observing.feed_status import low_headroom
from kafka_ingest.settings.connections import find_connection_in_task
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FEED_ERROR, FeedFile, error_id
from kafka_ingest.settings.feed_files import checked_against_others
from kafka_ingest.settings.files_for_dags import feed_in, files_for_dags
from kafka_ingest.verbs.clean import clean_up, expired_outputs
from kafka_ingest.verbs.database import cut_of, fold

log = logging.getLogger(__name__)


class MaintenanceOperator(BaseOperator):
    """Makes one step of a feed's maintenance; skipped where it was never planned.

    With its ``file`` also where that shares something with another: what the step changes may be the other's.
    """

    def __init__(self, *, step: str, feed: Feed, file: FeedFile | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own
        super().__init__(**kwargs)
        self.step = step
        self.feed = feed
        self.file = file

    def execute(self, context: Context) -> object:
        with errors_for_airflow():
            if self.file is not None and (error := checked_against_others(self.file).error) is not None:
                raise AirflowSkipException(f"{LEFT_ALONE[self.step]}: {error}")
            return STEPS[self.step](planned_before(self.feed), run_of(context))


class MaintainFleetOperator(BaseOperator):
    """Maintains the feeds of a fleet, those of topics too, one after the other in one task; fails last.

    Those that cannot be used are held: their staged output stays, as that of a broken file's feed.
    """

    def __init__(self, *, fleet: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.fleet = fleet

    def execute(self, context: Context) -> int:
        """Return how many feeds there are; a feed that fails leaves the others alone."""
        actor, failures = run_of(context), dict[str, Exception]()
        with errors_for_airflow():
            files = feed_files(find_connection_in_task)
            mine = [each for each in files if (feed := maintained(each)) is not None and feed.fleet == self.fleet]
            found = assemble_all(mine, find_connection_in_task)
            shared = {id(parts) for parts, file in zip(found, mine, strict=True) if file.feed is None}
            planned = [each for each in found if each.control.feed(each.feed.name) is not None]
            for parts in planned:
                name = parts.feed.name
                self.log.info("feed %s", name)
                names = steps_of(parts.feed, is_shared=id(parts) in shared)
                tries = [tried(partial(STEPS[step], parts), actor) for step in names]
                failures |= {f"{name}: {said(each.error)}": each.error for each in tries if each.error is not None}
            for failure in failures:
                self.log.error("%s", failure)
            if failures:
                kind = AirflowException if any(map(may_retry, failures.values())) else AirflowFailException
                raise kind(f"everything else was done: {listing(failures)}")
        return len(planned)


def maintained(file: FeedFile) -> Feed | None:
    """Return the feed of a file; where that shares something with another file, too, unless a topic became it."""
    return file.feed or (file.contested if file.topic is None else None)


def said(error: Exception) -> str:
    return f"{error.code}: {error}" if isinstance(error, KafkaIngestError) else str(error)


def steps_of(feed: Feed, *, is_shared: bool) -> list[str]:
    """Return what is done for a feed; what it shares with another, its group and its rows, may be the other's."""
    asked = {"mirror": feed.kafka.group is not None, "fold": feed.control_retention is not None}
    return ["clean", "headroom", *(step for step, is_asked in asked.items() if is_asked and not is_shared)]


def clean(parts: FeedParts, _actor: str) -> dict[str, int]:
    """Remove expired staged output, and compare all published batches with the control tables."""
    removed, kept, failed, freed = 0, 0, 0, 0
    for staged in clean_up(expired_outputs(parts), parts.control, parts.sinks):
        if staged.kept is not None:
            kept, failed = kept + 1, failed + staged.failed
            log.warning("%s stays: %s", staged.attempt.directory, staged.kept)
            continue
        removed, freed = removed + 1, freed + staged.size_bytes
        log.info("removed %s, %s bytes", staged.attempt.directory, f"{staged.size_bytes:,}")
    # A plan looks at the newest batches only.
    parts.check_output_known()
    log.info("%s attempts removed, %s stay, %s bytes are free again", f"{removed:,}", f"{kept:,}", f"{freed:,}")
    if failed:
        raise AirflowException(f"{counted(failed, 'attempt')} could not be removed; their warnings above say why")
    return {"removed": removed, "kept": kept, "freed_bytes": freed}


def fold_rows(parts: FeedParts, actor: str) -> dict[str, int]:
    """Fold the rows of batches that are older than the feed's ``control_retention``."""
    counts = dict.fromkeys(("batches", "ranges", "attempts", "events"), 0)
    feed_id, cut = known_feed(parts.control, parts.feed.name).feed_id, cut_of(parts.feed)
    for folded in fold(feed_id, cut, parts.control, actor=actor):
        counts = {name: count + getattr(folded, name) for name, count in counts.items()}
        log.info("folded %s batches so far", f"{counts['batches']:,}")
    there = parts.control.foldable(feed_id, cut)
    log.info("folded %s", ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if stays := there.to_announce + there.staged:
        log.info(
            "%s batches stay that are as old: %s to be announced, %s with staged output",
            *(f"{count:,}" for count in (stays, there.to_announce, there.staged)),
        )
    return counts


def mirror(parts: FeedParts, actor: str) -> None:
    """Bring the group to the stored offsets, where a commit could not do so or another client moved it."""
    parts.check_output_known()
    mirrored = parts.mirror(actor=actor)
    if mirrored.failure is not None:
        send_count(MIRROR_FAILURES, parts.feed.name)
        raise AirflowException(f"the consumer group {mirrored.group} was not moved: {mirrored.failure}")
    log.info("the consumer group %s is at the stored offsets", mirrored.group)


def warn_of_headroom(parts: FeedParts, _actor: str) -> int:
    """Warn of partitions that retention is about to reach before they are read."""
    send_standing(parts)
    known = known_feed(parts.control, parts.feed.name)
    warnings = [str(found) for found in low_headroom(known, parts.kafka, parts.feed.kafka.isolation)]
    for warning in warnings:
        log.warning("%s", warning)
    if not warnings:
        log.info("retention is near none of the feed's stored offsets")
    return len(warnings)


STEPS: Final[Mapping[str, Callable[[FeedParts, str], object]]] = {
    "clean": clean,
    "headroom": warn_of_headroom,
    # Afterwards: batches are folded once their staged output is removed.
    "fold": fold_rows,
    "mirror": mirror,
}
LEFT_ALONE: Final = {"fold": "its batches are not folded", "mirror": "its group is not moved"}
"""What is not done for a feed that shares something with another."""


def planned_before(feed: Feed) -> FeedParts:
    """Return the parts of a feed that has control rows; skips the task where it was never planned."""
    parts = parts_of(feed)
    if parts.control.feed(feed.name) is None:
        raise AirflowSkipException(f"feed {feed.name} was never planned: there is nothing to maintain")
    return parts


DAG_ID = "maintain_feeds"


ALL_OF_A_FLEET = timedelta(hours=12)


def maintain(feed: Feed, file: FeedFile) -> None:
    # No task groups: their ids may not hold a dot, as a feed's name may.
    of_feed: dict[str, Any] = {"feed": feed, "owner": feed.airflow.owner, "pool": feed.airflow.pool}
    tasks = {
        step: MaintenanceOperator(
            task_id=f"{feed.name}.{step}",
            step=step,
            file=file if step in LEFT_ALONE else None,
            # A failed clean-up does not stop folding.
            trigger_rule="all_done" if step == "fold" else "all_success",
            **of_feed,
        )
        for step in steps_of(feed, is_shared=file.contested is not None)
    }
    if "fold" in tasks:
        tasks["clean"] >> tasks["fold"]


def name_in(task_id: str | None) -> str | None:
    """Return the feed, or the broken file's DAG, that a task belongs to: its start makes no other feed's tasks."""
    return task_id if task_id is None or task_id.startswith(FEED_ERROR) else task_id.rpartition(".")[0]


def maintenance_dag() -> DAG:
    """Return the DAG; where Airflow starts a task, with that feed's tasks alone."""
    with DAG(
        dag_id=DAG_ID,
        description="Expired staged output, consumer groups that drifted, partitions that retention is about to reach",
        schedule="@daily",
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["kafka_ingest", "maintenance"],
        default_args={"retries": 3, "retry_delay": timedelta(minutes=5), "execution_timeout": timedelta(hours=2)},
    ) as dag:
        fleets: dict[str, Any] = {}
        for file in files_for_dags(name_in(get_parsing_context().task_id)):
            if file.error is not None:
                # Fails once a day, next to the tasks of the other feeds; the file's own DAG fails more often.
                FeedErrorOperator(task_id=error_id(file.path), file=file, retries=0)
            feed = feed_in(file)
            if feed is not None and feed.fleet is not None:
                fleets.setdefault(feed.fleet, feed.airflow)
            elif feed is not None:
                maintain(feed, file)
        for fleet, of_fleet in fleets.items():
            MaintainFleetOperator(
                task_id=f"{fleet}.fleet",
                fleet=fleet,
                owner=of_fleet.owner,
                pool=of_fleet.pool,
                execution_timeout=ALL_OF_A_FLEET,
            )
    return dag
