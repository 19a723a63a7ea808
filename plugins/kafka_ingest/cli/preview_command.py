"""``kafka-ingest preview``: what a feed makes of real records, before it ingests any."""

from functools import partial
from typing import Annotated

import typer

from kafka_ingest.batches.preview import MOST_RECORDS
from kafka_ingest.cli.arguments import FeedName, Json, feed_parts
from kafka_ingest.cli.output import answers, show, step
from kafka_ingest.verbs.preview import RECORDS
from kafka_ingest.verbs.preview import preview as preview_feed


def preview(
    feed_name: FeedName,
    *,
    records: Annotated[
        int, typer.Option(min=1, max=MOST_RECORDS, help="How many of the newest records, about.")
    ] = RECORDS,
    as_json: Json = False,
) -> None:
    """Decode a few of the newest records with Spark on this machine, and show what becomes of them; commits nothing.

    Exit code 1: some of them cannot be decoded. 3: their columns do not go with those of the output, so that no batch
    would be written.
    """
    with answers(as_json=as_json):
        decoding = partial(step, "decode (Spark)")
        show(preview_feed(feed_parts(feed_name), records, decoding=decoding), as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command()(preview)
