"""The options of `make bench`: what can be asked for, and what is refused before anything starts."""

import argparse
from collections.abc import Sequence

from cases import ALL_CONTESTANTS, CASES, Scale, chosen_cases
from contestant import OURS
from places import directory_for_data
from topic_data import LARGEST_BYTES, SMALLEST_BYTES, TopicData

RECORDS, QUICK_RECORDS = 10_000_000, 1_000_000
REPETITIONS, QUICK_REPETITIONS = 5, 2
QUICK_CASES = ("big", "small", "nothing", "hot")
LARGEST_SKEW = 0.99


def parse_options(description: str | None, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options; says what was expected and found, and exits, where they cannot be measured."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=description)
    parser.add_argument("--quick", action="store_true", help="fewer records, repetitions and cases by default")
    parser.add_argument("--cases", nargs="+", choices=CASES, help=f"default: all; with --quick {' '.join(QUICK_CASES)}")
    parser.add_argument(
        "--contestants", nargs="+", choices=ALL_CONTESTANTS, default=ALL_CONTESTANTS, help="default: all"
    )
    parser.add_argument("--repetitions", type=int, help=f"default: {REPETITIONS}; with --quick {QUICK_REPETITIONS}")
    parser.add_argument("--records", type=int, help=f"default: {RECORDS:,}; with --quick {QUICK_RECORDS:,}")
    parser.add_argument("--partitions", type=int, default=4, help="default: 4")
    parser.add_argument("--record-bytes", type=int, default=200, help="length of each value; default: 200")
    parser.add_argument("--incompressible", action="store_true", help="values in which nothing repeats")
    parser.add_argument("--topic-compression", choices=("zstd", "none"), default="zstd", help="default: zstd")
    parser.add_argument("--skew", type=float, default=0.0, help="share of the records in partition 0; default: even")
    parser.add_argument("--transactional", action="store_true", help="records come in transactions")
    parser.add_argument(
        "--directory",
        type=directory_for_data,
        help="where broker and outputs keep their data; default: .local/bench",
    )
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args(arguments)
    options.cases = options.cases or (QUICK_CASES if options.quick else tuple(CASES))
    if options.records is None:
        options.records = QUICK_RECORDS if options.quick else RECORDS
    if options.repetitions is None:
        options.repetitions = QUICK_REPETITIONS if options.quick else REPETITIONS
    if problem := problem_of(options):
        parser.error(problem)
    return options


def problem_of(options: argparse.Namespace) -> str | None:
    """Return what was expected and found where the options' values, or two of them together, cannot be measured."""
    compares_partitions = "hot" in options.cases and OURS in options.contestants
    expected = [
        (options.repetitions >= 1, f"--repetitions of 1 or more, found {options.repetitions}"),
        (options.partitions >= 1, f"--partitions of 1 or more, found {options.partitions}"),
        (
            options.records >= options.partitions,
            f"--records for each of {options.partitions} partitions, found {options.records}",
        ),
        (
            SMALLEST_BYTES <= options.record_bytes <= LARGEST_BYTES,
            f"--record-bytes from {SMALLEST_BYTES} to {LARGEST_BYTES}, found {options.record_bytes}",
        ),
        (0.0 <= options.skew <= LARGEST_SKEW, f"--skew from 0.0 to {LARGEST_SKEW}, found {options.skew}"),
        (options.partitions > 1 or not options.skew, "--partitions of 2 or more with --skew, found 1"),
        (
            options.partitions > 1 or not compares_partitions,
            "--partitions of 2 or more for the case hot, found 1: name other --cases",
        ),
    ]
    for fine, what in expected:
        if not fine:
            return f"expected {what}"
    if not chosen_cases(options.cases, scale_of(options)):
        return (
            f"expected a contestant of the cases {', '.join(options.cases)}, found {', '.join(options.contestants)}: "
            "none of them takes part in these"
        )
    return None


def scale_of(options: argparse.Namespace) -> Scale:
    """Return how much the options ask for."""
    data = TopicData(
        name="bench-big",
        records=options.records,
        partitions=options.partitions,
        record_bytes=options.record_bytes,
        incompressible=options.incompressible,
        compression=options.topic_compression,
        skew=options.skew,
        transactional=options.transactional,
    )
    contestants = [name for name in ALL_CONTESTANTS if name in options.contestants]
    return Scale(data, options.repetitions, contestants)
