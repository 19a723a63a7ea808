"""The benchmark's results as files: JSON, tables in Markdown, and a plot. Importing this imports matplotlib."""

import statistics
import textwrap
from pathlib import Path

from contestants_of_tables import CONTESTANTS
from matplotlib.figure import Figure
from report import Results, spread

PLOT_CHARACTERS = 150
OUR_COLOUR, PEER_COLOUR = "#1f6f8b", "#b8c4cc"


def write_results(results: Results, directory: Path) -> None:
    """Write all three files."""
    (directory / "results.json").write_text(results.as_json() + "\n")
    (directory / "results.md").write_text(results.as_markdown())
    if any(results.of(case) for case in results.cases):
        draw(results, directory / "results.png")


def draw(results: Results, path: Path) -> None:
    """Write the plot: a panel for each case, a bar for each contestant."""
    shown = [(case, found) for case in results.cases if (found := results.of(case))]
    heights = [len(found) + 1.4 for _, found in shown]
    # Without pyplot, which would look for a screen.
    figure = Figure(figsize=(9, 0.55 * sum(heights) + 2), layout="constrained")
    panels = figure.subplots(len(shown), 1, height_ratios=heights, squeeze=False)
    for (case, found), panel in zip(shown, panels[:, 0], strict=True):
        is_memory = case.name == "memory"
        values = [[each.peak_mb if is_memory else each.seconds for each in rows] for rows in found.values()]
        medians = [statistics.median(each) for each in values]
        form = ",.0f" if is_memory else ".2f"
        whiskers = [
            [median - min(each) for median, each in zip(medians, values, strict=True)],
            [max(each) - median for median, each in zip(medians, values, strict=True)],
        ]
        is_ours = [CONTESTANTS[rows[0].contestant].is_ours for rows in found.values()]
        colours = [OUR_COLOUR if ours else PEER_COLOUR for ours in is_ours]
        panel.barh(list(found), medians, xerr=whiskers, color=colours, height=0.65, capsize=3, ecolor="#444444")
        panel.invert_yaxis()
        panel.set_title(case.title, loc="left", fontsize=11)
        panel.set_xlabel(
            "peak memory of all processes, MB" if is_memory else "wall seconds: median, smallest and largest"
        )
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(0, max(map(max, values)) * 1.3)
        for number, each in enumerate(values):
            panel.text(max(each), number, f"  {spread(each, form)}", va="center", fontsize=9)
    about = [textwrap.fill(f"{name}: {value}", PLOT_CHARACTERS) for name, value in results.machine.items()]
    figure.supxlabel("\n".join(about), fontsize=7, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
