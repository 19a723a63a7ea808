"""Where outputs may be: none in or around another, or in the folder of another's staging and receipts."""

from pathlib import Path

from kafka_ingest.model.output_location import beside


def is_taken(output: Path, other: Path) -> bool:
    """Whether an output is another one, is inside it, or contains it; symbolic links are followed."""
    mine, theirs = places(output), places(other)
    return any(one in {there, *there.parents} or there in one.parents for one in mine for there in theirs)


def places(output: Path) -> list[Path]:
    """Return the directory that readers see, and the one with its staging and receipts."""
    return [each.resolve() for each in (output, beside(output))]
