"""Commands that ask a local run, without options."""

import hashlib
import http.client
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest

from jobs import PATIENCE, options, wait_for
from kit.browser import service_at
from kit.commands import SchedulerCommand
from kit.waiting import wait_until
from mesos_local import master_api

#: Writes to both outputs, and waits to be killed.
PROGRAM = (
    'echo "hello from $TASK_NAME"; echo oops >&2; mkdir data; head -c 2500000 /dev/urandom > data/random; '
    "sha256sum < data/random > data/sum; mkfifo data/pipe; ln -s /etc data/folder; ln -s /etc/hostname data/file; "
    "touch {marker}.$TASK_NAME; exec sleep 1000"
)


@pytest.fixture
def asked(succeed, without_dcos):
    """Run a command without DC/OS, which must succeed; return its output."""
    return succeed


def as_another_user(ask):
    """Return what `ask()` returns in a process of another user (65534), as JSON."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, json.dumps(ask()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    os.waitpid(child, 0)
    return json.loads(content)


def status_of(address, method, path, headers):
    """Return the HTTP status of a request."""
    with closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status


@pytest.mark.usefixtures("real_mesos")
def test_local_run_obeys_only_its_own_user(start_process, asked, state_folder, tmp_path: Path) -> None:
    """Other users could run any program as this one. Commands find the token."""
    marker = tmp_path / "up"
    process = start_process("local", "run", "-v", options(tmp_path, PROGRAM.format(marker=marker)))
    wait_for(*(Path(f"{marker}.{task}") for task in ("ps-0", "worker-0", "worker-1")))
    pages = (re.search(r"^\S+ page: http://(\S+)/#token=(\S+)", line) for line in iter(process.stderr.readline, ""))
    address, token = next(filter(None, pages)).groups()
    (file,) = state_folder.glob("runs/*/api-token")

    def attack():
        headers = [{}, {"Authorization": "Bearer guess"}, {"X-TensorFlow-Token": ""}, {"Authorization": "Basic Og=="}]
        paths = ("/v1/plans/deploy/interrupt", "/v1/pod/worker-0/restart", "/v1/plans/deploy/start")
        writes = {status_of(address, "POST", path, header) for path in paths for header in headers}
        reads = {status_of(address, "GET", path, {}) for path in ("/v1/plans", "/v1/tasks", "/v1/tf/overview")}
        return [sorted(writes), sorted(reads), os.access(file, os.R_OK)]

    assert [[401], [401], False] == as_another_user(attack)
    assert (token, 0o600) == (file.read_text(), file.stat().st_mode & 0o777)
    assert "worker-0 is restarted" in asked("pod", "restart", "worker-0")
    assert "worker-1 is restarted" in asked("--url", f"http://{address}", "pod", "restart", "worker-1")
    assert 200 == status_of(address, "GET", "/v1/plans", {"X-TensorFlow-Token": token})
    log = (file.parent / "logs" / "scheduler.log").read_text()
    assert ("audit: POST" in log, token in log) == (True, False)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert not file.exists()


@pytest.mark.usefixtures("real_browser")
def test_printed_address_opens_the_page(start_process, tmp_path: Path) -> None:
    """With the token of the run, as a user copies it."""
    ours, theirs = pty.openpty()
    streams = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
    process = start_process("local", "run", options(tmp_path, "exec sleep 1000"), **streams)
    os.close(theirs)
    output, address = b"", None
    while address is None:
        output += os.read(ours, 65536)
        address = re.search(rb"page: (http://[^\s\x1b]+)[\s\x1b]", output)
    assert "small" == service_at(address[1].decode())
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # a terminal without processes
        while os.read(ours, 65536):
            pass
    process.wait(PATIENCE)
    os.close(ours)
    assert b"#token=" in address[1]


@pytest.mark.usefixtures("real_mesos")
def test_commands_find_local_run_without_options(start_process, run_process, asked, tmp_path: Path) -> None:
    """After the run has ended: exit code 3."""
    marker = tmp_path / "up"
    process = start_process("local", "run", "-v", options(tmp_path, PROGRAM.format(marker=marker)))
    wait_for(*(Path(f"{marker}.{task}") for task in ("ps-0", "worker-0", "worker-1")))
    log = iter(process.stderr.readline, "")
    assert any("plan deploy is complete" in line for line in log)

    assert asked("plan", "status", "deploy").startswith("deploy (parallel strategy) (COMPLETE)")
    tasks = {task["name"]: task for task in json.loads(asked("tasks", "--json"))["tasks"]}
    assert {"RUNNING"} == {task["status"] for task in tasks.values()}
    assert "hello from worker-1\n" == asked("logs", "worker-1")
    assert asked("logs", "worker-1", "--stderr").endswith("oops\n")
    hellos = {f"{task} | hello from {task}" for task in tasks}
    assert hellos == set(asked("logs", "--since", "1h").splitlines())
    copied = asked("cp", "worker-1:data", tmp_path)
    assert ("2 files, ", True) == (
        re.search(r"\d+ files, ", copied)[0],
        copied.endswith(": data/file and data/folder\n"),
    )
    digest = hashlib.sha256((tmp_path / "data" / "random").read_bytes()).hexdigest()
    assert digest == (tmp_path / "data" / "sum").read_text().split()[0]
    assert {"random", "sum"} == {path.name for path in (tmp_path / "data").iterdir()}
    assert tasks["ps-0"]["address"] in asked("endpoints", "ps")
    assert {"type": "ps", "index": 0} == json.loads(asked("cluster", "ps-0"))["task"]
    assert "worker-1 on agent-" in asked("events", "--task", "worker-1")
    assert "is not pending: it is RUNNING" in asked("why", "worker-0")
    assert "pass" in asked("debug", "offers")

    Path(f"{marker}.worker-1").unlink()
    assert "worker-1 is restarted" in asked("pod", "restart", "worker-1")
    wait_for(Path(f"{marker}.worker-1"))
    again = json.loads(asked("tasks", "--json"))["tasks"]
    assert tasks["worker-1"]["id"] not in [task["id"] for task in again]

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    code, _, err = run_process("plan", "list")
    assert 3 == code
    assert "local run OPTIONS.json" in err


@pytest.mark.usefixtures("real_mesos", "without_dcos")
def test_failed_run_has_a_result_and_exit_codes(start_process, run_process, tmp_path: Path) -> None:
    """The scheduler exits with its job: `progress` shows the result of the run."""
    go = tmp_path / "go"
    program = f"touch {go}.$TASK_NAME; until [ -e {go} ]; do sleep 0.1; done; exit 3"
    process = start_process("local", "run", options(tmp_path, program, restart={"max_failures": 0}))
    wait_for(Path(f"{go}.worker-0"), Path(f"{go}.worker-1"))
    assert (5, "no result yet\n") == run_process("result")[:2]
    ours, theirs = pty.openpty()
    watcher = start_process("progress", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = os.read(ours, 65536)
    go.touch()
    assert 1 == watcher.wait(PATIENCE)
    while select.select([ours], [], [], 0)[0] and b"failed" not in seen:
        seen += os.read(ours, 65536)
    os.close(ours)
    assert b"failed" in seen

    process.communicate(timeout=PATIENCE)
    assert "dcos-tensorflow logs --run last" in run_process("logs")[2]
    code, out, _ = run_process("result", "--name", "small")
    assert (1, "failed: ") == (code, out[:8])


@pytest.mark.usefixtures("real_mesos", "without_dcos")
def test_run_is_listed_awaited_and_cancelled(start_process, run_process, tmp_path: Path) -> None:
    """From another terminal; the exit codes are those of docs/reference/cli.md."""
    assert (0, "No service runs.\n") == run_process("list")[:2]
    assert [3, 3, 3, 3] == [run_process(words)[0] for words in ("status", "wait", "cancel", "open")]
    go = tmp_path / "go"
    program = (
        f"touch {go}.$TASK_NAME; until [ -e {go} ]; do sleep 0.1; done; echo 'step 3/10 loss 0.5'; exec sleep 1000"
    )
    process = start_process("local", "run", options(tmp_path, program))
    wait_for(Path(f"{go}.worker-0"), Path(f"{go}.worker-1"))
    assert 124 == run_process("wait", "--timeout", "1", "--for", "training")[0]
    go.touch()
    code, out, _ = run_process("wait", "small", "--for", "training")
    assert (0, "training: ") == (code, out[:10])
    _, row = run_process("list")[1].splitlines()
    assert ["small", "TRAINING", "3/10", "0.5"] == row.split()[:4]
    status = run_process("status", "small")[1]
    assert "step 3 of 10, 30 %, loss 0.5" in status
    page = run_process("open", "--print")[1].strip()
    assert page in status
    with urllib.request.urlopen(page) as answer:
        assert b"<html" in answer.read()

    assert 2 == run_process("cancel", "small")[0]
    assert (0, "small: stopped: SIGINT received\n") == run_process("cancel", "small", "--yes")[:2]
    process.communicate(timeout=PATIENCE)

    assert 4 == run_process("wait", "small")[0]
    assert (0, "small has already ended: stopped: SIGINT received\n") == run_process("cancel", "small", "--yes")[:2]


def test_scheduler_run_by_hand_is_found_by_its_master(asked, state_folder, local_cluster, tmp_path: Path) -> None:
    """It is not advertised, but the master of `local up` knows its address."""
    state_folder.mkdir(parents=True)
    (state_folder / "local").symlink_to(local_cluster.directory)
    master = local_cluster.master.address
    scheduler = SchedulerCommand(tmp_path / "options.json", master, service={"name": "by/hand"})
    try:
        scheduler.start(stderr=subprocess.DEVNULL)
        wait_until(lambda: any(each.name == "by/hand" for each in local_cluster.state().frameworks))
        assert "by/hand" == asked("list").splitlines()[1].split()[0]
        assert asked("status").startswith("by/hand  ")
    finally:
        scheduler.stop()
        for framework in local_cluster.state().frameworks:
            master_api.teardown(master, framework.framework_id)


@pytest.mark.usefixtures("real_mesos", "without_dcos")
def test_run_ends_when_its_cluster_is_shut_down(start_process, run_process, tmp_path: Path) -> None:
    """`local down` names the run and asks; the run ends soon, as a failure."""
    folder = ("--dir", tmp_path / "cluster")
    assert 0 == run_process("local", "up", *folder)[0]
    try:
        marker = tmp_path / "up"
        process = start_process("local", "run", *folder, options(tmp_path, PROGRAM.format(marker=marker)))
        wait_for(*(Path(f"{marker}.{task}") for task in ("ps-0", "worker-0", "worker-1")))

        code, _, err = run_process("local", "down", *folder)
        assert (2, True) == (code, "end with it: small\naborted; use `--yes`" in err), err
        assert process.poll() is None
        assert 0 == run_process("local", "down", *folder, "--yes")[0]
        begin = time.monotonic()
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        run_process("local", "down", *folder, "--yes")

    assert 1 == process.returncode
    assert "the local cluster was shut down" in out.splitlines()[0]
    assert "running" not in out
    assert time.monotonic() - begin < 10
    assert 1 == run_process("result")[0]
