"""The page of a real scheduler that trains examples/digits on a real Mesos."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kit.commands import scheduler_environment, start_scheduler
from kit.waiting import wait_until
from mesos_local.host import free_ports

PATIENCE = 150
DIGITS = Path(__file__).parents[3] / "examples" / "digits"
COMMAND = 'python train.py --model-dir "$CHECKPOINT_DIR" --epochs 5 --until "$CHECKPOINT_DIR/end" --target 0.5'


class WatchedService:
    """A service whose scheduler can restart; the file `end` lets its chief exit."""

    def __init__(self, folder, master) -> None:
        self.port, self.end = free_ports(1)[0], folder / "checkpoints" / "end"
        document = json.loads((DIGITS / "options.json").read_text())
        for section in ("chief", "parameter_server", "worker"):
            document[section].update(cpus=0.2, mem=700, disk=0)
        document["worker"]["placement_constraint"] = "hostname:UNIQUE"
        document["chief"].update(gpus=1, gpu_check=False)  # counted by Mesos, not there
        document["service"].update(
            user="root",
            job_url=(DIGITS / "train.py").as_uri(),
            command=COMMAND,
            python=sys.executable,
            checkpoint_dir=str(folder / "checkpoints"),
        )
        document["executor"] = {"python": sys.executable}
        document["mesos"] = {"master": master}
        document["scheduler"] = {"state": (folder / "state.db").as_uri()}
        document["plans"] = {"phases": [{"plan": "retune", "phase": "again", "job": "worker"}]}
        self.options, self.log = folder / "options.json", folder / "log"
        self.options.write_text(json.dumps(document))

    def start(self):
        self.process = start_scheduler(self.options, scheduler_environment(self.port), self.log)
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text()
            threading.Event().wait(0.05)
        return f"http://127.0.0.1:{self.port}/"

    def answers(self):
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert 0 == self.process.wait(PATIENCE), self.log.read_text()

    def close(self) -> None:
        """Whatever happened: nothing is left of it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def scheduler(tmp_path: Path, local_cluster):
    started = WatchedService(tmp_path, local_cluster.master.address)
    yield started
    started.close()


def keep(page) -> None:
    """The pictures of docs/reference/page.md, if SCREENSHOTS names a folder for them."""
    if "SCREENSHOTS" not in os.environ:
        return
    expect(page.locator("#log")).to_contain_text("epoch 25: ")
    folder = Path(os.environ["SCREENSHOTS"])
    for name, width, height, scheme in (
        ("", 1280, 1000, "light"),
        ("-dark", 1280, 1000, "dark"),
        ("-phone", 360, 800, "light"),
    ):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=folder / f"page{name}.png", full_page=width > 360)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


@pytest.mark.timeout(600)
def test_page_follows_and_commands_training(scheduler, visit) -> None:
    """From the first launch to the result.

    Slow: a real training, with an operator's pauses.
    """
    expect.set_options(timeout=PATIENCE * 1000)
    url = scheduler.start()
    page: Page = visit(url)
    region = lambda name: page.get_by_role("region", name=name, exact=True)  # noqa: E731
    press = lambda name: region("Plans").get_by_role("button", name=name, exact=True).click()  # noqa: E731
    message = page.locator("#message")

    chip = region("Cluster").get_by_role("button")
    expect(chip.filter(has_text="running")).to_have_count(4)
    with_gpus = page.get_by_role("article", name="Agent agent-3")
    expect(with_gpus.locator("p")).to_contain_text("1 GPU")
    expect(with_gpus.get_by_role("button", name="chief-0").locator(".gpus i")).to_have_count(1)
    expect(region("Plans").get_by_role("region", name="Plan deploy")).to_contain_text("complete4/4")
    expect(page.locator("#pill")).to_have_text("TRAINING")
    expect(page).to_have_title(re.compile(r"^(\d+ %|step [\d,]+) digits$"))
    expect(page.get_by_label("Output of the task")).to_contain_text(re.compile(r"epoch 5: loss"))
    expect(page.get_by_role("img", name=re.compile("Loss over the steps; now: chief-0"))).to_be_visible()
    expect(page.get_by_role("group", name="At a glance")).to_contain_text("4 of 4")
    expect(region(re.compile("^Events"))).to_contain_text("worker-1 on agent-")
    keep(page)
    saved = lambda: [task["saved_step"] for task in page.request.get(f"{url}v1/tf/overview").json()["tasks"]]  # noqa: E731
    wait_until(lambda: any(saved()))
    page.reload()
    row = page.get_by_role("row", name="chief-0")
    row.get_by_role("button").click()
    question = page.get_by_role("dialog")
    page.get_by_role("button", name="Restart task").click()
    loss = re.compile(r"chief-0 restarts; [\d,]+ steps? since its last checkpoint (is|are) lost\.")
    expect(question).to_contain_text(loss)
    question.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Python stacks").click()
    expect(page.locator("#log-state")).to_contain_text("Python stacks of chief-0 at ")
    expect(page.get_by_label("Output of the task")).to_contain_text(re.compile(r"\(train\.py:\d+\)"))

    press("Commands for step again worker-1")
    press("Pause retune again worker-1")
    expect(message).to_contain_text("Received cmd: interrupt")
    press("Resume retune again worker-1")
    expect(message).to_contain_text("Received cmd: continue")
    press("Force complete retune again worker-1")
    page.get_by_role("dialog").get_by_role("button", name="Force complete").click()
    expect(message).to_contain_text("Received cmd: forceComplete")
    chip.filter(has_text="worker-0").click()
    identity = page.locator("#facts [data-key=id] dd")
    before = identity.text_content()
    press("Resume retune")
    expect(identity).not_to_have_text(before)
    expect(region("Plans").get_by_role("region", name="Plan retune")).to_contain_text("complete2/2")
    before = identity.text_content()
    press("Commands for step worker worker-0")
    press("Restart deploy worker worker-0")
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(identity).not_to_have_text(before)
    for button, word in (("Restart task", "Restart"), ("Move task", "Move")):
        expect(chip.filter(has_text="running")).to_have_count(4)
        before = identity.text_content()
        page.get_by_role("button", name=button).click()
        page.get_by_role("dialog").get_by_role("button", name=word, exact=True).click()
        expect(identity).not_to_have_text(before)

    expect(chip.filter(has_text="running")).to_have_count(4)
    expect(region("Plans").get_by_role("region", name="Plan deploy")).to_contain_text("complete4/4")
    scheduler.stop()
    expect(page.get_by_role("alert")).to_contain_text("The scheduler does not answer")
    scheduler.start()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(region(re.compile("^Events"))).to_contain_text("scheduler started")

    scheduler.end.touch()
    expect(page.get_by_label("Notices")).to_contain_text("succeeded")
    expect(page.get_by_label("Notices")).to_contain_text("resources are released")
    scheduler.stop()
