"""What an operator decides about a feed, by form: see first what it would do, then do it with a reason.

The form runs the functions of the command line. A dry run is the default: its log and its XCom say what would be done,
and nothing is changed. "Trigger again with this config", on the run's page, opens the form filled in: take the dry run
out, and give a reason. The audit journal keeps the reason, and the Airflow user who triggered the run.

A decision is made once in a run. Its task is not tried again, and refuses after it was cleared.
"""

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator, Context, Param
from rich.console import Console

from kafka_ingest.airflow_tasks.dag_arguments import (
    MANUAL,
    NONE,
    TRIGGERED,
    are_all,
    files_for_form,
    only_runs,
    params_of,
    text,
    tick,
)
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow
from kafka_ingest.errors import InvalidOperationError, KafkaIngestError
from kafka_ingest.foundation.foreign_json import on_one_line, storable, storable_document
from kafka_ingest.settings.connections import find_connection_in_task
from kafka_ingest.settings.feed import NAME
from kafka_ingest.verbs.answer import Answer, Check, FittingTable, Line, document_of_error
from kafka_ingest.verbs.operate_form import VERBS, OperateForm
from kafka_ingest.verbs.plan import Plan
from kafka_ingest.verbs.request import LONGEST_REASON

RETURNED: Final = "return_value"
LOG_WIDTH: Final = 160
NO_USER: Final = "(no user)"

LARGEST_DOCUMENT: Final = 48_000
"""Characters of an XCom: Airflow keeps it in its own database, where MySQL takes 65,535 bytes."""

FEWER: Final = (100, 20, 5, 0)
"""How many entries stay in a document's lists, and in objects with more than the first: columns may be thousands.

The first number is taken that makes the document small enough.
"""

LONGEST_TEXT: Final = 1_000
"""Characters of a text in a document that is shortened, such as the type of a column."""

TO_EXECUTE: Final = "Nothing was changed: trigger again with this config, without dry run and with a reason, to do it."


class OperateOperator(BaseOperator):
    """Runs one action. Its XCom is what ``--json`` prints, also where it fails; its log is what people read."""

    def execute(self, context: Context) -> dict[str, Any]:
        with errors_for_airflow():
            try:
                form = OperateForm.of(context["params"])
                actor = actor_of(context)
                self.log.info("%s", on_one_line(said(form, actor)))
                check_first_try(form, context)
                answer = form.answer(actor, find_connection_in_task, self._log_check)
            except KafkaIngestError as error:
                context["ti"].xcom_push(RETURNED, document_of_error(error))
                raise
        self._log_answer(answer)
        document = small(storable_document(json.loads(json.dumps(answer.whole_document(), default=str))))
        # What a dry run finds is its answer; that something is wrong is an answer only where it was asked for.
        if answer.exit_code and (form.decides or form.verb.only_shows):
            context["ti"].xcom_push(RETURNED, document)
            raise AirflowFailException(f"{form.verb.verb} found what is not as it should be; the log above says what")
        return document

    def _log_answer(self, answer: Answer) -> None:
        for each in answer.shown:
            if isinstance(each, Line):
                (self.log.warning if each.aside else self.log.info)("%s", storable(each.text))
            else:
                for line in lines_of_table(each):
                    self.log.info("%s", line)
        if answer.only_shown:
            self.log.info(TO_EXECUTE)

    def _log_check(self, check: Check) -> None:
        if check.error is None:
            self.log.info("✓ %s: %s", check.about, storable(check.found))
        else:
            self.log.warning("✗ %s: %s: %s", check.about, check.error.code, storable(str(check.error)))


def actor_of(context: Context) -> str:
    """Return the actor for the audit journal: who triggered the run, as Airflow's API server noted it, and the run.

    A run that no user triggered is named so. A DAG run keeps its user for good, whoever else clears its task.
    """
    dag_run = context["dag_run"]
    # Airflow has it since 3.1.
    user = getattr(dag_run, "triggering_user_name", None) or NO_USER
    return storable(f"airflow:{user}@{dag_run.dag_id}/{dag_run.run_id}")


def check_first_try(form: OperateForm, context: Context) -> None:
    """Raise InvalidOperationError where a decision is made a second time.

    It would be journalled under the name of who triggered the run, not of who cleared it; and an offset that was
    shifted would be shifted again.
    """
    if form.decides and context["ti"].try_number > 1:
        raise InvalidOperationError(
            "expected a decision to be made once in a run, found that this task has run before and was cleared. See "
            "the earlier try's log for what was done. Trigger operate_feed again to decide again: the journal then "
            "names who does. Nothing was changed."
        )


def said(form: OperateForm, actor: str) -> str:
    what = "does" if form.decides else "shows"
    of_feed = f" of feed {form.of_all.feed}" if form.of_all.feed is not None else ""
    values = ", and what records hold" if getattr(form.request, "show_values", False) else ""
    reason = f"; reason: {form.of_all.reason}" if form.of_all.reason is not None else ""
    return f"{actor} {what} {form.verb.verb}{of_feed}{values}{reason}"


def lines_of_table(table: FittingTable) -> Iterator[str]:
    console = Console(file=io.StringIO(), width=LOG_WIDTH, color_system=None, highlight=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        if text := line.rstrip():
            yield text


def small(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that fits into an XCom: where it is cut, ``shortened`` says so; the log has all of it."""
    if len(json.dumps(document)) <= LARGEST_DOCUMENT:
        return document
    made: dict[str, Any] = {}
    for most in FEWER:
        made = {**{key: cut(value, most) for key, value in document.items()}, "shortened": True}
        if len(json.dumps(made)) <= LARGEST_DOCUMENT:
            break
    return made


def cut(value: Any, most: int) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return JSON whose lists have so many entries at most, and so have objects that are wide; texts are short."""
    if isinstance(value, list):
        return [cut(each, most) for each in value[:most]]
    if isinstance(value, dict):
        kept = list(value.items())[: most if len(value) > FEWER[0] else None]
        return {key: cut(each, most) for key, each in kept}
    return f"{value[:LONGEST_TEXT]}…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def place_of(param: Param) -> int:
    """Return where a field stands: where the first action that its section names stands."""
    return list(VERBS).index(param.schema["section"].partition(",")[0])


DAG_ID = "operate_feed"

EXECUTION_TIMEOUT = timedelta(hours=12)
"""Counting a large output takes long; a decision seconds."""


def feed_param() -> Param:
    """Return the field that names the feed. It has no default, so that no feed is chosen by mistake."""
    files = files_for_form()
    named = {feed.name for file in files if (feed := file.feed or file.contested) is not None}
    # Broken ones too, whose error `doctor` shows. Without any the form still opens, and the task says what is missing.
    broken = {file.path.stem for file in files if file.error is not None}
    names = sorted(named | {name for name in broken if NAME.fullmatch(name)})
    some: dict[str, Any] = {"enum": [*names, None], "values_display": NONE} if are_all(files) else {"examples": names}
    known = some if names else {}
    return text(
        "Feed",
        "Empty only with doctor and clean (all feeds), db-upgrade, explain, and where abandon, restore, "
        "clean or give-up-dead-letters name a batch.",
        **known,
    )


PARAMS = {
    "action": Param(
        Plan.verb,
        type="string",
        enum=list(VERBS),
        title="Action",
        # A table of them would stand before the fields that matter.
        values_display={name: f"{name}: {verb.does}" for name, verb in VERBS.items()},
        description_md="What is to be done; below are the fields that an action takes, under its name.",
    ),
    "dry_run": tick("Dry run", "Show what the action would do, and change nothing.", is_on=True),
    "reason": text(
        "Why",
        "Needed without a dry run. Kept in the audit journal, with your name: no secrets.",
        maxLength=LONGEST_REASON,
    ),
    **dict(sorted(params_of(*VERBS.values()).items(), key=lambda each: place_of(each[1]))),
}


def operating_dag() -> DAG:
    with DAG(
        dag_id=DAG_ID,
        description="Decisions about a feed: shown first, then made with a reason",
        doc_md=__doc__,
        schedule=None,
        **only_runs(MANUAL, TRIGGERED),
        params={"feed": feed_param(), **PARAMS},
        tags=["kafka_ingest", "operate"],
    ) as dag:
        # Not tried again: what an operator decides is done once, or the operator looks first.
        OperateOperator(task_id="operate", retries=0, execution_timeout=EXECUTION_TIMEOUT)
    return dag
