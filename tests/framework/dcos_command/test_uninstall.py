"""`uninstall` waits for the end and reports what is left behind."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from dcos_command import update as command
from dcos_command.main import main
from dcos_command.update import LAST_STEP, LastStep, last_uninstall_step
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views import plan_messages

#: What Marathon says of the app.
FOUND = {"version": "v2"}
LOST = "left behind: worker-1 on agent-2"


def a_plan(status, message):
    last = {"id": "2", "name": LAST_STEP, "status": status, "message": message}
    if message == LOST:
        last["left_behind"] = ["worker-1 on agent-2"]
    part = {"id": "0", "name": "x", "status": "COMPLETE", "strategy": "serial"}
    steps = [{"id": "1", "name": "x", "status": "COMPLETE", "message": ""}], [last]
    return {**part, "errors": [], "phases": [{**part, "steps": each} for each in steps]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch):
    """A DC/OS with service dev/digits, which shows `plans` in order and is then gone."""
    monkeypatch.setattr(command, "_POLL_SECONDS", 0.0)
    plans: list[Any] = []

    def app(_request):
        return JSONResponse({"app": FOUND}) if plans else JSONResponse({"message": "App does not exist"}, 404)

    def remove(_request):
        return JSONResponse({"results": [{"appId": "/dev/digits"}]})

    routes = [
        Route("/package/uninstall", remove, methods=["POST"]),
        Route("/service/marathon/v2/apps/dev/digits", app),
        Route("/service/dev/digits/v1/plans/deploy", lambda _request: JSONResponse(*plans.pop(0))),
    ]
    with ApiServer(Starlette(routes=routes), "127.0.0.1", 0) as server:
        environment = {"DCOS_URL": f"http://127.0.0.1:{server.port}", "DCOS_DIR": "/nowhere"}
        yield plans, lambda *words: main(["tensorflow", "--name=dev/digits", "uninstall", "--yes", *words], environment)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([("COMPLETE", LOST)], f": {LOST}"),
        ([("COMPLETE", "nothing is left behind")], ": nothing is left behind"),
        ([("PENDING", LOST)], f": {LOST}"),  # DC/OS was quicker than the last look
        ([("PENDING", "waits for the end of the framework")], ""),
        # A restarted scheduler does not know what its predecessor left behind.
        ([("COMPLETE", LOST), ("COMPLETE", "nothing is left behind that is known")], f": {LOST}"),
    ],
)
def test_uninstall_reports_what_is_left_behind(
    cluster, capsys: pytest.CaptureFixture[str], last: list[tuple[str, str]], expected: str
) -> None:
    """The scheduler, restarted meanwhile, reports it."""
    plans, run = cluster
    plans += [({"message": "busy"}, 503), (a_plan("PENDING", "waits"), 202), *((a_plan(*each), 200) for each in last)]

    assert 0 == run()
    seen = capsys.readouterr()
    assert f"/dev/digits is uninstalled{expected}\n" == seen.out
    assert "/dev/digits is being uninstalled. Ctrl-C" in seen.err


def test_uninstall_reports_agents_that_it_waits_for(cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Once; they are not left behind if they return."""
    plans, run = cluster
    waiting = a_plan("PENDING", "waits up to 600 s: ps-0 may still run on agent-2")
    waiting["phases"][-1]["steps"][-1]["waits_for"] = ["ps-0 may still run on agent-2"]
    plans += [(waiting, 202), (waiting, 202), (a_plan("COMPLETE", "nothing is left behind"), 200)]

    assert 0 == run()

    seen = capsys.readouterr()
    assert 1 == seen.err.count("waits up to 600 s: ps-0 may still run on agent-2\n")
    assert "/dev/digits is uninstalled: nothing is left behind\n" == seen.out


def a_failure(message, version="v2"):
    return {"lastTaskFailure": {"message": message, "version": version, "taskId": "dev_digits.1"}}


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (a_failure("status 1\napi.write_token: is missing"), "restarted: status 1\napi.write_token: is missing\n"),
        (a_failure("status 1"), "restarted: status 1 (see: dcos task log --completed dev_digits.1)\n"),
        (a_failure("status 1", "v1"), ""),  # that was before
    ],
)
def test_failing_scheduler_is_reported_and_times_out(
    cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, failure, expected: str
) -> None:
    """The failure is reported once."""
    plans, run = cluster
    plans += [({"message": "busy"}, 503)] * 2
    monkeypatch.setitem(globals(), "FOUND", {**FOUND, **failure})

    assert 1 == run("--timeout=0")

    seen = capsys.readouterr().err
    assert (bool(expected), expected in seen) == (seen.count("the scheduler exited and is being restarted") == 1, True)
    assert "/dev/digits still exists after 0 s: " in seen


def test_json_contains_what_is_left_behind(cluster, capsys: pytest.CaptureFixture[str]) -> None:
    plans, run = cluster
    plans += [(a_plan("COMPLETE", LOST), 200)]

    assert 0 == run("--json")
    assert {"results": [{"appId": "/dev/digits", "message": LOST}]} == json.loads(capsys.readouterr().out)


def test_no_wait_names_the_command_to_follow(cluster, capsys: pytest.CaptureFixture[str]) -> None:
    plans, run = cluster
    plans += [(a_plan("PENDING", "waits"), 202)]

    assert 0 == run("--no-wait")
    assert "/dev/digits is being uninstalled. Follow it with: dcos tensorflow plan status deploy\n" == (
        capsys.readouterr().out
    )


def test_last_step_is_the_schedulers() -> None:
    assert plan_messages.FORGET_STATE == LAST_STEP
    assert LastStep() == last_uninstall_step({"phases": []})
