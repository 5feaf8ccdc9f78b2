"""`scripts/chaos`: one training on a real Mesos whose processes are killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.faults import CATALOGUE

#: The most valuable ones; `scripts/chaos` without --faults does them all.
FAULTS = ("worker", "scheduler", "agent")


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos"


@pytest.fixture
def run():
    """Run the script to its end; kill it if the test ends earlier."""
    processes = []

    def finish(*arguments):
        command = [sys.executable, SCRIPT, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        out, err = process.communicate(timeout=580)
        return process.returncode, out, err

    yield finish
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(600)
def test_training_survives_kills_and_leaves_nothing(run, tmp_path: Path) -> None:
    """It reaches its accuracy; each fault is healed, measured and reported.

    Slow: two trainings to their accuracy, one per store, each with three faults one after the other.
    """
    out = tmp_path / "reliability.md"
    code, answer, err = run("--seed", 5, "--faults", ",".join(FAULTS), "--json", "--out", out)

    assert 0 == code, err
    trainings = json.loads(answer)["trainings"]
    assert {"file", "ZooKeeper"} == {training["store"] for training in trainings}
    for training in trainings:
        assert ("succeeded", []) == (training["verdict"], training["findings"])
        assert 0.95 <= training["accuracy"]
        costs = {cost["fault"]: cost for cost in training["costs"]}
        assert set(FAULTS) == set(costs)
        assert costs["worker"]["noticed"] is not None
        assert all([] == costs[name]["hit"] for name in ("scheduler", "agent"))
    assert all(f"| {CATALOGUE[name].what}" in out.read_text() for name in FAULTS)


def test_invalid_faults_and_options_are_reported_first(run, tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_text(json.dumps({"service": {"command": "true"}, "worker": {"count": 1}}))

    code, _, err = run("--faults", "worker,work,worker")
    assert 1 == code
    assert "unknown fault `work`; valid faults: worker, ps," in err
    assert "'worker' is given twice" in err

    code, _, err = run("--seed", "1,two")
    assert 1 == code
    assert "--seed: `1,two`" in err

    code, _, err = run(path)
    assert 1 == code
    assert "service.job_url is to name a file" in err
