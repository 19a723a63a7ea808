"""Lets the package find the jars in `.jvm`: a link from where it looks for them, in the environment that runs this."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def link_jars() -> None:
    """Make the link, unless something is there; an environment other than `.venv` is left alone."""
    link = Path(sys.prefix) / "share" / "kafka-ingest" / "jars"
    if Path(sys.prefix) == ROOT / ".venv" and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to("../../../.jvm")


if __name__ == "__main__":
    link_jars()
