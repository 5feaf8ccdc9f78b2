"""Isolation of TensorBoard pages from the scheduler, in a real Chromium."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

from builders import a_job, a_spec, a_status, with_fields
from kit.commands import run_program
from kit.http_server import HttpServer, QuietHandler
from kit.waiting import wait_until
from live_api import LiveApi
from mesos_local.host import free_ports
from simulation import send
from simulation.world import play
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.web.pages import pages

#: It does what a page can to get at the scheduler, whose address is two folders above; and what TensorBoard does.
PAGE = b"""<!doctype html><title></title><div id="outcome"></div><script src="script.js"></script>"""
SCRIPT = b"""
const outcome = {};
const tried = async (name, attempt) => {
  try { outcome[name] = await attempt(); } catch (error) { outcome[name] = error.name; }
};
const framed = (address) => new Promise((done) => {
  const frame = document.createElement("iframe");
  const look = () => {
    try { done(frame.contentDocument?.body ? frame.contentWindow : null); } catch { done(null); }
  };
  frame.onload = frame.onerror = look;
  frame.src = address;
  document.body.append(frame);
});
const commanded = async (address) => {
  const inside = await framed(address);
  return inside && (await inside.fetch(new URL("../../v1/plans/deploy/stop", location), { method: "POST" })).status;
};
(async () => {
  const stop = "../../v1/plans/deploy/stop";
  await tried("write", async () => (await fetch(stop, { method: "POST" })).status);
  await tried("read", async () => (await fetch("../../v1/plans")).status);
  await tried("led", async () => (await fetch("away", { method: "POST" })).status);
  await tried("beacon", async () => { navigator.sendBeacon(stop); return "sent or not"; });
  await tried("window", async () => window.open("../../") === null);
  await tried("frame", async () => Boolean(await framed("../../v1/plans")));
  const mine = (await (await fetch("data")).json()).host;
  const here = encodeURIComponent(new URL("../../", location));
  await tried("back", () => commanded(`http://${mine}/tensorboard/?${here}`));
  await tried("form", async () => {
    const form = Object.assign(document.createElement("form"), { method: "post", action: stop });
    document.body.append(form);
    form.submit();
    return "submitted or not";
  });
  await tried("own", async () => (await (await fetch("data", { method: "POST", body: "x" })).json()).path);
  const other = JSON.parse(await (await fetch("other")).text()).other;
  await tried("away", () => fetch(`${other}/tensorboard/fetch`, { mode: "no-cors" }).then(() => "sent"));
  await tried("image", () => new Promise((done) => {
    const image = new Image();
    image.onload = image.onerror = () => done("ended");
    image.src = `${other}/tensorboard/image`;
  }));
  await tried("far beacon", async () => navigator.sendBeacon(`${other}/tensorboard/beacon`, "x"));
  await tried("far form", async () => {
    const form = Object.assign(document.createElement("form"), { method: "post", action: `${other}/tensorboard/form` });
    document.body.append(form);
    form.submit();
    return "submitted or not";
  });
  await tried("worker", () => new Promise((done) => {
    const worker = new Worker("worker.js");
    worker.onmessage = (message) => done(message.data);
    worker.onerror = () => done("no worker");
  }));
  await tried("far worker", () => new Promise((done) => {
    const worker = new Worker(`${other}/tensorboard/worker`);
    worker.onmessage = () => done("works");
    worker.onerror = () => done("no worker");
  }));
  await tried("worker sends", () => new Promise((done) => {
    const attempt = `fetch("${other}/tensorboard/inside", { mode: "no-cors" })`;
    const script = `${attempt}.then(() => postMessage("sent"), (error) => postMessage(error.name))`;
    const worker = new Worker(`data:text/javascript,${encodeURIComponent(script)}`);
    worker.onmessage = (message) => done(message.data);
    worker.onerror = () => done("no worker");
  }));
  await tried("dialog", async () => prompt("The scheduler wants a token"));
  await tried("top", async () => { top.location = `${other}/tensorboard/top`; return "went or not"; });
  await tried("address", async () => { history.pushState({}, "", "/"); return "changed"; });
  await tried("kept", async () => { localStorage.setItem("a", "b"); return localStorage.getItem("a"); });
  await tried("server", async () => Boolean(await navigator.serviceWorker.register("server.js")));
  document.getElementById("outcome").textContent = JSON.stringify(outcome);
})();
"""
FILES = {
    "/": ("text/html", PAGE),
    "/script.js": ("text/javascript", SCRIPT),
    "/server.js": ("text/javascript", b"onfetch = () => {}"),
    "/worker.js": ("text/javascript", b"postMessage('works')"),
}


class Handler(QuietHandler):
    #: Address of another host.
    other = ""

    def respond(self) -> None:
        self.body()
        back = unquote(self.path.partition("/tensorboard/?")[2])
        away = "/v1/plans/deploy/stop" if self.path == "/away" else back
        record = {"path": self.path, "host": self.headers["Host"], "other": self.other}
        kind, content = FILES.get(self.path, ("application/json", json.dumps(record).encode()))
        self.answer(307 if away else 200, content, Content_Type=kind, **({"Location": away} if away else {}))


class Collector(QuietHandler):
    """Another host, which redirects each request to a command of the scheduler."""

    paths: ClassVar[list[str]] = []
    back = ""

    def respond(self) -> None:
        self.paths.append(self.path)
        self.answer(307, b"", Location=self.back)


@pytest.fixture
def collector() -> Iterator[type[Collector]]:
    Collector.paths.clear()
    with HttpServer(Collector) as server:
        Handler.other = f"http://localhost:{server.port}"
        yield Collector


@contextmanager
def serving(board: str, events: list[Any]) -> Iterator[str]:
    """The API with a running TensorBoard at `board`, also at the address of DC/OS."""
    spec = a_spec(name="dev/digits", jobs=(a_job(JobKind.TENSORBOARD),))
    record = TaskRecord("tensorboard-0", "t__1", JobKind.TENSORBOARD, 0, "S1", "agent-1", board, 1, (), 0.0)
    statuses = {record.id: a_status(record.id)}
    state = with_fields(SchedulerState(spec), framework_id="f", tasks={record.name: record}, statuses=statuses)
    app = create_app(Backend(lambda: Snapshot(state), events.append), pages=pages())
    whole = Starlette(routes=[Mount("/service/dev/digits", app), Mount("/", app)])
    with ApiServer(whole, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("prefix", ["", "/service/dev/digits"])
def test_tensorboard_page_cannot_command_scheduler(chromium, collector, prefix) -> None:
    """Nothing of the page reaches the scheduler or another host; the address stays."""
    events: list[Any] = []
    with HttpServer(Handler) as board, serving(board.address, events) as url:
        collector.back = f"{url}{prefix}/v1/plans/deploy/stop"
        context = chromium.new_context()
        page = context.new_page()
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: [dialogs.append(dialog.message), dialog.dismiss()])
        page.goto(f"{url}{prefix}/tensorboard/")
        expect(page.get_by_role("note")).to_contain_text("TensorBoard of dev/digits. Programs of this service make")
        outcome = page.frame_locator("iframe").locator("#outcome")
        expect(outcome).not_to_be_empty()
        outcomes = json.loads(outcome.text_content())
        with page.expect_event("console", lambda said: "frame-src" in said.text):
            page.frames[1].evaluate(f"location = '{Handler.other}/tensorboard/navigated'")
        address, windows = page.url, len(context.pages)
        context.close()

    assert ("TypeError", "TypeError", True, False) == (
        outcomes["write"],
        outcomes["read"],
        outcomes["window"],
        outcomes["frame"],
    )
    assert outcomes["server"] in ("SecurityError", "TypeError")
    assert outcomes["back"] is None
    assert ("TypeError", "/data", "b", "works") == tuple(outcomes[name] for name in ("led", "own", "kept", "worker"))
    assert ("no worker", "TypeError") == (outcomes["far worker"], outcomes["worker sends"])
    assert ("TypeError", None, []) == (outcomes["away"], outcomes["dialog"], dialogs)
    assert re.fullmatch(rf"{url}{prefix}/tensorboard/[\w-]{{16,}}/framed", address)
    assert ([], [], 1) == (Collector.paths, events, windows)


#: Writes three losses for TensorBoard.
EVENTS = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(3):
    value = Summary.Value(tag="loss_of_test", simple_value=0.5)
    writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=[value])))
writer.close()
"""


def test_real_tensorboard_works_in_sandbox(chromium, tmp_path: Path) -> None:
    """Its origin is opaque: no storage, and each request to its own server needs CORS."""
    run_program(sys.executable, "-c", EVENTS, tmp_path, check=True)
    (port,) = free_ports(1)
    words = ["-m", "tensorboard.main", "--logdir", str(tmp_path), "--host", "127.0.0.1", "--port", str(port)]
    board = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    try:
        with serving(f"127.0.0.1:{port}", []) as url:
            wait_until(lambda: accepts(port), "TensorBoard does not start")
            context = chromium.new_context()
            page = context.new_page()
            page.goto(f"{url}/tensorboard/")
            inside = page.frame_locator("iframe")
            expect(page.get_by_role("note")).to_be_visible()
            expect(inside.get_by_text("loss_of_test").first).to_be_visible()
            # The card shows the last step only when the chart has its data.
            expect(inside.locator("scalar-card").get_by_text("2", exact=True).first).to_be_visible()
            context.close()
    finally:
        board.kill()
        board.wait()


def accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_page_links_to_running_tensorboard(visit) -> None:
    """The link needs no token."""
    spec = a_spec(name="dev/digits", jobs=(a_job(), a_job(JobKind.CHIEF), a_job(JobKind.TENSORBOARD)))
    with LiveApi(spec) as live:
        live.register()
        page = visit(f"{live.url}/service/dev/digits/")
        link = page.get_by_role("link", name="TensorBoard")
        expect(page.get_by_role("region", name="Why pending")).to_contain_text("tensorboard-0")
        expect(link).to_have_count(0)

        play(live.world, send.offers(), send.running())

        expect(link).to_have_attribute("href", re.compile(r"^tensorboard/[\w-]{16,}/framed$"))
