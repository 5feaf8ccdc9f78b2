"""Who listens on a port of this machine, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable, Iterator

#: proc(5), /proc/net/tcp: TCP_LISTEN, in hexadecimal.
_LISTEN = "0A"
_LOCAL, _STATE, _INODE = 1, 3, 9


def held_by_others(port: int, mine: Iterable[int], root: Path = Path("/proc")) -> bool:
    """Whether somebody listens on `port`, but none of the processes `mine`; False where that cannot be said."""
    listening = set(_listening(port, root))
    return bool(listening) and not any(listening & set(_sockets(root / str(pid))) for pid in mine)


def _listening(port: int, root: Path) -> Iterator[str]:
    """Inodes of the sockets."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (root / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[_STATE] == _LISTEN and int(fields[_LOCAL].rpartition(":")[2], 16) == port:
                yield fields[_INODE]


def _sockets(process: Path) -> Iterator[str]:
    """Inodes of what a process has open; none when it is gone."""
    try:
        entries = list((process / "fd").iterdir())
    except OSError:
        return
    for entry in entries:
        target = _link(entry)
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
