"""The page of a queue service in Chromium, with jobs on a real Mesos."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from kit.browser import CONTRAST, SMALL
from kit.commands import run_command
from kit.queue_runs import whole_agents
from mesos_local.cluster import LocalCluster

NAME = f"queue-{os.getpid()}"


def run(*arguments: object) -> str:
    done = run_command(*arguments)
    assert 0 == done.returncode, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def submit(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[Any]:
    """Submit a job of the whole cluster to a queue service with two queues."""
    queues = [{"name": "research", "weight": 2}, {"name": "nightly"}]
    options = tmp_path / "queue.json"
    options.write_text(json.dumps({"service": {"name": NAME, "kind": "queue"}, "queue": {"queues": queues}}))
    run("local", "install", "--options", options, "--dir", local_cluster.directory)

    def submit(name: str, *more: object, **job: Any) -> None:
        service = {"strategy": "multi_worker_mirrored", "command": "echo step 3/10; exec sleep 1000"}
        file = {"service": service, "worker": whole_agents(local_cluster), "job": {"id": name, **job}}
        (tmp_path / "job.json").write_text(json.dumps(file))
        run("submit", tmp_path / "job.json", "--to", NAME, "--detach", *more)

    yield submit
    run("local", "uninstall", NAME, "--dir", local_cluster.directory)


def test_page_shows_jobs_from_wait_to_end(submit: Any, visit: Any, tmp_path: Path) -> None:
    submit("first", expected_seconds=600)
    page = visit(run("open", NAME, "--print").strip())

    def row(job: str) -> Any:
        return page.locator(f"[data-key=Jobs] [data-key='{job}']")

    row("first").get_by_text("RUNNING").wait_for()
    submit("second", queue="nightly", priority=7, expected_seconds=60)
    submit("third")
    submit("fourth")

    row("second").get_by_text("1. QUEUED").wait_for()
    row("second").get_by_text("when first ends and gives back").wait_for()
    row("second").get_by_text("needs cpus").wait_for()
    row("third").get_by_text("when second ends and gives back").wait_for()
    row("fourth").get_by_text("unknown").wait_for()
    row("first").get_by_role("progressbar", name="progress of first").wait_for()
    expect(page.locator("[data-key=Queues] [data-key=research] [data-name=weight]")).to_have_text("2")
    page.get_by_role("progressbar", name="last hour of operator").wait_for()
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=os.environ.get("SHOTS", str(tmp_path)) + f"/{scheme}-{width}.png", full_page=True)
            assert width == page.evaluate("document.documentElement.scrollWidth")
            assert [] == page.evaluate(CONTRAST)
            assert [] == page.evaluate(SMALL)

    run("cancel", f"{NAME}/first", "--yes")
    row("first").wait_for(state="detached")
    row("second").get_by_text("RUNNING").wait_for()
    row("second").get_by_role("link").click()
    page.get_by_text("worker-0").first.wait_for()
    assert page.url.split("#")[0].split("?")[0].endswith("/v1/jobs/second/")
    page.go_back()
    page.locator("[data-key='Ended jobs'] [data-key=first]").get_by_text("cancelled by operator").wait_for()
    for job in ("second", "third", "fourth"):
        run("cancel", f"{NAME}/{job}", "--yes")
    page.get_by_text("No job waits or runs.").wait_for()
    page.screenshot(path=os.environ.get("SHOTS", str(tmp_path)) + "/ended.png", full_page=True)
