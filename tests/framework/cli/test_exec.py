"""`exec` in a task of a real scheduler on a real Mesos."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess

from kit.commands import ENVIRONMENT, SMALL, SchedulerCommand, run_command
from kit.waiting import wait_until

PROGRAM = """
import json, os, resource
print(os.getcwd(), *json.loads(os.environ["TF_CONFIG"])["task"].values(), os.environ["COLOUR"], os.nice(0))
print(resource.getrlimit(resource.RLIMIT_NOFILE), any("exec_key" in name for name in os.environ))
"""

#: The program, with a child as under torchrun.
WAITING = """
import subprocess, sys, time
def waits_for_a_peer():
    time.sleep(1000)
with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]):
    waits_for_a_peer()
"""


def test_command_runs_in_task_on_mesos(tmp_path: Path, local_cluster) -> None:
    """As the program runs; with both tokens, through a restart that forbids it."""
    worker = {"count": 1, **SMALL, "nice": 2, "ulimits": "nofile=100:200"}
    sections = {
        "service": {"name": "exec", "command": f"pwd; nice; python -c '{WAITING}'", "environment": {"COLOUR": "blue"}},
        "worker": worker,
        "api": {"read_token": "env:READING", "write_token": "env:WRITING"},
    }
    service = SchedulerCommand(tmp_path / "options.json", local_cluster.master.address, **sections)
    url = f"http://127.0.0.1:{service.port}"

    def ask(*arguments: str, token: str = "w") -> CompletedProcess[str]:
        return run_command(*arguments, env={**ENVIRONMENT, "DCOS_TENSORFLOW_URL": url, "DCOS_TENSORFLOW_TOKEN": token})

    def execute(*command: str, token: str = "w") -> CompletedProcess[str]:
        return ask("exec", "--timeout", "20", "worker-0", "--", *command, token=token)

    log = (tmp_path / "log").open("a")
    process = service.start(log, READING="r", WRITING="w")
    try:
        wait_until(lambda: service.request("/v1/plans/deploy", token="r").status == 200)
        done = execute("python", "-c", PROGRAM)
        assert (0, "") == (done.returncode, done.stderr)
        folder, nice = ask("logs", "worker-0").stdout.split()
        lines = [f"{folder} 0 worker blue {nice}", "(100, 200) False"]
        assert lines == done.stdout.splitlines()

        wait_until(lambda: "waits_for_a_peer (<string>:4)" in ask("stacks", "worker-0").stdout)
        stacks = ask("stacks", "worker-0").stdout
        assert (2, False) == (stacks.count("Process "), "tf_executor" in stacks)

        done = execute("sh", "-c", "echo out; echo err >&2; exit 7")
        assert (7, "out\n", "err\n") == (done.returncode, done.stdout, done.stderr)
        assert 139 == execute("sh", "-c", "kill -11 $$").returncode
        done = execute("no-such-program")
        assert (127, True) == (done.returncode, "not found" in done.stderr)
        done = ask("exec", "--timeout", "1", "worker-0", "--", "sh", "-c", "echo some; sleep 1000 & wait")
        assert (124, "some\n", True) == (done.returncode, done.stdout, "killed after 1 s" in done.stderr)
        assert "1000" not in execute("sh", "-c", "ps -o args= -s $(ps -o sid= -p $$)").stdout
        assert execute(sys.executable, "-c", "print('x' * 600_000)").stdout == "x" * (1 << 19)
        done = execute("true", token="r")
        assert (1, True) == (done.returncode, "has read access only" in done.stderr)
        assert (1, True) == ((done := ask("exec", "worker-9", "--", "true")).returncode, "worker-9" in done.stderr)

        service.end(process)
        service.change(executor={"python": sys.executable, "exec": False})
        process = service.start(log, READING="r", WRITING="w")
        wait_until(lambda: service.request("/v1/plans/deploy", token="r").status == 200)
        done = execute("true")
        assert (1, True) == (done.returncode, "option executor.exec" in done.stderr)

        service.end(process)
        process = service.start(log, SDK_UNINSTALL="true", READING="r", WRITING="w")
        wait_until(lambda: service.request("/v1/plans/deploy").status == 200)
    finally:
        service.stop()
        log.close()
