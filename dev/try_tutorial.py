"""Try pages as written: their commands in order, on a Kafka of their own, and what they say that these print."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from embedded_broker import EmbeddedBroker
from environment import ROOT
from progress import step

PAGE = ROOT / "docs" / "tutorial.md"
ADDRESS = "localhost:9092"
# One shell for all, as the reader's: where one block goes and what it sets holds for the next.
IN_ORDER = 'for block in "$0"/*.sh; do . "$block" > "$block.out" 2>&1 < /dev/null; echo; done'


class PageError(Exception):
    """A command of the page failed, or printed something else."""


@dataclass(frozen=True)
class Block:
    """Commands, and lines that they print, in this order."""

    heading: str
    commands: str
    printed: str


def blocks_of(page: str) -> Iterator[Block]:
    for section in page.split("\n## ")[1:]:
        found = re.findall(r"^```sh\n(.*?)^```(?:\n+```text\n(.*?)^```)?", section, flags=re.DOTALL | re.MULTILINE)
        yield from (Block(section.partition("\n")[0], commands, printed) for commands, printed in found)


def not_printed(expected: str, output: str) -> str | None:
    """Return the first line that is not in the output after those before it: `…` is anything, spaces do not count."""
    lines = iter([" ".join(line.split()) for line in output.splitlines()])
    for line in expected.splitlines():
        pattern = re.compile(".*".join(re.escape(" ".join(part.split())) for part in line.split("…")))
        if not any(pattern.search(each) for each in lines):
            return line
    return None


def try_page(page: str, servers: str, home: Path, **given: str) -> None:
    """Run all blocks with this home directory; raises PageError at the first one that is not as the page says.

    ``given`` are further variables of the reader's shell.
    """
    folder = home / "blocks"
    folder.mkdir(parents=True)
    blocks = list(blocks_of(page.replace(ADDRESS, servers)))
    files = [folder / f"{number:02}.sh" for number in range(len(blocks))]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block.commands)
    inherited = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    path = os.pathsep.join([str(ROOT / ".venv" / "bin"), given.pop("PATH", os.environ["PATH"])])
    environment = {**inherited, "PATH": path, "HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **given}
    shell = ["bash", "-e", "-c", IN_ORDER, str(folder)]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, env=environment, cwd=home, text=True) as running:
        for file, block in zip(files, blocks, strict=True):
            with step(f"{block.heading}: {block.commands.splitlines()[-1]}"):
                ended = running.stdout is None or not running.stdout.readline()
                output = file.with_suffix(".sh.out").read_text()
                missing = "a last line, and exit code 0" if ended else not_printed(block.printed, output)
                if missing is not None:
                    running.kill()
                    raise PageError(f"expected of\n\n{block.commands}\n{missing}\n\nfound\n\n{output}")


def main() -> int:
    with TemporaryDirectory(prefix="tutorial-") as folder, EmbeddedBroker(Path(folder) / "kafka") as broker:
        try:
            try_page(PAGE.read_text(), broker.bootstrap_servers, Path(folder) / "home")
        except PageError as error:
            print(f"{error}\nMend {PAGE.relative_to(ROOT)}, or what it shows.", file=sys.stderr)
            return 1
    print(f"ok  {PAGE.relative_to(ROOT)} is as written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
