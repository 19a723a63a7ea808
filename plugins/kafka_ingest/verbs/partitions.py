"""``partitions``: which hours or days of a feed are complete, and whom the next one waits for. A command only."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from kafka_ingest.answers.answer import Answer, Line, moment, number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.errors import RetryableError
from kafka_ingest.model.completion import CompletionRules, Period
from kafka_ingest.model.documents import document_of
from kafka_ingest.verbs.listings import MOST_LINES
from kafka_ingest.verbs.request import Call, Deciding, Option, Request


class Partitions(Request):
    """Show which hours or days of a feed are complete, newest first, and which partitions the next one waits for."""

    command = "partitions"
    deciding = Deciding.ONLY_SHOWS

    limit: Annotated[int, Field(ge=1, le=MOST_LINES), Option("How many complete ones at most.")] = 24

    def answer(self, call: Call) -> Answer:
        """List them. Exit code 1: Kafka does not answer, so that it is unknown whom the next one waits for."""
        parts, error = call.parts, None
        rules, feed = parts.feed.complete_rules(), parts.control.feed(parts.feed.name)
        found = parts.control.periods(feed.feed_id, rules.by, limit=self.limit + 1) if feed is not None else []
        complete = [each for each in found if each.completed_at is not None][: self.limit]
        waiting: dict[str, Any] | None = None
        try:
            if (next_one := parts.complete(actor=None)) is not None:
                waits_for = [document_of(each) for each in next_one.waits_for]
                waiting = {"began_at": next_one.began_at.isoformat(), "waits_for": waits_for}
        except RetryableError as failure:
            error = str(failure)
        document = {
            "feed": parts.feed.name,
            "by": rules.by.value,
            "complete": [each.as_document() for each in complete],
            "waiting": waiting,
            "kafka": {"error": error} if error is not None else None,
        }
        lines = [*map(str, next_one.waits_for)] if error is None and next_one is not None else []
        return Answer(document, shown(parts.feed.name, rules, complete, waiting, lines, error), 1 if error else 0)


def shown(
    name: str,
    rules: CompletionRules,
    complete: Sequence[Period],
    waiting: dict[str, Any] | None,
    waits_for: Sequence[str],
    error: str | None,
) -> Iterator[Line | FittingTable]:
    if complete:
        made = FittingTable(
            f"complete {rules.by}s of feed {name}",
            rules.by.value,
            "complete since",
            "by",
            "late rows",
            "announced",
            numbers=("late rows",),
        )
        for each in complete:
            late, announced = number(each.late_rows), moment(each.announced_at)
            made.add_line(each.key, moment(each.completed_at), str(each.completed_by), late, announced)
        yield made
    if error is not None:
        yield Line(error, "red", aside=True)
    elif waiting is None:
        yield Line("never planned: the first run plans it")
    else:
        yield Line(
            f"waiting for {rules.by} {waiting['began_at']}" + ("" if waits_for else ": the next run completes it")
        )
        yield from (Line(f"  {each}") for each in waits_for)
