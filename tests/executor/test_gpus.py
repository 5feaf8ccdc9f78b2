"""GPU allocation and check, with a simulated `nvidia-smi` and `tensorflow`."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.commands import run_program
from kit.payloads import a_payload
from tf_executor.launch import gpus
from tf_executor.launch.environment import stage_command
from tf_executor.launch.gpus import GpuError
from tf_executor.lifecycle.events import Stage
from tf_executor.user import devices

UUIDS = ("GPU-aaaa", "GPU-bbbb", "GPU-cccc")


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return an agent's environment with a fake nvidia-smi; default: three GPUs."""

    def make(script: str = "printf '%s\\n' " + " ".join(UUIDS), tensorflow: str | None = None) -> dict[str, str]:
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "nvidia-smi").write_text(f'#!/bin/sh\necho "$@" >> {tools}/asked\n{script}\n')
        (tools / "nvidia-smi").chmod(0o755)
        if tensorflow is not None:
            (tools / "tensorflow.py").write_text(tensorflow)
        return {"PATH": f"{tools}:{os.environ['PATH']}", "TF_EXECUTOR_GPU_FOLDER": str(tmp_path / "locks")}

    return make


SHOW = 'echo "$CUDA_VISIBLE_DEVICES|$NVIDIA_VISIBLE_DEVICES|$TF_FORCE_GPU_ALLOW_GROWTH"'


def test_tasks_of_host_get_different_gpus(start_executor: Any, agent: Any) -> None:
    first, second, third = (start_executor(name, **agent()) for name in ("first", "second", "third"))
    for executor, count in ((first, 2), (second, 1)):
        executor.launch_ready(f"{SHOW} > shown; echo ready > ready; sleep 3600", gpus=count, gpu_check=False)
    assert "GPU-aaaa,GPU-bbbb|GPU-aaaa,GPU-bbbb|true\n" == first.output("shown")
    assert "GPU-cccc|GPU-cccc|true\n" == second.output("shown")
    third.launch("true", gpus=1, gpu_check=False)
    status = third.states("TASK_STARTING", "TASK_FAILED")
    assert "the task needs 1 GPU, but other tasks use 3 of the host's 3" == status["message"]
    second.kill(grace=0.0)
    second.states("TASK_KILLING", "TASK_KILLED")
    fourth = start_executor("fourth", **agent())
    fourth.launch(SHOW, gpus=1, gpu_check=False)
    fourth.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "GPU-cccc|GPU-cccc|true\n" == fourth.output()


def test_killed_executor_releases_gpu_locks(start_executor: Any, agent: Any) -> None:
    killed, other = start_executor("killed", **agent()), start_executor("other", **agent())
    killed.launch("echo ready > ready; sleep 3600", gpus=3, gpu_check=False)
    killed.states("TASK_STARTING", "TASK_RUNNING")
    killed.await_file("ready")
    killed.process.kill()
    killed.process.wait()
    other.launch("true", gpus=3, gpu_check=False)
    other.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo GPU-aaaa", "the task needs 2 GPUs, but nvidia-smi shows 1 in its container"),
        ("echo 'No devices were found'", "unexpected output of nvidia-smi: No devices were found"),
        ("echo 'driver is not loaded' >&2; exit 9", "nvidia-smi: exit code 9: driver is not loaded"),
    ],
)
def test_missing_gpus_fail_task(start_executor: Any, agent: Any, script: str, reason: str) -> None:
    executor = start_executor("task", **agent(script))
    executor.launch("true", gpus=2)
    assert reason == executor.states("TASK_STARTING", "TASK_FAILED")["message"]


def test_missing_gpus_without_check_run_task(start_executor: Any, agent: Any) -> None:
    """With gpu_check=false the program may run without its GPUs."""
    executor = start_executor("task", **agent("exit 9"))
    executor.launch('echo "${CUDA_VISIBLE_DEVICES-unset}"', gpus=2, gpu_check=False)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "unset\n" == executor.output()


def test_hanging_driver_does_not_delay_kill(start_executor: Any, agent: Any) -> None:
    executor = start_executor("task", **agent("echo ready > ready; exec sleep 3600"))
    executor.launch("true", gpus=1)
    executor.states("TASK_STARTING")
    executor.await_file("ready")
    executor.kill(grace=60)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "stopped on request; the program had not started" == status["message"]


def test_payload_devices_are_used(start_executor: Any, agent: Any, tmp_path: Path) -> None:
    executor = start_executor("task", **agent())
    executor.launch(SHOW, gpus=2, gpu_devices=["0", "3"], gpu_check=False)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "0,3|0,3|true\n" == executor.output()
    assert not (tmp_path / "tools" / "asked").exists()


def test_task_without_gpus_runs_no_nvidia_smi(start_executor: Any, agent: Any, tmp_path: Path) -> None:
    executor = start_executor("task", **agent())
    executor.launch("true")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert not (tmp_path / "tools" / "asked").exists()


TENSORFLOW = """
__version__ = "2.99"
class config:
    class experimental:
        list_physical_devices = staticmethod(lambda kind: ["a GPU"] * {seen})
class test:
    is_built_with_cuda = staticmethod(lambda: {cuda})
"""


def test_gpu_check_with_all_gpus_passes(start_executor: Any, agent: Any, tmp_path: Path) -> None:
    environment = agent(tensorflow=TENSORFLOW.format(seen=2, cuda=True))
    executor = start_executor("task", **environment)
    executor.launch("echo trained", gpus=2, environment={"PYTHONPATH": str(tmp_path / "tools")})
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "trained\n" == executor.output()


@pytest.mark.parametrize(
    ("cuda", "hint"), [(True, "see the messages of CUDA above"), (False, "this TensorFlow is built without CUDA")]
)
def test_gpu_check_with_missing_gpus_fails_task(
    start_executor: Any, agent: Any, tmp_path: Path, cuda: bool, hint: str
) -> None:
    environment = agent(tensorflow=TENSORFLOW.format(seen=1, cuda=cuda))
    executor = start_executor("task", **environment)
    executor.launch("echo trained", gpus=2, environment={"PYTHONPATH": str(tmp_path / "tools")})
    message = executor.states("TASK_STARTING", "TASK_FAILED")["message"]
    assert message.startswith("the GPU check failed: exit code 1; stderr: TensorFlow 2.99 sees 1 GPUs, expected 2")
    assert hint in message
    assert "" == executor.output()


TORCH = """
__version__ = "2.98"
class cuda:
    device_count = staticmethod(lambda: {seen})
class version:
    cuda = {cuda!r}
"""


@pytest.mark.parametrize(
    ("strategy", "tensorflow"),
    [("pytorch_ddp", TENSORFLOW.format(seen=2, cuda=False)), ("independent", "raise ImportError")],
)
@pytest.mark.parametrize(
    ("cuda", "hint"), [("13.0", "see the messages of CUDA above"), (None, "this PyTorch is built without CUDA")]
)
def test_gpu_check_asks_pytorch(
    start_executor: Any, agent: Any, tmp_path: Path, strategy: str, tensorflow: str, cuda: str | None, hint: str
) -> None:
    """If the strategy needs PyTorch, or TensorFlow is missing."""
    environment = agent(tensorflow=tensorflow)
    (tmp_path / "tools" / "torch.py").write_text(TORCH.format(seen=1, cuda=cuda))
    executor = start_executor("task", **environment)
    executor.launch("true", gpus=2, strategy=strategy, environment={"PYTHONPATH": str(tmp_path / "tools")})
    message = executor.states("TASK_STARTING", "TASK_FAILED")["message"]
    assert message.startswith("the GPU check failed: exit code 1; stderr: PyTorch 2.98 sees 1 GPUs, expected 2")
    assert hint in message


@pytest.mark.parametrize("torch", ["raise ImportError", TORCH.format(seen=2, cuda="13.0")])
def test_gpu_check_passes_without_tensorflow(start_executor: Any, agent: Any, tmp_path: Path, torch: str) -> None:
    """The program may use neither."""
    environment = agent(tensorflow="raise ImportError")
    (tmp_path / "tools" / "torch.py").write_text(torch)
    executor = start_executor("task", **environment)
    executor.launch("echo trained", gpus=2, environment={"PYTHONPATH": str(tmp_path / "tools")})
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "trained\n" == executor.output()
    assert (torch == "raise ImportError") == ("GPU check skipped" in executor.output("stderr"))


def test_gpu_count_supports_both_tensorflow_apis() -> None:
    """TensorFlow before 2.1 has the function in `experimental`."""

    class New:
        class config:  # noqa: N801
            list_physical_devices = staticmethod(lambda kind: [kind])

    assert 1 == devices.count_gpus(New)


@pytest.mark.usefixtures("real_tensorflow")
def test_gpu_check_with_real_tensorflow() -> None:
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PYTHONPATH": str(Path(devices.__file__).parents[2]), "PATH": ":".join(folders)}

    def check(gpus: int) -> subprocess.CompletedProcess[str]:
        line = stage_command(Stage.GPU_CHECK, a_payload(gpus=gpus), "")
        return run_program("/bin/sh", "-c", line, env=environment)

    good, bad = check(0), check(1)
    assert [0, 1] == [good.returncode, bad.returncode]
    assert re.search(r"TensorFlow 2\.\d+\.\d+ sees 0 GPUs, expected 1", bad.stderr)


@pytest.mark.parametrize(("variables", "expected"), [({}, 0), ({"TF_EXECUTOR_GPUS": "4"}, 4)])
def test_get_num_gpus_returns_count(variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_EXECUTOR_GPUS", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == devices.get_num_gpus()


# Locks.


def test_lock_folder_is_writable_for_every_user(tmp_path: Path) -> None:
    locked = gpus.lock_gpus(["GPU-a"], 1, tmp_path / "locks")
    locked.release()
    modes = [oct(path.stat().st_mode & 0o7777) for path in (tmp_path / "locks", tmp_path / "locks" / "GPU-a.lock")]
    assert ["0o1777", "0o444"] == [modes[0], oct(int(modes[1], 8) & 0o444)]


def test_failed_lock_attempt_releases_locks(tmp_path: Path) -> None:
    """The GPUs stay available to other tasks."""
    held = gpus.lock_gpus(UUIDS[:2], 1, tmp_path)
    with pytest.raises(GpuError, match="other tasks use 1 of the host's 2"):
        gpus.lock_gpus(UUIDS[:2], 2, tmp_path)
    other = gpus.lock_gpus(UUIDS[:2], 1, tmp_path)
    assert (("GPU-aaaa",), ("GPU-bbbb",)) == (held.uuids, other.uuids)
    held.release()
    other.release()


def test_gpu_lock_rejects_link(tmp_path: Path) -> None:
    (tmp_path / "GPU-aaaa.lock").symlink_to("/dev/null")
    with pytest.raises(GpuError, match="cannot open GPU lock"):
        gpus.lock_gpus(UUIDS[:1], 1, tmp_path)


def test_gpu_lock_with_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "GPU-aaaa.lock")
    locked: list[gpus.GpuLocks] = []
    thread = threading.Thread(target=lambda: locked.append(gpus.lock_gpus(UUIDS[:2], 1, tmp_path)), daemon=True)
    thread.start()
    thread.join(30)
    os.close(os.open(tmp_path / "GPU-aaaa.lock", os.O_RDWR | os.O_NONBLOCK))  # unblock a waiting reader
    assert [("GPU-bbbb",)] == [one.uuids for one in locked]
    with pytest.raises(GpuError, match=r"use 1 of .* 1 GPU cannot be locked: .*/GPU-aaaa\.lock is not a regular file"):
        gpus.lock_gpus(UUIDS[:2], 1, tmp_path)
    locked[0].release()


@pytest.mark.parametrize("kind", ["folder", "device"])
def test_gpu_lock_rejects_non_regular_file(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "GPU-aaaa.lock"
    if kind == "folder":
        place.mkdir()
    elif os.geteuid() == 0:
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        pytest.skip("only root makes devices")
    with pytest.raises(GpuError, match="is not a regular file"):
        gpus.lock_gpus(UUIDS[:1], 1, tmp_path)


def test_replaced_gpu_lock_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other executors would lock the new file."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        (tmp_path / "GPU-aaaa.lock").unlink()
        (tmp_path / "GPU-aaaa.lock").touch()

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(GpuError, match="was replaced"):
        gpus.lock_gpus(UUIDS[:1], 1, tmp_path)


def test_agent_without_nvidia_smi_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_FOLDERS", ())

    def ask(_: Sequence[str]) -> str:
        raise AssertionError

    with pytest.raises(GpuError, match="the task's 1 GPU: nvidia-smi not found in its container"):
        gpus.choose_gpus(1, {"PATH": str(tmp_path)}, ask)
