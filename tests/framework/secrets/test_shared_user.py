"""Services that share a user and so read each other's secrets."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from builders import a_job, a_spec
from kit.commands import SMALL, SchedulerCommand
from kit.waiting import wait_until
from mesos_client.results import Failed, SendResult, Sent
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_scheduler.mesos.neighbours import DemandWatch, NeighbourWatch, find_running, shares_secrets
from tf_scheduler.model.events import SharedUserFound
from tf_scheduler.model.secrets import SecretSpec, find_neighbours
from tf_scheduler.model.spec import JobKind
from tf_scheduler.zipapp_builder import build_bundle

CANARY = "canary-5b1f0c"
SYSTEM_PYTHON = Path("/usr/bin/python3")
#: Prints once in a while which folders of secrets it sees, and what it can read of them and of other programs.
SEARCH = """
import glob, json, time
def read(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""
while True:
    folders = glob.glob("/dev/shm/tf-executor-*")
    got = [name for kind in ("/dev/shm/tf-executor-*/*", "/proc/[0-9]*/environ") for name in glob.glob(kind)
           if b"canary-" in read(name)]
    print(json.dumps({"folders": len(folders), "got": got}), flush=True)
    time.sleep(0.3)
"""


def a_service(folder: Path, cluster: LocalCluster, name: str, user: str, **more: Any) -> SchedulerCommand:
    place = folder / name
    place.mkdir()
    python = {"executor": {"python": str(SYSTEM_PYTHON)}, "worker": {"count": 1, **SMALL}}
    service = {"name": name, "user": user, "python": str(SYSTEM_PYTHON), **more.pop("service", {})}
    return SchedulerCommand(place / "options.json", cluster.master.address, service=service, **python, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that every user may pass."""
    for each in (tmp_path, *tmp_path.parents):
        if each != Path("/tmp") and each.is_relative_to("/tmp"):
            each.chmod(each.stat().st_mode | 0o011)
    return tmp_path


@pytest.fixture
def cluster(folder: Path) -> Iterator[LocalCluster]:
    agents = [AgentSpec("agent-1", "cpus:2;mem:1024")]
    with LocalCluster(agents, folder / "cluster", die_with_parent=True) as cluster:
        (folder / "cluster").chmod(0o755)
        yield cluster


def rounds(service: SchedulerCommand) -> list[dict[str, Any]]:
    answer = service.request("/v1/tasks/worker-0/logs?length=60000")
    lines = answer.json["data"].splitlines() if answer.status == 200 else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@pytest.mark.usefixtures("real_mesos")
@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent switches users")
@pytest.mark.skipif(not SYSTEM_PYTHON.is_file(), reason="no Python that every user may run")
def test_services_of_one_user_read_secrets(cluster: LocalCluster, folder: Path) -> None:
    """The notice and the event are true; another user reads nothing."""
    bundle = build_bundle(folder / "tf_executor.pyz").as_uri()
    (folder / "team").mkdir()
    (folder / "team" / "key").write_text(CANARY)
    source = {"source": "file:team/key"}
    secrets = {
        "secrets": [{**source, "env": "DB_PASSWORD"}, {**source, "file": "key"}],
        "secret_delivery": {"directory": str(folder)},
    }
    search = {"command": f"exec python -c {shlex.quote(SEARCH)}"}
    with ExitStack() as stack:
        same, other = (
            a_service(folder, cluster, name, user, service=search)
            for name, user in (("same", "nobody"), ("other", "games"))
        )
        owner = a_service(folder, cluster, "owner", "nobody", **secrets)
        for service in (same, other, owner):
            stack.callback(service.stop)
        for service in (same, other):
            with (folder / service.file.parent.name / "log").open("w") as log:
                service.start(stderr=log, EXECUTOR_URI=bundle)
            wait_until(partial(rounds, service), "the search does not run")
        with (folder / "owner" / "log").open("w") as log:
            owner.start(stderr=log, EXECUTOR_URI=bundle)

        wait_until(lambda: len(rounds(same)[-1]["got"]) >= 2, "the same user reads file and variable")
        before = len(rounds(other))
        wait_until(lambda: len(rounds(other)) > before + 1, "the other user searches meanwhile")
        assert rounds(other)[-1]["folders"] > 0, "the other user sees that there are secrets"
        assert [] == [name for each in rounds(other) for name in each["got"]]

        def warnings() -> list[str]:
            events = owner.request("/v1/events").json["events"]
            return [each["message"] for each in events if each["kind"] == "SharedUserFound" and each["warning"]]

        wait_until(warnings, "an event warns")
        (message,) = warnings()
        assert "as user nobody, which can read the secrets of this service: same on agent-1;" in message
        assert "service.user: nobody is the default user of all services" in (folder / "owner" / "log").read_text()


#: Users of tasks that name none: Mesos does not fill them in.
USERS = {"other": "nobody", "third": "games"}


def a_task(framework: str, agent: str = "a-1", user: str = "nobody", **more: Any) -> dict[str, Any]:
    fields = {"state": "TASK_RUNNING", "user": user, **more}
    return {"framework_id": {"value": framework}, "agent_id": {"value": agent}, **fields}


@pytest.mark.parametrize(
    ("task", "is_neighbour"),
    [
        (a_task("other"), True),
        (a_task("other", state="TASK_STAGING"), True),
        (a_task("other", user="games"), False),
        (a_task("other", "a-2"), False),
        (a_task("other", user=""), True),
        (a_task("third", user=""), False),
        (a_task("own"), False),
        (a_task("other", state="TASK_FINISHED"), False),
        (a_task("other", container={"type": "DOCKER"}), False),
        (a_task("other", container={"type": "MESOS"}), True),
    ],
)
def test_neighbours_are_live_tasks_of_user_on_used_agents(task, is_neighbour: bool) -> None:
    """Containers of Docker have their own processes and memory files."""
    tasks = {"tasks": [a_task("own"), task]}

    running = set(find_running(tasks, USERS))
    assert ({("other", "a-1")} if is_neighbour else set()) == find_neighbours(running, "own", "nobody")


@pytest.mark.parametrize(("image", "jobs", "shared"), [("", "", True), ("i", "", False), ("", "chief", False)])
def test_only_secrets_without_image_are_shared(image: str, jobs: str, shared: bool) -> None:
    secret = SecretSpec("env:A", "A", jobs=frozenset(filter(None, [jobs])))
    job = a_job(JobKind.WORKER, 1, image=image)

    assert shared == shares_secrets(a_spec(jobs=(job,), secrets=(secret,)))
    assert not shares_secrets(a_spec(jobs=(job,)))


def test_watch_continues_after_a_malformed_answer(caplog: pytest.LogCaptureFixture) -> None:
    asked, wrong = threading.Event(), Sent({"get_tasks": {"tasks": [{"state": "TASK_RUNNING"}]}})

    def ask(kind: str) -> SendResult:
        if kind != "GET_TASKS":
            return Failed("timeout")
        asked.set()
        return wrong

    watch = NeighbourWatch("nobody", ask, lambda: "own", list[Any]().append)
    watch.settle = watch.pause = 0.0
    watch.start()
    try:
        for _ in range(2):
            watch.notice()
            assert asked.wait(10)
            asked.clear()
    finally:
        watch.stop()
    assert "did not list tasks" in caplog.text


def test_watch_reports_each_neighbour_once() -> None:
    """And again after it has left; an unanswered question changes nothing."""
    both = Sent({"get_tasks": {"tasks": [a_task("own"), a_task("other")]}})
    alone = Sent({"get_tasks": {"tasks": [a_task("own")]}})
    names = {
        "GET_FRAMEWORKS": Sent(
            {"get_frameworks": {"frameworks": [{"framework_info": {"id": {"value": "other"}, "name": "marathon"}}]}}
        ),
        "GET_AGENTS": Failed("timeout"),
    }
    events: list[Any] = []
    answers = iter((both, both, Failed("timeout"), both, alone, both))
    watch = NeighbourWatch("nobody", lambda kind: names.get(kind) or next(answers), lambda: "own", events.append)

    for _ in range(6):
        watch.check()

    assert [SharedUserFound("nobody", ("marathon on a-1",))] * 2 == [event() for event in events]


# --- Frameworks that want offers


def metrics(**frameworks: tuple[float, float]) -> Sent:
    """Name -> values of `subscribed` and `suppressed`; the name is the id, too."""
    values = [
        {"name": f"master/frameworks/{name}/{name}/{rest}", "value": value}
        for name, pair in frameworks.items()
        for rest, value in zip(("subscribed", "roles/a-role/suppressed"), pair, strict=True)
    ]
    return Sent({"get_metrics": {"metrics": values}})


def test_frameworks_that_want_offers_for_some_time_are_reported() -> None:
    """Most ask for a moment while they launch a task."""
    quiet, asking = metrics(marathon=(1.0, 1.0), own=(1.0, 0.0)), metrics(marathon=(1.0, 0.0), own=(1.0, 0.0))
    gone = metrics(marathon=(0.0, 0.0))
    events: list[Any] = []
    answers = iter((asking, quiet, asking, asking, Failed("timeout"), asking, gone, gone))
    watch = DemandWatch(lambda _: next(answers), lambda: "own", events.append)

    for _ in range(8):
        watch.check()

    assert [(), ("marathon",), ()] == [event().names for event in events]
