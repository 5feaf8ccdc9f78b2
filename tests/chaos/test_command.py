"""`scripts/chaos`: one training on a real Mesos whose processes are killed."""

import json
import sys
from pathlib import Path

import pytest

from chaos.faults import CATALOGUE
from kit.commands import run_program

#: The most valuable ones; `scripts/chaos` without --faults does them all.
FAULTS = ("worker", "scheduler")


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos"


def run_chaos(*arguments):
    """Run the script to its end; return exit code, output and errors."""
    done = run_program(sys.executable, SCRIPT, *arguments, timeout=580)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(600)
def test_training_survives_kills_and_leaves_nothing(tmp_path: Path) -> None:
    """It reaches its accuracy; each fault is healed, measured and reported.

    Slow: two trainings to their accuracy, one per store, each with two faults one after the other.
    """
    out = tmp_path / "reliability.md"
    code, answer, err = run_chaos("--seed", 5, "--faults", ",".join(FAULTS), "--json", "--out", out)

    assert 0 == code, err
    trainings = json.loads(answer)["trainings"]
    assert {"file", "ZooKeeper"} == {training["store"] for training in trainings}
    for training in trainings:
        assert ("succeeded", []) == (training["verdict"], training["findings"])
        assert 0.95 <= training["accuracy"]
        costs = {cost["fault"]: cost for cost in training["costs"]}
        assert set(FAULTS) == set(costs)
        assert costs["worker"]["noticed"] is not None
        assert [] == costs["scheduler"]["hit"]
    assert all(f"| {CATALOGUE[name].what}" in out.read_text() for name in FAULTS)
