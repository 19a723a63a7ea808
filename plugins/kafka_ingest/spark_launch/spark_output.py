"""Spark's output about a failure, without stack frames and empty lines."""

TAIL_LINES = 15
CAUSES = 5
CAUSE_WORDS = ("Error", "Exception", "Caused by")


def informative_lines(text: str) -> str:
    """Return the last lines of Spark's output, and the last ones before them that name an error."""
    informative = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    causes = [line for line in informative[:-TAIL_LINES] if any(word in line for word in CAUSE_WORDS)]
    return "\n".join(causes[-CAUSES:] + informative[-TAIL_LINES:])
