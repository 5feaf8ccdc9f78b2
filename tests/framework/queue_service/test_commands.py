"""Commands on a queue service in this process; its jobs wait for a master."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dcos_command.client import ServiceClient, client_at
from dcos_command.main import main as dcos_main
from kit.commands import request as send_request
from kit.invocation import Finished, invoke_main
from kit.waiting import wait_until
from mesos_local.host import free_ports
from tf_scheduler.cli.main import main as own_main
from tf_scheduler.queue.job import JobId
from tf_scheduler.queue_service.build import QueueProcess, build_queue
from tf_scheduler.service.options import load_settings

#: One of the programs, called with these arguments.
Ask = Callable[..., Finished]
JOB: dict[str, Any] = {
    "service": {
        "name": "train",
        "strategy": "independent",
        "command": "python train.py",
        "job_url": "https://user:hidden@files.example.com/train.py",
        "environment": {"API_KEY": "hidden", "LR": "0.1"},
    },
    "worker": {"count": 2},
}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[QueueProcess]:
    """A queue service `ml` with the queues `a` and `b`."""
    document = {
        "service": {"name": "ml", "kind": "queue"},
        "queue": {"queues": [{"name": "a"}, {"name": "b"}]},
        "mesos": {"master": "127.0.0.1:1"},
        "api": {"authentication": "none"},
        "scheduler": {"state": (tmp_path / "state.db").as_uri()},
    }
    environment = {"PORT_API": str(*free_ports(1)), "HOST": "127.0.0.1", "EXECUTOR_URI": "file:///executor.pyz"}
    process = build_queue(load_settings(document, {**environment, "MESOS_SANDBOX": str(tmp_path)}))
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        wait_until(lambda: send_request(process.queue.settings.port, "/v1/health").status)
        yield process
    finally:
        process.stop()
        thread.join()


@pytest.fixture
def url(process: QueueProcess) -> str:
    return process.queue.settings.url


@pytest.fixture(params=["dcos", "own"])
def ask(
    request: pytest.FixtureRequest,
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Ask:
    """Each of the programs, with the URL of the queue or of its `job`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def invoke(*arguments: object, job: str = "") -> Finished:
        address = f"{url}/v1/jobs/{job}/" if job else url
        words = [*arguments[:1], "--url", address, *arguments[1:]]
        if arguments[:2] == ("queue", "move"):
            words = [*arguments, "--url", address]
        if request.param == "own":
            return invoke_main(own_main, capsys, *words)
        main = partial(dcos_main, environment={"DCOS_DIR": "/nowhere"})
        return invoke_main(main, capsys, "tensorflow", *words)

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    return path


@pytest.fixture
def submit(ask: Ask, file: Path) -> Ask:
    return lambda *arguments: ask("submit", file, "--to", "ml", "--detach", *arguments)


def test_submit_shows_the_place_of_the_job(ask: Ask, submit: Ask) -> None:
    first = submit()
    second = submit("--json", "--queue", "b", "--priority", 7, "--after", "train-1", "--id", "next").json

    assert "ml/train-1  QUEUED  position 1 in queue a" == first.lines[0]
    assert ("ml/next", "b", 7, ["train-1"]) == tuple(second[key] for key in ("name", "queue", "priority", "after"))
    assert second["position"] is not None, "the place is known soon after the answer"
    assert "it comes after train-1" in ask("status", job="next").out


def test_submit_is_refused_with_the_reason(ask: Ask, submit: Ask, file: Path) -> None:
    submit("--id", "one")
    assert "another job has this id" in submit("--id", "one", "--priority", 3).err
    assert "--priority: only a queue service uses it" in ask("submit", file, "--priority", 3).err
    assert "agents cannot read files of this machine" in submit("--set", "service.job_url=train.py").err
    assert 0 == ask("submit", file, "--to", "ml", "--detach", job="one").code, "its queue accepts more"


def test_queue_shows_and_moves_jobs(ask: Ask, submit: Ask) -> None:
    submit()
    moved = ask("queue", "move", "train-1", "--queue", "b", "--priority", 3, "--json").json
    unknown = ask("queue", "move", "train-2", "--priority", 3)
    shown = ask("queue")

    assert ("b", 3) == (moved["queue"], moved["priority"])
    assert ["the Mesos master does not list its agents"] == [shown.lines[0].partition(":")[0]]
    row = next(line for line in shown.lines if "train-1" in line)
    assert ["1", "train-1", "b", "operator", "3", "QUEUED", "2.2", "cpus"] == row.split()[:8]
    assert "all jobs have the same owner" in shown.lines[-1]
    assert [moved["id"]] == [job["id"] for job in ask("queue", "--json").json["jobs"]]
    assert shown.out == ask("status").out == ask("queue", job="train-1").out
    assert "Did you mean train-1?" in unknown.err
    assert 2 == ask("queue", "move", "train-1").code


def test_waiting_job_says_why_it_waits(ask: Ask, submit: Ask) -> None:
    submit("--id", "one")
    submit("--after", "one")
    waiting = partial(ask, job="train-1")

    for command in ("status", "why", "progress"):
        assert "QUEUED" in waiting(command).lines[0]
        assert "it comes after one" in waiting(command).lines[1]
    result = waiting("result")
    assert (5, True) == (result.code, result.out.startswith("no result yet: job train-1 has not started: it comes"))
    assert 124 == waiting("wait", "--timeout", 0).code
    tasks = waiting("tasks", "--json")
    assert (1, "not_started") == (tasks.code, json.loads(tasks.out)["error"]["code"])


def test_cancelled_job_has_a_result_without_a_start(ask: Ask, submit: Ask) -> None:
    """Otherwise `wait` and `cancel` would never return."""
    submit()
    cancelled = ask("cancel", "--yes", job="train-1")

    assert [True] == [line.endswith("train-1: stopped: cancelled by operator") for line in cancelled.lines]
    for command in ("wait", "result"):
        ended = ask(command, job="train-1")
        assert (4, "stopped: cancelled by operator\n") == (ended.code, ended.out)
    for word in ("cancel", "uninstall"):
        assert 0 == ask(word, "--yes", job="train-1").code
    follow = ask("logs", "-f", job="train-1")
    assert (1, True) == (follow.code, "has not started: cancelled by operator" in follow.err)


def test_update_keeps_masked_secrets(ask: Ask, submit: Ask, process: QueueProcess) -> None:
    """An update sends back what `describe` shows."""
    submit("--queue", "b")
    described = ask("describe", job="train-1")
    scaled = ask("scale", "worker", 3, "--yes", job="train-1")

    assert "hidden" not in described.out
    assert {"queue": "b"} == described.json["job"]
    assert 0 == scaled.code, scaled.err
    variables = [{"name": "API_KEY", "value": "hidden"}, {"name": "LR", "value": "0.1"}]
    service = {**JOB["service"], "environment": variables}
    stored = process.queue.store.file(JobId("train-1"))
    assert {"service": service, "worker": {"count": 3}, "job": {"queue": "b"}} == stored


def test_pages_of_queue_and_waiting_job_are_the_queue_s(ask: Ask, submit: Ask, url: str) -> None:
    submit()
    for job in ("", "train-1"):
        assert [f"{url}/"] == ask("open", "--print", job=job).lines


def test_list_names_the_queue(ask: Ask, submit: Ask) -> None:
    submit()
    assert ["ml"] == [entry["name"] for entry in ask("list", "--json").json["services"]]


@pytest.mark.parametrize("base", ["http://127.0.0.1:8080", "https://dcos.example.com/service/ml"])
def test_url_of_a_job_selects_it(base: str) -> None:
    """It is the address of its page."""
    for end in ("", "/"):
        client: ServiceClient = client_at(f"{base}/v1/jobs/train-1{end}", "", {}, "program")
        assert ("train-1", f"{base}/v1/jobs/train-1", base) == (client.job, client.url, client.queue.url)


@pytest.mark.parametrize("words", ["why", "tasks", "logs worker-0", "result", "wait", "events", "cluster", "progress"])
def test_command_about_tasks_asks_for_a_job(ask: Ask, words: str) -> None:
    """A queue has no tasks of its own."""
    refused = ask(*words.split())

    assert (1, "") == (refused.code, refused.out)
    assert ["ml is a queue of jobs: name one of them, such as ml/JOB; `queue` lists them"] == [
        line.partition(": ")[2] if line.startswith(("dcos", "Error")) else line for line in refused.err.splitlines()
    ]
