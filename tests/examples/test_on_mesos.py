"""`local run` of each example with its own options succeeds on a real Mesos."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.usefixtures("real_tensorflow"), pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
SYNC = "between_graph/options-sync.json"
#: Example -> task, file, and what it must have written there. Others: test_pytorch.py, and the tests of the command.
OUTPUT = {
    "coordinator": [("chief-0", "stdout", r"epoch 15: loss [\d.]+\ntest accuracy 0\.9")],
    "multi_worker_mirrored": [("worker-0", "stdout", r"epoch 12: loss [\d.]+, 2 replicas\ntest accuracy 0\.9")],
    "between_graph": [
        ("worker-0", "stdout", r"step \d+: loss [\d.]+\n(.*\n)*test accuracy 0\.9"),
        ("worker-1", "stdout", r"step \d+: loss [\d.]+"),
    ],
    SYNC: [
        ("worker-0", "stdout", r"step \d+: loss [\d.]+\n(.*\n)*test accuracy 0\.9"),
        ("worker-1", "stdout", r"step \d+: loss [\d.]+"),
    ],
    "independent": [("worker-0", "stdout", "setting 3 of 6: "), ("worker-2", "stdout", "setting 5 of 6: ")],
    "data_service": [("worker-0", "stdout", r"test accuracy 0\.9")],
    "evaluator": [
        ("worker-0", "stdout", "epoch 12: loss "),
        ("evaluator-0", "stdout", r"checkpoint of epoch 12: test accuracy 0\.9"),
    ],
}


@pytest.mark.parametrize("example", OUTPUT)
def test_the_example_trains(example: str, train_on_mesos: Callable[..., Any]) -> None:
    """Exit code 0, all training tasks finished, output as the README describes."""
    training = train_on_mesos(EXAMPLES / (example if example.endswith(".json") else f"{example}/options.json"))

    # With synchronous replicas worker 0 ends the job, whatever others do; a coordinator's workers serve until then.
    ends = {SYNC: "worker-0", "multi_worker_mirrored": "worker-0", "coordinator": "chief"}
    needed = ends.get(example, ("worker", "eval"))
    assert {"finished"} == set(training.tasks(needed).values())
    assert {"killed"} >= set(training.tasks("ps").values())
    for task, file, words in OUTPUT[example]:
        assert re.search(words, training.output(task, file)), training.output(task, file)
