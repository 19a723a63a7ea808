"""Feed files of any content: each is a feed or an error of its own, in bounded words that can be stored, and soon."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.settings.feed_file import MAX_REASON, read_feed_file
from kafka_ingest.settings.plain_yaml import FAST_LOADER, NotPlainError, Reading, read_plain_yaml

FEED = """\
name: orders
schedule: "*/5 * * * *"
kafka:
  topics: [orders, {name: refunds, start: latest}]
  group: orders-ingest
start: {offsets: {orders: {0: 1200}}, otherwise: earliest}
limits: {max_records: 5_000_000, min_records: 10, max_wait: 6h}
sink: {format: parquet, path: /data/orders, staging_retention: 7d}
spark:
  conf: {spark.driver.memory: 2g}
airflow: {retries: 3, tags: [orders]}
"""
PIECES = [
    *"[]{}():,-?!&*#|>'\"%@`\\~<=\n\t 0159",
    *[
        "!!bool ",
        "!!timestamp x",
        "!!binary a",
        "!!set {a}",
        "!!python/name:os.system ",
        "&a ",
        "*a ",
        "<<: ",
        "---\n",
        "...\n",
    ],
    *[
        "%YAML 9.9\n",
        "0x" + "f" * 400,
        "9" * 4000,
        "1e400",
        ".inf",
        "2026-13-45",
        "190:20:30",
        "\\ud800",
        '"\\0"',
        "\ufeff",
    ],
    *[
        "topic_pattern: ",
        "a{1,99999999999}",
        "(" * 200,
        "[" * 50,
        "- " * 50,
        "(a+)+$",
        "? ",
        "no",
        "null",
        "é",
        "\U0001f600",
    ],
    *["/", "..", "{}", "%", "*/0 * * * *", "0 0 30 2 *", "@once", "99999999h", "1_", "'''", "|2-\n  x\n", ">+\n\n\n"],
]
LINES = FEED.splitlines(keepends=True)
MANY = settings.default.max_examples * 4
"""What is rare is found in four times as many as other properties need."""


@st.composite
def damaged_feeds(draw: st.DrawFn) -> str:
    """Draw a feed file with some pieces of YAML put in, taken out or put in place of others."""
    text = FEED
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from([*PIECES, "", *LINES])) + text[end:]
    return text


values = st.recursive(
    st.sampled_from(PIECES)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def wrong_documents(draw: st.DrawFn) -> str:
    """Draw a feed in which some values are others."""
    document: dict[str, Any] = yaml.safe_load(FEED)
    for _ in range(draw(st.integers(1, 3))):
        inner: Any = document
        while True:
            key = draw(st.sampled_from(list(inner)))
            if not isinstance(inner[key], dict) or not inner[key] or draw(st.booleans()):
                break
            inner = inner[key]
        inner[key] = draw(values)
    return yaml.dump(document, allow_unicode=True)


contents = (
    damaged_feeds().map(str.encode)
    | wrong_documents().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(st.sampled_from([*PIECES, *LINES]), max_size=30).map(lambda pieces: "".join(pieces).encode())
    | st.binary(max_size=200)
)


@settings(max_examples=MANY, deadline=None)
@given(contents)
def test_a_file_means_the_same_with_libyaml_and_without(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    assert FAST_LOADER is not None
    try:
        found = Reading().read(text, yaml.SafeLoader)
    except NotPlainError as error:
        with pytest.raises(NotPlainError, match=re.escape(str(error))):
            read_plain_yaml(text)
    else:
        assert read_plain_yaml(text) == found


@settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents)
def test_any_file_is_a_feed_or_its_own_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzzed.yaml"
    path.write_bytes(content)
    file = read_feed_file(path)
    if file.feed is not None:
        json.loads(file.feed.model_dump_json())
        return
    assert isinstance(file.error, InvalidFeedError)
    message = str(file.error)
    assert len(message) <= len(str(path)) + MAX_REASON + 100
    assert message.encode("utf-8")
    assert not re.search("[\\x00-\\x08\\x0b-\\x1f]", message)
    # Anything that was not foreseen says so.
    assert "cannot be used:" not in message, message
