"""`local chaos`: one real training on a real Mesos, and everything that can be killed is killed."""

import json

import pytest

from tf_scheduler.chaos.faults import CATALOGUE

#: The most valuable ones; `dcos-tensorflow local chaos` without --faults does them all.
FAULTS = ("worker", "ps", "executor", "scheduler", "agent", "master")


@pytest.mark.mesos
@pytest.mark.tensorflow
@pytest.mark.timeout(600)
def test_a_training_survives_its_kills_and_leaves_nothing(start, tmp_path):
    """It succeeds with the accuracy that it demands; each fault is healed and measured; the report says so."""
    out = tmp_path / "reliability.md"
    process = start("local", "chaos", "--seed", 5, "--faults", ",".join(FAULTS), "--json", "--out", out)
    answer, err = process.communicate(timeout=580)

    assert 0 == process.returncode, err
    (training,) = json.loads(answer)["trainings"]
    assert ("succeeded", []) == (training["verdict"], training["findings"])
    assert 0.95 <= training["accuracy"]
    costs = {cost["fault"]: cost for cost in training["costs"]}
    assert set(FAULTS) == set(costs)
    assert all(costs[name]["noticed"] is not None for name in ("worker", "ps", "executor"))
    assert all([] == costs[name]["hit"] for name in ("scheduler", "agent", "master"))
    assert all(f"| {CATALOGUE[name].what}" in out.read_text() for name in FAULTS)


def test_what_is_wrong_with_the_faults_and_the_options_is_told_before_anything_starts(run, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps({"service": {"command": "true"}, "worker": {"count": 1}}))

    code, _, err = run("local", "chaos", "--faults", "worker,work,worker")
    assert 1 == code
    assert "'work' is no fault; there are: worker, ps," in err
    assert "'worker' is given twice" in err

    code, _, err = run("local", "chaos", path)
    assert 1 == code
    assert "service.job_url is to name a file" in err
