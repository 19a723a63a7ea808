"""What was measured, for people: tables in Markdown, and every single measurement in JSON."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from cases import Case
from contestants_of_tables import CONTESTANTS
from measurement import Measurement, in_short

VERSION = 1
FIGURES: Mapping[str, tuple[Callable[[Measurement], float | None], str]] = {
    "seconds": (lambda run: run.seconds, ".2f"),
    "commit s": (lambda run: run.commit_s, ".2f"),
    "CPU s": (lambda run: run.cpu_s, ".1f"),
    "broker CPU s": (lambda run: run.broker_s, ".2f"),
    "S3 server CPU s": (lambda run: run.store_s, ".2f"),
    "peak MB": (lambda run: run.peak_mb, ",.0f"),
    "output MB": (lambda run: run.output_bytes / 1e6, ",.2f"),
}
"""By their columns; a run may lack one, and a table has no column that all its runs lack."""
TEXT = ("contestant", "checksum")


@dataclass(frozen=True, slots=True)
class Results:
    """All results. ``left_out`` has the reasons by case and label; ``complete`` unless it was interrupted."""

    machine: Mapping[str, str]
    cases: Sequence[Case]
    measurements: Sequence[Measurement]
    left_out: Mapping[tuple[str, str], str]
    complete: bool

    def of(self, case: Case) -> dict[str, list[Measurement]]:
        """Return a case's measurements by label, in the order of its entries; without those that were left out."""
        grouped: dict[str, list[Measurement]] = {entry.label: [] for entry in case.entries}
        for each in self.measurements:
            if each.case == case.name:
                grouped[each.label].append(each)
        return {label: rows for label, rows in grouped.items() if rows and (case.name, label) not in self.left_out}

    def as_json(self) -> str:
        """Return every single measurement."""
        document = {
            "version": VERSION,
            "complete": self.complete,
            "machine": self.machine,
            "left_out": [
                {"case": case, "label": label, "reason": reason} for (case, label), reason in self.left_out.items()
            ],
            "measurements": [{**asdict(each), "cpu_s": each.cpu_s} for each in self.measurements],
        }
        return json.dumps(document, indent=1)

    def as_markdown(self) -> str:
        """Return the tables."""
        lines = [] if self.complete else ["**Not complete: the benchmark ended before its time.**", ""]
        for case in self.cases:
            if found := self.of(case):
                lines += [
                    f"## {case.title}",
                    "",
                    *table(case, found),
                    "",
                    *peers_by_format(found),
                    *time_besides_spark(found),
                ]
            lines += [
                f"Left out: {label}. {in_short(reason)}\n"
                for (name, label), reason in self.left_out.items()
                if name == case.name
            ]
        about = {contestant.name: contestant.about for contestant in CONTESTANTS.values()}
        taken_part = {each.contestant for each in self.measurements}
        lines += [
            "## Contestants",
            "",
            *(f"- {name}: {text}" for name, text in about.items() if name in taken_part),
            "",
        ]
        lines += ["## Measured on", "", *(f"- {name}: {value}" for name, value in self.machine.items()), ""]
        return "\n".join(lines)


def table(case: Case, found: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """Return a case's measurements as lines of a Markdown table."""
    reference = found.get(case.reference)
    base = statistics.median(each.seconds for each in reference) if reference else None
    runs = list(chain(*found.values()))
    figures = {name: each for name, each in FIGURES.items() if any(each[0](run) is not None for run in runs)}
    columns = ("contestant", "times the reference", *figures, "files", "rows", "checksum")
    lines = [f"| {' | '.join(columns)} |", f"|{'|'.join('---' if name in TEXT else '--:' for name in columns)}|"]
    for label, rows in found.items():
        cells = [
            label,
            f"{statistics.median(each.seconds for each in rows) / base:.2f}" if base else "",
            *(spread_of_some(map(figure, rows), form) for figure, form in figures.values()),
            f"{rows[0].files}",
            f"{rows[0].rows:,}",
            f"`{rows[0].checksum}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    repeated = min(len(rows) for rows in found.values())
    about = f"Medians of {repeated}, with the smallest and the largest" if repeated > 1 else "Measured once"
    basis = f"set in relation to: {case.reference}" if base else f"{case.reference}, the reference, was not measured"
    return [*lines, "", f"{about}; {basis}."]


def spread_of_some(values: Iterable[float | None], form: str) -> str:
    """Return the spread of the runs that have a figure, nothing where none has."""
    found = [each for each in values if each is not None]
    return spread(found, form) if found else ""


def spread(values: Sequence[float], form: str) -> str:
    """Return the median, and the smallest and the largest unless all are the same."""
    middle, least, most = (format(each, form) for each in (statistics.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def peers_by_format(found: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """Return, for each format that is decoded, the peers' medians as multiples of this project's."""
    lines = []
    medians = {
        CONTESTANTS[rows[0].contestant]: statistics.median(each.seconds for each in rows) for rows in found.values()
    }
    for ours, base in medians.items():
        peers = {peer.name: seconds for peer, seconds in medians.items() if peer.decodes == ours.decodes}
        if ours.is_ours and ours.decodes and len(peers) > 1:
            shown = [f"{name} {seconds / base:.2f}" for name, seconds in peers.items() if name != ours.name]
            lines.append(f"- {ours.decodes}, in times of {ours.name}: {', '.join(shown)}")
    return [*lines, ""] if lines else []


def time_besides_spark(found: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """Return the time that this project spends besides Spark: wall time of the whole process less its child's."""
    lines = []
    for label, rows in found.items():
        if not CONTESTANTS[rows[0].contestant].is_ours:
            continue
        spark = spread([each.child_s for each in rows], ".2f")
        rest = spread([each.seconds - each.child_s for each in rows], ".2f")
        share = spread([(each.seconds - each.child_s) / each.seconds for each in rows], ".1%")
        lines.append(f"- {label}: Spark {spark} s, everything but Spark {rest} s, which is {share} of the time")
    return [*lines, ""] if lines else []
