"""Stores of past runs: a database of one user, and a folder that a team shares."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tf_scheduler.errors import JobError

from .model import Run, from_json, read_foreign, to_json

#: Number of stored runs; older runs are deleted.
MAX_RUNS = 500
#: Message of an empty history.
NO_RUNS = "no runs recorded yet; start one with `dcos-tensorflow local run`"
_TIMEOUT = 10.0  # seconds to wait for another process
_TABLE = "CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY NOT NULL, submitted REAL NOT NULL, record TEXT NOT NULL)"


class RunDatabase:
    """SQLite file at `path`; the first `save` creates it. `now` updates a stored run."""

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
        return [self._present(from_json(json.loads(text))) for (text,) in rows]

    def _present(self, stored: Run) -> Run:
        run = self._now(stored)
        if stored.process and not run.process:  # its command was killed
            with suppress(JobError):
                self.save(run)
        return run

    def find(self, name: str) -> Run:
        """Return the run that `find_run` finds by `name`. Raises JobError."""
        return find_run(self.runs(), name)

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


def find_run(runs: Sequence[Run], name: str) -> Run:
    """Find a run in `runs` (newest first). Raises JobError that lists the newest ids.

    `name`: an id, the start of an id, `last`, `last-N` (N runs before it), or the name of a service (its newest run).
    """
    if not runs:
        raise JobError(NO_RUNS)
    if last := re.fullmatch(r"last(?:-(\d{1,4}))?", name):
        matches = list(runs[int(last[1] or 0) :][:1])
    else:
        matches = [run for run in runs if run.id == name] or [run for run in runs if run.service == name][:1]
        matches = matches or [run for run in runs if run.id.startswith(name)]
    if len(matches) != 1:
        why = "ambiguous; it matches" if matches else "unknown run; the newest runs are"
        raise JobError(f"{name}: {why} {', '.join(run.id for run in (matches or runs)[:5])}")
    return matches[0]


# --- shared folder

#: SERVICE-YYYYMMDD-HHMMSS-DIGEST, as `history.record` and local runs name runs.
_ID = re.compile(r"(?P<service>[^/\0]{1,200})-(?P<time>\d{8}-\d{6})-(?P<digest>[0-9a-f]{6})")
#: Maximum size of a record in bytes; a recording has 8 MB.
_MAX_RECORD = 32_000_000


class SharedRuns:
    """Existing folder with one JSON file per run, written by many schedulers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Raise JobError if records cannot be written."""
        with self._draft("check") as draft:
            draft.unlink()

    def save(self, run: Run, *, replace: bool = True) -> None:
        """Write a run's record; without `replace`, never over a more complete record.

        Without `replace`, a new record of a run takes the id of its older record. Raises JobError.
        """
        with self._draft(run.id) as draft:
            known = None if replace else self._known(run)
            if known is None or _fullness(run) >= _fullness(known):
                name = run.id if known is None else known.id
                draft.write_text(json.dumps({**to_json(run), "id": name}, separators=(",", ":")))
                draft.chmod(0o644)  # for the team
                with draft.open("rb") as file:
                    os.fsync(file.fileno())
                draft.replace(self._path(name))

    def runs(self, service: str = "", limit: int = MAX_RUNS) -> tuple[list[Run], list[str]]:
        """Return the newest runs, newest first, and names of unreadable files."""
        try:
            names = [path.stem for path in self.folder.iterdir() if path.suffix == ".json"]
        except OSError as error:
            raise JobError(f"{self.folder}: cannot read the runs: {error.strerror}") from error
        runs, unreadable = list[Run](), list[str]()
        own = {service.strip("/").replace("/", "-"), service.replace("/", "-")[:80]}  # of services and local runs
        mine = (name for name in names if not service or _part(name, "service") in own)
        newest = sorted(mine, key=lambda name: _part(name, "time"), reverse=True)
        for name in newest[: 2 * limit]:
            if len(runs) >= limit:
                break
            run = self.find(name) if _ID.fullmatch(name) else None
            if run is None:
                unreadable.append(f"{name}.json")
            elif service in ("", run.service):
                runs.append(run)
        return runs, unreadable

    def find(self, name: str) -> Run | None:
        """Return the run with this id; None if it is missing or its file is invalid."""
        path = self._path(name)
        with suppress(OSError, ValueError, RecursionError):
            facts = path.stat()
            if _ID.fullmatch(name) and stat.S_ISREG(facts.st_mode) and facts.st_size <= _MAX_RECORD:
                run = read_foreign(json.loads(path.read_text(errors="replace")))
                return run if run.id == name else None
        return None

    def _known(self, run: Run) -> Run | None:
        """Return the stored record of this run, whose id may contain another start time."""
        digest = _part(run.id, "digest")
        same = [path.stem for path in self.folder.glob(f"*-{digest}.json")] if digest else []
        known = (self.find(name) for name in same)
        return next((item for item in known if item is not None and item.service == run.service), None)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    @contextmanager
    def _draft(self, name: str) -> Iterator[Path]:
        """Yield a new temporary file; remove it unless it was renamed. Raises JobError."""
        draft = self.folder / f".{name}.{uuid.uuid4().hex}"
        try:
            try:
                draft.touch(0o600, exist_ok=False)
                yield draft
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise JobError(f"history.store {self.folder}: cannot be written: {error.strerror}") from error


def _part(name: str, part: str) -> str:
    matched = _ID.fullmatch(name)
    return matched[part] if matched else ""


def _fullness(run: Run) -> tuple[int, int]:
    return len(run.launches), sum(len(points) for points in run.curves.values())
