"""A killed writer leaves whole transactions: all acknowledged, up to one more."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from signal import SIGKILL, SIGXFSZ

import pytest

from kit.commands import ENVIRONMENT
from kit.stores import check_transactions
from tf_scheduler.store.sqlite import SqliteStore

CRASHER = Path(__file__).with_name("crasher.py")
TRANSACTIONS = 4


def crash(folder: Path, kind: str, points: range) -> dict[tuple[int, int], set[int]]:
    """Return (acknowledged, stored) transactions and signal of a crash at each point."""
    command = [sys.executable, str(CRASHER), str(folder), kind, *map(str, points)]
    output = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE).stdout
    left: dict[tuple[int, int], set[int]] = {}
    for point, ended_by in zip(points, map(int, output.split()), strict=True):
        left.setdefault(left_behind(folder / f"{point}.db"), set()).add(ended_by)
    return left


def left_behind(file: Path) -> tuple[int, int]:
    with closing(SqliteStore(file, "tensorflow")) as store:
        return check_transactions(store, file.with_suffix(".acknowledged"))


def test_kill_before_each_statement(tmp_path: Path) -> None:
    """Including the creation of the file."""
    left = crash(tmp_path, "statement", range(64))

    # The last points are after the last statement: every statement was covered.
    assert {(n, n): {SIGKILL} for n in range(TRANSACTIONS)} | {(TRANSACTIONS, TRANSACTIONS): {0}} == left


def test_kill_while_writing_log(tmp_path: Path) -> None:
    """At every 997th byte, so within pages and commits: no transaction is incomplete."""
    left = crash(tmp_path, "log", range(1, 90_000, 997))

    assert {(n, n): {SIGXFSZ} for n in range(TRANSACTIONS)} | {(TRANSACTIONS, TRANSACTIONS): {0}} == left


def test_kill_while_log_moves_into_file(tmp_path: Path) -> None:
    """A crash while a closing store moves its log (each 499th byte) loses nothing."""
    left = crash(tmp_path, "checkpoint", range(1, 50_000, 499))

    assert {(TRANSACTIONS, TRANSACTIONS): {0, SIGXFSZ}} == left


@pytest.mark.parametrize("answers", [1, 2, 3, 10, 100, 400])
def test_kill_from_outside(tmp_path: Path, answers: int) -> None:
    command = [sys.executable, str(CRASHER), str(tmp_path), "forever"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as writer:
        try:
            for _ in range(answers):
                assert writer.stdout.readline()
        finally:
            writer.kill()
    acknowledged, stored = left_behind(tmp_path / "state.db")

    assert acknowledged >= answers
    assert stored - acknowledged in (0, 1)
