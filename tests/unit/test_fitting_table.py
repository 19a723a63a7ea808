"""Whatever the width of the terminal, an answer shows every word of every cell, in one piece."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from kafka_ingest.verbs.answer import FittingTable, fitting_widths

WORDS = st.text(st.sampled_from("abc,[]注"), min_size=1, max_size=14)
CELLS = st.lists(WORDS, max_size=4).map(" ".join)


def shown(made: FittingTable, width: int) -> str:
    """Return what a terminal of that width shows."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def status_like() -> FittingTable:
    made = FittingTable(
        "feed orders",
        *("topic", "partition", "stored offset", "log start", "high watermark", "lag", "remarks"),
        numbers=["partition", "stored offset", "log start", "high watermark", "lag"],
    )
    made.add_line("orders", "0", "16,761", "0", "9,000,016,761", "9,000,000,000", "an open transaction [begins] here")
    made.add_line("orders", "1", "12", "0", "12", "0", "")
    return made


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_numbers_and_words_are_whole_at_every_width(width: int) -> None:
    found = shown(status_like(), width)
    assert all(cell_len(line) <= width for line in found.splitlines())
    for word in ["16,761", "9,000,016,761", "9,000,000,000", "transaction", "[begins]", "watermark"]:
        assert word in found


def test_a_terminal_too_narrow_for_the_words_shows_records() -> None:
    assert shown(status_like(), 40).splitlines()[:5] == [
        "feed orders",
        "",
        "  topic: orders",
        "  partition: 0",
        "  stored offset: 16,761",
    ]


def test_a_wide_terminal_shows_one_line_a_row() -> None:
    lines = shown(status_like(), 120).splitlines()
    assert sum("9,000,016,761" in line and "an open transaction [begins] here" in line for line in lines) == 1


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(24, 100))
def test_no_word_is_lost_or_torn_that_a_line_can_hold(rows: list[tuple[str, str, str]], width: int) -> None:
    made = FittingTable("rows", "name", "text", "count", numbers=["count"])
    for row in rows:
        made.add_line(*row)
    found = shown(made, width).replace("─", " ").split()
    for word in " ".join(" ".join(row) for row in rows).split():
        assert found.count(word) >= 1


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 80)), min_size=1, max_size=9), st.integers(1, 200))
def test_columns_share_the_width_and_none_is_narrower_than_its_words(wants: list[tuple[int, int]], width: int) -> None:
    columns = [(words, words + more) for words, more in wants]
    widths = fitting_widths(columns, width)
    if widths is None:
        assert sum(words for words, _ in columns) > width
        return
    assert sum(widths) <= width
    assert all(words <= found <= lines for (words, lines), found in zip(columns, widths, strict=True))
    is_room_left = sum(widths) < width
    assert not is_room_left or widths == [lines for _, lines in columns]


def test_what_a_terminal_would_obey_is_shown_as_its_escape() -> None:
    made = FittingTable("events", "why")
    made.add_line("\x1b[2Jclear")
    assert r"\x1b[2Jclear" in shown(made, 40)
