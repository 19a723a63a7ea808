"""What times depend on: the machine that they were measured on."""

import os
import platform
import subprocess
from pathlib import Path


def processor() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def physical_memory_gb() -> float:
    """Return how much memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def machine_in_short() -> str:
    """Return the machine in a line."""
    return f"{processor()}, {os.cpu_count()} processors, {physical_memory_gb():.0f} GB"


def file_system(directory: Path) -> str:
    """Return what kind of file system a directory is on: databases wait for its disk."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    at = [(point, kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(at, key=lambda mount: len(mount[0]))[1]


def commit(directory: Path) -> str:
    """Return the Git commit of what is measured, with a plus where files differ from it; "unknown" outside of Git."""
    try:
        head, changes = (
            subprocess.run(["git", *asked], cwd=directory, capture_output=True, text=True, check=True).stdout.strip()
            for asked in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+" if changes else head
