"""Where outputs lie: none in, around, or beside another where that one keeps its staging and receipts."""

from pathlib import Path

from kafka_ingest.model.output_location import beside


def is_taken(output: Path, other: Path) -> bool:
    """Whether an output is another one, lies in it, or holds it; also by way of symbolic links."""
    mine, theirs = places(output), places(other)
    return any(one in {there, *there.parents} or there in one.parents for one in mine for there in theirs)


def places(output: Path) -> list[Path]:
    """Return the directory that readers see, and the one beside it."""
    return [each.resolve() for each in (output, beside(output))]
