"""Jobs of several users, on clusters that start at the same time, never meet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, SMALL, processes
from kit.namespaces import network_namespace
from kit.waiting import wait_until
from mesos_local.libmesos.download import ensure_library

#: Both workers of a job serve its token, note that of the other, and wait for the end of the test.
PROGRAM = """
import json, os, pathlib, socket, sys, threading, time
token, notes = sys.argv[1:]
config = json.loads(os.environ["TF_CONFIG"])
ports = [int(address.rpartition(":")[2]) for address in config["cluster"]["worker"]]
index, answer = config["task"]["index"], ""
server = socket.create_server(("", ports[index]))
def serve():
    while True:
        with server.accept()[0] as connection:
            connection.sendall(token.encode())
threading.Thread(target=serve, daemon=True).start()
while not answer:
    try:
        answer = socket.create_connection(("127.0.0.1", ports[1 - index])).makefile().read()
    except OSError:
        time.sleep(0.05)
pathlib.Path(notes, f"{token} {index} met {answer}").touch()
while not pathlib.Path(notes, "end").exists():
    time.sleep(0.05)
"""


class User:
    """A user with home, folders and cache of their own in a folder."""

    def __init__(self, home: Path, python: str, uid: int = 0) -> None:
        self.home, self.python = home, python
        for name in ("tmp", "cache/dcos-tensorflow"):
            (home / name).mkdir(parents=True)
        shutil.copy(ensure_library(), home / "cache" / "dcos-tensorflow")
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid)
        folders = {"HOME": "", "TMPDIR": "tmp", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
        variables = ENVIRONMENT | {name: str(home / folder) for name, folder in folders.items()}
        self._settings = {"env": variables, "cwd": home, "user": uid, "group": uid, "extra_groups": []}

    def run(self, start: Any, *arguments: object) -> Any:
        """Start `dcos-tensorflow local ARGUMENTS`."""
        command = (self.python, "-m", "tf_scheduler", "local", *arguments)
        return start(*command, **self._settings, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)


@pytest.fixture
def users() -> Iterator[list[User]]:
    """Yield root and, if it can run this version of Python, another user."""
    # Not `tmp_path`, which each session of pytest closes to other users.
    with tempfile.TemporaryDirectory() as name, processes() as start:
        (folder := Path(name)).chmod(0o755)
        other = User(folder / "other", "/usr/bin/python3", 65534)
        if other.run(start, "--help").wait():
            other = User(folder / "another", sys.executable)
        yield [User(folder / "one", sys.executable), other]


@pytest.mark.usefixtures("real_mesos")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root switches users")
@pytest.mark.parametrize("repetitions", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_jobs_of_two_users_never_meet(users: list[User], repetitions: int) -> None:
    """Each starts a run and a cluster in the same second, then a run on the cluster."""
    folder = users[0].home.parent
    (folder / "program.py").write_text(PROGRAM)
    (folder / "agents.json").write_text(json.dumps([{"hostname": "a", "resources": {"cpus": 2, "mem": 1024}}]))
    with network_namespace():
        for number in range(repetitions):
            meet(users, folder, number)


def meet(users: list[User], folder: Path, number: int) -> None:
    agents, notes = ("--agents", folder / "agents.json"), folder / f"notes-{number}"
    notes.mkdir()
    notes.chmod(0o777)

    def run(user: User, name: str, *arguments: object) -> Any:
        token = f"job-{user.home.name}-{name}-{number}"
        command = f"exec python {folder}/program.py {token} {notes}"
        service = {"name": token, "strategy": "multi_worker_mirrored", "python": user.python, "command": command}
        (folder / token).write_text(json.dumps({"service": service, "worker": {"count": 2, **SMALL}}))
        return user.run(start, "run", folder / token, "--timeout", 120, *arguments)

    with processes() as start, ExitStack() as stack:
        stack.callback(lambda: [user.run(start, "down", "--yes").communicate() for user in users])
        ups = [user.run(start, "up", *agents) for user in users]
        runs = [run(user, "own", "--dir", user.home / "run", *agents) for user in users]
        finish(ups)
        runs += [run(user, "shared") for user in users]
        wait_until(lambda: len(list(notes.iterdir())) >= 8 or any(run.poll() for run in runs))
        (notes / "end").touch()
        finish(runs)
    met = [note.name.split(" ") for note in notes.iterdir()]
    assert [] == [words for words in met if words[0] != words[-1]]


def finish(commands: list[Any]) -> None:
    for command in commands:
        output, _ = command.communicate()
        assert command.returncode == 0, output
