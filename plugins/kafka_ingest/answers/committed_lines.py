"""What a commit has done, in lines for people."""

from collections.abc import Iterator

from kafka_ingest.answers.answer import Line, mirror_lines
from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.dead_letters import output_of_dead_letters


def committed_lines(committed: Committed) -> Iterator[Line]:
    output = committed.batch.plan.output
    rows = sum(count.rows for count in committed.counts)
    done = "committed" if committed.by_us else f"{committed.batch.committed_by} was first and committed"
    yield Line(f"{done} {counted(rows, 'row')} into {output}")
    if letters := sum(count.dead_letters for count in committed.counts):
        yield Line(f"{counted(letters, 'record')} could not be decoded: {output_of_dead_letters(output)}")
    if filtered := sum(count.filtered for count in committed.counts):
        yield Line(f"{counted(filtered, 'record')} {were(filtered)} filtered")
    yield from mirror_lines(committed.mirrored.failure)
