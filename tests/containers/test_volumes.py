"""Volumes: paths of the agent, and the checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containers.conftest import PLAIN, Containers, job

#: Uses two volumes, and meets other tasks in the checkpoint folder.
USE = """
import ctypes, errno, os, sys, time
import json
from pathlib import Path
own, (data, results, *peers) = os.environ["TASK_NAME"], sys.argv[1:]
print(Path(data, "input").read_text())
try:
    Path(data, "other").write_text(own)
except OSError as error:
    print(errno.errorcode[error.errno])
libc, flags = ctypes.CDLL(None, use_errno=True), 0x20 | 0x1000  # MS_REMOUNT, MS_BIND
if os.getuid() and libc.mount(b"none", os.path.realpath(data).encode(), None, flags, None):
    print(errno.errorcode[ctypes.get_errno()])
Path(results, own).write_text(own)
shared = Path(os.environ["CHECKPOINT_DIR"])
for name in peers:
    (shared / own).write_text(own)
    end = time.monotonic() + 60
    while not (shared / name).exists():
        assert time.monotonic() < end
        time.sleep(0.1)
"""


def job_with_volumes(
    name: str, folder: Path, arguments: str, data: str, results: str, **service: Any
) -> dict[str, Any]:
    """Return a job that runs USE. `data`: RO, `results`: RW."""
    (folder / "use.py").write_text(USE)
    for each in ("data", "results"):
        (folder / each).mkdir()
        (folder / each).chmod(0o777)
    (folder / "data" / "input").write_text("17")
    command = f"python use.py {data} {results} {arguments}"
    options = job(name, command, {"image": PLAIN}, job_url=str(folder / "use.py"), **service)
    options["volumes"] = [
        {"host_path": str(folder / "data"), "container_path": data, "mode": "RO"},
        {"host_path": str(folder / "results"), "container_path": results},
    ]
    return options


@pytest.mark.parametrize(("user", "errors"), [("root", ["EROFS"]), ("nobody", ["EROFS", "EPERM"])])
def test_volume_is_mounted_and_read_only_stays_so(
    containers: Containers, tmp_path: Path, user: str, errors: list[str]
) -> None:
    report = containers.run(job_with_volumes(f"for-{user}", tmp_path, "", "/data", "/results", user=user))

    assert "succeeded" == report["state"], report
    assert ["17", *errors] == containers.output(report).splitlines()
    assert "worker-0" == (tmp_path / "results" / "worker-0").read_text()
    assert [tmp_path / "data" / "input"] == list((tmp_path / "data").iterdir())


def test_tasks_on_two_agents_share_volumes_and_checkpoints(containers: Containers, tmp_path: Path) -> None:
    """One task has an image, and one has not; paths are relative."""
    options = job_with_volumes("shared", tmp_path, "chief-0 worker-0", "data", "results")
    options["chief"] = {**options["worker"], "image": ""}
    options["placement"] = {"strategy": "spread"}

    report = containers.run(options)

    assert "succeeded" == report["state"], report
    assert 2 == len({task["agent"] for task in report["tasks"]})
    for task in ("chief-0", "worker-0"):
        assert ["17", "EROFS"] == containers.output(report, task).splitlines()
        assert task == (tmp_path / "results" / task).read_text() == (Path(report["checkpoints"]) / task).read_text()
    assert [tmp_path / "data" / "input"] == list((tmp_path / "data").iterdir())


def test_missing_mount_point_is_refused_before_launch(containers: Containers, tmp_path: Path) -> None:
    """Mesos creates mount points only in images and below the working directory."""
    options = job("unmounted", "true") | {"volumes": [{"host_path": str(tmp_path), "container_path": "/no-such"}]}
    (tmp_path / "options.json").write_text(json.dumps(options))

    done = containers.command("local", "run", tmp_path / "options.json")

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("volumes.0.container_path: `/no-such`: must exist on this machine, because worker")
