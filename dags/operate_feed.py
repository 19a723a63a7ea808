"""What an operator decides about a feed, by form: see first what it comes to, then do it with a reason.

The form runs the functions of the command line. A dry run is the default: its log and its XCom say what would be done,
and nothing is changed. "Trigger again with this config", on the run's page, opens the form filled in: take the dry run
out, and give a reason. The audit journal keeps the reason, and the Airflow user who triggered the run.

A decision is made once in a run. Its task is not tried again, and refuses after it was cleared.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context

from kafka_ingest.airflow_tasks.form_params import NONE, choice, lines, number, text, tick
from kafka_ingest.airflow_tasks.operating_tasks import OperateOperator
from kafka_ingest.batches.preview import MOST_RECORDS
from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.operating.topic_changed import BatchChoice, Choice
from kafka_ingest.settings.feed import NAME
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.form_fields import OFFSET_RANGE, RECORD
from kafka_ingest.settings.operate_form import LONGEST_PATH, Action

DAG_ID = "operate_feed"

EXECUTION_TIMEOUT = timedelta(hours=12)
"""Counting a large output takes long; a decision seconds."""

# Airflow's own converter takes names; its annotation names an enum that the SDK does not export.
RUN_TYPES: Any = ("manual", "operator_triggered")

asked = get_parsing_context()


def feed_names() -> list[str]:
    """Return the feeds that have a file, broken ones included: `doctor` says what is wrong with those.

    Empty where a task is started: it needs no form, and fails itself where its run's feed is unknown.
    """
    if asked.task_id is not None or asked.dag_id not in {None, DAG_ID}:
        return []
    try:
        files = read_feed_files(feeds_directory())
    except (InvalidFeedError, OSError):
        return []
    named = {feed.name for file in files if (feed := file.feed or file.contested) is not None}
    broken = {file.path.stem for file in files if file.error is not None}
    return sorted(named | {name for name in broken if NAME.fullmatch(name)})


def feed_param(names: list[str]) -> Param:
    """Return the field that names the feed. It has no default, so that no feed is chosen by mistake."""
    # Without any feed the form still opens, and the task says what is missing.
    known: dict[str, Any] = {"enum": [*names, None], "values_display": NONE} if names else {}
    return text(
        "Feed",
        "Empty only with doctor and clean (all feeds), db-upgrade, explain, and where abandon, restore, "
        "clean or give-up-dead-letters name a batch.",
        **known,
    )


EXPLAINED = {
    action.value: f"{action}: {what}"
    for action, what in {
        Action.PLAN: "only shows the next batch",
        Action.DOCTOR: "only checks that all parts are installed, reachable and of matching versions",
        Action.VERIFY_COVERAGE: "only checks that every offset is accounted for, and counts the output",
        Action.LOCATE: "only shows what happened to one offset: its batch, its file, or why there is none",
        Action.EXPLAIN: "only shows which offsets are in a data file, and whether its batch's receipt fits",
        Action.PREVIEW: "only shows what becomes of the newest records, by Spark on the worker",
        Action.DEAD_LETTERS: "only shows which records could not be decoded, by cause",
        Action.SKIP: "jumps over offsets, and files them as a gap; or acknowledges an open gap",
        Action.RESET: "moves stored offsets",
        Action.TOPIC_CHANGED: "shows which topics changed under the stored offsets, and applies a choice",
        Action.ABANDON: "gives an open batch up",
        Action.RESTORE: "publishes the staged files of an abandoned batch",
        Action.MIRROR: "sets the consumer group to the stored offsets",
        Action.CLEAN: "removes staged output that has expired, or a batch's",
        Action.LOST: "files gaps for the records of a batch's lost or damaged files",
        Action.GIVE_UP_DEAD_LETTERS: "removes a batch's dead letters for good, or records that they are lost",
        Action.EXPIRE: "removes old batches from the output; their receipts stay",
        Action.FOLD: "replaces what the control tables hold of old batches by sums; coverage stays provable",
        Action.MEND_STATISTICS: "lets readers of a Delta table look for the bounds that all of its files have",
        Action.ADOPT: "rebuilds control rows from the output's receipts",
        Action.RENAME: "gives a feed another name, and keeps its offsets",
        Action.DB_UPGRADE: "brings the control tables to this version's schema",
    }.items()
}
"""What the list of actions shows of each: a table of them would stand before the fields that matter."""

SKIP, RESET, TOPICS = "skip", "reset, topic-changed", "topic-changed"
BATCH = "abandon, restore, clean, lost, dead-letters, give-up-dead-letters"
LOCATE, EXPLAIN, PREVIEW, RECORDS = "locate", "explain", "preview", "preview, dead-letters"
EXPIRE, RENAME, TABLES = "expire, fold", "rename", "db-upgrade"

PARAMS = {
    "feed": feed_param(feed_names()),
    "action": Param(
        Action.PLAN.value,
        type="string",
        enum=[action.value for action in Action],
        title="Action",
        values_display=EXPLAINED,
        description_md="What is to be done; below are the fields that an action takes, under its name.",
    ),
    "dry_run": tick("Dry run", "Show what the action comes to, and change nothing.", is_on=True),
    "reason": text(
        "Why",
        "Needed without a dry run. Kept in the audit journal, with your name: no secrets.",
        maxLength=2_000,
    ),
    "record": text(
        "Record",
        "TOPIC:PARTITION=OFFSET, such as orders:0=1200.",
        LOCATE,
        pattern=RECORD,
    ),
    "file": text(
        "File",
        "The absolute path of a data file on a disk, in the output of a batch that the control tables know.",
        EXPLAIN,
        maxLength=LONGEST_PATH,
    ),
    "records": number(
        "Records", "How many of the newest ones, about; empty: 20.", PREVIEW, minimum=1, maximum=MOST_RECORDS
    ),
    "show_values": tick(
        "Show what records hold",
        "Rows, or the beginnings of keys and values, and errors that may quote them: in the log and in the XCom, for "
        "all who may read those of this DAG. Without it: where the records are, their columns and causes.",
        RECORDS,
    ),
    "offset_range": text(
        "Offsets to skip",
        "TOPIC:PARTITION=FROM-TO, such as orders:0=1200-1210. FROM is skipped, TO is the next to read.",
        SKIP,
        pattern=OFFSET_RANGE,
    ),
    "to": text(
        "Move to",
        "For reset: earliest, latest, timestamp=2026-01-31T00:00:00Z, group=NAME, "
        "offsets=TOPIC:PARTITION=OFFSET,…, or batch=ID, where it began.",
        RESET,
    ),
    "shift_by": number("Or move by", "For reset: this many offsets forward, or back: -100.", RESET),
    "topics": lines(
        "Only these topics", "One per line; empty: all. For reset also TOPIC:0,1, some of its partitions.", RESET
    ),
    "keep_group": tick(
        "Leave the consumer group", "For reset: the next commit takes the group along, not this run.", RESET
    ),
    "choice": choice(
        "What the topics hold now",
        [each.value for each in Choice],
        "The dry run says which choices fit, and shows what each would do.",
        TOPICS,
    ),
    "open_batch": choice(
        "The open batch",
        [each.value for each in BatchChoice],
        "What becomes of a batch that was read while its topic changed. accept comes alone.",
        TOPICS,
    ),
    "batch_id": text(
        "Batch",
        "Its id. abandon without one says which batches are open. clean with one: that batch alone, at once, last "
        "copies included. dead-letters without one: of all batches. restore and give-up-dead-letters without one "
        "say which there are, where a feed is chosen.",
        BATCH,
    ),
    "lost_output": tick(
        "Its output is gone", "For abandon: gone for good, and need not be asked whether it was published.", BATCH
    ),
    "before": text(
        "Written before, or committed before",
        "A date, a time with a zone, or how long ago: 2026-01-31, 2026-01-31T12:00:00Z, 90d. fold without one: "
        "the feed's control_retention decides.",
        EXPIRE,
    ),
    "new_name": text("New name", "The name that the feed's file is to have from now on.", RENAME),
    "old_name": text("Or its old name", "Where the file has the new name already: the one before.", RENAME),
    "create": tick("Create", "Make the control tables where there are none yet.", TABLES),
}

if asked.dag_id in {None, DAG_ID}:
    with DAG(
        dag_id=DAG_ID,
        description="Decisions about a feed: shown first, then made with a reason",
        doc_md=__doc__,
        schedule=None,
        allowed_run_types=RUN_TYPES,
        params=PARAMS,
        tags=["kafka_ingest", "operate"],
    ):
        # Not tried again: what an operator decides is done once, or the operator looks first.
        OperateOperator(task_id="operate", retries=0, execution_timeout=EXECUTION_TIMEOUT)
