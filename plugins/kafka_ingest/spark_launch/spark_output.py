"""What Spark says of a failure, without what says nothing: frames of stack traces and empty lines."""

TAIL_LINES = 15
CAUSES = 5
CAUSE_WORDS = ("Error", "Exception", "Caused by")


def telling_lines(text: str) -> str:
    """Return the last lines of Spark's output, and the last ones before them that name an error."""
    telling = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    causes = [line for line in telling[:-TAIL_LINES] if any(word in line for word in CAUSE_WORDS)]
    return "\n".join(causes[-CAUSES:] + telling[-TAIL_LINES:])
