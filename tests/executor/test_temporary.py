"""The task's temporary folder."""

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
from kit.commands import ENVIRONMENT
from kit.namespaces import mount_namespace
from tf_executor.process import temporary
from tf_executor.process.watchdog_process import remove_folder

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
#: Print the folder and leave files in it.
LITTER = 'mkdir "$TMPDIR/a" && touch "$TMPDIR/a/file" && ln -s "$PWD" "$TMPDIR/link" && chmod 500 "$TMPDIR/a"; '


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """The TMPDIR that an agent passes to its executors."""
    (tmp_path / "temporary").mkdir(mode=0o777)
    return tmp_path / "temporary"


def test_all_stages_share_private_folder(executor: Any) -> None:
    """In /tmp, so that the path of a socket in it is short enough."""
    tell = 'stat -c "%n %a %u" "$TMPDIR"'
    (executor.sandbox / "kept").touch()
    executor.launch(f"{LITTER}{tell}", pre_command=tell, post_command=tell)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FINISHED")
    (line,) = set(executor.output().splitlines())
    path, mode, owner = line.split()
    assert ("700", str(os.geteuid()), "/tmp") == (mode, owner, str(Path(path).parent))
    assert len(path) < 25
    assert gone(Path(path))
    assert (executor.sandbox / "kept").exists()


@pytest.mark.parametrize("end", ["failure", "kill", "kill of the executor", "loss of the agent"])
def test_folder_is_removed_at_any_end(start_executor: Any, agents: Path, end: str) -> None:
    """If the executor is killed, its watchdog removes the folder."""
    executor = start_executor("task", TMPDIR=str(agents))
    last = "exit 3" if end == "failure" else "exec sleep 3600"
    executor.launch_running(f'{LITTER} echo "$TMPDIR" > ready; {last}')
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


def test_orphaned_folders_are_removed(start_executor: Any, agents: Path) -> None:
    """The agent may kill an executor with its watchdog. Folders in use stay."""
    left, lock = temporary.make_locked_folder(agents, "tf-task-")
    used, _ = temporary.make_locked_folder(agents, "tf-task-")
    (left / "file").touch()
    (agents / "tf-other").mkdir()
    os.close(lock)
    executor = start_executor("task", TMPDIR=str(agents))
    executor.launch("true")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert gone(left)
    assert {used, agents / "tf-other"} <= set(agents.iterdir())


def test_user_tmpdir_is_kept(start_executor: Any, agents: Path) -> None:
    executor = start_executor("task", TMPDIR=str(agents))
    (executor.sandbox / "mine").mkdir()
    executor.launch(f'echo "$TMPDIR"; ls {agents}', environment={"TMPDIR": "mine"})
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "mine\n" == executor.output()
    assert (executor.sandbox / "mine").exists()


def test_program_runs_without_folder(start_executor: Any, agents: Path) -> None:
    executor = start_executor("task", TMPDIR=f"{agents}/none")
    executor.launch('echo "$TMPDIR"')
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"{agents}/none\n" == executor.output()
    assert "cannot create a temporary folder for the task" in executor.output("stderr")


@is_root
def test_folder_belongs_to_task_user(executor: Any) -> None:
    for folder in (executor.sandbox, *executor.sandbox.parents):
        if "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o011)
    executor.launch(f'{LITTER} stat -c "%n %a %u" "$TMPDIR"', user="nobody")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    path, *rights = executor.output().split()
    assert ["700", str(pwd.getpwnam("nobody").pw_uid)] == rights
    assert gone(Path(path))


def test_task_end_does_not_wait_for_removal(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered, removed = threading.Event(), threading.Event()

    def slow(path: str) -> None:
        answered.wait()
        remove_folder(path)
        removed.set()

    monkeypatch.setattr(temporary, "remove_folder", slow)
    monkeypatch.setattr(temporary, "REMOVAL_LIMIT", 0.0)
    folder = temporary.TemporaryFolder(lambda path: None)
    path = folder.make({"TMPDIR": str(agents)}, None)
    folder.remove()
    assert Path(path).exists()
    answered.set()
    assert removed.wait(PATIENCE)
    assert not Path(path).exists()


def test_used_folder_is_locked(agents: Path) -> None:
    """systemd-tmpfiles respects the lock."""
    made = Path(temporary.TemporaryFolder(lambda path: None).make({"TMPDIR": str(agents)}, None))
    seen = os.open(made, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(seen, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(seen)


# Removal.


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A folder with files, links and read-only folders."""
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
def test_folder_content_is_removed(full: Path, more: Callable[[Path], None]) -> None:
    more(full)
    remove_folder(str(full))
    assert not full.exists()


def test_links_are_not_followed(full: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "file").touch()
    (full / "a" / "link").symlink_to(others)
    remove_folder(str(full))
    full.symlink_to(others)
    remove_folder(str(full))
    assert (others / "file").exists()


def test_too_deep_folders_are_kept(full: Path) -> None:
    top = os.open(full / "a", os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=top)
        below = os.open("d", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    remove_folder(str(full))
    assert [full / "a"] == list(full.iterdir())
    subprocess.run(["rm", "-r", str(full)], check=True)


def test_missing_folder_is_ignored(tmp_path: Path) -> None:
    """Another process may have removed it first."""
    remove_folder(str(tmp_path / "none" / "none"))


MOUNTED = """
import subprocess, sys
from tf_executor.process.watchdog_process import remove_folder
full, others = sys.argv[1:]
subprocess.run(["mount", "--bind", others, f"{full}/a/b"], check=True)
remove_folder(full)
"""


def test_mounts_are_kept(full: Path, tmp_path: Path) -> None:
    """For example a data set, bound from elsewhere on the same file system."""
    private = mount_namespace(tmp_path)
    others = tmp_path / "others"
    others.mkdir(mode=0o755)
    (others / "file").touch()
    command = [*private, sys.executable, "-c", MOUNTED, str(full), str(others)]
    subprocess.run(command, check=True, env=ENVIRONMENT)
    assert (others / "file").exists()
    assert 0o755 == others.stat().st_mode & 0o777
    assert [full / "a"] == list(full.iterdir())
