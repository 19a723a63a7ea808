"""The write step of a batch with its feed's parts: one loop for tasks and command line, each of which runs Spark."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from uuid import UUID

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.explain_failure import check_expressions, explain_failure, hold_too_large
from kafka_ingest.batches.fitting_columns import ComparedColumns
from kafka_ingest.batches.freeze_schemas import ROUNDS, ids_in
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.preview import open_preview, preview_plan
from kafka_ingest.batches.refused_rows import refused_before, take_back
from kafka_ingest.cluster.client_settings import without_secrets
from kafka_ingest.errors import InstallationError, SparkFailedError, StagedOutputUnusableError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.tried import Tried, each_tried
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.place import MAX_WAIT_FOR_EXECUTORS, JobSettings
from kafka_ingest.spark_launch.installation import Installation, installation
from kafka_ingest.spark_launch.spark_stores import SPARK_STORES
from kafka_ingest.spark_launch.spark_submission import (
    SparkMaster,
    SparkRun,
    SparkSubmission,
    StoreOfAttempt,
    spark_submission,
    together,
)
from kafka_ingest.spark_launch.start_failures import (
    informative_lines,
    machines_fault,
    may_be_of_another,
    may_have_run_out_of_memory,
    out_of_memory,
    ran_out_of_memory,
)
from kafka_ingest.spark_launch.workplace import equip, make_workplace, package_zip, remove_workplace

log = logging.getLogger(__name__)

MOST_TOGETHER = 500
"""Attempts of one Spark application: a bound on what its driver holds of all, and on what waits for one commit."""


@dataclass(frozen=True, slots=True)
class Work:
    """A batch to write, with its feed's parts."""

    parts: FeedParts
    batch_id: UUID


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt at such a batch; those with an equal ``alike`` may share an application of Spark."""

    parts: FeedParts
    plan: BatchPlan
    attempt: Attempt
    alike: object = None

    @property
    def work(self) -> Work:
        """What it is an attempt at."""
        return Work(self.parts, self.plan.batch_id)


Submit = Callable[[Sequence[Opened]], None]
"""Runs one Spark on attempts; raises SparkFailedError, or InstallationError, where it fails for one of them or all.

What else it raises is the error of all these attempts, and of no other one.
"""

Written = dict[UUID, Exception | None]
"""Batches, with why they could not be written, None where they are."""


def write_batch(
    parts: FeedParts, batch_id: UUID, submit: Submit, *, actor: str, on_failure: Callable[[], object] = lambda: None
) -> None:
    """Write a batch and pin its receipt, unless it is written.

    Once more where Spark found schema ids to ask for, or the output refuses rows that the feed makes dead letters of.

    Raises the named error behind a failure where one is found, else Spark's own; ``on_failure`` is called before.
    """
    for written in write_batches([Work(parts, batch_id)], submit, actor=actor, on_failure=lambda _: on_failure()):
        for error in filter(None, written.values()):
            raise error


def write_batches(
    works: Sequence[Work], submit: Submit, *, actor: str, on_failure: Callable[[FeedParts], object] = lambda _: None
) -> Iterator[Written]:
    """Do the same for several batches; yield those of each application of Spark once it has ended.

    Attempts whose applications would differ in nothing else share one. What an attempt does fails that one alone. Where
    the driver died, those that it had not begun are written by another one, and each that was at work, or ran out of
    memory that it shared, by one of its own: which one it died of is not known.
    """
    waiting, installed = deque([(list(works), ROUNDS)]), cache(installation)
    while waiting:
        together, tries = waiting.popleft()
        opening = each_tried(partial(begin, actor=actor, installed=installed if len(works) > 1 else None), together)
        yield {work.batch_id: each.error for work, each in zip(together, opening, strict=True) if each.result is None}
        for group in applications([each.result for each in opening if each.result is not None]):
            with Tried[None]() as ran:
                submit(group)
            cut_off = to_begin_again(group, ran.error)
            for others in cut_off:
                waiting.append(([each.work for each in others], tries))
            settled = [each for each in group if not any(each in others for others in cut_off)]
            end = partial(
                settle, actor=actor, ended=ran.error, alone=len(group) == 1, may_retry=tries > 1, on_failure=on_failure
            )
            found = dict(zip((each.plan.batch_id for each in settled), each_tried(end, settled), strict=True))
            if again := [each.work for each in settled if found[each.plan.batch_id].result is False]:
                waiting.append((again, tries - 1))
            yield {batch_id: each.error for batch_id, each in found.items() if each.result is not False}


def begin(work: Work, *, actor: str, installed: Callable[[], Installation] | None) -> Opened | None:
    """Open an attempt at a batch, ``installed`` if it is one of several; None where it is written already."""
    parts = work.parts
    plan = parts.batch(work.batch_id).plan
    attempt = open_next_attempt(work, actor=actor)
    if attempt is None and refuses_rows(work, actor=actor):
        attempt = open_next_attempt(work, actor=actor)
    if attempt is None:
        log.info("batch %s is written already: no need for Spark", work.batch_id)
        return None
    opened = Opened(parts, plan, attempt)
    return opened if installed is None else replace(opened, alike=alike_of(opened, installed()))


def open_next_attempt(work: Work, *, actor: str) -> Attempt | None:
    parts, decoding = work.parts, work.parts.feed.decoding()
    if parts.feed.sink.keeps_refused:
        decoding = replace(decoding, refused=refused_before(work.batch_id, parts))
    return open_attempt(
        work.batch_id,
        parts,
        actor=actor,
        decoding=decoding,
        freeze=parts.schemas.frozen,
        rules=parts.column_rules,
        late_by=parts.feed.late_by,
    )


def refuses_rows(work: Work, *, actor: str) -> bool:
    """Whether a written batch is to be written again, with dead letters for rows that its output refuses."""
    return work.parts.feed.sink.keeps_refused and take_back(work.batch_id, work.parts, actor=actor)


def to_begin_again(group: Sequence[Opened], ended: Exception | None) -> list[list[Opened]]:
    """Return those attempts of a driver that died with which other ones are to be begun, those of one together."""
    if len(group) == 1 or not isinstance(ended, SparkFailedError) or not ended.begun:
        return []
    # What cannot be asked is settled: that raises why.
    asked = each_tried(has_ended, group)
    open_ones = [number for number, each in enumerate(asked) if each.result is False]
    at_work = [[group[number]] for number in open_ones if number in ended.begun]
    others = [group[number] for number in open_ones if number not in ended.begun]
    return [*([others] if others else []), *at_work]


def has_ended(opened: Opened) -> bool:
    """Whether the job has left a receipt, or the reason of a failure that is the attempt's own."""
    staging = opened.parts.sinks(opened.plan.output).staging
    if staging.read_receipt(opened.attempt.directory) is not None:
        return True
    failure = staging.read_failure(opened.attempt.directory)
    return failure is not None and not may_be_of_another(failure)


def settle(
    opened: Opened,
    *,
    actor: str,
    ended: Exception | None,
    alone: bool,
    may_retry: bool,
    on_failure: Callable[[FeedParts], object],
) -> bool:
    """Pin an attempt's receipt, or raise why it failed; False where another attempt is to be made at once.

    That asks for schemas that this one found, or makes dead letters of rows that the output refuses.
    """
    parts, plan, attempt = opened.parts, opened.plan, opened.attempt
    staging = parts.sinks(plan.output).staging if not alone else None
    if ended is None or (staging is not None and staging.read_receipt(attempt.directory) is not None):
        pin_attempt(plan.batch_id, attempt.attempt, parts)
        if not refuses_rows(opened.work, actor=actor):
            return True
        if may_retry:
            return False
        raise StagedOutputUnusableError(
            f"batch {plan.batch_id}: expected {plan.output} to take what {ROUNDS} attempts have written, found that it "
            "refuses other rows each time. No offset was moved. Run it again: the next attempt makes dead letters of "
            "these, too."
        )
    if alone and not isinstance(ended, SparkFailedError | InstallationError):
        raise ended
    if may_retry and needs_schemas(parts, attempt, plan):
        log.info("attempt %d found schema ids that the registry has to be asked for", attempt.attempt)
        return False
    on_failure(parts)
    if staging is not None and (failure := staging.read_failure(attempt.directory)) is not None:
        said = without_secrets(informative_lines(failure), secrets_of(opened))
        where = f" (the log of all: {ended.log})" if isinstance(ended, SparkFailedError) and ended.log else ""
        ended = SparkFailedError(
            f"Spark could not write attempt {attempt.attempt} of batch {plan.batch_id}{where}: {said}"
        )
    # The error has the end of Spark's output, its cause may have more.
    explain(parts, attempt, f"{ended}\n{ended.__cause__ or ''}")
    raise ended


def secrets_of(opened: Opened) -> tuple[str, ...]:
    """Return what nothing may show of what Spark says of an attempt."""
    access = opened.parts.access(opened.plan.output)
    return (*opened.parts.kafka_client.secrets(), *(access.secrets if access is not None else ()))


def needs_schemas(parts: FeedParts, attempt: Attempt, plan: BatchPlan) -> bool:
    """Whether an attempt ended since it found schema ids that the registry was not asked for: the next one asks."""
    return parts.feed.decoding().has_sources and bool(ids_in(failure_of_job(parts, attempt, plan)))


def failure_of_job(parts: FeedParts, attempt: Attempt, plan: BatchPlan) -> str:
    """Return what the Spark job left as the reason of its failure; nothing where it could not."""
    return parts.sinks(plan.output).staging.read_failure(attempt.directory) or ""


def explain(parts: FeedParts, attempt: Attempt, said: str) -> None:
    """Raise the named error behind a failed Spark run, if one is found; ``said`` is what spark-submit reported."""
    explain_failure(attempt, parts)
    batch = parts.control.batch(attempt.batch_id)
    failure = failure_of_job(parts, attempt, batch.plan)
    if fault := machines_fault(failure):
        raise fault
    has_run_out = ran_out_of_memory(said) or ran_out_of_memory(failure)
    if has_run_out or may_have_run_out_of_memory(said):
        hold_too_large(batch, parts.heap, parts.control, parts.kafka)
    if has_run_out:
        raise out_of_memory(batch.plan, parts.master, parts.feed.spark.conf)


def applications(opened: Sequence[Opened]) -> list[Sequence[Opened]]:
    """Return which attempts share an application of Spark: the smallest first, since it delays the others least."""
    groups: list[list[Opened]] = []
    for each in opened:
        alike = (group for group in groups if group[0].alike == each.alike and len(group) < MOST_TOGETHER)
        if (group := next(alike, None)) is None:
            groups.append(group := [])
        group.append(each)
    return sorted(groups, key=lambda group: sum(each.plan.max_rows for each in group))


def alike_of(opened: Opened, installed: Installation) -> object:
    """Return what an application of Spark is started with, except for its attempts; raises what forbids to start it."""
    parts, access = opened.parts, opened.parts.access(opened.plan.output)
    parts.kafka_client.java_settings()
    call = call_of(opened, parts.master, installed, Path(), store_of(opened, access))
    return replace(call, name="", arguments=(), secrets=()), access


def submission(opened: Sequence[Opened], *, master: SparkMaster | None = None) -> SparkSubmission:
    """Return the spark-submit call of attempts that share one, with its workplace, which the caller removes.

    ``master``: where another Spark than the feed's runs it.
    """
    first, installed, workplace = opened[0], installation(), make_workplace()
    try:
        access = first.parts.access(first.plan.output)
        store = store_of(first, access.with_key_in(workplace) if access is not None else None)
        several = first.alike is not None
        secret = JobSettings(
            [each.parts.kafka_client.java_settings() for each in opened],
            store.access.as_json() if store else None,
            [each.parts.feed.airflow.execution_timeout.total_seconds() for each in opened] if several else (),
        )
        equip(workplace, package_zip(), secret)
        return together([call_of(each, master or each.parts.master, installed, workplace, store) for each in opened])
    except BaseException:
        remove_workplace(workplace)  # it may hold a key
        raise


def store_of(opened: Opened, access: StoreAccess | None) -> StoreOfAttempt | None:
    """Return what an attempt needs of a store; None where its output is on a disk."""
    if access is None:
        return None
    names = SPARK_STORES[access.scheme].role
    role = {name: value for name, value in opened.parts.environment.items() if name.startswith(names)}
    return StoreOfAttempt(access, role)


def call_of(
    opened: Opened, master: SparkMaster, installed: Installation, workplace: Path, store: StoreOfAttempt | None
) -> SparkSubmission:
    """Return the spark-submit call of one attempt."""
    parts, settings = opened.parts, opened.parts.feed.spark
    role = {
        name: value
        for name, value in opened.parts.environment.items()
        if opened.parts.kafka_client.is_by_role and name.startswith(SPARK_STORES["s3"].role)
    }
    wait = {} if master.is_local else {MAX_WAIT_FOR_EXECUTORS: f"{settings.max_wait_for_executors.total_seconds():.0f}"}
    return spark_submission(
        opened.plan,
        opened.attempt,
        spark=SparkRun(master, {**settings.conf, **wait}, parts.feed.decoding(), role),
        kafka=parts.kafka_client,
        sink_is_shared=parts.feed.sink.shared,
        installed=installed,
        workplace=workplace,
        store=store,
    )


def plan_preview(parts: FeedParts, directory: Path, records: int) -> BatchPlan | None:
    """Return a batch of a few of the newest records that is never committed; None where the topics hold no record.

    ``directory`` is the caller's, who removes it.
    """
    parts.check_decoders()
    return preview_plan(parts.plan_settings, parts.kafka, directory, records)


def begin_preview(
    parts: FeedParts, plan: BatchPlan, failed: Sequence[Attempt]
) -> tuple[Attempt, SparkSubmission, ComparedColumns]:
    """Return an attempt at such a batch, and how to run Spark on it here; ``failed`` are those before it.

    With how its columns go with those of the feed's output.
    """
    decoding = parts.feed.decoding()
    attempt, compared = open_preview(plan, decoding, parts.sinks, parts.schemas.frozen, failed, parts.compare_columns)
    here = SparkMaster(parts.feed.spark.conn_id, "local[2]")
    return attempt, submission([Opened(parts, plan, attempt)], master=here), compared


def may_preview_again(parts: FeedParts, plan: BatchPlan, attempt: Attempt) -> bool:
    """Whether a preview's next attempt may succeed; raises InvalidExpressionError where Spark refused an expression."""
    check_expressions(failure_of_job(parts, attempt, plan), f"feed {parts.feed.name}")
    return needs_schemas(parts, attempt, plan)
