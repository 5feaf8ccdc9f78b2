"""What the kernel did for lack of memory: its counters, in the task's container and on the whole host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True)
class OomKills:
    """Numbers of processes that the kernel has killed so far; None: it does not say."""

    container: int | None = None
    host: int | None = None
    #: Bytes that the container may use; None: no limit that we can see.
    limit: int | None = None

    def since(self, before: OomKills) -> tuple[bool, str]:
        """Whether it killed something in the container meanwhile, and a sentence; empty: nothing to tell."""
        mine, all_of_them = _grown(before.container, self.container), _grown(before.host, self.host)
        if mine:
            limit = f", which may use {self.limit >> 20} MB," if self.limit else ""
            return True, f"out of memory: the kernel killed {_processes(mine)} of the task's container{limit} meanwhile"
        if all_of_them:
            return False, f"the kernel killed {_processes(all_of_them)} on this host for lack of memory meanwhile"
        return False, ""


def read(root: Path = ROOT) -> OomKills:
    """The counters now. `root` is another file system's root in tests."""
    group = _memory_group(root)
    container = limit = None
    if group is not None:
        container = _field(group / "memory.events", "oom_kill")
        if container is None:
            container = _field(group / "memory.oom_control", "oom_kill")
        limit = _limit(group)
    return OomKills(container, _field(root / "proc/vmstat", "oom_kill"), limit)


def _memory_group(root: Path) -> Path | None:
    """Folder of our control group that counts memory.

    A path of `/` is the host's own group, which is nobody's container, or that of a container with a name space of its
    own: only the latter has a limit.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup") / path.lstrip("/")
        if _counts(group) and (path != "/" or _limit(group) is not None):
            return group
    return None


def _counts(group: Path) -> bool:
    return any((group / name).exists() for name in ("memory.events", "memory.oom_control"))


def _limit(group: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = _text(group / name).strip()
        # Without a limit version 1 says a number that no machine has.
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _field(path: Path, name: str) -> int | None:
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _grown(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"
