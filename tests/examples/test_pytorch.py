"""PyTorch's example on a real Mesos, if there is a PyTorch without CUDA."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from own_runtimes import need_torch

pytestmark = [pytest.mark.usefixtures("real_mesos"), pytest.mark.timeout(600)]

OPTIONS = Path(__file__).parents[2] / "examples" / "pytorch_ddp" / "options.json"


@pytest.fixture
def _torch() -> None:
    """The runtime that the options name is there, or the test is skipped."""
    need_torch()


@pytest.mark.usefixtures("_torch")
def test_both_workers_train_one_model(train_on_mesos: Callable[..., Any]) -> None:
    """Workers meet by environment, see the same loss, and rank 0 tests the model."""
    train_on_mesos(OPTIONS).check_two_workers(epochs=8)


#: Each process adds 1. With KILLED_ONCE, the last rank of the first launch kills itself.
ALL_REDUCE = """
import os, pathlib, signal, torch
from torch import distributed
distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
killed = pathlib.Path(os.environ["CHECKPOINT_DIR"], "killed")
if "KILLED_ONCE" in os.environ and rank == size - 1 and not killed.exists():
    killed.touch()
    os.kill(os.getpid(), signal.SIGKILL)
total = torch.ones(())
distributed.all_reduce(total)
print(f"rank {rank} of {size}: sum {total.item():g}", flush=True)
distributed.destroy_process_group()
"""


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(
    ("tasks", "arguments", "variables", "processes"),
    [
        (2, "--rdzv-backend=c10d", {"PET_NPROC_PER_NODE": "2"}, 4),
        (2, "", {"KILLED_ONCE": "1"}, 2),
    ],
)
def test_torchrun_joins_the_processes_of_all_tasks(
    train_on_mesos: Callable[..., Any], tmp_path: Path, tasks: int, arguments: str, variables: Any, processes: int
) -> None:
    """The all-reduced sum of ones is their number, also after a rank was killed."""
    (tmp_path / "ddp.py").write_text(ALL_REDUCE)
    service: dict[str, Any] = {
        "name": "sums",
        "strategy": "pytorch_ddp",
        "python": "runtime:torch",
        "job_url": "ddp.py",
    }
    service |= {"command": f"torchrun {arguments} ddp.py", "environment": {"OMP_NUM_THREADS": "1", **variables}}
    worker = {"count": tasks, "cpus": 0.2, "mem": 512, "disk": 0}
    (tmp_path / "o.json").write_text(
        json.dumps({"service": service, "worker": worker, "parameter_server": {"count": 0}})
    )

    training = train_on_mesos(tmp_path / "o.json")

    lines = "".join(training.output(f"worker-{index}") for index in range(tasks))
    expected = {f"rank {rank} of {processes}: sum {processes}" for rank in range(processes)}
    assert expected == set(re.findall(r"rank \d+ of \d+: sum \d+", lines)), lines
