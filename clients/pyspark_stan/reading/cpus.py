"""The CPUs that this process may use: of the machine, of its affinity, and of the limit of its container.

Spark's JVM counts them so, too (`local[*]`); `os.cpu_count()` counts those of the machine, whatever a container may use of them.
"""

import os
from math import ceil
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")


def usable_cpus(root: Path = ROOT) -> int:
    """Return how many CPUs this process may use, at least 1; parts of one count as one. *root*: where /proc and /sys are."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(ceil(limit) for limit in _limits(root))]))


def _limits(root: Path) -> list[float]:
    """Return the limits of the control groups that this process is in, and of those above them, in CPUs."""
    limits = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = top / path.lstrip("/")
        for place in (group, *group.parents):
            limits += [limit for limit in (_limit(place),) if limit]
            if place == top:
                break
    return limits


def _limit(place: Path) -> float:
    """Return the limit that a control group sets, of version 2 or 1; 0: none."""
    words = _text(place / "cpu.max").split() or [
        _text(place / "cpu.cfs_quota_us").strip(),
        _text(place / "cpu.cfs_period_us").strip(),
    ]
    quota, period = words if len(words) == 2 else ("", "")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
