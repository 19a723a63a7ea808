"""What a feed's DAG says about itself in Airflow: its feed file, and how to read it."""

import re

from kafka_ingest.foundation.storable_text import storable
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.plain_yaml import text_of
from kafka_ingest.settings.wrong_settings import cut

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
    """Return Markdown; the file as it is now, or why it cannot be read any more."""
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
    """Return a text in one line that is shown as it is."""
    plain = storable(text).replace("`", "'").replace("\n", " ")
    return f"`{plain}`"


def fence_of(content: str) -> str:
    """Return a code fence that nothing in the content ends (CommonMark 4.5)."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))
