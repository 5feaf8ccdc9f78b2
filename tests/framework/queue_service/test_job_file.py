"""Job files: what belongs to the service, secrets of others, masked values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tf_scheduler.errors import OptionsError
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.queue.job import JobId
from tf_scheduler.queue_service.job_file import job_settings, masked, read_job_file, unmasked
from tf_scheduler.service.options import ServiceSettings, load_settings

TOKENS = {"ALICE": "alice-token", "BOB": "bob-token", "OPERATOR": "operator-token", "MESOS": "mesos-secret"}
USERS = [{"name": name, "token": f"env:{name.upper()}"} for name in ("alice", "bob")]
JOB: dict[str, Any] = {"service": {"command": "python train.py", "strategy": "independent"}}


def queue_settings(tmp_path: Path, **sections: Any) -> ServiceSettings:
    service = {
        "name": "ml",
        "kind": "queue",
        "role": "team",
        "checkpoint_dir": "/mnt/ml",
        "user": "trainer",
        "principal": "p",
    }
    document = {
        "service": service,
        "mesos": {"master": "10.0.0.1:5050", "secret": "env:MESOS"},
        "scheduler": {"state": f"file://{tmp_path}/state.db"},
        "api": {"write_token": "env:OPERATOR", "users": USERS},
        "worker": {"mem": 512},
        **sections,
    }
    environment = {"PORT_API": "8080", "HOST": "127.0.0.1", "EXECUTOR_URI": "file:///executor.pyz", **TOKENS}
    return load_settings(document, environment)


def problems(settings: ServiceSettings, file: dict[str, Any], owner: str = "alice") -> dict[str, str]:
    with pytest.raises(OptionsError) as caught:
        read_job_file(settings, file, owner)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_service_options_are_defaults_of_jobs(tmp_path: Path) -> None:
    """Role, user and address are those of the service; each job has its own folder."""
    settings = queue_settings(tmp_path)
    job = read_job_file(settings, JOB, "alice").job(JobId("one"), "alice", "default", 5.0)

    own = job_settings(settings, job, JOB, tmp_path)

    assert ("ml/one", "team", "trainer") == (own.spec.name, own.spec.role, own.spec.user)
    assert "/mnt/ml/one" == own.spec.checkpoint_dir
    assert "http://127.0.0.1:8080/v1/jobs/one" == own.spec.secret_delivery.url
    assert {512_000} == {task.job.needs.mem for task in own.spec.tasks() if task.job.section == "worker"}
    assert "alice" == own.access.policy.owner


def test_options_of_the_service_are_refused(tmp_path: Path) -> None:
    file = {**JOB, "mesos": {"master": "other:5050"}, "service": {**JOB["service"], "user": "root"}, "queue": {}}

    assert {"mesos.master", "service.user", "queue"} == problems(queue_settings(tmp_path), file).keys()


def test_job_needs_a_program(tmp_path: Path) -> None:
    assert "required" in problems(queue_settings(tmp_path), {"worker": {"count": 1}})["service.command"]


@pytest.mark.parametrize(
    ("source", "owner", "expected"),
    [
        ("file:alice/key", "alice", ""),
        ("bob/database", "bob", ""),
        ("dcos:alice/database", "bob", "is not permitted to bob"),
        ("file:alice/key", "bob", "is not permitted to bob"),
        ("file:bob/../alice/key", "bob", "must be file:FOLDER/NAME"),
        ("env:MESOS", "alice", "is a secret of the queue service itself"),
        ("env:BOB", "alice", "is a secret of the queue service itself"),
        ("env:PATH", "alice", "is not permitted to alice"),
    ],
)
def test_secrets_of_others_are_refused(tmp_path: Path, source: str, owner: str, expected: str) -> None:
    file = {**JOB, "secrets": [{"source": source, "env": "KEY"}]}
    settings = queue_settings(tmp_path)

    if expected:
        assert expected in problems(settings, file, owner)["secrets.0.source"]
    else:
        read_job_file(settings, file, owner)


def test_masked_values_are_restored() -> None:
    """An update begins with what the service shows."""
    service = {**JOB["service"], "environment": {"API_TOKEN": "secret", "SEED": "1"}}
    file = {"service": service, "job": {"priority": 3}}

    shown = masked(file)
    again = unmasked({**shown, "worker": {"count": 5}}, file)

    assert "secret" not in str(shown)
    assert {"priority": 3} == shown["job"]
    assert {"API_TOKEN", "SEED"} == {item["name"] for item in shown["service"]["environment"]}
    variables = {item["name"]: item["value"] for item in again["service"]["environment"]}
    assert ({"API_TOKEN": "secret", "SEED": "1"}, 5) == (variables, again["worker"]["count"])


def test_update_keeps_defaults_of_the_package(tmp_path: Path) -> None:
    """The service may have another default for its jobs."""
    file = {**JOB, "worker": {"count": 1, "mem": 4096}}
    settings = queue_settings(tmp_path, worker={"count": 3, "mem": 512})

    again = unmasked(masked(file), file)

    assert {"priority": 3} == unmasked(JOB, {**file, "job": {"priority": 3}})["job"]
    (before, after) = (read_job_file(settings, each, "alice").spec for each in (file, again))
    assert before == after


def test_preview_of_an_update_knows_the_options_of_the_service(tmp_path: Path) -> None:
    """A job file lacks them, and its secrets are masked; neither is a change."""
    service = {**JOB["service"], "environment": {"API_TOKEN": "secret"}, "job_url": "http://files.example.com/a.py"}
    settings, file = queue_settings(tmp_path), {"service": service, "job": {"priority": 3}}
    job = read_job_file(settings, file, "alice").job(JobId("one"), "alice", "default", 5.0)
    own = job_settings(settings, job, file, tmp_path)
    assert own.options is not None
    preview, state, new = own.options.preview, SchedulerState(own.spec), masked(file)

    assert [] == preview({"options": new}, state)["changed"]
    new["worker"] = {"count": 5}
    assert ["worker.count"] == [change["option"] for change in preview({"options": new}, state)["changed"]]
    with pytest.raises(OptionsError, match=r"mesos.master: belongs to the queue service"):
        preview({"options": {**new, "mesos": {"master": "other:5050"}}}, state)
