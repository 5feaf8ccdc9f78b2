"""Isolation of TensorBoard pages from the scheduler, in a real Chromium."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

from builders import a_job, a_spec, a_status, with_fields
from kit.http_server import HttpServer, QuietHandler
from live_api import LiveApi
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

pytestmark = pytest.mark.browser

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
  await tried("kept", async () => { localStorage.setItem("a", "b"); return localStorage.getItem("a"); });
  await tried("server", async () => Boolean(await navigator.serviceWorker.register("server.js")));
  await tried("worker", () => new Promise((done) => {
    const worker = new Worker("worker.js");
    worker.onmessage = (message) => done(message.data);
    worker.onerror = () => done("no worker");
  }));
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
    def respond(self) -> None:
        self.body()
        back = unquote(self.path.partition("/tensorboard/?")[2])
        away = "/v1/plans/deploy/stop" if self.path == "/away" else back
        record = {"path": self.path, "host": self.headers["Host"]}
        kind, content = FILES.get(self.path, ("application/json", json.dumps(record).encode()))
        self.answer(307 if away else 200, content, Content_Type=kind, **({"Location": away} if away else {}))


@pytest.mark.parametrize("prefix", ["", "/service/dev/digits"])
def test_tensorboard_page_cannot_command_scheduler(chromium, prefix) -> None:
    """No request, frame, window or form of the page reaches the scheduler."""
    spec = a_spec(name="dev/digits", jobs=(a_job(JobKind.TENSORBOARD),))
    events: list[Any] = []
    with HttpServer(Handler) as board:
        address = board.address
        record = TaskRecord("tensorboard-0", "t__1", JobKind.TENSORBOARD, 0, "S1", "agent-1", address, 1, (), 0.0)
        statuses = {record.id: a_status(record.id)}
        state = with_fields(SchedulerState(spec), framework_id="f", tasks={record.name: record}, statuses=statuses)
        app = create_app(Backend(lambda: Snapshot(state), events.append), pages=pages())
        whole = Starlette(routes=[Mount("/service/dev/digits", app), Mount("/", app)])
        with ApiServer(whole, "127.0.0.1", 0) as server:
            context = chromium.new_context()
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{server.port}{prefix}/tensorboard/")
            outcome = page.locator("#outcome")
            expect(outcome).not_to_be_empty()
            outcomes = json.loads(outcome.text_content())
            windows = len(context.pages)
            context.close()

    assert ("TypeError", "TypeError", True, False) == (
        outcomes["write"],
        outcomes["read"],
        outcomes["window"],
        outcomes["frame"],
    )
    assert ("TypeError", None) == (outcomes["server"], outcomes["back"])
    assert (503, "/data", "b", "works") == (outcomes["led"], outcomes["own"], outcomes["kept"], outcomes["worker"])
    assert ([], 1) == (events, windows)


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

        expect(link).to_have_attribute("href", re.compile(r"^tensorboard/[\w-]{16,}/$"))
