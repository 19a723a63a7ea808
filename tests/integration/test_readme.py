"""What a newcomer does first: the README's six commands, as they stand there, its table of columns, and the demo."""

import html
import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset
import pytest
from tests.quick_project import QuickProject

from demo_sinks import ROWS, SINKS, environment_of
from embedded_broker import EmbeddedBroker
from order_events import PARTITIONS, create_topic, order_events, produce

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
EVENTS = 500


@pytest.fixture(scope="module")
def output(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the commands with a home directory of their own, and return the directory that the records are in."""
    create_topic(broker.bootstrap_servers, "clicks", PARTITIONS)
    produce(broker.bootstrap_servers, "clicks", order_events(EVENTS, seed=3))
    found = re.search(r"```sh\nmake setup\n(.*?)```", README, flags=re.DOTALL)
    assert found is not None
    assert "localhost:9092" in found[1]
    commands = found[1].replace("localhost:9092", broker.bootstrap_servers)
    home = tmp_path_factory.mktemp("home")
    environment = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
    answer = subprocess.run(
        ["bash", "-e"],
        input=commands,
        cwd=ROOT,
        env=environment | {"HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return home / "ingest" / "data" / "clicks"


def test_the_commands_for_an_own_topic_ingest_each_record_once(output: Path) -> None:
    rows = pyarrow.dataset.dataset(output, partitioning="hive").to_table(columns=["kafka_partition", "kafka_offset"])
    assert len({(row["kafka_partition"], row["kafka_offset"]) for row in rows.to_pylist()}) == rows.num_rows == EVENTS


def test_the_output_has_the_columns_and_types_of_the_table(output: Path) -> None:
    section = README.partition("\n## The output\n")[2].partition("\n## ")[0]
    table = re.findall(r"^\| `(\w+)` \| ([^|`]+) \| ", section, flags=re.MULTILINE)
    schema = pyarrow.dataset.dataset(output, partitioning="hive").schema
    assert [(name, html.unescape(kind)) for name, kind in table] == [(field.name, str(field.type)) for field in schema]


# ── The demo, of any sink ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", SINKS)
def test_the_demos_feed_is_committed_and_its_rows_are_read_back_from_any_sink(
    quick: QuickProject, topic: str, servers: str, name: str
) -> None:
    sink = SINKS[name]
    events = list(order_events(20, seed=7))
    produce(servers, topic, events)
    with ExitStack() as stack:
        quick.environment |= environment_of(sink, quick.home, stack, servers)
        quick.edit_feed(kafka={"topics": [topic]})
        assert [(batch["state"], batch["rows"]) for batch in quick.run()] == [("COMMITTED", 20)]
        count, first = sink.read_back(quick.home)
        rows = first.to_pylist()
    assert (count, len(rows)) == (20, ROWS)
    assert {row["value"] for row in rows} <= {event.value for event in events}
