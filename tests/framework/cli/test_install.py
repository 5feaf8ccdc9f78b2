"""`local install` and `local uninstall` as processes, on a real Mesos."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from jobs import gone
from kit.browser import service_at
from kit.commands import ENVIRONMENT, SMALL, command_line, find_scheduler, processes, request, run_command
from kit.options import WITHOUT_PROGRAM
from kit.waiting import wait_until
from mesos_local.host import ProcessId, find_orphans, free_ports
from mesos_local.master_api import read_status
from mesos_local.record import read_record
from tf_scheduler.cli.local_run.installed import InstalledService
from tf_scheduler.errors import JobError


def run_local(*arguments, umask=-1):
    return run_command("local", *arguments, umask=umask)


@pytest.fixture
def cluster(local_cluster):
    """The shared cluster; services are uninstalled afterwards."""
    yield local_cluster
    if InstalledService.all(local_cluster.directory):
        run_local("uninstall", "--all", "--dir", local_cluster.directory)


@pytest.fixture
def job(tmp_path: Path):
    """Write the options of a job whose tasks wait to be killed."""

    def write(name, command="exec sleep 1000", **sections):
        document = {
            "service": {"name": name, "strategy": "between_graph", "command": command},
            "parameter_server": {"count": 0},
            "worker": {"count": 2, **SMALL},
            **sections,
        }
        path = tmp_path / f"{name.replace('/', '-')}.json"
        path.write_text(json.dumps(document))
        return path

    return write


def service(cluster, name):
    return InstalledService(cluster.directory, name)


def ask(cluster, name, path, *, with_token=True):
    installed = service(cluster, name)
    return request(urlsplit(installed.url).port, path, token=installed.token if with_token else "")


def is_deployed(cluster, name):
    return ask(cluster, name, "/v1/plans/deploy").status == 200


def tasks(cluster):
    """Return the Mesos task ids by name."""
    return {task.name: task.task_id for task in read_status(cluster.master.address).tasks}


def scheduler(cluster, name):
    """Return the process of a service's scheduler, or None."""
    return find_scheduler(service(cluster, name).folder)


def below(folder):
    """Return files and folders; some may be removed meanwhile."""
    return [Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files)]


def modes(paths):
    """Return path -> mode of files and folders that exist."""
    existing = {}
    for path in paths:
        with suppress(FileNotFoundError):
            existing[path] = path.lstat().st_mode
    return {path: mode for path, mode in existing.items() if stat.S_ISREG(mode) or stat.S_ISDIR(mode)}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("install", 3, "dcos-tensorflow local up"),
        ("uninstall", 3, "dcos-tensorflow local up"),
        # `local run` accepts the file as an argument.
        ("install two.json", 2, "local install --options two.json"),
    ],
)
def test_refused_install_names_the_command(tmp_path: Path, words: str, code: int, message: str) -> None:
    result = run_local(*words.split(), "--dir", tmp_path / "none")

    assert (code, True) == (result.returncode, message in result.stderr), result.stderr


@pytest.mark.usefixtures("real_browser")
@pytest.mark.parametrize("document", [None, "all defaults"])
def test_install_without_program_checks_cluster(cluster, tmp_path: Path, document: str | None) -> None:
    """The job ends, the service stays, healthy, until it is uninstalled."""
    (tmp_path / "options.json").write_text(json.dumps(WITHOUT_PROGRAM.get(document or "")))
    options = () if document is None else ("--options", tmp_path / "options.json")
    installed = run_local("install", *options, "--dir", cluster.directory)

    assert 0 == installed.returncode, installed.stderr
    assert "installed tensorflow 0.1.0 as /tensorflow" in installed.stdout
    page = installed.stdout.splitlines()[-1].removeprefix("page: ")
    assert "tensorflow" == service_at(page)
    wait_until(lambda: is_deployed(cluster, "tensorflow") and not tasks(cluster))
    wait_until(lambda: '"value": 200' in ask(cluster, "tensorflow", "/v1/health?verbose=true").text)
    wait_until(lambda: "succeeded: worker-0" in service(cluster, "tensorflow").log.read_text())
    uninstalled = run_local("uninstall", "--dir", cluster.directory)
    left = f"nothing is left behind but what {cluster.directory}/checkpoints/tensorflow holds; "
    resumes = "the next service of this name resumes from checkpoints there\n"
    assert 0 == uninstalled.returncode
    assert f"/tensorflow is uninstalled: {left}{resumes}" == uninstalled.stdout
    assert "/tensorflow: nothing is left behind" in run_local("logs", "uninstalled", "--dir", cluster.directory).stdout
    assert not service(cluster, "tensorflow").folder.exists()


@pytest.mark.parametrize("strategy", ["parameter_server", "between_graph"])
def test_install_needs_no_counts_of_other_tasks(cluster, tmp_path: Path, strategy: str) -> None:
    """The scheduler reads the installed options again, and stores their counts."""
    sizes = dict.fromkeys(("parameter_server", "chief"), SMALL)
    program = {"name": "few", "strategy": strategy, "command": "exec sleep 1000"}
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"service": program, "worker": {"count": 1, **SMALL}, **sizes}))

    installed = run_local("install", "--options", file, "--dir", cluster.directory)

    assert 0 == installed.returncode, installed.stderr
    wait_until(lambda: is_deployed(cluster, "few"))
    others = {"parameter_server": {"chief-0", "ps-0"}, "between_graph": {"ps-0", "ps-1"}}.get(strategy, set())
    assert {"worker-0", *others} == tasks(cluster).keys()


def test_killed_scheduler_keeps_framework_and_tasks(cluster, job) -> None:
    """The scheduler is restarted at its address, and its tasks continue."""
    assert 0 == run_local("install", "--options", job("killed"), "--dir", cluster.directory).returncode
    wait_until(lambda: is_deployed(cluster, "killed"))
    before, framework = tasks(cluster), ask(cluster, "killed", "/v1/state/frameworkId")
    first, url = scheduler(cluster, "killed"), service(cluster, "killed").url

    first.signal(signal.SIGKILL)

    wait_until(lambda: not first.alive() and is_deployed(cluster, "killed"))
    assert (framework, url) == (ask(cluster, "killed", "/v1/state/frameworkId"), service(cluster, "killed").url)
    assert before == tasks(cluster)
    assert ["worker-0", "worker-1"] == sorted(before)

    # As on a full disk, which takes nothing: the supervisor tries again until it does.
    supervisor, second = service(cluster, "killed").supervisor, scheduler(cluster, "killed")
    _, hard = resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (1, hard))
    second.signal(signal.SIGKILL)
    wait_until(lambda: (third := scheduler(cluster, "killed")) and third != second)
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (hard, hard))
    wait_until(lambda: not second.alive() and is_deployed(cluster, "killed"))
    assert (supervisor, before) == (service(cluster, "killed").supervisor, tasks(cluster))


def test_installed_api_requires_the_token_of_the_user(cluster, job, tmp_path: Path) -> None:
    """Others reach the port, too; only this user's commands find the token."""
    installed = run_local("install", "--options", job("closed"), "--dir", cluster.directory)
    assert 0 == installed.returncode, installed.stderr
    wait_until(lambda: is_deployed(cluster, "closed"))
    closed = service(cluster, "closed")

    assert 401 == ask(cluster, "closed", "/v1/tasks", with_token=False).status
    body = json.dumps({"command": ["id"]}).encode()
    assert 401 == request(urlsplit(closed.url).port, "/v1/tasks/worker-0/exec", "POST", body=body).status
    assert 0o600 == stat.S_IMODE(closed.token_file.stat().st_mode)
    page = installed.stdout.splitlines()[-1]
    assert f"page: {closed.url}/#token={closed.token}" == page
    assert page == f"page: {run_command('--name', 'closed', 'open', '--print').stdout.strip()}"
    for words in (("--name", "closed", "tasks"), ("--url", closed.url, "exec", "worker-0", "--", "id")):
        assert 0 == run_command(*words).returncode
    browser, arguments = tmp_path / "browser", tmp_path / "arguments"
    browser.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n')
    browser.chmod(0o755)
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "SSH_CONNECTION"}
    run_command("--name", "closed", "open", env={**environment, "BROWSER": str(browser)})
    page_file = Path(arguments.read_text().strip().removeprefix("file://"))
    assert closed.token not in arguments.read_text(), "other users see the arguments of processes"
    assert (0o600, True) == (stat.S_IMODE(page_file.stat().st_mode), closed.token in page_file.read_text())
    checked = run_command("--name", "closed", "doctor")
    assert "requires a token" not in checked.stdout + checked.stderr


def test_killed_supervisor_leaves_no_scheduler(cluster, job) -> None:
    """The tasks keep running; the next `install` of any service starts the scheduler."""
    assert 0 == run_local("install", "--options", job("outlives"), "--dir", cluster.directory).returncode
    wait_until(lambda: is_deployed(cluster, "outlives"))
    before, first = tasks(cluster), scheduler(cluster, "outlives")

    service(cluster, "outlives").supervisor.signal(signal.SIGKILL)
    wait_until(lambda: not first.alive())
    assert None is service(cluster, "outlives").supervisor
    assert before == tasks(cluster)
    again = run_local("install", "--options", job("second"), "--dir", cluster.directory)

    assert 0 == again.returncode, again.stderr
    wait_until(lambda: is_deployed(cluster, "outlives"))
    assert set(before.values()) <= {task.task_id for task in read_status(cluster.master.address).tasks}


def test_commands_find_a_service_without_its_supervisor(
    cluster, job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`list`, `status` and `install` start the supervisor again; the tasks train on."""
    home = tmp_path / "state" / "dcos-tensorflow"
    home.mkdir(parents=True)
    (home / "local").symlink_to(cluster.directory)
    monkeypatch.setenv("XDG_STATE_HOME", str(home.parent))
    install = ("local", "install", "--options", job("found"))
    assert 0 == run_command(*install).returncode
    wait_until(lambda: is_deployed(cluster, "found"))
    before = tasks(cluster)

    for arguments in (("list",), ("status", "--name", "found"), install):
        supervisor = service(cluster, "found").supervisor
        supervisor.signal(signal.SIGKILL)
        wait_until(lambda: service(cluster, "found").supervisor is None)
        result = run_command(*arguments)
        assert (0, "found: its supervisor was gone" in result.stderr) == (result.returncode, True), result.stderr
        assert "No service runs" not in result.stdout
    assert "found " in run_command("list").stdout
    assert before == tasks(cluster)


def test_installed_service_names_the_checkpoints_it_resumes_from(cluster, job) -> None:
    """Users took the steps of an earlier service for their own."""
    file = cluster.directory / "checkpoints" / "resumes" / "ckpt-1.index"
    first = run_local("install", "--options", job("resumes"), "--dir", cluster.directory)
    file.touch()
    assert 0 == run_local("uninstall", "resumes", "--dir", cluster.directory).returncode
    second = run_local("install", "--options", job("resumes"), "--dir", cluster.directory)

    assert ("", 0) == (first.stderr, second.returncode)
    assert f"{file.parent} has checkpoints of an earlier run" in second.stderr


def test_uninstall_stops_tasks_of_one_service_or_all(cluster, job) -> None:
    """The tasks of the other service keep running."""
    for name in ("dev/one", "dev/two"):
        assert 0 == run_local("install", "--options", job(name), "--dir", cluster.directory).returncode
    wait_until(lambda: is_deployed(cluster, "dev/one") and is_deployed(cluster, "dev/two"))
    ambiguous = run_local("uninstall", "--dir", cluster.directory)
    assert 1 == ambiguous.returncode
    assert "several services are installed: /dev/one, /dev/two" in ambiguous.stderr
    assert "already installed" in run_local("install", "--options", job("dev/one"), "--dir", cluster.directory).stderr

    assert 0 == run_local("uninstall", "dev/one", "--dir", cluster.directory).returncode

    frameworks = [framework.name for framework in read_status(cluster.master.address).frameworks]
    # Other tests use this cluster, too.
    assert ["dev/two"] == [name for name in frameworks if name.startswith("dev/")]
    ended = run_local("uninstall", "--all", "--dir", cluster.directory)
    assert "/dev/two is uninstalled: nothing is left behind but " in ended.stdout
    left = [framework.name for framework in read_status(cluster.master.address).frameworks]
    assert [] == [name for name in left if name.startswith("dev/")]
    assert 3 == run_local("uninstall", "--dir", cluster.directory).returncode


def test_update_and_rollback_restart_the_scheduler(cluster, job, tmp_path: Path) -> None:
    """By service name, without DC/OS: preview, update, describe, rollback, uninstall.

    Slow: the scheduler starts four times, and each command is a process of its own.
    """

    def command(*arguments):
        return run_command("--name", "changed", *arguments)

    def runs(*names):
        complete = json.loads(ask(cluster, "changed", "/v1/plans/update").text or "{}").get("status") == "COMPLETE"
        return complete and set(names) == set(tasks(cluster))

    secret = {"environment": [{"name": "A_TOKEN", "value": "hidden"}]}
    path = job("changed", worker={"count": 2, **SMALL, **secret})
    assert 0 == run_local("install", "--options", path, "--dir", cluster.directory).returncode
    wait_until(lambda: is_deployed(cluster, "changed"))
    more, wrong = tmp_path / "more.json", tmp_path / "wrong.json"
    more.write_text(json.dumps({"worker": {"count": 3}}))
    wrong.write_text(json.dumps({"service": {"strategy": "multi_worker_mirrored"}}))

    asked = command("update", "start", "--options", more)
    assert (2, True) == (asked.returncode, "worker-2 is added" in asked.stderr), asked.stderr
    refused = command("update", "start", "--options", wrong, "--yes")
    assert (1, True) == (refused.returncode, "service.strategy: cannot change" in refused.stderr), refused.stderr
    assert 1 == command("update", "start", "--package-version", "9", "--yes").returncode
    started = command("update", "start", "--options", more, "--yes")
    assert 0 == started.returncode, started.stderr
    # The restarted scheduler answers already.
    assert ask(cluster, "changed", "/v1/plans/update").status in (200, 202)
    wait_until(lambda: runs("worker-0", "worker-1", "worker-2"))
    described = json.loads(command("describe").stdout)
    assert (3, "hidden") == (described["worker"]["count"], described["worker"]["environment"][0]["value"])

    back = command("update", "rollback", "--yes")
    assert (0, True) == (back.returncode, "worker-2 is removed" in back.stderr), back.stderr
    wait_until(lambda: runs("worker-0", "worker-1"))
    assert "hidden" in json.dumps(service(cluster, "changed").options())
    ended = command("uninstall", "--yes")
    assert (0, True) == (ended.returncode, "/changed is uninstalled: nothing is left" in ended.stdout), ended.stderr


def test_install_reports_all_wrong_options(cluster, job) -> None:
    """Before anything is installed."""
    result = run_local("install", "--options", job("wrong", worker={"count": 1, "cpu": 1}), "--dir", cluster.directory)

    assert 1 == result.returncode
    assert "worker.cpu: unknown option; did you mean `cpus`?" in result.stderr
    assert [] == InstalledService.all(cluster.directory)


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a service whose record has a supervisor (`sleep`) and an API at PORT."""
    service = InstalledService(tmp_path / "cluster", "svc")
    service.folder.parent.parent.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as process:

        def prepare(port, failure=""):
            def start(self) -> None:
                self.log.write_text("started\n")
                record = {"url": f"http://127.0.0.1:{port}", "process": asdict(ProcessId.of(process.pid))}
                (self.folder / "supervisor.json").write_text(json.dumps(record))
                if failure:
                    (self.folder / "failure").write_text(failure)

            monkeypatch.setattr(InstalledService, "ensure_supervised", start)
            return service

        yield prepare
        process.kill()


def test_install_returns_when_the_api_accepts_connections(supervised) -> None:
    with socket.create_server(("127.0.0.1", 0)) as api:
        service = supervised(api.getsockname()[1])
        service.install({"service": {"name": "svc", "command": "true"}})

    assert service.supervisor is not None
    assert [service] == InstalledService.all(service.cluster)


def test_install_of_exiting_scheduler_leaves_only_its_log(supervised) -> None:
    """The supervisor is stopped, too."""
    service = supervised(free_ports(1)[0], "exit code 1\nRT is not set")

    with pytest.raises(JobError, match=rf"(?s)exit code 1\nRT is not set\n.*{service.log}"):
        service.install({"service": {"name": "svc", "command": "true"}})

    assert ([], [service.log]) == (InstalledService.all(service.cluster), list(service.folder.iterdir()))


def test_install_reports_why_the_scheduler_exits(cluster, job) -> None:
    """The API's token is a variable that is not set. The next install succeeds."""
    failed = run_local("install", "--options", job("exits", api={"read_token": "env:RT_X"}), "--dir", cluster.directory)

    assert (1, "") == (failed.returncode, failed.stdout)
    assert "RT_X" in failed.stderr
    assert str(service(cluster, "exits").log) in failed.stderr
    assert (None, None) == (scheduler(cluster, "exits"), service(cluster, "exits").supervisor)
    assert [] == InstalledService.all(cluster.directory)
    again = run_local("install", "--options", job("exits"), "--dir", cluster.directory)
    assert 0 == again.returncode, again.stderr


@pytest.mark.usefixtures("real_mesos")
def test_down_ends_installed_services(tmp_path: Path, job) -> None:
    """Supervisor, scheduler and tasks stop. Only the owner can read the options files."""
    folder, agents = tmp_path / "cluster", tmp_path / "agents.json"
    agents.write_text(
        json.dumps([{"hostname": "only", "resources": {"cpus": 2, "mem": 1024, "ports": "[31960-31979]"}}])
    )
    down = InstalledService(folder, "down")
    try:
        assert 0 == run_local("up", "--agents", agents, "--dir", folder, umask=0).returncode
        assert 0 == run_local("install", "--options", job("down"), "--dir", folder, umask=0).returncode
        supervisor = down.supervisor
        process = wait_until(lambda: scheduler(SimpleNamespace(directory=folder), "down"))
        writable = [path for path, mode in modes(below(folder)).items() if mode & 0o022]
        kept = modes(down.folder.glob("*.*"))
    finally:
        asked = run_local("down", "--dir", folder)
        assert (2, True) == (asked.returncode, "which end with it: down\n" in asked.stderr)
        ended = run_local("down", "--dir", folder, "--yes")

    assert 0 == ended.returncode, ended.stderr
    assert 0o700 == stat.S_IMODE((folder / "checkpoints" / "down").stat().st_mode)
    assert ([], []) == (writable, [path for path, mode in kept.items() if mode & 0o077])
    assert {"options.json", "scheduler.json", "supervisor.json", "scheduler.log"} <= {path.name for path in kept}
    assert [False, False] == [process.alive(), supervisor.alive()]
    assert set() == find_orphans(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as another user")
def test_checkpoints_belong_to_the_user_of_the_tasks(tmp_path: Path) -> None:
    """The folder is private, and the user who installs may be another one."""
    service = InstalledService(tmp_path, "saves")

    folder = Path(service.with_checkpoints({"service": {"user": "nobody"}})["service"]["checkpoint_dir"])

    assert ("nobody", 0o700) == (folder.owner(), stat.S_IMODE(folder.stat().st_mode))


@pytest.mark.usefixtures("real_mesos")
def test_services_of_an_ended_cluster_never_return(tmp_path: Path, job) -> None:
    """Its master's port may be that of another user's master, who would get the tasks."""
    folder, agents = tmp_path / "cluster", tmp_path / "agents.json"
    agents.write_text(
        json.dumps([{"hostname": "only", "resources": {"cpus": 2, "mem": 1024, "ports": "[31940-31959]"}}])
    )
    later = SimpleNamespace(directory=folder)
    try:
        assert 0 == run_local("up", "--agents", agents, "--dir", folder).returncode
        assert 0 == run_local("install", "--options", job("ended"), "--dir", folder).returncode
        ended = read_record(folder).nodes["master"].address
        checkpoints = folder / "checkpoints" / "ended"
        assert 0 == run_local("down", "--dir", folder, "--yes").returncode
        with socket.create_server(("127.0.0.1", int(ended.rpartition(":")[2]))) as other:
            other.setblocking(False)
            assert 0 == run_local("up", "--agents", agents, "--dir", folder).returncode
            # As in the output of `describe`, from the time of the ended cluster.
            options = job("later", mesos={"master": ended})
            assert 0 == run_local("install", "--options", options, "--dir", folder).returncode
            wait_until(lambda: is_deployed(later, "later"))
            assert ["later"] == [each.id for each in InstalledService.all(folder)]
            assert (True, None) == (checkpoints.is_dir(), scheduler(later, "ended"))
            uninstalled = run_local("uninstall", "--dir", folder)
            assert uninstalled.stdout.startswith(
                f"/later is uninstalled: nothing is left behind but what {folder}/checkpoints/later holds; "
            )
            with pytest.raises(BlockingIOError):
                other.accept()
    finally:
        run_local("down", "--dir", folder, "--yes")


@pytest.mark.usefixtures("real_mesos")
@pytest.mark.parametrize("end", ["down without agent", "owner killed"])
def test_ended_cluster_leaves_no_secrets_in_memory(tmp_path: Path, job, end) -> None:
    """Not even of a program that ignores SIGTERM, so that its executor is killed."""
    folder, agents = tmp_path / "cluster", tmp_path / "agents.json"
    agents.write_text(
        json.dumps([{"hostname": "only", "resources": {"cpus": 2, "mem": 1024, "ports": "[31880-31899]"}}])
    )
    (tmp_path / "key").write_text("canary-5be1")
    secrets = {
        "secrets": [{"source": "file:key", "file": "key"}],
        "secret_delivery": {"directory": str(tmp_path)},
    }
    options = job("leaves", command="trap '' TERM; touch ready; while :; do sleep 1000; done", **secrets)
    with processes() as start:
        up = command_line("local", "up", "--foreground", "--agents", agents, "--dir", folder)
        owner = start(*up, env=ENVIRONMENT)
        try:
            while "Ctrl-C" not in owner.stdout.readline():
                assert owner.poll() is None
            assert 0 == run_local("install", "--options", options, "--dir", folder).returncode
            sandboxes = wait_until(lambda: len(found := list(folder.rglob("runs/*-*/ready"))) == 2 and found)
            kept = {(ready.with_name("key")).readlink() for ready in sandboxes}
            assert ["canary-5be1"] * 2 == [path.read_text() for path in kept]
            if end == "down without agent":
                read_record(folder).nodes["only"].process.signal(signal.SIGKILL)
            if end == "owner killed":
                owner.kill()
            else:
                assert 0 == run_local("down", "--dir", folder, "--yes").returncode
            assert all(gone(path.parent) for path in kept)
        finally:
            run_local("down", "--dir", folder, "--yes")
