"""What the pages say in figures, names, exit codes and commands is what the code has."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.unit.test_documents import COMMANDS, PAGES, ROOT

from kafka_ingest import errors
from kafka_ingest.airflow_tasks import metrics, notifying, openlineage_facets
from kafka_ingest.airflow_tasks.dags import checking_dag
from kafka_ingest.batches import commit_batch as announcement
from kafka_ingest.batches import decide_backfill as chunks
from kafka_ingest.cluster import client_settings
from kafka_ingest.control import database
from kafka_ingest.foundation import foreign_json
from kafka_ingest.model import avro_columns, batch_limits, partition_term, record_schema
from kafka_ingest.model import omissions as never_found
from kafka_ingest.observing import group_drift
from kafka_ingest.page import kept_answers, metrics_app, one_feed, sources
from kafka_ingest.schemas import schema_registry
from kafka_ingest.settings import feed, plain_yaml, setting_types
from kafka_ingest.settings.feed import LEAST_RETENTION, AirflowSettings, Kafka, Limits, Spark
from kafka_ingest.settings.feed_sections import Alerts, Complete
from kafka_ingest.settings.sink_settings.local_directory import ParquetSink
from kafka_ingest.settings.sink_settings.of_connections import KafkaSink, PostgresqlSink
from kafka_ingest.settings.sink_settings.table import DeltaSink, IcebergSink
from kafka_ingest.sinks.delta import add_actions, log_reading
from kafka_ingest.sinks.iceberg import one_try, rest_catalog, table_io
from kafka_ingest.verbs import preview
from kafka_ingest.writing import json_values

CURRENT = [page for page in PAGES if page.name not in {"CHANGELOG.md", "decisions.md"} and page.parent.name != "bench"]
"""Those that say how it is, and not how it became so."""
MIB = 1024 * 1024

FIGURES: list[tuple[str, str, float]] = [
    ("alerts.md", "Kafka does not answer within {} seconds", checking_dag.KAFKA_TIMEOUT_S),
    ("alerts.md", "{} records at least", batch_limits.LEAST_RECORDS),
    ("alerts.md", "and in {} characters", notifying.LONGEST_REASON),
    ("alerts.md", "takes more than {} seconds", notifying.NOTIFY_TIMEOUT_S),
    ("backfill.md", "a backfill has at most {} chunks", chunks.MOST_CHUNKS),
    ("cli.md", "on a line of at most {} characters", preview.LONGEST_LINE),
    ("crashes.md", "a busy time-out of {} s", database.BUSY_TIMEOUT_S),
    ("dead-letters.md", "in at most {} characters", json_values.LONGEST_TEXT),
    ("dead-letters.md", "it is {} for an output's first batch", batch_limits.MOST_PERCENT),
    ("feed-files.md", "Default: {} for an output's first batch", batch_limits.MOST_PERCENT),
    ("feed-files.md", "A file has at most {} MiB, ", plain_yaml.MAX_BYTES / MIB),
    ("feed-files.md", "{} keys and values with its aliases expanded", plain_yaml.MAX_VALUES),
    ("feed-files.md", "aliases expanded, and {} levels", plain_yaml.MAX_DEPTH),
    ("feed-files.md", "{} problems and about 4,000 characters", setting_types.MAX_PROBLEMS),
    ("feed-files.md", "{} fields and 20 levels. With `columns: flatten`", record_schema.MAX_FIELDS),
    ("feed-files.md", "1,000 fields and {} levels. With `columns: flatten`", record_schema.MAX_DEPTH),
    ("feed-files.md", "a value with more levels than {}, or than fit", avro_columns.DEEPEST[0]),
    ("feed-files.md", "or than fit {} fields", avro_columns.MOST_UNROLLED),
    ("feed-files.md", "It may have {} characters of printable ASCII", feed.LONGEST_PATTERN),
    ("feed-files.md", "whose batches all have fewer than {} records", never_found.LEAST_RECORDS),
    ("lineage.md", "An event has at most {} topics", announcement.MAX_TOPICS),
    ("lineage.md", "100 topics, {} ranges", announcement.MAX_RANGES),
    ("lineage.md", "100 ranges and {} fields", openlineage_facets.MAX_FIELDS),
    ("metrics.md", "most {} seconds a question", metrics.KAFKA_TIMEOUT_S),
    ("metrics.md", "At least {} characters; shorter ones count as none", metrics_app.SHORTEST),
    ("metrics.md", "A new one is used after {} seconds", kept_answers.FRESH_S),
    ("metrics.md", "an answer that is older than {} minutes is not shown", metrics_app.OLDEST_S / 60),
    ("output.md", "more than {} levels", json_values.MOST_LEVELS),
    ("page.md", "page, for at most {} seconds", sources.KAFKA_TIMEOUT_S),
    ("page.md", "after {} seconds while Kafka is being asked", one_feed.REFRESH_PENDING_S),
    ("page.md", "while Kafka is being asked, otherwise every {}", one_feed.REFRESH_S),
    ("page.md", "at most {} groups are asked", group_drift.MOST_ASKED),
    ("page.md", " for {} seconds:", group_drift.LOOK_S),
    ("retention.md", "{} days ago at the latest", LEAST_RETENTION / timedelta(days=1)),
    ("security.md", "`socket.timeout.ms`, by default {} s", client_settings.DEFAULT_REQUEST_TIMEOUT_S),
    ("security.md", "{} seconds, and one that comes in small pieces", schema_registry.READ_TIMEOUT_S),
    ("security.md", "one that comes in small pieces after {}.", schema_registry.ANSWER_TIMEOUT_S),
    ("security.md", "| a lock, or SQLite's file | {} s |", database.BUSY_TIMEOUT_S),
    ("security.md", "| a statement | {} s,", database.STATEMENT_TIMEOUT_S),
    ("security.md", "does not respond | {} s,", database.TRANSACTION_TIMEOUT_S),
    ("security.md", "numbers beyond {} bits", foreign_json.MOST_BITS),
    ("security.md", "more than {} levels or", foreign_json.MOST_LEVELS),
    ("security.md", "{} MiB are refused by name", foreign_json.MOST_BYTES / MIB),
    ("security.md", "{} MiB an entry of a Delta log", log_reading.MOST_OF_ENTRY / MIB),
    ("security.md", "{} MiB unpacked", table_io.MOST_UNPACKED / MIB),
    ("security.md", "{} MiB unpacked, as what is read of a Delta checkpoint", log_reading.MOST_OF_CHECKPOINT / MIB),
    ("sinks.md", "(cut to {} characters in Delta", add_actions.LONGEST_BOUND),
    ("sinks.md", "A batch has {} files at most", partition_term.MOST_FILES),
    ("sinks.md", "A REST server has {} s to take a connection", rest_catalog.CONNECT_TIMEOUT_S),
    ("sinks.md", "and {} s for each piece of an answer", rest_catalog.ANSWER_TIMEOUT_S),
    ("sinks.md", "{} that are older leave together", one_try.AT_ONCE),
    ("../README.md", "records of more than {} partitions of its table", partition_term.MOST_FILES),
]
"""Page, what it says with {} in the place of the figure, and the figure."""
WORDS = {2: "two", 10: "ten"}


def text_of(page: Path) -> str:
    """Return a page on one line, so that no line's end is within a sentence."""
    return " ".join(page.read_text().split())


@pytest.mark.parametrize(("page", "said", "figure"), FIGURES, ids=[f"{page} {said}" for page, said, _ in FIGURES])
def test_a_figure_of_a_page_is_that_of_the_code(page: str, said: str, figure: float) -> None:
    text = text_of(ROOT / "docs" / page)
    forms = {f"{figure:,.0f}", WORDS.get(int(figure), "")} - {""}
    assert figure == int(figure)
    assert any(said.format(form) in text for form in forms), f"expected {said.format(f'{figure:,.0f}')!r} in {page}"


def error_codes() -> dict[str, int]:
    """Return the exit codes of all named errors by their names."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    found = [kind("") for kind in kinds if issubclass(kind, errors.KafkaIngestError)]
    return {each.code: each.exit_code for each in found}


EXIT_CODES = (
    re.compile(r"`([A-Z]+(?:_[A-Z]+)+)` \(exit(?: code)? ([0-3])\b"),
    re.compile(r"`([A-Z]+(?:_[A-Z]+)+)`, exit code ([0-3])\b"),
    re.compile(r"\| `([A-Z]+(?:_[A-Z]+)+)` \| ([0-3]) \|"),
)


def test_the_exit_code_that_a_page_gives_an_error_is_the_errors_own() -> None:
    known = error_codes()
    found = [
        (page.name, name, int(code), known.get(name))
        for page in CURRENT
        for pattern in EXIT_CODES
        for name, code in pattern.findall(text_of(page))
    ]
    assert len(found) > 10
    assert [each for each in found if each[2] != each[3]] == []


OF_OTHERS = frozenset({"CAST_INVALID_INPUT", "DESCRIBE_CONFIGS", "RENAME_EXCHANGE", "SASL_PLAINTEXT", "SASL_SSL"})
"""Names of Spark's, Kafka's and Linux' own."""


def of_the_code() -> str:
    """Return the text of all that gives something its name."""
    folders = [ROOT / name for name in ("plugins", "dags", "jobs", "dev", "tests")]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".sh", ".yaml", ".toml"}
    ]
    return "\n".join(path.read_text() for path in (*files, ROOT / "docker-compose.yaml", ROOT / "Makefile"))


def test_each_name_in_capitals_is_one_of_the_code() -> None:
    """Errors, classes of dead letters, variables of the environment."""
    known = set(re.findall(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", of_the_code())) | error_codes().keys() | OF_OTHERS
    unknown = {
        f"{page.name}: {name}"
        for page in CURRENT
        for name in re.findall(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`", page.read_text())
        if name not in known and not name.startswith(("AIRFLOW_", "AZURE_", "GOOGLE_"))
    }
    assert unknown == set()


def commands_in(page: Path) -> Iterator[str]:
    """Yield what a page has behind ``kafka-ingest`` in spans and blocks of code."""
    text = re.sub(r"```mermaid.*?```", "", page.read_text(), flags=re.DOTALL)
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL) + re.findall(
        r"^    (.+)$", text, flags=re.MULTILINE
    )
    for code in [*re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)), *blocks]:
        for line in code.replace("\\\n", " ").splitlines() if code in blocks else [" ".join(code.split())]:
            yield from re.findall(r"kafka-ingest ([a-z][^|;&#]*)", line)


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_each_call_of_the_command_line_names_a_command_and_options_that_it_has(page: Path) -> None:
    for call in commands_in(page):
        words = call.split()
        name = next((found for found in (" ".join(words[:2]), words[0]) if found in COMMANDS), None)
        assert name is not None, f"kafka-ingest {call}: no such command"
        options = {
            option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        named = re.findall(r"(?<![\w-])--[a-z][a-z-]*", call)
        assert set(named) <= options | {"--json", "--help"}, f"kafka-ingest {call}"


SECTIONS: dict[str, tuple[type[BaseModel], ...]] = {
    "kafka": (Kafka,),
    "limits": (Limits,),
    "sink": (ParquetSink, DeltaSink, IcebergSink, PostgresqlSink, KafkaSink),
    "spark": (Spark,),
    "airflow": (AirflowSettings,),
    "alerts": (Alerts,),
    "complete": (Complete,),
}


def test_each_setting_that_a_page_names_by_its_section_is_one() -> None:
    pattern = re.compile(rf"`({'|'.join(SECTIONS)})\.([a-z_]+)(?![\w.-])")
    found = [(page.name, *each) for page in CURRENT for each in pattern.findall(page.read_text())]
    assert len(found) > 30
    unknown = [each for each in found if not any(each[2] in settings.model_fields for settings in SECTIONS[each[1]])]
    unknown = [each for each in unknown if each[1:] not in {("spark", "sql"), ("airflow", "plugins")}]  # of others
    assert unknown == []
