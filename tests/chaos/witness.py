"""Observe a training by files and processes, without Mesos or the scheduler."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos import evidence
from chaos.evidence import Record, Said
from chaos.measures import running_twice

from .people import members

_LOOK = 0.1  # seconds between two looks at what the chief prints: nothing announces it while everything else is dead
_COUNT = 5  # of these looks, the processes are looked at in each such
_AGENT = "agents/*/agents/0/work"
#: Sandboxes of the chief.
CHIEF = f"{_AGENT}/slaves/*/frameworks/*/executors/chief-0*/runs/*"


class Witness:
    """Context manager that polls. `cluster`: its folder; `recording`: scheduler's.

    `findings` are what must not be seen; all is safe to read from another thread.
    """

    def __init__(self, cluster: Path, recording: Path) -> None:
        self._cluster, self._recording = cluster, recording
        #: By path and inode: the file may be removed, and another one written.
        self._offsets: dict[tuple[Path, int], int] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)
        self.said: tuple[Said, ...] = ()
        self.findings: frozenset[str] = frozenset()

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def epochs(self) -> int:
        """Number of finished epochs, including repeated ones."""
        return sum(line.epoch is not None for line in self.said)

    def lines(self) -> list[dict[str, Any]]:
        """Complete lines of the recording."""
        found = []
        with suppress(FileNotFoundError):
            for text in self._recording.read_text(errors="replace").splitlines():
                with suppress(ValueError):
                    found.append(json.loads(text))
        return found

    def record(self) -> Record:
        return evidence.read(self.lines())

    def _watch(self) -> None:
        count = 0
        while not self._end.wait(_LOOK):
            self._listen()
            if count % _COUNT == 0:
                self.findings |= frozenset(self._doubles())
            count += 1
        self._listen()

    def _listen(self) -> None:
        now = time.time()
        for path in self._cluster.glob(f"{CHIEF}/stdout"):
            if path.parent.name != "latest" and not path.is_symlink():
                self.said = (*self.said, *(Said(now, path.parent.name, line) for line in self._new(path)))

    def _new(self, path: Path) -> list[str]:
        """Whole lines."""
        try:
            with path.open("rb") as file:
                key = path, os.fstat(file.fileno()).st_ino
                file.seek(self._offsets.get(key, 0))
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[key] = self._offsets.get(key, 0) + len(whole)
        return whole.decode(errors="replace").splitlines()

    def _doubles(self) -> list[str]:
        """Duplicate programs in two successive polls: a killed program exits late."""
        found = self._programs()
        if all(len(launches) < 2 for launches in found.values()):
            return []
        self._end.wait(_LOOK)
        again = self._programs()
        both = {task: launches & again.get(task, set()) for task, launches in found.items()}
        record = self.record()
        return list(running_twice(both, [heard.id for heard in record.heard if heard.state == "unreachable"]))

    def _programs(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for member in members(self._cluster):
            if member.program:
                found[member.task].add(member.launch)
        return found


def logged(witness: Witness, words: str, since: float) -> Callable[[], bool]:
    """Whether the scheduler has warned with these words since then."""
    return lambda: any(words in line.get("warning", "") and line["t"] > since for line in witness.lines())
