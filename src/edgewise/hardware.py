"""What this process may use of the machine: processors and memory, after affinity and control groups.

Read once, before `config.resolve`. Every reader takes its root folders as arguments so that tests can lay out a machine.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED_BYTES = 1 << 60  # version 1 groups write a number near 2^63 for "no limit"


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """The processors and the memory this process may use."""

    num_cpus: int  # in the affinity mask
    cpu_quota: float | None  # processors' worth of time the control groups allow; None: no quota
    total_memory_bytes: int
    available_memory_bytes: int  # what can be taken without swapping, before control groups
    memory_limit_bytes: int | None  # tightest control group limit; None: no limit
    huge_pages: bool = False  # transparent huge pages can be asked for
    memory_limit_used_bytes: int = 0  # what that group holds already, file pages that can be dropped left out

    @property
    def usable_cpus(self) -> int:
        """Threads that run at full speed together: a quota is rounded down, since one throttled thread stalls all at a barrier."""
        quota = self.num_cpus if self.cpu_quota is None else math.floor(self.cpu_quota + 1e-6)
        return max(1, min(self.num_cpus, quota))

    @property
    def usable_memory_bytes(self) -> int:
        """Bytes this process can still take."""
        if self.memory_limit_bytes is None:
            return self.available_memory_bytes
        return max(
            0, min(self.available_memory_bytes, self.memory_limit_bytes - self.memory_limit_used_bytes)
        )


def read_hardware(
    proc: Path = Path("/proc"),
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    huge_pages_setting: Path = Path("/sys/kernel/mm/transparent_hugepage/enabled"),
) -> HardwareFacts:
    """The facts of the machine this process runs on. Files that are absent count as "no limit"."""
    meminfo = _read_meminfo(proc / "meminfo")
    limit, used = _memory_limit(proc, cgroup_root)
    return HardwareFacts(
        num_cpus=_affinity_count(),
        cpu_quota=_cpu_quota(proc, cgroup_root),
        total_memory_bytes=meminfo["MemTotal"],
        available_memory_bytes=meminfo["MemAvailable"],
        memory_limit_bytes=limit,
        huge_pages=_has_huge_pages(huge_pages_setting),
        memory_limit_used_bytes=used,
    )


def _has_huge_pages(setting: Path) -> bool:
    """The file lists the modes with the one in force in brackets."""
    try:
        return "[never]" not in setting.read_text()
    except OSError:
        return False


def _affinity_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_meminfo(path: Path) -> dict[str, int]:
    """Bytes by name. Without the file (not Linux) the total comes from sysconf and half of it counts as available."""
    found: dict[str, int] = {}
    for line in (_read(path) or "").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0]) * 1024
    if "MemTotal" not in found:
        found["MemTotal"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found.setdefault("MemAvailable", found["MemTotal"] // 2)
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _read_int(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _folders(proc: Path, root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """(version, folder) of this process's group of a controller and of all its parents, innermost first.

    Inside a container the path of /proc/self/cgroup often belongs to the host and does not exist here; the mounted root
    is then the group itself, which the walk up to the root covers.
    """
    for line in (_read(proc / "self" / "cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if number == "0" and not names:
            mounts = [(2, root), (2, root / "unified")]
        elif controller in names.split(","):
            mounts = [(1, root / controller), (1, root / names)]
        else:
            continue
        for version, mount in mounts:
            if mount.is_dir():
                relative = Path(group.lstrip("/"))
                for part in (relative, *relative.parents):
                    yield version, mount / part


def _cpu_quota(proc: Path, root: Path) -> float | None:
    """Processors' worth of time, the tightest of all groups on the way up."""
    quotas: list[float] = []
    for version, folder in _folders(proc, root, "cpu"):
        if version == 2:
            quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
            if quota.isdigit() and period.isdigit() and int(period) > 0:
                quotas.append(int(quota) / int(period))
        else:
            microseconds = _read_int(folder / "cpu.cfs_quota_us")
            period_us = _read_int(folder / "cpu.cfs_period_us")
            if microseconds is not None and microseconds > 0 and period_us:
                quotas.append(microseconds / period_us)
    return min(quotas, default=None)


def _memory_limit(proc: Path, root: Path) -> tuple[int | None, int]:
    """(limit, used) in bytes of the group with the least room."""
    found: list[tuple[int, int]] = []
    for version, folder in _folders(proc, root, "memory"):
        names = (
            ("memory.max", "memory.current")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        limit = _read_int(folder / names[0])
        if limit is not None and limit < UNLIMITED_BYTES:
            used = (_read_int(folder / names[1]) or 0) - _droppable_bytes(folder)
            found.append((limit, max(0, used)))
    return min(found, key=lambda pair: pair[0] - pair[1], default=(None, 0))


def _droppable_bytes(folder: Path) -> int:
    """File pages the kernel can drop when the group needs room: they count as used but are not lost to us."""
    stat = dict(
        line.split(" ", 1) for line in (_read(folder / "memory.stat") or "").splitlines() if " " in line
    )
    value = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
    return int(value) if value.isdigit() else 0
