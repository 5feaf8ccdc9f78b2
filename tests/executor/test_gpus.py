"""GPUs on machines that have none: only `nvidia-smi` and the module `tensorflow` are played by the test."""

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

from tf_executor import gpu_check, gpus
from tf_executor.devices import get_num_gpus
from tf_executor.gpus import GpuError

UUIDS = ("GPU-aaaa", "GPU-bbbb", "GPU-cccc")


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Environment of an agent whose nvidia-smi runs the given shell commands; default: it shows three GPUs."""

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


def test_a_task_gets_gpus_that_nobody_else_of_its_host_has(start: Any, agent: Any) -> None:
    """Mesos only counted them: two tasks share a host of three; the third must wait for the end of one."""
    first, second, third = (start(name, **agent()) for name in ("first", "second", "third"))
    for executor, count in ((first, 2), (second, 1)):
        executor.launch(f"{SHOW} > shown; echo ready > ready; sleep 3600", gpus=count, gpu_check=False)
        executor.states("TASK_STARTING", "TASK_RUNNING")
        executor.await_file("ready")
    assert "GPU-aaaa,GPU-bbbb|GPU-aaaa,GPU-bbbb|true\n" == first.output("shown")
    assert "GPU-cccc|GPU-cccc|true\n" == second.output("shown")
    third.launch("true", gpus=1, gpu_check=False)
    status = third.states("TASK_STARTING", "TASK_FAILED")
    assert "the task has 1 GPU, but other tasks hold 3 of the 3 of this host" == status["message"]
    second.kill(grace=0.0)
    second.states("TASK_KILLING", "TASK_KILLED")
    fourth = start("fourth", **agent())
    fourth.launch(SHOW, gpus=1, gpu_check=False)
    fourth.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "GPU-cccc|GPU-cccc|true\n" == fourth.output()


def test_an_executor_that_is_killed_leaves_no_lock(start: Any, agent: Any) -> None:
    """The kernel drops it."""
    killed, other = start("killed", **agent()), start("other", **agent())
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
        ("echo GPU-aaaa", "the task has 2 GPUs, but nvidia-smi shows 1 in its container"),
        ("echo 'No devices were found'", "nvidia-smi says: No devices were found"),
        ("echo 'driver is not loaded' >&2; exit 9", "nvidia-smi: exit code 9: driver is not loaded"),
    ],
)
def test_gpus_that_are_not_there_fail_the_task_clearly(start: Any, agent: Any, script: str, reason: str) -> None:
    """Before the program wastes an hour on a CPU."""
    executor = start("task", **agent(script))
    executor.launch("true", gpus=2)
    assert reason == executor.states("TASK_STARTING", "TASK_FAILED")["message"]


def test_without_the_check_such_a_task_runs_with_what_there_is(start: Any, agent: Any) -> None:
    """The user has switched it off."""
    executor = start("task", **agent("exit 9"))
    executor.launch('echo "${CUDA_VISIBLE_DEVICES-unset}"', gpus=2, gpu_check=False)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "unset\n" == executor.output()


def test_a_driver_that_hangs_does_not_keep_a_task_that_shall_end(start: Any, agent: Any) -> None:
    """The kill comes through while nvidia-smi says nothing."""
    executor = start("task", **agent("echo ready > ready; exec sleep 3600"))
    executor.launch("true", gpus=1)
    executor.states("TASK_STARTING")
    executor.await_file("ready")
    executor.kill(grace=60)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "killed on request; the program had not started" == status["message"]


def test_devices_that_the_payload_names_are_taken(start: Any, agent: Any, tmp_path: Path) -> None:
    """Nobody is asked."""
    executor = start("task", **agent())
    executor.launch(SHOW, gpus=2, gpu_devices=["0", "3"], gpu_check=False)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "0,3|0,3|true\n" == executor.output()
    assert not (tmp_path / "tools" / "asked").exists()


def test_a_task_without_gpus_asks_nobody(start: Any, agent: Any, tmp_path: Path) -> None:
    """And waits for nothing."""
    executor = start("task", **agent())
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


def test_tensorflow_that_sees_all_gpus_passes(start: Any, agent: Any, tmp_path: Path) -> None:
    """Then the program runs."""
    environment = agent(tensorflow=TENSORFLOW.format(seen=2, cuda=True))
    executor = start("task", **environment)
    executor.launch("echo trained", gpus=2, environment={"PYTHONPATH": str(tmp_path / "tools")})
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "trained\n" == executor.output()


@pytest.mark.parametrize(
    ("cuda", "hint"), [(True, "see the lines above"), (False, "this TensorFlow is built without CUDA")]
)
def test_tensorflow_that_sees_too_few_fails_the_task(
    start: Any, agent: Any, tmp_path: Path, cuda: bool, hint: str
) -> None:
    """In the message are the numbers and the likely reason; nothing was trained."""
    environment = agent(tensorflow=TENSORFLOW.format(seen=1, cuda=cuda))
    executor = start("task", **environment)
    executor.launch("echo trained", gpus=2, environment={"PYTHONPATH": str(tmp_path / "tools")})
    message = executor.states("TASK_STARTING", "TASK_FAILED")["message"]
    assert message.startswith("the GPU check failed: exit code 1; stderr: TensorFlow 2.99 sees 1 GPUs, the task has 2")
    assert hint in message
    assert "" == executor.output()


def test_the_check_knows_both_names_of_tensorflow() -> None:
    """`experimental` in 1.14 to 2.0, none since 2.1."""

    class New:
        class config:  # noqa: N801
            list_physical_devices = staticmethod(lambda kind: [kind])

    assert 1 == gpu_check.count(New)


@pytest.mark.tensorflow
def test_the_check_with_a_real_tensorflow() -> None:
    """This machine has no GPU: 0 is right, 1 is told to be wrong."""
    command = [sys.executable, "-m", "tf_executor.gpu_check"]
    environment = {**os.environ, "PYTHONPATH": str(Path(gpu_check.__file__).parents[1])}
    good = subprocess.run([*command, "0"], env=environment, capture_output=True, text=True, check=False)
    bad = subprocess.run([*command, "1"], env=environment, capture_output=True, text=True, check=False)
    assert [0, 1] == [good.returncode, bad.returncode]
    assert re.search(r"TensorFlow 2\.\d+\.\d+ sees 0 GPUs, the task has 1", bad.stderr)


@pytest.mark.parametrize(("variables", "expected"), [({}, 0), ({"TF_EXECUTOR_GPUS": "4"}, 4)])
def test_user_code_learns_the_number(variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also outside a task, where there is none."""
    monkeypatch.delenv("TF_EXECUTOR_GPUS", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == get_num_gpus()


# The locks.


def test_a_lock_folder_is_for_every_user(tmp_path: Path) -> None:
    """Like /tmp; the files can be read, which is enough to lock them."""
    locked = gpus.lock(["GPU-a"], 1, tmp_path / "locks")
    locked.release()
    modes = [oct(path.stat().st_mode & 0o7777) for path in (tmp_path / "locks", tmp_path / "locks" / "GPU-a.lock")]
    assert ["0o1777", "0o444"] == [modes[0], oct(int(modes[1], 8) & 0o444)]


def test_a_failed_attempt_holds_nothing(tmp_path: Path) -> None:
    """One of two was free: it is free again."""
    held = gpus.lock(UUIDS[:2], 1, tmp_path)
    with pytest.raises(GpuError, match="other tasks hold 1 of the 2"):
        gpus.lock(UUIDS[:2], 2, tmp_path)
    other = gpus.lock(UUIDS[:2], 1, tmp_path)
    assert (("GPU-aaaa",), ("GPU-bbbb",)) == (held.uuids, other.uuids)
    held.release()
    other.release()


def test_a_link_in_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    """Somebody of the host might point it anywhere."""
    (tmp_path / "GPU-aaaa.lock").symlink_to("/dev/null")
    with pytest.raises(GpuError, match="cannot open the lock"):
        gpus.lock(UUIDS[:1], 1, tmp_path)


def test_a_pipe_in_place_of_a_lock_holds_nobody_up(tmp_path: Path) -> None:
    """Opened as a file it would wait for ever. The next GPU is taken; without one the reason names it."""
    os.mkfifo(tmp_path / "GPU-aaaa.lock")
    locked: list[gpus.Locked] = []
    thread = threading.Thread(target=lambda: locked.append(gpus.lock(UUIDS[:2], 1, tmp_path)), daemon=True)
    thread.start()
    thread.join(30)
    os.close(os.open(tmp_path / "GPU-aaaa.lock", os.O_RDWR | os.O_NONBLOCK))  # whoever waits there goes on
    assert [("GPU-bbbb",)] == [one.uuids for one in locked]
    with pytest.raises(GpuError, match=r"hold 1 of the 2 .* 1 cannot be locked: .*/GPU-aaaa\.lock of a GPU is no file"):
        gpus.lock(UUIDS[:2], 1, tmp_path)
    locked[0].release()


@pytest.mark.parametrize("kind", ["folder", "device"])
def test_what_is_no_file_is_no_lock(tmp_path: Path, kind: str) -> None:
    """Nor is what was put in the place of the file while it was locked."""
    place = tmp_path / "GPU-aaaa.lock"
    if kind == "folder":
        place.mkdir()
    elif os.geteuid() == 0:
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        pytest.skip("only root makes devices")
    with pytest.raises(GpuError, match="is no file"):
        gpus.lock(UUIDS[:1], 1, tmp_path)


def test_a_lock_that_was_replaced_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would lock the new file, and have the same GPU."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        (tmp_path / "GPU-aaaa.lock").unlink()
        (tmp_path / "GPU-aaaa.lock").touch()

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(GpuError, match="was replaced"):
        gpus.lock(UUIDS[:1], 1, tmp_path)


def test_an_agent_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names it."""
    monkeypatch.setattr(gpus, "_FOLDERS", ())

    def ask(_: Sequence[str]) -> str:
        raise AssertionError

    with pytest.raises(GpuError, match="the task has 1 GPU, but its container has no nvidia-smi"):
        gpus.choose(1, {"PATH": str(tmp_path)}, ask)
