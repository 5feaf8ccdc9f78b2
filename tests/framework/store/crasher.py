"""Writes to SQLite stores and dies at a given point. Run by test_sqlite_crash.py, which looks at what is left.

    crasher.py FOLDER statement|log|checkpoint POINT...   one store and one death per point: FOLDER/POINT.db
    crasher.py FOLDER for-ever                            FOLDER/state.db, until it is killed

Each apply that has returned adds one byte to FOLDER/NAME.acknowledged, and a line to the output of `for-ever`. Else
the output has a line for each point: the number of the signal that ended the writer, 0 when it came to its end.

    statement    SIGKILL before the n-th SQL statement, from the first one at opening to the last COMMIT
    log          the kernel ends the process while it writes the log (-wal), n bytes after what opening wrote
    checkpoint   the same while the log is moved into the file, at its n-th byte
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tf_scheduler.store.interface import Delete, Put, Write
from tf_scheduler.store.sqlite import SqliteStore

#: Enough for each kind of write and for several pages.
TRANSACTIONS = 4


def transaction(number: int) -> list[Write]:
    """Return writes that leave four equal parts and the log entries of the last two transactions."""
    parts = [Put(f"part/{part}", b"%06d" % number * 200) for part in range(4)]
    return [*parts, Put(f"log/{number}", b""), Delete(f"log/{number - 2}")]


def write(
    store, acknowledged: Path, numbers: Iterable[int], answer: Callable[[int], None] = lambda number: None
) -> None:
    with acknowledged.open("ab", buffering=0) as acknowledgements:
        for number in numbers:
            store.apply(transaction(number))
            acknowledgements.write(b".")
            answer(number)


def die_before_statement(point: int) -> None:
    """Replace sqlite3.connect by one whose connections kill this process before one of their statements."""
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
    """Let the kernel end this process when it writes a file's byte at `limit`; the bytes before it are written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def run(file: Path, kind: str, point: int) -> None:
    if kind == "statement":
        die_before_statement(point)
    store = SqliteStore(file, "tensorflow")
    store.load()
    if kind == "log":
        die_at_byte(Path(f"{file}-wal").stat().st_size + point)
    write(store, file.with_suffix(".acknowledged"), range(1, TRANSACTIONS + 1))
    if kind == "checkpoint":
        die_at_byte(point)
    store.close()


def run_in_child(file: Path, kind: str, point: int) -> int:
    """Return the signal that ended the child, 0 for none."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        run(file, kind, point)
        os._exit(0)
    return -min(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def main(folder: Path, kind: str, *points: str) -> None:
    if kind == "for-ever":
        store = SqliteStore(folder / "state.db", "tensorflow")
        store.load()
        write(store, folder / "state.acknowledged", itertools.count(1), lambda number: print(number, flush=True))
    for point in points:
        print(run_in_child(folder / f"{point}.db", kind, int(point)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
