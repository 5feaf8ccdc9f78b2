"""No program can read the agent's token from an executor on a real agent."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from mesos_local.host import MesosLocalError
from task_launcher import subscribed
from tf_executor.contract.settings import Liveness

pytestmark = pytest.mark.usefixtures("real_mesos")

SYSTEM_PYTHON = Path("/usr/bin/python3")
TOKEN = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"
CHILDREN = 100
#: Catches processes that its parent, the executor, starts, and reads each as soon as the kernel permits it. Prints how
#: many processes were caught, how many of them showed the token, and which others show it.
SPY = f"""
import json, os
parent, token = os.getppid(), b"{TOKEN}"
def read(pid, name):
    with open(f"/proc/{{pid}}/{{name}}", "rb") as file:
        return file.read()
def is_started(pid):
    try:
        return int(read(pid, "stat").rpartition(b")")[2].split()[1]) == parent
    except OSError:
        return False
def shows_token(pid):
    while True:
        try:
            return token in read(pid, "environ")  # if opened before exec, of the memory before exec
        except PermissionError:
            continue
        except OSError:
            return False
loads = os.open("/proc/loadavg", os.O_RDONLY)
newest = lambda: int(os.pread(loads, 100, 0).split()[-1])
caught = found = 0
last = newest()
while caught < {CHILDREN}:
    before, last = last, newest()
    for pid in filter(is_started, range(before + 1, last + 1)):
        caught += 1
        found += shows_token(pid)
others = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        others += [pid] * (token in read(pid, "environ"))
    except OSError:
        pass
print(json.dumps([caught, found, others]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent switches users, so that its launcher is not readable")
@pytest.mark.skipif(not SYSTEM_PYTHON.is_file(), reason="no Python that every user may run")
def test_started_processes_never_show_the_token(bundle: Path, tmp_path: Path) -> None:
    """Also between fork and exec, whether the agent or the executor switches the user."""
    key = tmp_path / "jwt"
    key.write_text("a secret of the agent's")
    flags = {"authenticate_http_executors": "true", "jwt_secret_key": str(key), "http_authenticators": "jwt"}
    check = Liveness("command", "true", interval=0.02, failures=1000)
    try:
        with subscribed(bundle, flags) as scheduler:
            scheduler.open_folders()
            for name, user in (("agent", {"executor_user": "nobody"}), ("executor", {"user": "nobody"})):
                command = f"exec {SYSTEM_PYTHON} -c {shlex.quote(SPY)}"
                scheduler.launch(name, command, executor_python=str(SYSTEM_PYTHON), liveness=check, **user)
                scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
                assert 0 == scheduler.executor_exit()
                output = json.loads((scheduler.sandbox(name) / "stdout").read_text())
                assert [0, []] == output[1:], f"{name}: {output}"
    except MesosLocalError as error:
        pytest.skip(f"this Mesos cannot authenticate executors: {error}")
