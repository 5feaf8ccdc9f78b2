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
from tf_scheduler.cli.local_run.installed import InstalledService

pytestmark = [pytest.mark.mesos, pytest.mark.timeout(400)]
NAME = "resized"
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


@pytest.fixture
def training(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[InstalledService]:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "saved").mkdir()
    elastic = {"min": 1, "max": 3}
    options: dict[str, Any] = {
        "service": {
            "name": NAME,
            "strategy": "pytorch_ddp",
            "command": "python train.py",
            "job_url": (tmp_path / "train.py").as_uri(),
            "checkpoint_dir": str(tmp_path / "saved"),
        },
        "worker": {"count": 2, "cpus": 0.1, "mem": 64, "elastic": elastic},
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    try:
        done = run_command("local", "install", "--options", tmp_path / "options.json", "--dir", local_cluster.directory)
        assert 0 == done.returncode, done.stderr
        yield InstalledService(local_cluster.directory, NAME)
    finally:
        run_command("local", "uninstall", "--all", "--dir", local_cluster.directory)


def messages(service: InstalledService) -> list[str]:
    answer = request(urlsplit(service.url).port or 0, "/v1/events?limit=1000")
    return [event["message"] for event in answer.json["events"]] if answer.status == 200 else []


def said(service: InstalledService, words: str) -> None:
    wait_until(lambda: any(words in message for message in messages(service)), words)


def scale(service: InstalledService, count: int) -> int:
    """Return the status of the answer."""
    port = urlsplit(service.url).port or 0
    return request(port, "/v1/tf/scale", "POST", body=json.dumps({"worker": count}).encode()).status


def test_workers_restart_once_at_the_next_checkpoint(training: InstalledService, tmp_path: Path) -> None:
    """Also if the scheduler is killed while it waits; they continue from it."""
    said(training, "plan deploy is complete")

    assert [409, 400, 208, 200] == [scale(training, count) for count in (4, 0, 2, 3)]
    said(training, "keeps 2 workers until its next checkpoint")
    kill_scheduler(training.folder)
    (tmp_path / "saved" / "save").touch()
    said(training, "restarts with 3 workers: it has saved")
    said(training, "worker-2 on agent-")
    wait_until(lambda: "with 3" in run_command("--name", NAME, "logs", "worker-2").stdout)
    (tmp_path / "saved" / "enough").touch()
    wait_until(lambda: "job finished" in training.log.read_text())

    (saved,) = (int(path.stem.partition("-")[2]) for path in (tmp_path / "saved").glob("ckpt-*.index"))
    for index in range(3):
        output = run_command("--name", NAME, "logs", f"worker-{index}").stdout
        assert [(str(saved), "3")] == re.findall(r"begins at (\d+) with (\d)", output)
    launches = [message for message in messages(training) if re.match("worker-0 is placed", message)]
    assert 2 == len(launches)
