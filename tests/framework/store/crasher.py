"""Write to SQLite stores and die at a given point, for test_sqlite_crash.py.

    crasher.py FOLDER statement|log|checkpoint POINT...   one store and one death per point: FOLDER/POINT.db
    crasher.py FOLDER forever                             FOLDER/state.db, until it is killed

Each completed apply adds one byte to FOLDER/NAME.acknowledged, and a line to the output of `forever`. Otherwise the
output has a line for each point: the number of the signal that ended the writer, 0 if it exited.

    statement    SIGKILL before the n-th SQL statement, from the first one at opening to the last COMMIT
    log          the kernel ends the process while it writes the log (-wal), n bytes after what opening wrote
    checkpoint   as `log`, while the log is moved into the file, at its n-th byte
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sqlite3
import sys
from functools import partial
from pathlib import Path

from kit.stores import apply_transactions, run_in_child
from tf_scheduler.store.sqlite import SqliteStore

#: Enough for each kind of write and for several pages.
TRANSACTIONS = 4


def die_before_statement(point: int) -> None:
    """Make sqlite3 connections kill this process before one of their statements."""
    connect, counter = sqlite3.connect, itertools.count()

    def trace(statement: str) -> None:
        if next(counter) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(trace)
        return connection

    sqlite3.connect = traced


def die_at_byte(limit: int) -> None:
    """Let the kernel kill this process when it writes a file's byte at `limit`."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def write_until_crash(file: Path, kind: str, point: int) -> None:
    if kind == "statement":
        die_before_statement(point)
    store = SqliteStore(file, "tensorflow")
    store.load()
    if kind == "log":
        die_at_byte(Path(f"{file}-wal").stat().st_size + point)
    for _ in apply_transactions(store, file.with_suffix(".acknowledged"), range(1, TRANSACTIONS + 1)):
        pass
    if kind == "checkpoint":
        die_at_byte(point)
    store.close()


def main(folder: Path, kind: str, *points: str) -> None:
    if kind == "forever":
        store = SqliteStore(folder / "state.db", "tensorflow")
        store.load()
        for number in apply_transactions(store, folder / "state.acknowledged", itertools.count(1)):
            print(number, flush=True)
    for point in points:
        print(run_in_child(partial(write_until_crash, folder / f"{point}.db", kind, int(point))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
