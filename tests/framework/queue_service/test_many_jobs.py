"""Many jobs of three users on a real Mesos: shares, use, expected starts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from kit.cluster_model import Measures, make_job, sixty_jobs
from kit.commands import request, run_command, serving_dcos
from kit.queue_runs import EXECUTOR, PROGRAM, PS, WORKER, Run, Waiting, job_file, median_error, twelve_slots
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status
from tf_scheduler.cli.local_run.installed import InstalledService
from tf_scheduler.model.resources import UNIT
from tf_scheduler.queue.job import Job, JobId

USERS = ("ana", "ben", "eva")
#: Of the victim, in seconds.
GRACE = 10.0
#: Headers of requests to Cosmos.
KIND = "application/vnd.dcos.package.{}+json;charset=utf-8;version=v1"
INSTALL, UNINSTALL = (
    {"Content-Type": KIND.format(f"{word}-request"), "Accept": KIND.format(f"{word}-response")}
    for word in ("install", "uninstall")
)
SEED = int(os.environ.get("QUEUE_SEED", "1"))


@pytest.fixture
def slots(real_mesos: None) -> Iterator[LocalCluster]:
    with twelve_slots() as cluster:
        yield cluster


class Team:
    """A queue service with a queue and a token for each user."""

    def __init__(self, cluster: LocalCluster, folder: Path, **queue: Any) -> None:
        self.cluster, self.folder = cluster, folder
        folder.chmod(0o755)
        (folder / "gang.py").write_text(PROGRAM)
        for user in USERS:
            (folder / user).write_text(f"token-of-{user}")
        users = [{"name": user, "token": f"file:{user}"} for user in USERS]
        options = {
            "service": {"name": "ml", "kind": "queue"},
            "api": {"users": users},
            "secret_delivery": {"directory": str(folder)},
            "queue": {"queues": [{"name": user} for user in USERS], **queue},
        }
        (folder / "queue.json").write_text(json.dumps(options))
        path = folder / "queue.json"
        installed = run_command("local", "install", "--options", path, "--dir", cluster.directory)
        assert 0 == installed.returncode, installed.stderr
        self.service = InstalledService(cluster.directory, "ml")
        self.port = int(self.service.url.rpartition(":")[2])

    def submit(self, user: str, file: Mapping[str, Any]) -> Any:
        answer = request(self.port, "/v1/jobs", "POST", f"token-of-{user}", json.dumps(file).encode())
        assert 201 == answer.status, answer
        return answer.json

    def get(self, path: str) -> Any:
        return request(self.port, path, token=self.service.token).json

    def close(self) -> None:
        removed = run_command("local", "uninstall", "ml", "--dir", self.cluster.directory)
        assert 0 == removed.returncode, removed.stderr


@pytest.fixture
def team(slots: LocalCluster, tmp_path: Path) -> Iterator[Team]:
    team = Team(slots, tmp_path)
    yield team
    team.close()


def waiting_of(job: Job) -> Waiting:
    sizes = (WORKER if task.cpus >= UNIT / 2 else PS for task in job.tasks)
    return Waiting(job.id, job.queue, [cpus + EXECUTOR for cpus in sizes])


def run_jobs(team: Team, jobs: Sequence[tuple[Job, float]], run: Run) -> Measures:
    """Submit jobs at their times, and watch them to their ends."""
    due = [(run.began + job.submitted, job, seconds) for job, seconds in jobs]
    submitted: dict[JobId, Job] = {}
    estimates: dict[JobId, float | None] = {}
    bodies: dict[JobId, Any] = {}

    def look() -> tuple[Sequence[Waiting], bool]:
        while due and due[0][0] <= time.time():
            _, job, seconds = due.pop(0)
            file = job_file(job, seconds, team.folder / "gang.py")
            fields = {"id": job.id, "queue": job.queue, "expected_seconds": round(job.expected_seconds)}
            body = team.submit(job.queue, {**file, "job": fields})
            submitted[job.id] = replace(job, submitted=body["submitted"])
        waiting = []
        for body in team.get("/v1/queue")["jobs"]:
            name = JobId(body["id"])
            if body["grounds"] or body["state"] != "queued":
                estimates.setdefault(name, body["expected_start"])
            if body["started"]:
                bodies[name] = body
            elif body["state"] == "queued":
                waiting.append(waiting_of(submitted[name]))
        return waiting, not due and not team.get("/v1/queue")["jobs"]

    run.watch(look, {f"ml/{job.id}": job.queue for job, _ in jobs})
    ended = {body["id"]: body for body in team.get("/v1/jobs")["jobs"]}
    assert {job.id: "succeeded" for job, _ in jobs} == {name: body["verdict"] for name, body in ended.items()}
    starts = {JobId(name): body["started"] for name, body in ended.items()}
    return run.measures(median_error(estimates, starts, list(submitted.values())))


def run_of(cluster: LocalCluster, jobs: Sequence[tuple[Job, float]], **fields: Any) -> Run:
    largest = max(job.needs.cpus / UNIT * seconds for job, seconds in jobs)
    return Run(cluster, {user: 1 / len(USERS) for user in USERS}, largest, **fields)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sixty_jobs_of_three_users(team: Team) -> None:
    jobs = sixty_jobs(USERS, SEED)
    measures = run_jobs(team, jobs, run_of(team.cluster, jobs))
    print(f"seed {SEED}: {measures}")

    assert measures.deviation <= 1
    assert measures.at_end <= 0.05
    assert measures.used >= 0.95
    assert measures.estimate_error < 0.20


def test_twelve_short_jobs_of_three_users(team: Team) -> None:
    short = [
        (replace(job, submitted=job.submitted / 15, expected_seconds=job.expected_seconds / 15), seconds / 15)
        for job, seconds in sixty_jobs(USERS, SEED)[:12]
    ]
    measures = run_jobs(team, short, run_of(team.cluster, short, settling=10.0))
    print(f"seed {SEED}: {measures}")

    assert measures.deviation <= 1
    assert measures.estimate_error < 1, "expected starts are known"


@pytest.mark.long
def test_urgent_gang_trains_after_the_grace_of_its_victim(slots: LocalCluster, tmp_path: Path) -> None:
    """The victim saves until one second before it would be killed."""
    with closing(Team(slots, tmp_path, preemption="priority", min_runtime=5.0)) as team:
        slow = f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep({GRACE - 1}), sys.exit(143)))\n"
        (tmp_path / "slow.py").write_text(f"import signal, sys, time\n{slow}{PROGRAM}")
        gang = make_job("gang", slots=4)
        worker = {"count": 4, "cpus": WORKER, "mem": 64, "kill_grace": GRACE}
        for user in USERS:
            file = {**job_file(gang, 1e6, tmp_path / "slow.py"), "worker": worker}
            team.submit(user, {**file, "job": {"id": f"low-{user}", "queue": user}})
        wait_until(lambda: all(job["state"] == "running" for job in team.get("/v1/queue")["jobs"]))
        last = max(job["since"] for job in team.get("/v1/queue")["jobs"])
        wait_until(lambda: time.time() > last + 5)
        file = {**job_file(gang, 1, tmp_path / "gang.py"), "worker": worker}
        urgent = team.submit("ben", {**file, "job": {"id": "urgent", "queue": "ben", "priority": 90}})
        wait_until(lambda: team.get("/v1/jobs/urgent")["verdict"] == "succeeded")
        logs = [
            run_command("logs", "--url", f"{team.service.url}/v1/jobs/urgent", f"worker-{n}").stdout for n in range(4)
        ]
        began = max(float(log.split("begins")[1].split()[0]) for log in logs)
        print(f"trains {began - urgent['submitted']:.1f} s after its submit; kill_grace is {GRACE} s")

        assert began - urgent["submitted"] <= GRACE + 10
        assert [1] == [job["preemptions"] for job in team.get("/v1/queue")["jobs"] if job["preemptions"]]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sixty_services_without_a_queue(slots: LocalCluster, tmp_path: Path) -> None:
    """What users do otherwise: a service, and so an app of Marathon, for each job."""
    (tmp_path / "gang.py").write_text(PROGRAM)
    tmp_path.chmod(0o755)
    jobs = sixty_jobs(USERS, SEED)
    run, due, ended = run_of(slots, jobs), list(jobs), set[JobId]()
    apps = {job.id: f"service/{job.id}/v1/tf/overview" for job, _ in jobs}

    def look() -> tuple[Sequence[Waiting], bool]:
        while due and run.began + due[0][0].submitted <= time.time():
            job, seconds = due.pop(0)
            file = job_file(job, seconds, tmp_path / "gang.py")
            options = {**file, "service": {**file["service"], "name": job.id}}
            body = {"packageName": "tensorflow", "options": options}
            installed = requests.post(f"{url}/package/install", json=body, headers=INSTALL, timeout=60)
            assert installed.ok, installed.text
        waiting = []
        for job, _ in jobs[: len(jobs) - len(due)]:
            if job.id not in ended:
                overview = requests.get(f"{url}/{apps[job.id]}", timeout=60)
                shown: dict[str, Any] = overview.json() if overview.ok else {}
                if shown.get("verdict"):
                    ended.add(job.id)
                elif not any(task.get("live") for task in shown.get("tasks", ())):
                    waiting.append(waiting_of(job))
        return waiting, len(ended) == len(jobs)

    with serving_dcos(slots, errors=tmp_path / "stderr") as url:
        run.watch(look, {job.id: job.queue for job, _ in jobs})
        print(f"seed {SEED}: {run.measures(1.0)}")
        for job, _ in jobs:
            body = {"packageName": "tensorflow", "appId": f"/{job.id}"}
            requests.post(f"{url}/package/uninstall", json=body, headers=UNINSTALL, timeout=60).raise_for_status()
        wait_until(lambda: not read_status(slots.master.address).frameworks)
