"""`local install`, `serve` and `uninstall` as a user runs them: the package on Mesos, by its own Marathon app."""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dcos_local.folder import Folder
from dcos_local.record import Record
from mesos_local.leftovers import find_leftovers
from mesos_local.process import ProcessId
from mesos_local.status import read_status

PATIENCE = 300
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
SMALL = {"cpus": 0.1, "mem": 64, "disk": 0}


def run(*arguments, umask=-1):
    command = [sys.executable, "-m", "tf_scheduler", "local", *map(str, arguments)]
    options = {"env": ENVIRONMENT, "capture_output": True, "text": True, "umask": umask}
    return subprocess.run(command, timeout=PATIENCE, check=False, **options)


def until(condition):
    """What it gives, as soon as that is true."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        threading.Event().wait(0.05)
    return found


@pytest.fixture
def cluster(local_cluster):
    """Afterwards nothing is installed and nobody serves."""
    yield local_cluster
    folder = Folder(local_cluster.directory)
    if Record.read(folder):
        run("uninstall", "--all", "--dir", local_cluster.directory)
    if record := Record.read(folder):
        record.process.end(20)


@pytest.fixture
def job(tmp_path):
    """Options of a job whose tasks wait to be killed."""

    def write(name, command="exec sleep 1000", **sections):
        document = {
            "service": {"name": name, "command": command},
            "parameter_server": {"count": 0},
            "worker": {"count": 2, **SMALL},
            **sections,
        }
        path = tmp_path / f"{name.replace('/', '-')}.json"
        path.write_text(json.dumps(document))
        return path

    return write


def ask(cluster, path):
    """Status and body, through the admin router."""
    record = Record.read(Folder(cluster.directory))
    connection = http.client.HTTPConnection(urlsplit(record.url).netloc, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def is_deployed(cluster, name):
    return ask(cluster, f"/service/{name}/v1/plans/deploy")[0] == 200


def tasks(cluster):
    """Mesos task ids by name."""
    return {task.name: task.task_id for task in read_status(cluster.master.address).tasks}


def scheduler(name):
    """The process of a service's scheduler."""
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"MARATHON_APP_ID=/{name}".encode() in environment and b"tensorflow-scheduler.pyz" in command:
            return ProcessId.of(int(entry.name))
    return None


def below(folder):
    """Files and folders; others may go meanwhile."""
    return [Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files)]


def modes(paths):
    """Path -> mode, of files and folders; what goes meanwhile is left out."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.lstat().st_mode
    return {path: mode for path, mode in found.items() if stat.S_ISREG(mode) or stat.S_ISDIR(mode)}


def test_nothing_is_up(tmp_path):
    """Exit code 3, and how to start it."""
    for command in (["install"], ["uninstall"], ["serve"]):
        result = run(*command, "--dir", tmp_path / "none")
        assert 3 == result.returncode
        assert "dcos-tensorflow local up" in result.stderr


def test_an_options_file_without_its_flag_is_told_how(tmp_path):
    """As `local run` takes it."""
    result = run("install", "two.json", "--dir", tmp_path / "none")

    assert 2 == result.returncode
    assert "local install --options two.json" in result.stderr


@pytest.mark.mesos
def test_the_cluster_is_checked_without_options(cluster):
    """The package installs as it is; the job ends, the service stays, healthy, until it is uninstalled."""
    installed = run("install", "--dir", cluster.directory)

    assert 0 == installed.returncode, installed.stderr
    assert "installed tensorflow 0.1.0 as /tensorflow" in installed.stdout
    until(lambda: is_deployed(cluster, "tensorflow") and not tasks(cluster))
    until(lambda: '"value": 200' in ask(cluster, "/service/tensorflow/v1/health")[1])
    log = next(Folder(cluster.directory).marathon.glob("tasks/tensorflow.*/stderr"))
    until(lambda: "succeeded: worker-0" in log.read_text())
    uninstalled = run("uninstall", "--dir", cluster.directory)
    assert (0, "/tensorflow is uninstalled: nothing is left behind\n") == (uninstalled.returncode, uninstalled.stdout)
    assert "/tensorflow: nothing is left behind" in run("logs", "uninstalled", "--dir", cluster.directory).stdout
    assert 404 == ask(cluster, "/service/tensorflow/v1/health")[0]


@pytest.mark.mesos
def test_a_scheduler_that_is_killed_is_started_again_and_takes_its_tasks_over(cluster, job):
    """The same Mesos tasks, the same framework."""
    assert 0 == run("install", "--options", job("killed"), "--dir", cluster.directory).returncode
    until(lambda: is_deployed(cluster, "killed"))
    before, framework = tasks(cluster), ask(cluster, "/service/killed/v1/state/frameworkId")
    first = scheduler("killed")

    first.signal(signal.SIGKILL)

    until(lambda: not first.alive() and is_deployed(cluster, "killed"))
    assert framework == ask(cluster, "/service/killed/v1/state/frameworkId")
    assert before == tasks(cluster)
    assert ["worker-0", "worker-1"] == sorted(before)


@pytest.mark.mesos
def test_uninstall_ends_what_runs(cluster, job):
    """One of two services; the other's tasks go on. Then all."""
    for name in ("dev/one", "dev/two"):
        assert 0 == run("install", "--options", job(name), "--dir", cluster.directory).returncode
    until(lambda: is_deployed(cluster, "dev/one") and is_deployed(cluster, "dev/two"))
    ambiguous = run("uninstall", "--dir", cluster.directory)
    assert 1 == ambiguous.returncode
    assert "Multiple apps named [tensorflow] are installed: [/dev/one, /dev/two]" in ambiguous.stderr

    assert 0 == run("uninstall", "dev/one", "--dir", cluster.directory).returncode

    frameworks = [framework.name for framework in read_status(cluster.master.address).frameworks]
    # Other tests use this cluster, too.
    assert ["dev/two"] == [name for name in frameworks if name.startswith("dev/")]
    assert (
        "/dev/two is uninstalled: nothing is left behind\n"
        == run("uninstall", "--all", "--dir", cluster.directory).stdout
    )
    left = [framework.name for framework in read_status(cluster.master.address).frameworks]
    assert [] == [name for name in left if name.startswith("dev/")]
    assert 1 == run("uninstall", "--dir", cluster.directory).returncode


@pytest.mark.mesos
def test_services_outlive_the_local_dc_os(cluster, job):
    """While nobody serves, the tasks go on; `serve` takes both up again, at the same address."""
    assert 0 == run("install", "--options", job("outlives"), "--dir", cluster.directory).returncode
    until(lambda: is_deployed(cluster, "outlives"))
    before, record = tasks(cluster), Record.read(Folder(cluster.directory))

    record.process.end(20)
    assert None is scheduler("outlives")
    assert before == tasks(cluster)
    again = run("install", "--options", job("second"), "--dir", cluster.directory)

    assert 0 == again.returncode, again.stderr
    assert record.url == Record.read(Folder(cluster.directory)).url
    until(lambda: is_deployed(cluster, "outlives"))
    assert set(before.values()) <= {task.task_id for task in read_status(cluster.master.address).tasks}


@pytest.mark.mesos
def test_mistakes_are_told_before_anything_is_installed(cluster, job):
    """All of them, with their paths; the options are those of the file, not of DC/OS' form."""
    result = run("install", "--options", job("wrong", worker={"count": 1, "cpu": 1}), "--dir", cluster.directory)

    assert 1 == result.returncode
    assert "worker.cpu: is no option; did you mean cpus?" in result.stderr
    assert None is Record.read(Folder(cluster.directory))
    assert 3 == run("serve", "--where", "--dir", cluster.directory).returncode


@pytest.mark.mesos
def test_only_one_serves(cluster, job):
    """A second one would start every scheduler again."""
    assert 0 == run("install", "--options", job("once"), "--dir", cluster.directory).returncode

    record = Record.read(Folder(cluster.directory))
    assert f"{record.url}\n" == run("serve", "--where", "--dir", cluster.directory).stdout
    result = run("serve", "--dir", cluster.directory)

    assert 1 == result.returncode
    assert "serves at http://127.0.0.1:" in result.stderr


@pytest.mark.mesos
def test_down_ends_the_local_dc_os_too(tmp_path, job):
    """Serving process, scheduler and tasks: nothing is left of them. Nobody else wrote there, or read a password."""
    folder = tmp_path / "cluster"
    agents = tmp_path / "agents.json"
    agents.write_text(
        json.dumps([{"hostname": "only", "resources": {"cpus": 2, "mem": 1024, "ports": "[31960-31979]"}}])
    )
    try:
        assert 0 == run("up", "--agents", agents, "--dir", folder, umask=0).returncode
        assert 0 == run("install", "--options", job("down"), "--dir", folder, umask=0).returncode
        served = Record.read(Folder(folder))
        process = until(lambda: scheduler("down"))
        writable = [path for path, mode in modes(below(folder)).items() if mode & 0o022]
        mine = Folder(folder)
        kept = modes((*mine.path.glob("*.*"), *mine.marathon.glob("*.*"), *mine.marathon.glob("tasks/*")))
    finally:
        down = run("down", "--dir", folder)

    assert 0 == down.returncode, down.stderr
    assert ([], []) == (writable, [path for path, mode in kept.items() if mode & 0o077])
    assert {"apps.json", "serve.json"} < {path.name for path in kept}
    assert [False, False] == [process.alive(), served.process.alive()]
    assert set() == find_leftovers(folder)


@pytest.mark.mesos
def test_serving_in_the_foreground_ends_with_the_cluster(tmp_path):
    """Also when a person started it, in a shell of its own. Ctrl-C ends it at any time, as other commands."""
    folder, agents = tmp_path / "cluster", tmp_path / "agents.json"
    agents.write_text(
        json.dumps([{"hostname": "only", "resources": {"cpus": 2, "mem": 1024, "ports": "[31960-31979]"}}])
    )
    try:
        assert 0 == run("up", "--agents", agents, "--dir", folder).returncode
        command = [sys.executable, "-m", "tf_scheduler", "local", "serve", "--dir", str(folder)]
        with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as early:
            assert "building" in early.stderr.readline()
            early.send_signal(signal.SIGINT)
            assert (130, False) == (early.wait(PATIENCE), "Aborted" in early.stderr.read())
        serving = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        assert "the local DC/OS serves at http://127.0.0.1:" in serving.stdout.readline()
    finally:
        assert 0 == run("down", "--dir", folder).returncode

    try:
        assert 0 == serving.wait(PATIENCE)
    finally:
        serving.kill()
        serving.communicate()


@pytest.mark.mesos
@pytest.mark.tensorflow
@pytest.mark.timeout(600)
def test_the_example_trains_when_it_is_installed(cluster, tmp_path):
    """As `dcos package install tensorflow --options=options.json`: to its end, by the scheduler that Marathon runs."""
    digits = Path(__file__).resolve().parents[3] / "examples" / "digits"
    document = json.loads((digits / "options.json").read_text())
    service = document["service"]
    service.update(job_url=(digits / "train.py").as_uri(), command=f"{service['command']} --epochs 3 --target 0.1")
    (tmp_path / "options.json").write_text(json.dumps(document))

    installed = run("install", "--options", tmp_path / "options.json", "--dir", cluster.directory)

    assert 0 == installed.returncode, installed.stderr
    log = until(lambda: next(Folder(cluster.directory).marathon.glob("tasks/digits.*/stderr"), None))
    until(lambda: "nothing is left to do" in log.read_text())
    assert "succeeded: chief-0" in log.read_text()
