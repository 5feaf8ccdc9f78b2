"""Search for a secret in a real run: only the training process may have it."""

from __future__ import annotations

import base64
import getpass
import hashlib
import http.client
import json
import os
import pwd
import queue
import resource
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kit.certificates import Certificates
from kit.commands import ENVIRONMENT, run_command, run_program, scheduler_environment, start_scheduler
from kit.http_server import HttpServer, QuietHandler
from kit.waiting import wait_until
from mesos_client.scheduler import SchedulerDriver
from mesos_local import master_api
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import free_ports
from mesos_local.master_api import read_status
from tf_scheduler.zipapp_builder import build_bundle
from tls_proxy import TlsProxy
from wire.client import FRAMEWORK

pytestmark = pytest.mark.usefixtures("real_mesos")

PATIENCE = 120
#: Differs in each encoding.
CANARY = 'canary?7f3a+9c51/äöü=&"end'
#: Its replacement while the programs run.
SECOND = 'second?5b1d+0e77/ñßø=&"end'
SMALL = {"cpus": 0.1, "mem": 64, "disk": 0}
#: A master that admits only this principal, with three of four roles and one user.
PRINCIPAL, PASSWORD = "tf", "pässwörd-4c1e"
USER = getpass.getuser()
STRANGER = "daemon" if USER == "nobody" else "nobody"
#: Only a root agent runs tasks as other users: one with secrets, and its neighbour.
IS_ROOT = os.geteuid() == 0
OWNER, NEIGHBOUR = ("games", "news") if IS_ROOT else (USER, USER)
#: A Python that other users may execute.
PYTHON = "/usr/bin/python3" if IS_ROOT else sys.executable


def permitted(kind: str, *values: str) -> list[dict[str, object]]:
    """An access list that permits these values of the kind only."""
    who = {"values": [PRINCIPAL]}
    return [{"principals": who, kind: {"values": list(values)}}, {"principals": who, kind: {"type": "NONE"}}]


ACLS = {
    "register_frameworks": permitted("roles", *(f"{name}-role" for name in ("good", "bad", "poor", "ill", "nosy"))),
    "run_tasks": permitted("users", USER, OWNER, NEIGHBOUR),
}
SECRETS = [
    {"source": "file:team/key", "env": "KEY"},
    {"source": "file:team/key", "env": "KEY_FILE", "file": "certs/key", "reload": "hup"},
]
COMMANDS = (
    "config target",
    "tasks",
    "events",
    "logs worker-0",
    "plan show deploy",
    "pod info worker-0",
    "--json tasks",
)
#: Proves that it has both values and receives reloads, waits for the file `go`, and exits with the code.
PROGRAM = (
    "trap 'sha256sum < \"$KEY_FILE\" > renewing; mv renewing renewed' HUP; "
    "python -c \"import hashlib, os; open('proof', 'w').write(' '.join(hashlib.sha256(text).hexdigest() for text in "
    "(os.environb[b'KEY'], open(os.environ['KEY_FILE'], 'rb').read())))\"; "
    "while ! test -e {go}; do sleep 0.1; done; {last}; exit {code}"
)
#: The neighbour: waits for the file `go`, which has its search program, and then searches.
SEARCHING = "while ! test -s {go}; do sleep 0.1; done; . {go}"
#: Its last output, which is part of the message about its end.
SAYS = (
    "python -c \"import base64, os, sys, urllib.parse as url; key = os.environb[b'KEY']; text = key.decode(); "
    "basic = base64.b64encode(b'me:' + key).decode(); "
    "print('said', text, [text], basic, url.quote(text), key.hex(), file=sys.stderr)\""
)


def forms(name: str, text: str) -> dict[str, bytes]:
    """The text and its encodings: base64 at three offsets, URL, JSON, hex."""
    data = text.encode()
    needles = {
        "plain": data,
        "url": urllib.parse.quote(text).encode(),
        "url, all": urllib.parse.quote_plus(text).encode(),
    }
    needles["json"] = json.dumps(text)[1:-1].encode()
    for shift in range(3):
        inner = base64.b64encode(b"x" * shift + data).rstrip(b"=")
        # The first and the last characters hold bits of the neighbours.
        needles[f"base64 at {shift}"] = inner[4 if shift else 0 : -2]
    needles["base64 for URLs"] = base64.urlsafe_b64encode(data).rstrip(b"=")[:-2]
    needles["hex"] = data.hex().encode()
    return {f"{name}, {form}": needle for form, needle in needles.items()}


def masked(needles: Mapping[str, bytes]) -> str:
    """Standard input of search.py."""
    hidden = {name: bytes(byte ^ 0x55 for byte in text) for name, text in needles.items()}
    return json.dumps({name: base64.b64encode(text).decode() for name, text in hidden.items()})


FORMS = forms("canary", CANARY) | forms("second", SECOND) | forms("password", PASSWORD)


def found_in(name: str, data: bytes) -> list[str]:
    return [f"{form} in {name}" for form, needle in FORMS.items() if needle in data]


def found_below(folder: Path) -> list[str]:
    hits: list[str] = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with suppress(FileNotFoundError):
                hits += found_in(str(path), path.read_bytes())
    return hits


class SecretScheduler:
    """A process, as Marathon would run it."""

    def __init__(
        self,
        folder: Path,
        name: str,
        master: str,
        state: str,
        code: int,
        variables: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        self.folder, self.name = folder / name, name
        self.folder.mkdir()
        (self.folder / "secrets" / "team").mkdir(parents=True)
        (self.folder / "secrets" / "team" / "key").write_text(CANARY)
        (self.folder / "secrets" / "mesos").write_text(PASSWORD)
        self.go = self.folder / "go"
        (self.folder / "search.py").write_text((Path(__file__).parent / "search.py").read_text())
        self.port = free_ports(1)[0]
        document: dict[str, Any] = {
            "service": {
                "name": name,
                "user": USER,
                "principal": PRINCIPAL,
                "strategy": "between_graph",
                "command": PROGRAM.format(go=self.go, code=code, last=SAYS if code else "true"),
                "python": sys.executable,
                "log_level": "ALL",
            },
            "parameter_server": {"count": 0},
            "worker": {"count": 1, **SMALL},
            "restart": {"max_failures": 0},
            "executor": {"python": sys.executable},
            "mesos": {"master": master, "secret": "file:mesos"},
            "scheduler": {"state": state},
            "secret_delivery": {"directory": str(self.folder / "secrets"), "reload_seconds": 1},
            "secrets": SECRETS,
        }
        for section, values in more.items():
            document[section] = {**document.get(section, {}), **values} if isinstance(values, dict) else values
        delivery: Any = document["secret_delivery"]
        self._authority = delivery.get("ca_file")
        options = self.folder / "options.json"
        options.write_text(json.dumps(document))
        self._options = options
        recording = str(self.folder / "recording")
        self._environment = scheduler_environment(self.port, **{"RECORDING_FILE": recording, **(variables or {})})
        self.log = self.folder / "log"
        self.start()

    def start(self) -> None:
        self.process = start_scheduler(self._options, self._environment, self.log)

    def renew(self, value: str) -> None:
        """Replace the value atomically, as Kubernetes does."""
        key = self.folder / "secrets" / "team" / "key"
        key.with_name("renewing").write_text(value)
        key.with_name("renewing").replace(key)

    def get(self, path: str) -> bytes:
        if self._authority is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        else:
            trusting = ssl.create_default_context(cafile=self._authority)
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=trusting)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        except OSError:
            return b""
        finally:
            connection.close()

    def answers(self) -> dict[str, bytes]:
        """Answers of all GET endpoints of the API."""
        document = json.loads(self.get("/v1/openapi.json"))
        names = {"{name}": "deploy", "{plan}": "deploy", "{pod}": "worker-0", "{task}": "worker-0"}
        answers = {}
        for path, methods in document["paths"].items():
            for name, value in names.items():
                path = path.replace(name, value)
            if "get" in methods and "stream" not in path:
                with suppress(OSError, http.client.HTTPException):
                    answers[path] = self.get(path)
        return answers

    def command_output(self) -> dict[str, bytes]:
        """Output of the commands, which all succeed."""
        options = self.folder / "options.json"
        place = json.loads(options.read_text())["scheduler"]["state"]
        own = [["options", "show", str(options)], ["state", "show", place, "--service", self.name, "--json"]]
        asked = [["--url", f"http://127.0.0.1:{self.port}", *line.split()] for line in COMMANDS] + own
        outputs = {}
        for line in asked:
            run = run_command(*line, env=self._environment)
            assert 0 == run.returncode, run.stderr
            outputs[" ".join(line)] = (run.stdout + run.stderr).encode()
        return outputs

    def command(self, *words: str) -> str:
        done = run_command("--url", f"http://127.0.0.1:{self.port}", *words, env=self._environment)
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def crashing(folder: Path, master: str, bao: Any) -> SecretScheduler:
    """Return the scheduler of a program that crashes, with secrets of OpenBao."""
    bao.root.secrets.kv.v2.create_or_update_secret("team/ill", secret={"key": CANARY})
    source = "vault:secret/team/ill#key"
    return SecretScheduler(
        folder,
        "ill",
        master,
        (folder / "ill.db").as_uri(),
        0,
        {"VAULT_TOKEN": bao.token(), "EXECUTOR_URI": (folder / "executor.pyz").as_uri()},
        service={
            "user": OWNER,
            "python": PYTHON,
            "command": PROGRAM.format(go=folder / "ill" / "go", last="kill -SEGV $$", code=0),
        },
        executor={"python": PYTHON},
        restart={"max_uncounted": 1},  # a signal may be the infrastructure's
        vault={"address": bao.address},
        secrets=[{**entry, "source": source} for entry in SECRETS],
    )


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that tasks of other users can pass.

    Each start of pytest closes pytest's own folders to them.
    """
    with TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    agents = [AgentSpec("agent-1", "cpus:4;mem:2048;ports:[31940-31949]")]
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps({"credentials": [{"principal": PRINCIPAL, "secret": PASSWORD}]}))
    flags = {
        "authenticate_http_frameworks": True,
        "http_framework_authenticators": "basic",
        "credentials": str(credentials),
        "acls": json.dumps(ACLS),
    }
    build_bundle(tmp_path / "executor.pyz")
    # The agent allows core files; the executor does not, by default.
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        with LocalCluster(agents, tmp_path / "cluster", flags, zookeeper=True, die_with_parent=True) as cluster:
            credentials.unlink()
            yield cluster
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.fixture
def tls_master(cluster: LocalCluster, certificates: Certificates) -> Iterator[str]:
    """A TLS proxy of the master that reports the address of the agent's TLS proxy."""
    context, agent = certificates.server_context(), cluster.agents["agent-1"].address
    with TlsProxy(agent, context) as there:
        moved = {agent: there.address}
        # In offers the port is a number of its own.
        moved |= {f'"port":{old.rpartition(":")[2]}': f'"port":{new.rpartition(":")[2]}' for old, new in moved.items()}
        with TlsProxy(cluster.master.address, context, moved) as proxy:
            assert len(agent) == len(there.address)
            yield proxy.address


@pytest.fixture
def schedulers(
    cluster: LocalCluster, tls_master: str, certificates: Certificates, bao: Any, tmp_path: Path
) -> Iterator[list[SecretScheduler]]:
    """One succeeds and keeps its state in SQLite, one fails and keeps it in ZooKeeper.

    The first reads new values on request, the second by itself. The second uses TLS with a private authority for both
    directions. The first has a variable as a further source, a third, which crashes, has a server of Vault's API. Then
    a neighbour of the third. Two more are denied something: one its user, the other its role.
    """
    master, zookeeper = cluster.master.address, f"zk://{cluster.zookeeper.address}/tf"
    names = {"certificate_file": certificates.path("server.pem"), "key_file": certificates.path("server.key")}
    trust = {"ca_file": certificates.ca}
    tls = {"tls": {"enabled": True, **trust}, "api": names, "secret_delivery": trust}
    state = lambda name: (tmp_path / f"{name}.db").as_uri()  # noqa: E731
    made = [
        SecretScheduler(
            tmp_path,
            "good",
            master,
            state("state"),
            0,
            {"SOURCE": CANARY},
            secret_delivery={"reload_seconds": 86_400},
            secrets=[*SECRETS, {"source": "env:SOURCE", "env": "OF_ENVIRONMENT"}],
        ),
        SecretScheduler(tmp_path, "bad", tls_master, zookeeper, 3, **tls),
        crashing(tmp_path, master, bao),
        SecretScheduler(
            tmp_path,
            "nosy",
            master,
            state("nosy"),
            0,
            {"EXECUTOR_URI": (tmp_path / "executor.pyz").as_uri()},
            service={"user": NEIGHBOUR, "python": PYTHON, "command": SEARCHING.format(go=tmp_path / "nosy" / "go")},
            executor={"python": PYTHON},
            secrets=[],
        ),
        SecretScheduler(tmp_path, "poor", master, state("poor"), 0, service={"user": STRANGER}),
        SecretScheduler(tmp_path, "ugly", master, state("ugly"), 0),
    ]
    yield made
    for one in made:
        one.end()


def processes(configured: Collection[int] = ()) -> list[str]:
    """Hits in arguments and environments of all processes but the training process.

    A scheduler among `configured` has a secret in its own environment.
    """
    hits: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            hits += found_in(f"{folder}/cmdline", (folder / "cmdline").read_bytes())
            environment = (folder / "environ").read_bytes()
            # The training process and what it starts; neither the executor nor the agent has this one.
            if b"TASK_NAME=worker-0" not in environment.split(b"\0") and int(folder.name) not in configured:
                hits += found_in(f"{folder}/environ", environment)
    return hits


def mesos(cluster: LocalCluster) -> dict[str, bytes]:
    """State endpoints of master and agent, old and new."""
    answers = {}
    for node in (cluster.master, *cluster.agents.values()):
        calls = ["GET_STATE", "GET_TASKS", "GET_EXECUTORS", "GET_FRAMEWORKS", "GET_METRICS", "GET_CONTAINERS"]
        for call in calls:
            body = json.dumps({"type": call, **({"get_metrics": {}} if call == "GET_METRICS" else {})}).encode()
            answers[f"{node.name} {call}"] = fetched(node.address, "/api/v1", body)
        for path in ("/state", "/metrics/snapshot", "/containers", "/tasks", "/frameworks", "/flags"):
            answers[f"{node.name} {path}"] = fetched(node.address, path)
    return answers


def fetched(address: str, path: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(f"http://{address}{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.read()


def sandbox_of(cluster: LocalCluster, one: SecretScheduler) -> Path:
    """The working directory of the task."""
    (framework,) = (item for item in read_status(cluster.master.address).frameworks if item.name == one.name)
    assert cluster.directory is not None
    found = cluster.directory.rglob(f"{framework.framework_id}/executors/*/runs/latest")
    # Below `meta` the agent keeps what it needs to recover.
    (sandbox,) = {path.resolve() for path in found if "meta" not in path.parts}
    return sandbox


def search_as_owner(folder: Path) -> set[str]:
    """Where the user of the task finds its secrets: the control of the search."""
    command = [PYTHON, "-I", folder / "search.py"]
    identity: Any = {"user": OWNER, "group": pwd.getpwnam(OWNER).pw_gid, "extra_groups": []} if IS_ROOT else {}
    run = run_program(*command, input=masked(FORMS), check=True, cwd="/", **identity)
    return {kind for kind, _, _ in json.loads(run.stdout)["found"]}


def neighbour_search(nosy: SecretScheduler, cluster: LocalCluster) -> dict[str, Any]:
    """The result of the search of a task of another user, while the others run."""
    output = sandbox_of(cluster, nosy) / "found"
    (nosy.folder / "needles").write_text(masked(FORMS))
    command = f"{PYTHON} -I {nosy.folder}/search.py < {nosy.folder}/needles > found"
    (nosy.folder / "new").write_text(command + "\n")
    (nosy.folder / "new").rename(nosy.go)
    wait_until(lambda: "the API stays" in nosy.log.read_text(), "the neighbour does not end")
    assert "has finished: exit code 0" in nosy.log.read_text()
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def crash(ill: SecretScheduler, cluster: LocalCluster) -> None:
    """Let the program crash; the agent allows core files, but there is none."""
    ill.go.touch()
    wait_until(lambda: "the API stays" in ill.log.read_text(), "the crashed job does not end")
    assert "SIGSEGV" in ill.log.read_text()
    assert cluster.directory is not None
    assert [] == list(cluster.directory.rglob("core*"))
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith("core"):
        # The control: the same crash with the limit that the executor sets aside.
        folder = ill.folder / "dumped"
        folder.mkdir()
        subprocess.run(["sh", "-c", "kill -SEGV $$"], env={"KEY": CANARY}, cwd=folder, check=False)
        assert [] != found_below(folder)
        shutil.rmtree(folder)


def back_up(one: SecretScheduler) -> None:
    """Export the state, and write history and report of the run."""
    options, environment = one.folder / "options.json", {**ENVIRONMENT, "XDG_STATE_HOME": str(one.folder / "history")}
    place = json.loads(options.read_text())["scheduler"]["state"]
    for line in (
        ["state", "export", place, "--service", one.name, "--output", one.folder / "backup.json"],
        ["history", "add", one.folder / "recording", "--options", options],
        ["history", "show", "last", "--report", one.folder / "report.html"],
    ):
        run = run_command(*line, env=environment)
        assert 0 == run.returncode, run.stderr
        assert [] == found_in("the output", (run.stdout + run.stderr).encode())
    names = {path.name for path in one.folder.rglob("*")}
    assert {"backup.json", "history.db", "report.html"} <= names


def test_secret_does_not_leak(cluster: LocalCluster, schedulers: list[SecretScheduler], tmp_path: Path) -> None:
    """Search plain, base64, URL, JSON and hex forms, during and after the run."""
    proofs = (tmp_path / "cluster").rglob
    sandboxes = lambda: [path.parent for path in proofs("runs/*/proof") if path.stat().st_size]  # noqa: E731
    *schedulers, ill, nosy, poor, ugly = schedulers
    missing = "dcos:mesos:master:framework:role:ugly-role create"
    wait_until(
        lambda: missing in ugly.log.read_text(), "the master does not refuse the role, or the log does not report it"
    )
    missing_too = f"dcos:mesos:master:task:user:{STRANGER} create"
    wait_until(
        lambda: missing_too in poor.log.read_text(),
        "the master does not refuse the user, or the log does not report it",
    )
    wait_until(lambda: len({path.resolve() for path in sandboxes()}) >= 3, "the programs do not run")
    proof = " ".join([hashlib.sha256(CANARY.encode()).hexdigest()] * 2)
    places, place_of_ill = {path.resolve() for path in sandboxes()}, sandbox_of(cluster, ill)
    assert {proof} == {(place / "proof").read_text() for place in places}

    links = [place / "certs" / "key" for place in places]
    assert {CANARY} == {link.read_text() for link in links}
    assert [] == processes(configured=[schedulers[0].process.pid])
    assert {"environ", "mem", "shm"} <= search_as_owner(nosy.folder)
    if IS_ROOT:
        search = neighbour_search(nosy, cluster)
        assert [] == search["found"]
        # It saw all processes.
        assert search["counts"]["cmdline"] > 10
    assert [] == [hit for name, data in mesos(cluster).items() for hit in found_in(name, data)]
    # The agent's own file API does not follow the link out of the sandbox.
    agent = cluster.agents["agent-1"]
    files = [fetched(agent.address, f"/files/read?path={link}&offset=0") for link in links]
    files += [fetched(agent.address, f"/files/download?path={link}") for link in links]
    assert [] == [hit for data in files for hit in found_in("the agent's files", data)]
    answers = [one.answers() for one in schedulers]
    assert all(len(answer) > 5 for answer in answers)
    assert [] == [hit for answer in answers for path, data in answer.items() for hit in found_in(path, data)]

    for one in schedulers:
        read_back = json.loads(one.get("/v1/tasks/worker-0/logs?file=executor.log"))
        assert "TASK_RUNNING" in read_back["data"]
        assert [] == found_in("a log", read_back["data"].encode())

    outputs = schedulers[0].command_output()
    assert [] == [hit for name, data in outputs.items() for hit in found_in(name, data)]
    assert "worker-0" in outputs[next(name for name in outputs if name.endswith(" tasks"))].decode()

    crash(ill, cluster)
    places.remove(place_of_ill)
    links = [place / "certs" / "key" for place in places]
    for one in schedulers:
        one.renew(SECOND)
    assert "Requested that worker-0 read secrets again" in schedulers[0].command("secrets", "refresh")
    renewed = f"{hashlib.sha256(SECOND.encode()).hexdigest()}  -\n"
    wait_until(
        lambda: {renewed} == {read(place / "renewed") for place in places}, "the programs do not get the new key"
    )
    assert {SECOND} == {link.read_text() for link in links}

    targets = [link.readlink() for link in links]
    for one in schedulers:
        one.go.touch()
    wait_until(lambda: not any(target.exists() for target in targets), "the files are still there")
    wait_until(lambda: all("the API stays" in one.log.read_text() for one in schedulers), "the jobs do not end")
    good, bad = (one.log.read_text() for one in schedulers)
    assert "worker-0 on agent-1 has finished: exit code 0" in good
    assert "exit code 3" in bad
    assert "stderr: said ***" in bad
    assert [] == [hit for one in schedulers for path, data in one.answers().items() for hit in found_in(path, data)]
    assert [] == [hit for name, data in mesos(cluster).items() for hit in found_in(name, data)]
    # Everything on disk but the two files that it came from: state in SQLite and ZooKeeper, work folders, logs.
    for one in (*schedulers, ill):
        back_up(one)
    folders = [one.folder / "secrets" for one in (*schedulers, ill, nosy, poor, ugly)]
    sources = {f"second, plain in {folder / 'team' / 'key'}" for folder in folders[:2]}
    sources |= {f"canary, plain in {folder / 'team' / 'key'}" for folder in folders[2:]}
    sources |= {f"password, plain in {folder / 'mesos'}" for folder in folders}
    # What a program prints is in its output as it is.
    assert sources == {hit for hit in found_below(tmp_path) if not hit.endswith("/stderr")}


def test_local_run_does_not_leak(tmp_path: Path) -> None:
    """A run that fails: its folder, result, report and history."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text(CANARY)
    document = {
        "service": {"name": "canary", "strategy": "between_graph", "command": f"{SAYS}; exit 3"},
        "parameter_server": {"count": 0},
        "worker": {"count": 1, **SMALL},
        "restart": {"max_failures": 0},
        "secret_delivery": {"directory": str(tmp_path / "secrets")},
        "secrets": [{"source": "env:SOURCE", "env": "KEY"}, {"source": "file:key", "file": "certs/key"}],
    }
    options, agents = tmp_path / "options.json", tmp_path / "agents.json"
    options.write_text(json.dumps(document))
    agents.write_text(json.dumps([{"hostname": "agent-1", "resources": "cpus:2;mem:1024"}]))
    environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(tmp_path / "state"), "SOURCE": CANARY}
    page, folder = tmp_path / "report.html", tmp_path / "cluster"
    run = run_command(
        *("local", "run", options, "--agents", agents, "--dir", folder, "--report", page), env=environment
    )
    assert 1 == run.returncode, run.stderr
    listed = run_command("history", "show", "last", "--json", env=environment)
    assert "exit code 3" in listed.stdout
    assert [] == found_in("the output", (run.stdout + run.stderr + listed.stdout).encode())
    assert {"history.db", "result.json", "report.html"} <= {path.name for path in tmp_path.rglob("*")}
    source = f"canary, plain in {tmp_path / 'secrets' / 'key'}"
    # What a program prints is in its output, unchanged.
    assert [source] == [hit for hit in found_below(tmp_path) if not hit.endswith("stderr")]


def read(path: Path) -> str:
    """Empty: there is no such file yet."""
    return path.read_text() if path.exists() else ""


class Thief:
    """A proxy between executor and scheduler that records the requests."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.first = threading.Event()
        self.go_on = threading.Event()
        self.target = ""
        thief = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                body = self.body()
                thief.asked.append(body)
                code, answer = thief.ask(body)
                if len(thief.asked) == 1:
                    thief.first.set()
                    thief.go_on.wait(PATIENCE)
                    return
                self.answer(code, answer)

        self._server = HttpServer(Handler)
        self.url = self._server.url

    def ask(self, body: bytes, **changes: str) -> tuple[int, bytes]:
        """Send the request, with changes, to the scheduler."""
        content = json.dumps({**json.loads(body), **changes}).encode()
        request = urllib.request.Request(f"{self.target}/v1/secrets", content, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError as error:
            return 503, str(error).encode()

    def close(self) -> None:
        self.go_on.set()
        self._server.close()


@pytest.fixture
def thief() -> Iterator[Thief]:
    thief = Thief()
    yield thief
    thief.close()


def test_token_is_used_once_across_restarts(local_cluster: LocalCluster, thief: Thief, tmp_path: Path) -> None:
    """After a lost answer and a restart the executor gets its secrets, no thief does.

    Also a secret that Mesos has to resolve: an agent without a resolver reports it to the user.
    """
    own = {"mesos": {"secret": ""}, "service": {"principal": "", "role": "*", "command": "exec sleep 1000"}}
    delivery = {"secret_delivery": {"url": thief.url}, "secrets": [{"source": "file:team/key", "env": "KEY"}]}
    reference = {"secrets": [{"source": "reference:team/key", "env": "KEY"}]}
    master = local_cluster.master.address
    one = SecretScheduler(tmp_path, "stolen", master, (tmp_path / "one.db").as_uri(), 0, **own, **delivery)
    two = SecretScheduler(tmp_path, "referred", master, (tmp_path / "two.db").as_uri(), 0, **own, **reference)
    thief.target = f"http://127.0.0.1:{one.port}"
    try:
        assert thief.first.wait(PATIENCE)
        (asked,) = thief.asked
        one.end()
        one.start()
        wait_until(lambda: one.get("/v1/plans"), "the second scheduler does not answer")
        changes = [{"nonce": "thief"}, {"token": "wrong"}, {"task_id": "worker-0__other"}]
        stolen = [thief.ask(asked, **change) for change in changes]
        assert [403, 403, 403] == [code for code, _ in stolen]
        assert b"used by another client" in stolen[0][1]
        thief.go_on.set()
        wait_until(lambda: running(master, "stolen"), "the program does not run")
        assert {asked} == set(thief.asked)
        assert len(thief.asked) > 1
        wait_until(lambda: b"is not starting" in thief.ask(asked)[1], "a running program can ask again")
        # What `secret_delivery.from_agent_only` goes by on a virtual network comes with every status of an executor.
        statuses = [status for task in tasks(master, "stolen") for status in task["statuses"]]
        networks = [status["container_status"]["network_infos"][0]["ip_addresses"] for status in statuses]
        assert {"127.0.0.1"} == {entry["ip_address"] for network in networks for entry in network}
        another_framework_interferes(master, "stolen")
        assert running(master, "stolen")
        wait_until(
            lambda: "cannot resolve references" in two.log.read_text(), "the unresolved reference is not reported"
        )
    finally:
        for scheduler in (one, two):
            scheduler.end()
            for framework in read_status(master).frameworks:
                if framework.name == scheduler.name:
                    master_api.teardown(master, framework.framework_id)


def running(master: str, service: str) -> bool:
    return any(task["state"] == "TASK_RUNNING" for task in tasks(master, service))


def tasks(master: str, service: str) -> list[dict[str, Any]]:
    """The service's tasks in the state of Mesos."""
    frameworks = json.loads(fetched(master, "/state"))["frameworks"]
    return [task for one in frameworks if one["name"] == service for task in one["tasks"]]


def another_framework_interferes(master: str, service: str) -> None:
    """A framework with the same role and ids can neither message nor kill the task."""
    (task,) = tasks(master, service)
    names = {"executor_id": {"value": task["executor_id"]}, "agent_id": {"value": task["slave_id"]}}
    mine = {"task_id": {"value": task["id"]}, "agent_id": {"value": task["slave_id"]}}
    heard: queue.Queue[Any] = queue.Queue()
    rival = SchedulerDriver(
        {**FRAMEWORK, "name": "rival", "roles": ["*"]}, master, on_event=heard.put, on_state=heard.put
    )
    rival.start()
    try:
        awaited(heard, "SUBSCRIBED")
        assert rival.send({"type": "MESSAGE", "message": {**names, "data": ""}}).ok
        assert rival.send({"type": "SHUTDOWN", "shutdown": names}).ok
        assert rival.send({"type": "KILL", "kill": mine}).ok
        status = awaited(heard, "UPDATE")["update"]["status"]
        assert (task["id"], "REASON_RECONCILIATION") == (status["task_id"]["value"], status["reason"])
        assert status["state"] != "TASK_KILLED"
    finally:
        rival.teardown()
        rival.stop()


def awaited(heard: queue.Queue[Any], kind: str) -> dict[str, Any]:
    """The next event of that kind."""
    while True:
        event = heard.get(timeout=PATIENCE)
        if isinstance(event, dict) and event["type"] == kind:
            return event
