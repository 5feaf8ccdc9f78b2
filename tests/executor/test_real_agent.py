"""The bundle on a real Mesos master and agent: ends, restarts, users and tokens."""

from __future__ import annotations

import base64
import getpass
import itertools
import json
import os
import queue
import re
import select
import shlex
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from jobs import gone
from kit.shared import start_cluster
from kit.waiting import wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.node import agent_directory
from task_launcher import CPUS, TaskLauncher, processes, subscribed
from tf_executor.contract.http import HttpClient
from tf_executor.contract.payload import WantedMembers
from tf_executor.contract.reports import TaskEnd

pytestmark = pytest.mark.usefixtures("real_mesos")


def test_successful_program_finishes(scheduler: TaskLauncher) -> None:
    scheduler.launch("ok", 'echo "hello from $TASK_NAME"; echo trouble >&2; env > environment')
    status = scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert ("exit code 0", TaskEnd(0)) == (status["message"], TaskEnd.decode(base64.b64decode(status["data"])))
    assert 0 == scheduler.executor_exit()
    sandbox = scheduler.sandbox("ok")
    assert "hello from worker-0\n" == (sandbox / "stdout").read_text()
    assert (sandbox / "stderr").read_text().endswith("trouble\n")
    assert "TASK_FINISHED" in (sandbox / "executor.log").read_text()
    variables = dict(line.split("=", 1) for line in (sandbox / "environment").read_text().splitlines() if "=" in line)
    assert not {"MESOS_AGENT_ENDPOINT", "LIBPROCESS_PORT"} & set(variables)
    assert (sandbox.resolve(), "") == (Path(variables["HOME"]).resolve(), variables["CUDA_VISIBLE_DEVICES"])
    assert variables["TMPDIR"].startswith("/tmp/tf-task-")
    assert gone(Path(variables["TMPDIR"]))


STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        os.mkfifo("never")
        open("never").read()
    os._exit(0)
os.wait()
open(os.environ["READY"], "w").write("ready")
while True: signal.pause()
"""


@pytest.mark.parametrize(
    ("call", "reason"), [("KILL", "stopped on request"), ("SHUTDOWN", "the executor was shut down")]
)
def test_stop_reaches_stubborn_tree(scheduler: TaskLauncher, ready: Path, call: str, reason: str) -> None:
    name, policy = f"stubborn-{call}", {"grace_period": {"nanoseconds": int(0.2e9)}}
    scheduler.launch(name, f"READY={ready} exec python -c {shlex.quote(STUBBORN)}", kill_grace=3600.0)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready" == ready.read_text()
    body = {"task_id": {"value": name}, "kill_policy": policy} if call == "KILL" else {"executor_id": {"value": name}}
    scheduler.call(call, agent_id={"value": scheduler.agent_id}, **body)
    status = scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert re.fullmatch(rf"{reason}; it was killed after [\d.]+ s \(kill_grace\)", status["message"])
    assert [] == processes(name)
    assert 0 == scheduler.executor_exit()


@pytest.mark.parametrize("user", [{}, {"user": getpass.getuser()}], ids=["default", "own"])
def test_no_client_of_the_agent_changes_containers(scheduler: TaskLauncher, user: dict[str, str]) -> None:
    """A command reads secrets of a task, a removed container ends the agent."""
    scheduler.launch(f"private-{len(user)}", "exec sleep 3600")
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    client, address = HttpClient(10.0, 10.0), scheduler.cluster.agents["agent-1"].address
    (container,) = json.loads(client.fetch(f"http://{address}/containers").body)
    own = {"value": container["container_id"]}
    inner, command = {"value": "inner", "parent": own}, {"command": {"value": "env", **user}}
    calls: list[tuple[str, Mapping[str, object]]] = [
        *((f"LAUNCH_{kind}", {"container_id": inner, **command}) for kind in ("NESTED_CONTAINER", "CONTAINER")),
        ("LAUNCH_NESTED_CONTAINER_SESSION", {"container_id": inner, **command}),
        ("LAUNCH_CONTAINER", {"container_id": {"value": "alone"}, **command}),
        *((f"{kind}_NESTED_CONTAINER", {"container_id": inner}) for kind in ("KILL", "WAIT", "REMOVE")),
        *((f"{kind}_CONTAINER", {"container_id": own}) for kind in ("KILL", "WAIT", "REMOVE")),
        ("ATTACH_CONTAINER_OUTPUT", {"container_id": own}),
        ("PRUNE_IMAGES", {}),
        ("SET_LOGGING_LEVEL", {"level": 0, "duration": {"nanoseconds": 1}}),
    ]
    statuses = []
    for kind, values in calls:
        body = json.dumps({"type": kind, kind.lower(): values}).encode()
        headers = {"Content-Type": "application/json"}
        statuses.append((kind, client.fetch(f"http://{address}/api/v1", headers, body).status))
    # The task still runs, and the agent still obeys its master.
    scheduler.call("KILL", task_id={"value": f"private-{len(user)}"}, agent_id={"value": scheduler.agent_id})
    scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert [(kind, 403) for kind, _ in calls] == statuses


def test_restarted_agent_recovers_task(bundle: Path, ready: Path) -> None:
    """The program outlives a SIGKILLed agent; its updates arrive later."""
    with subscribed(bundle) as scheduler:
        scheduler.launch("survivor", f"echo ready > {ready}; read line < {ready}; exit 3")
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        assert "ready\n" == ready.read_text()
        agent = scheduler.cluster.agents["agent-1"]
        agent.kill()
        ready.write_text("go\n")
        agent.restart()
        assert "exit code 3" == scheduler.statuses("TASK_FAILED")["message"]


def test_hooks_limits_output_and_secrets(scheduler: TaskLauncher) -> None:
    scheduler.launch(
        "full",
        "ulimit -n; nice; for n in $(seq 2000); do echo line $n; done; echo key=$KEY >&2; exit 3",
        pre_command="echo pre",
        post_command="echo post $TASK_EXIT_CODE",
        environment={"KEY": "very-secret"},
        secrets=("KEY",),
        ulimits={"nofile": (123, 456)},
        nice=2,
        output_bytes=5000,
        output_backups=2,
    )
    states = ("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FAILED")
    status = scheduler.statuses(*states)
    assert status["message"].startswith("exit code 3; stderr: "), status
    assert status["message"].endswith("line 1999 | line 2000 | post 3")
    assert "key=***; stdout: " in status["message"]
    assert TaskEnd(3, error="key=***") == TaskEnd.decode(base64.b64decode(status["data"]))
    assert 0 == scheduler.executor_exit()
    listed = scheduler.files("full")
    sizes = {name: size for name, size in listed.items() if name.startswith("stdout")}
    assert {"stdout", "stdout.1", "stdout.2", "stdout.times"} == set(sizes)
    assert all(size <= 5000 for size in sizes.values())
    sandbox = scheduler.sandbox("full")
    assert (sandbox / "stdout").read_text().endswith("line 2000\npost 3\n")


JOB = "def main(server, log_dir, context): print(server, context)"


def test_job_of_original_package_runs(scheduler: TaskLauncher, tmp_path: Path) -> None:
    source = tmp_path / "src" / "job"
    source.mkdir(parents=True)
    (source / "mnist.py").write_text(JOB)
    path = Path(shutil.make_archive(str(tmp_path / "job"), "gztar", tmp_path / "src")).rename(tmp_path / "job.tgz")
    scheduler.launch(
        "job",
        "",
        uris=[path.as_uri()],
        unpack=[path.name],
        job_name="mnist",
        job_path="job",
        job_context='{"rate": 0.5}',
        strategy="multi_worker_mirrored",
        tf_config={"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}},
    )
    scheduler.statuses("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    assert "None {'rate': 0.5}\n" == (scheduler.sandbox("job") / "stdout").read_text()


SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent switches users")
@pytest.mark.skipif(not SYSTEM_PYTHON.is_file(), reason="no Python that every user may run")
def test_agent_that_switches_users(scheduler: TaskLauncher) -> None:
    program = "import tf_executor; tf_executor.report(step=1)"
    scheduler.open_folders()
    command = f"id -un; cat /proc/$PPID/environ && echo readable; python -c {shlex.quote(program)}"
    scheduler.launch("nobody", command, user="nobody", executor_user="nobody", executor_python=str(SYSTEM_PYTHON))
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    # Not even the executor's own environment, which holds the agent's token.
    assert (scheduler.sandbox("nobody") / "stdout").read_text() == "nobody\n"
    assert (scheduler.sandbox("nobody") / "executor.log").owner() == "nobody"


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root executor can be misused")
def test_root_executor_follows_no_link_for_output(bundle: Path, tmp_path: Path) -> None:
    """Without `switch_user` the executor stays root; the program owns the sandbox."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    secret = private / "secret"
    secret.write_text("only root may read this\n")
    secret.chmod(0o600)
    flood = "yes '* * * * * root evil' | head -c 200000"
    attacks = {
        "read": f"rm stderr; ln -s {secret} stderr; {flood} >&2",
        "create": f"ln -s {private}/new stdout.1; {flood}",
        "change": f"ln -s {secret} stdout.1; {flood}",
        "remove": f"{flood}; rm stdout; {flood}",
    }
    with subscribed(bundle, {"switch_user": "false"}) as scheduler:
        scheduler.open_folders()
        for number, (attack, command) in itertools.product((1, 3), attacks.items()):
            name, fields = f"{attack}-{number}", {"output_bytes": 1 << 16, "output_backups": number}
            scheduler.launch(name, f"{command}; echo end; id -un", user="nobody", **fields)
            scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
            assert 0 == scheduler.executor_exit()
            files = [path for path in scheduler.sandbox(name).glob("std*") if not path.is_symlink()]
            assert not any("only root" in path.read_text() for path in files), attack
            assert [secret] == list(private.iterdir()), attack
            assert "only root may read this\n" == secret.read_text(), attack
            assert {"stderr.1" if attack == "read" else "stdout.1"} <= {path.name for path in files}
            assert (scheduler.sandbox(name) / "stdout").read_text().endswith("end\nnobody\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root executor can be misused")
def test_root_executor_follows_no_link_for_the_list_of_workers(bundle: Path, tmp_path: Path) -> None:
    """The list is in a folder of the program's user, who may put links anywhere in it."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    secret = private / "secret"
    secret.write_text("only root may write this\n")

    def content() -> dict[str, str]:
        return {path.name: path.read_text() for path in private.iterdir()}

    attacks = (
        f"mkdir members; cd members; for name in wanted.json wanted.json.new; do ln -s {secret} $name; done",
        f"ln -s {private} members",
    )
    before = content()
    with subscribed(bundle, {"switch_user": "false"}) as scheduler:
        scheduler.open_folders()
        for number, attack in enumerate(attacks):
            name = f"attack-{number}"
            command = f"cd .tf_executor; mv members moved; {attack}; touch $SANDBOX/ready; exec sleep 3600"
            scheduler.launch(name, command, user="nobody", members_key="key")
            scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
            sandbox = scheduler.sandbox(name)
            wait_until((sandbox / "ready").exists)
            scheduler.say(name, WantedMembers(name, 1, {"0": "10.0.0.9:2222"}).encode("key"))
            wanted = sandbox / ".tf_executor" / "moved" / "wanted.json"
            wait_until(lambda path=wanted: path.exists() or content() != before)  # type: ignore[misc]
            assert before == content(), attack
            assert ({"0": "10.0.0.9:2222"}, "nobody") == (json.loads(wanted.read_text())["workers"], wanted.owner())
            scheduler.call("KILL", task_id={"value": name}, agent_id={"value": scheduler.agent_id})
            scheduler.statuses("TASK_KILLING", "TASK_KILLED")
            assert 0 == scheduler.executor_exit()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.skipif(not SYSTEM_PYTHON.is_file(), reason="no Python that every user may run")
@pytest.mark.parametrize("executor_user", ["nobody", "root"])
def test_archive_is_extracted_as_user_of_task(scheduler: TaskLauncher, tmp_path: Path, executor_user: str) -> None:
    """Not as root: the user could have put links into the working directory."""
    scheduler.open_folders()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_text("x")
    packed = Path(shutil.make_archive(str(tmp_path / "job"), "gztar", tmp_path, "src"))
    name, users = f"user-{executor_user}", {"user": "nobody", "executor_user": executor_user}
    python = str(SYSTEM_PYTHON)
    uris, unpack = [packed.as_uri()], [packed.name]
    scheduler.launch(name, "id -un", **users, executor_python=python, uris=uris, unpack=unpack)
    scheduler.statuses("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    sandbox = scheduler.sandbox(name)
    assert "nobody" == (sandbox / "stdout").read_text().strip()
    assert ["nobody", "nobody"] == [(sandbox / path).owner() for path in ("src", "src/a")]


def test_task_survives_two_agent_restarts(bundle: Path, ready: Path) -> None:
    with subscribed(bundle) as scheduler:
        command = (
            f"echo ready > {ready}; while read n; do echo '{{\"step\": '$n'}}' > $TF_EXECUTOR_PROGRESS; done < {ready}"
        )
        scheduler.launch("survivor", command)
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        assert "ready\n" == ready.read_text()
        with ready.open("w") as steps:
            for step in (1, 2):
                restart(scheduler, "survivor", step)
                steps.write(f"{step}\n")
                steps.flush()
                assert step == scheduler.await_progress().step
            with pidfd(scheduler.executor_pid("survivor")) as executor:
                scheduler.call("KILL", task_id={"value": "survivor"}, agent_id={"value": scheduler.agent_id})
                scheduler.statuses("TASK_KILLING", "TASK_KILLED")
                assert has_ended(executor)
        assert [] == processes("survivor")


def restart(scheduler: TaskLauncher, name: str, time: int) -> None:
    """Restart the agent; return after it recovers the executor (`time`th time)."""
    agent = scheduler.cluster.agents["agent-1"]
    agent.kill()
    agent.restart()
    scheduler.await_in_log(name, "Connected(", times=time + 1)
    scheduler.cluster.wait_registered()


def test_permanently_lost_agent_ends_task(bundle: Path, ready: Path) -> None:
    """The program gets SIGTERM and its grace period after the recovery timeout."""
    with subscribed(bundle, {"recovery_timeout": "2secs"}) as scheduler:
        saved = ready.with_name("saved")
        command = f"trap 'echo saved > {saved}; exit 143' TERM; echo $TMPDIR > {ready}; sleep 3600 & wait"
        scheduler.launch("orphan", command, kill_grace=60.0)
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        temporary = Path(ready.read_text().strip())
        with ExitStack() as stack:
            descriptors = [stack.enter_context(pidfd(pid)) for pid in processes("orphan")]
            executor = stack.enter_context(pidfd(scheduler.executor_pid("orphan")))
            scheduler.cluster.agents["agent-1"].kill()
            for descriptor in (*descriptors, executor):
                assert has_ended(descriptor)
        assert "saved\n" == saved.read_text()
        assert [] == processes("orphan")
        assert gone(temporary)
        assert "lost its agent: " in (scheduler.sandbox("orphan") / "executor.log").read_text()


def test_agent_without_its_work_directory_ends_task(bundle: Path, ready: Path, tmp_path: Path) -> None:
    """The executor does not wait for the recovery timeout."""
    with subscribed(bundle) as scheduler, ExitStack() as stack:
        saved = tmp_path / "saved"
        command = f"trap 'echo saved > {saved}; exit 143' TERM; echo ready > {ready}; sleep 3600 & wait"
        scheduler.launch("unknown", command, kill_grace=60.0)
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        assert "ready\n" == ready.read_text()
        descriptors = [stack.enter_context(pidfd(pid)) for pid in processes("unknown")]
        executor = stack.enter_context(pidfd(scheduler.executor_pid("unknown")))
        agent = scheduler.cluster.agents["agent-1"]
        agent.kill()
        shutil.rmtree(agent_directory(scheduler.cluster.directory, "agent-1") / "agents/0/work")
        agent.start()
        for descriptor in (*descriptors, executor):
            assert has_ended(descriptor)
        assert "saved\n" == saved.read_text()


def has_ended(descriptor: int) -> bool:
    """Wait for the executor's exit, which a restarted agent need not report."""
    return bool(select.select([descriptor], [], [], 60)[0])


class pidfd:  # noqa: N801
    """Return a descriptor that is readable when the process has exited."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def test_frozen_agent_loses_no_update(bundle: Path, ready: Path) -> None:
    """The update waits during SIGSTOP and is acknowledged after SIGCONT."""
    with subscribed(bundle) as scheduler:
        scheduler.launch("frozen", f"echo ready > {ready}; read line < {ready}; exit 7")
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        assert "ready\n" == ready.read_text()
        agent = scheduler.cluster.agents["agent-1"]
        os.kill(agent.pid, signal.SIGSTOP)
        ready.write_text("go\n")
        scheduler.await_in_log("frozen", "TASK_FAILED")
        os.kill(agent.pid, signal.SIGCONT)
        assert "exit code 7" == scheduler.statuses("TASK_FAILED")["message"]
        assert 0 == scheduler.executor_exit()


@pytest.fixture
def nohup() -> Iterator[None]:
    """Ignore SIGHUP, also in all processes that the test starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("nohup")
def test_agent_with_executor_authentication(bundle: Path, ready: Path) -> None:
    """Agents of a local cluster authenticate executors by default."""
    with subscribed(bundle) as scheduler:
        show = "trap 'echo heard > signals' HUP; kill -HUP $$; env > environment"
        scheduler.launch("token", f"{show}; echo ready > {ready}; read line < {ready}")
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        assert "ready\n" == ready.read_text()
        assert "TOKEN" not in (scheduler.sandbox("token") / "environment").read_text()
        assert "heard\n" == (scheduler.sandbox("token") / "signals").read_text()
        # Not even root can read the token there, which the executor still uses after the restart.
        assert not re.search(r"AUTHENTICATION_TOKEN=\S", scheduler.executor_environment("token"))
        restart(scheduler, "token", 1)
        with pidfd(scheduler.executor_pid("token")) as executor:
            ready.write_text("go\n")
            scheduler.statuses("TASK_FINISHED")
            assert has_ended(executor)


def test_older_of_two_frameworks_loses_the_checkpoint_folder(bundle: Path, tmp_path: Path) -> None:
    """As after the loss of the scheduler's state; the last checkpoint is whole."""
    folder, agents = tmp_path / "ck", [AgentSpec(name, f"cpus:{CPUS};mem:1024") for name in ("agent-1", "agent-2")]
    folder.mkdir()
    save = f"sleep 0.5; echo whole > {folder}/$TEST_MARK; exit 143"
    command = f"trap {shlex.quote(save)} TERM; echo $TEST_MARK >> {folder}/starts; sleep 3600 & wait"
    fenced = {"service": "digits", "environment": {"CHECKPOINT_DIR": str(folder)}, "kill_grace": 60.0}
    with start_cluster(agents, master_flags={"allocation_interval": "100ms"}) as cluster, ExitStack() as stack:
        older = another(stack, cluster, bundle)
        older.launch("first", command, serial=7, launched_at=7.0, **fenced)
        older.statuses("TASK_STARTING", "TASK_RUNNING")
        leave_offers(older)
        later = another(stack, cluster, bundle)
        later.launch("second", command, serial=1, launched_at=8.0, **fenced)
        later.statuses("TASK_STARTING", "TASK_RUNNING")
        leave_offers(later)
        status = older.statuses("TASK_KILLING", "TASK_FAILED")
        assert f"used by framework {later.id['value']}" in status["message"]
        assert "REASON_TASK_UNAUTHORIZED" == status["reason"]
        assert "whole\n" == (folder / "first").read_text()
        # The first scheduler launches its task again, in vain.
        older.launch("third", command, serial=8, launched_at=9.0, **fenced)
        older.statuses("TASK_STARTING", "TASK_KILLING", "TASK_FAILED")
        assert "first\nsecond\n" == (folder / "starts").read_text()
        assert [] != processes("second")


def another(stack: ExitStack, cluster: LocalCluster, bundle: Path) -> TaskLauncher:
    """Return a new framework; it is removed with the stack."""
    scheduler = TaskLauncher(cluster, bundle)
    stack.callback(scheduler.driver.stop)
    stack.callback(scheduler.driver.teardown)
    return scheduler


def leave_offers(scheduler: TaskLauncher) -> None:
    """Leave all agents to the other framework, also those of an allocation under way."""
    scheduler.call("SUPPRESS")
    with suppress(queue.Empty):
        while True:
            offer = scheduler.offers.get(timeout=0.5)
            scheduler.call("DECLINE", offer_ids=[offer["id"]], filters={"refuse_seconds": 0.1})
