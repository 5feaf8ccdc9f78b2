"""SQLite database of the newest runs, shared by concurrent processes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tf_scheduler.errors import JobError

from .model import Run, from_json, to_json

#: Number of stored runs; older runs are deleted.
MAX_RUNS = 500
#: Message of an empty history.
NO_RUNS = "no runs recorded yet; start one with `dcos-tensorflow local run`"
_TIMEOUT = 10.0  # seconds to wait for another process
_TABLE = "CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY NOT NULL, submitted REAL NOT NULL, record TEXT NOT NULL)"


class RunDatabase:
    """Database at `path`, created by the first `save`; `now` refreshes a run's state."""

    def __init__(self, path: Path, limit: int = MAX_RUNS, now: Callable[[Run], Run] = lambda run: run) -> None:
        self._path, self._limit, self._now = path, limit, now

    def save(self, run: Run) -> None:
        """Insert or replace a run. Raises JobError if the database is unusable."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record = json.dumps(to_json(run), separators=(",", ":"))
        with self._open() as file, file:
            file.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?)", (run.id, run.submitted, record))
            file.execute(
                "DELETE FROM run WHERE id NOT IN (SELECT id FROM run ORDER BY submitted DESC, id DESC LIMIT ?)",
                (self._limit,),
            )

    def runs(self) -> list[Run]:
        """Return all runs, newest first."""
        if not self._path.exists():
            return []
        with self._open() as file:
            rows = file.execute("SELECT record FROM run ORDER BY submitted DESC, id DESC").fetchall()
        return [self._now(from_json(json.loads(text))) for (text,) in rows]

    def find(self, name: str) -> Run:
        """Find a run by id, id prefix or `last`. Raises JobError listing the newest ids."""
        runs = self.runs()
        if not runs:
            raise JobError(NO_RUNS)
        if name == "last":
            return runs[0]
        matches = [run for run in runs if run.id == name] or [run for run in runs if run.id.startswith(name)]
        if len(matches) != 1:
            why = "ambiguous; it matches" if matches else "unknown run; the newest runs are"
            raise JobError(f"{name}: {why} {', '.join(run.id for run in (matches or runs)[:5])}")
        return matches[0]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.touch(0o600)  # runs are private; SQLite follows the umask
            self._path.chmod(0o600)
            with closing(sqlite3.connect(self._path, timeout=_TIMEOUT)) as file:
                file.execute(_TABLE)
                yield file
        except (sqlite3.Error, OSError) as error:
            raise JobError(f"{self._path}: cannot use the history: {error}") from error
