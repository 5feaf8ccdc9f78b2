"""Collective training that changes its size at a checkpoint, on a real Mesos."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kit.commands import kill_scheduler, request, run_command
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from own_runtimes import need_torch
from tf_scheduler.cli.local_run.installed import InstalledService

pytestmark = [pytest.mark.usefixtures("real_mesos"), pytest.mark.timeout(400)]
NAME = "resized"
EXAMPLES = Path(__file__).parents[2] / "examples"
#: Trains until the test asks it to end, and saves when the test asks for it.
PROGRAM = """
import os, pathlib, time
folder, size = pathlib.Path(os.environ["CHECKPOINT_DIR"]), os.environ["WORLD_SIZE"]
saved = [int(path.stem.partition("-")[2]) for path in folder.glob("ckpt-*.index")]
step = max(saved, default=0)
print("begins at", step, "with", size, flush=True)
while not (folder / "enough").exists():
    step += 1
    print(f"step {step}/100000 loss: 0.5", flush=True)
    if os.environ["RANK"] == "0" and (folder / "save").exists():
        (folder / "save").unlink()
        for part in ("data-00000-of-00001", "index"):
            (folder / f"ckpt-{step}.{part}").write_text("saved")
    time.sleep(0.1)
"""


def install(cluster: LocalCluster, options: dict[str, Any], folder: Path) -> InstalledService:
    (folder / "saved").mkdir()
    options["service"] |= {"name": NAME, "checkpoint_dir": str(folder / "saved")}
    options["worker"] |= {"count": 2, "cpus": 0.1, "kill_grace": 1, "elastic": {"min": 1, "max": 3}}
    (folder / "options.json").write_text(json.dumps(options))
    done = run_command("local", "install", "--options", folder / "options.json", "--dir", cluster.directory)
    assert 0 == done.returncode, done.stderr
    return InstalledService(cluster.directory, NAME)


@pytest.fixture
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield local_cluster
    run_command("local", "uninstall", "--all", "--dir", local_cluster.directory)


@pytest.fixture
def training(cluster: LocalCluster, tmp_path: Path) -> InstalledService:
    (tmp_path / "train.py").write_text(PROGRAM)
    job = {
        "strategy": "pytorch_ddp",
        "command": "python train.py",
        "job_url": (tmp_path / "train.py").as_uri(),
    }
    return install(cluster, {"service": job, "worker": {"mem": 64}}, tmp_path)


def messages(service: InstalledService) -> list[str]:
    answer = request(urlsplit(service.url).port or 0, "/v1/events?limit=1000", token=service.token)
    return [event["message"] for event in answer.json["events"]] if answer.status == 200 else []


def output(task: str) -> str:
    """Return the output of the newest launch."""
    return str(run_command("--name", NAME, "logs", task).stdout)


def said(service: InstalledService, words: str) -> None:
    wait_until(lambda: any(words in message for message in messages(service)), words)


def scale(service: InstalledService, count: int) -> int:
    """Return the status of the answer."""
    port, body = urlsplit(service.url).port or 0, json.dumps({"worker": count}).encode()
    return request(port, "/v1/tf/scale", "POST", service.token, body).status


def test_workers_restart_once_at_the_next_checkpoint(training: InstalledService, tmp_path: Path) -> None:
    """Also if the scheduler is killed while it waits; they continue from it.

    Slow: all workers and the scheduler start twice, and each look at an output is a process of its own.
    """
    said(training, "plan deploy is complete")

    assert [409, 400, 208, 200] == [scale(training, count) for count in (4, 0, 2, 3)]
    ended, again = (run_command("--name", NAME, "scale", "worker", 2, "--yes") for _ in range(2))
    assert (0, 0) == (ended.returncode, again.returncode), ended.stderr + again.stderr
    assert "The request for 3 workers ends" in ended.stderr
    assert 200 == scale(training, 3)
    said(training, "keeps 2 workers until its next checkpoint")
    kill_scheduler(training.folder)
    (tmp_path / "saved" / "save").touch()
    said(training, "restarts with 3 workers: it has saved")
    said(training, "worker-2 on agent-")
    wait_until(lambda: "with 3" in output("worker-2"))
    (tmp_path / "saved" / "enough").touch()
    wait_until(lambda: "job finished" in training.log.read_text())

    (saved,) = (int(path.stem.partition("-")[2]) for path in (tmp_path / "saved").glob("ckpt-*.index"))
    for index in range(3):
        assert [(str(saved), "3")] == re.findall(r"begins at (\d+) with (\d)", output(f"worker-{index}"))
    launches = [message for message in messages(training) if re.match("worker-0 is placed", message)]
    assert 2 == len(launches)


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.parametrize("strategy", ["multi_worker_mirrored", "pytorch_ddp"])
def test_real_training_resumes_with_another_size(cluster: LocalCluster, tmp_path: Path, strategy: str) -> None:
    """These save after each epoch, more often than the executor looks.

    Slow: five launches import their library, and the workers train two epochs before the change.
    """
    if strategy == "pytorch_ddp":
        need_torch()
    options = json.loads((EXAMPLES / strategy / "options.json").read_text())
    options["service"]["job_url"] = (EXAMPLES / strategy / "train.py").as_uri()
    options["service"]["command"] += " --epochs 1000000"
    service = install(cluster, options, tmp_path)
    wait_until(lambda: "epoch 2:" in output("worker-0"))

    assert 200 == scale(service, 3)
    said(service, "restarts with 3 workers: it has saved")
    wait_until(lambda: ", 3 " in output("worker-0").rpartition("resumed")[2])

    (epoch,) = re.findall(r"resumed after epoch (\d+)", output("worker-0"))
    assert re.search(rf"epoch {int(epoch) + 1}: loss \S+, 3 ", output("worker-0"))
    launches = [message for message in messages(service) if message.startswith("worker-0 is placed")]
    assert 2 == len(launches)
