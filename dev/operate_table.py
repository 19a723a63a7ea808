"""Write the table of actions in ``docs/operate.md``: it is made from the requests, as the form is."""

import re
from pathlib import Path

from kafka_ingest.verbs.operate_form import VERBS
from kafka_ingest.verbs.request import Request

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operate.md"
HEAD = "| action | fields | what it does | command |\n|---|---|---|---|\n"
TABLE = re.compile(r"^\| action \|.*\n(?:\|.*\n)+", flags=re.MULTILINE)


def row(verb: type[Request]) -> str:
    """Return the line of a verb."""
    fields = ", ".join(f"`{name}`" for name in verb.in_form())
    words = f"{verb.command or ''} {verb.like}".strip()
    anchor = words.partition(" --")[0].replace(" ", "-")
    return f"| `{verb.verb}` | {fields} | {verb.does} | [`{words}`](cli.md#{anchor}) |\n"


def page() -> str:
    """Return the page with the table as it should be."""
    made = HEAD + "".join(map(row, VERBS.values()))
    return TABLE.sub(lambda _: made, PAGE.read_text(), count=1)


if __name__ == "__main__":
    PAGE.write_text(page())
