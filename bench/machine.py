"""What times depend on: the machine that they were measured on."""

import os
import platform
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


def file_system(directory: Path) -> str:
    """Return what kind of file system a directory is on: databases wait for its disk."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    at = [(point, kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(at, key=lambda mount: len(mount[0]))[1]
