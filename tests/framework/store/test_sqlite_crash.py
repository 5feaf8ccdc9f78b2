"""A killed writer leaves whole transactions: all acknowledged ones, and at most one more."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from signal import SIGKILL, SIGXFSZ

import pytest

import tf_scheduler
from tf_scheduler.store.interface import Put
from tf_scheduler.store.sqlite import SqliteStore

CRASHER = Path(__file__).with_name("crasher.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tf_scheduler.__file__).parents[1])}
TRANSACTIONS = 4


def crash(folder: Path, kind: str, points: range) -> dict[tuple[int, int], set[int]]:
    """Run the crasher at each point; return the (acknowledged, stored) transactions that it left, with the signals."""
    command = [sys.executable, str(CRASHER), str(folder), kind, *map(str, points)]
    output = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE).stdout
    left: dict[tuple[int, int], set[int]] = {}
    for point, ended_by in zip(points, map(int, output.split()), strict=True):
        left.setdefault(left_behind(folder / f"{point}.db"), set()).add(ended_by)
    return left


def left_behind(file: Path) -> tuple[int, int]:
    """Return (acknowledged, stored) transactions, after checking that the stored ones are complete and usable."""
    acknowledged = file.with_suffix(".acknowledged")
    with closing(SqliteStore(file, "tensorflow")) as store:
        values = store.load()
        stored = max((int(key.removeprefix("log/")) for key in values if key.startswith("log/")), default=0)
        assert state_after(stored) == values
        store.apply([Put("after", b"the crash")])
        assert state_after(stored) | {"after": b"the crash"} == store.load()
    return (acknowledged.stat().st_size if acknowledged.exists() else 0), stored


def state_after(number: int) -> dict[str, bytes]:
    """Return the result of the crasher's first `number` transactions."""
    parts = {f"part/{part}": b"%06d" % number * 200 for part in range(4)} if number else {}
    return parts | {f"log/{entry}": b"" for entry in range(max(1, number - 1), number + 1)}


def test_kill_before_each_statement(tmp_path):
    """Including the creation of the file."""
    left = crash(tmp_path, "statement", range(64))

    # The last points lie behind the last statement: every statement had its turn.
    assert {(n, n): {SIGKILL} for n in range(TRANSACTIONS)} | {(TRANSACTIONS, TRANSACTIONS): {0}} == left


def test_kill_while_writing_log(tmp_path):
    """At every 997th byte, so within pages and commits: no transaction is incomplete."""
    left = crash(tmp_path, "log", range(1, 90_000, 997))

    assert {(n, n): {SIGXFSZ} for n in range(TRANSACTIONS)} | {(TRANSACTIONS, TRANSACTIONS): {0}} == left


def test_kill_while_log_moves_into_file(tmp_path):
    """At every 499th byte of the file while a closing store moves its log: nothing is lost."""
    left = crash(tmp_path, "checkpoint", range(1, 50_000, 499))

    assert {(TRANSACTIONS, TRANSACTIONS): {0, SIGXFSZ}} == left


@pytest.mark.parametrize("answers", [1, 2, 3, 10, 100, 400])
def test_kill_from_outside(tmp_path, answers):
    command = [sys.executable, str(CRASHER), str(tmp_path), "for-ever"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as writer:
        try:
            for _ in range(answers):
                assert writer.stdout.readline()
        finally:
            writer.kill()
    acknowledged, stored = left_behind(tmp_path / "state.db")

    assert acknowledged >= answers
    assert stored - acknowledged in (0, 1)
