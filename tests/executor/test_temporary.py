"""The folder for a task's temporary files: there while it runs, gone afterwards, however it ends."""

from __future__ import annotations

import fcntl
import os
import pwd
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs import PATIENCE, gone
from tf_executor import locked_folders, temporary
from tf_executor.guarding import remove

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
#: Tells where it is and leaves what a program may leave.
LITTER = 'mkdir "$TMPDIR/a" && touch "$TMPDIR/a/file" && ln -s "$PWD" "$TMPDIR/link" && chmod 500 "$TMPDIR/a"; '


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """The folder that an agent gives its executors."""
    (tmp_path / "temporary").mkdir(mode=0o777)
    return tmp_path / "temporary"


def test_every_stage_has_the_same_folder_and_nobody_else_has_it(executor: Any) -> None:
    """In /tmp, so that the path of a socket in it fits; when the task has ended, only it is gone."""
    tell = 'stat -c "%n %a %u" "$TMPDIR"'
    (executor.sandbox / "kept").touch()
    executor.launch(f"{LITTER}{tell}", pre=tell, post=tell)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FINISHED")
    (line,) = set(executor.output().splitlines())
    path, mode, owner = line.split()
    assert ("700", str(os.geteuid()), "/tmp") == (mode, owner, str(Path(path).parent))
    assert len(path) < 25
    assert gone(Path(path))
    assert (executor.sandbox / "kept").exists()


@pytest.mark.parametrize("end", ["failure", "kill", "kill of the executor", "loss of the agent"])
def test_it_goes_however_the_task_ends(start: Any, agents: Path, end: str) -> None:
    """Where the executor is not left to do it, its guardian is."""
    executor = start("task", TMPDIR=str(agents))
    last = "exit 3" if end == "failure" else "exec sleep 3600"
    executor.launch(f'{LITTER} echo "$TMPDIR" > ready; {last}')
    executor.states("TASK_STARTING", "TASK_RUNNING")
    folder = Path(executor.await_file("ready").strip())
    assert agents == folder.parent
    if end == "failure":
        executor.states("TASK_FAILED")
    elif end == "kill":
        executor.kill()
        executor.states("TASK_KILLING", "TASK_KILLED")
    elif end == "kill of the executor":
        executor.process.kill()
    else:
        executor.say("GONE", reason="it went away")
    assert gone(folder)


def test_what_is_left_of_others_goes_too(start: Any, agents: Path) -> None:
    """An agent may kill a guardian with its executor. What a living one has, or what is no such folder, stays."""
    left, lock = locked_folders.make(agents, "tf-task-")
    used, _ = locked_folders.make(agents, "tf-task-")
    (left / "file").touch()
    (agents / "tf-other").mkdir()
    os.close(lock)
    executor = start("task", TMPDIR=str(agents))
    executor.launch("true")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert gone(left)
    assert {used, agents / "tf-other"} <= set(agents.iterdir())


def test_one_of_the_users_own_is_left_alone(start: Any, agents: Path) -> None:
    """Nothing is made, nothing is removed."""
    executor = start("task", TMPDIR=str(agents))
    (executor.sandbox / "mine").mkdir()
    executor.launch(f'echo "$TMPDIR"; ls {agents}', environment={"TMPDIR": "mine"})
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "mine\n" == executor.output()
    assert (executor.sandbox / "mine").exists()


def test_where_it_cannot_be_made_programs_run_as_without(start: Any, agents: Path) -> None:
    """With what the agent said; the log tells."""
    executor = start("task", TMPDIR=f"{agents}/none")
    executor.launch('echo "$TMPDIR"')
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"{agents}/none\n" == executor.output()
    assert "the task has no folder of its own for temporary files" in executor.output("stderr")


@is_root
def test_it_is_the_users_who_runs_the_program(executor: Any) -> None:
    """Who may write in it."""
    for folder in (executor.sandbox, *executor.sandbox.parents):
        if "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o011)
    executor.launch(f'{LITTER} stat -c "%n %a %u" "$TMPDIR"', user="nobody")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    path, *rights = executor.output().split()
    assert ["700", str(pwd.getpwnam("nobody").pw_uid)] == rights
    assert gone(Path(path))


def test_the_end_of_a_task_does_not_wait_for_the_removal(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which goes on: it may be a million files, or a server that does not answer."""
    answered, removed = threading.Event(), threading.Event()

    def slow(path: str) -> None:
        answered.wait()
        remove(path)
        removed.set()

    monkeypatch.setattr(temporary, "remove", slow)
    monkeypatch.setattr(temporary, "REMOVAL_LIMIT", 0.0)
    folder = temporary.TemporaryFolder(lambda path: None)
    path = folder.make({"TMPDIR": str(agents)}, None)
    folder.remove()
    assert Path(path).exists()
    answered.set()
    assert removed.wait(PATIENCE)
    assert not Path(path).exists()


def test_a_folder_in_use_is_locked(agents: Path) -> None:
    """Which systemd-tmpfiles heeds, too, when it looks for what is old."""
    made = Path(temporary.TemporaryFolder(lambda path: None).make({"TMPDIR": str(agents)}, None))
    seen = os.open(made, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(seen, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(seen)


# Removing.


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A folder with a bit of everything."""
    folder = tmp_path / "full"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff\n")).touch()
    return folder


def a_socket(folder: Path) -> None:
    way = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{way}/socket")
    os.close(way)


def no_rights(folder: Path) -> None:
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0o100)


def many(folder: Path) -> None:
    for number in range(3000):
        (folder / f"{number}").touch()


@pytest.mark.parametrize("more", [a_socket, no_rights, many])
def test_all_that_is_in_a_folder_is_removed(full: Path, more: Callable[[Path], None]) -> None:
    """Whatever it is, and whoever has taken rights away."""
    more(full)
    remove(str(full))
    assert not full.exists()


def test_no_link_is_followed(full: Path, tmp_path: Path) -> None:
    """Neither one inside nor one in the folder's place."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "file").touch()
    (full / "a" / "link").symlink_to(others)
    remove(str(full))
    full.symlink_to(others)
    remove(str(full))
    assert (others / "file").exists()


def test_what_is_too_deep_stays_and_the_rest_goes(full: Path) -> None:
    """No error for who removes."""
    top = os.open(full / "a", os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=top)
        below = os.open("d", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    remove(str(full))
    assert [full / "a"] == list(full.iterdir())
    subprocess.run(["rm", "-r", str(full)], check=True)


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    """Another may have been faster."""
    remove(str(tmp_path / "none" / "none"))


MOUNTED = """
import subprocess, sys
from tf_executor.guarding import remove
full, others = sys.argv[1:]
subprocess.run(["mount", "--bind", others, f"{full}/a/b"], check=True)
remove(full)
"""


def test_nothing_that_is_mounted_inside_is_touched(full: Path, tmp_path: Path) -> None:
    """Such as a data set, bound from elsewhere on the same file system."""
    private = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*private, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("mounting in a mount namespace of its own needs root")
    others = tmp_path / "others"
    others.mkdir(mode=0o755)
    (others / "file").touch()
    command = [*private, sys.executable, "-c", MOUNTED, str(full), str(others)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (others / "file").exists()
    assert 0o755 == others.stat().st_mode & 0o777
    assert [full / "a"] == list(full.iterdir())
