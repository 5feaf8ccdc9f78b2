"""Where runs are kept: one SQLite file, the newest runs, safe for several processes at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tf_scheduler.errors import JobError

from .model import Run, from_json, to_json

#: How many runs are kept; the oldest are forgotten first.
MOST_RUNS = 500
_TIMEOUT = 10.0  # seconds that another process may hold the file
_TABLE = "CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY NOT NULL, submitted REAL NOT NULL, record TEXT NOT NULL)"


class Shelf:
    """`path`: the file; made, with its folder, when the first run is kept. `now`: what became of one since then."""

    def __init__(self, path: Path, most: int = MOST_RUNS, now: Callable[[Run], Run] = lambda run: run) -> None:
        self._path, self._most, self._now = path, most, now

    def keep(self, run: Run) -> None:
        """Keep a run, in place of one with the same id. Raise JobError when that cannot be."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record = json.dumps(to_json(run), separators=(",", ":"))
        with self._open() as file, file:
            file.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?)", (run.id, run.submitted, record))
            file.execute(
                "DELETE FROM run WHERE id NOT IN (SELECT id FROM run ORDER BY submitted DESC, id DESC LIMIT ?)",
                (self._most,),
            )

    def all(self) -> list[Run]:
        """Newest first."""
        if not self._path.exists():
            return []
        with self._open() as file:
            rows = file.execute("SELECT record FROM run ORDER BY submitted DESC, id DESC").fetchall()
        return [self._now(from_json(json.loads(text))) for (text,) in rows]

    def find(self, name: str) -> Run:
        """By id, by the begin of one id only, or `last`. Raise JobError that names what there is."""
        runs = self.all()
        if not runs:
            raise JobError("no run is remembered yet: `dcos-tensorflow local run` makes one")
        if name == "last":
            return runs[0]
        found = [run for run in runs if run.id == name] or [run for run in runs if run.id.startswith(name)]
        if len(found) != 1:
            which = "several runs begin" if found else "there is no run that begins"
            some = ", ".join(run.id for run in (found or runs)[:5])
            raise JobError(f"{which} with {name}; the newest: {some}")
        return found[0]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.touch(0o600)  # options and messages of runs; SQLite would make it for everybody to read
            self._path.chmod(0o600)
            with closing(sqlite3.connect(self._path, timeout=_TIMEOUT)) as file:
                file.execute(_TABLE)
                yield file
        except (sqlite3.Error, OSError) as error:
            raise JobError(f"the history in {self._path} cannot be used: {error}") from error
