"""Each status of the DC/OS SDK over HTTP, with the body that dcos-commons answers.

The recorded bodies follow mesosphere/dcos-commons: PlansQueries, PlanInfo, PodQueries, StateQueries, HealthResource and
ResponseUtils of sdk/scheduler, and cli/queries/testdata/responses/scheduler. `...`: a value that differs by service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from asgi_client import ask
from kit.api import ServiceLoop, launched
from tf_executor.contract.states import TaskState

RUNNING = TaskState.RUNNING


def a_plan(status: str, *steps: str, errors: Any = ()) -> dict[str, Any]:
    """PlanInfo of a plan with a phase of one step for each job."""
    phases = [
        {
            "id": ...,
            "name": job,
            "steps": [{"id": ..., "status": step, "name": f"{job}-0", "message": ...}],
            "status": step,
            "strategy": "parallel",
        }
        for job, step in zip(("ps", "chief"), steps, strict=True)
    ]
    return {
        "phases": phases,
        "errors": errors if errors is ... else [*errors],
        "status": status,
        "strategy": "parallel",
    }


def received(command: str) -> dict[str, str]:
    return {"message": f"Received cmd: {command}"}


ALREADY = "Command has already been reported or completed"
PODS = {"pod": "ps-0", "tasks": ["ps-0"]}
POD = {"name": "ps-0", "tasks": [{"id": ..., "name": "ps-0", "status": "RUNNING"}]}
PREFIX = "Couldn't parse parameters: "


@dataclass(frozen=True)
class Row:
    """A request and the recorded answer: JSON, text, or None for no body.

    `service`: states of ps-0 and chief-0; `before`: commands sent earlier; `rejected`: errors of new options.
    """

    status: int
    request: str
    recorded: Any
    content: bytes = b""
    service: tuple[TaskState | None, ...] = (RUNNING, RUNNING)
    before: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.status} {self.request}"


ROWS = (
    Row(200, "GET /v1/plans", ["deploy", "recovery", "decommission"]),
    Row(200, "GET /v1/plans/deploy", a_plan("COMPLETE", "COMPLETE", "COMPLETE")),
    Row(200, "POST /v1/plans/deploy/start", received("start deploy with parameters: {}"), b"{}"),
    Row(200, "POST /v1/plans/deploy/stop", received("stop")),
    Row(200, "POST /v1/plans/deploy/interrupt", received("interrupt"), service=(RUNNING,)),
    Row(
        200,
        "POST /v1/plans/deploy/continue",
        received("continue"),
        service=(RUNNING,),
        before=("/v1/plans/deploy/interrupt",),
    ),
    Row(
        200,
        "POST /v1/plans/deploy/forceComplete?phase=chief&step=chief-0",
        received("forceComplete for Plan: deploy, Phase: chief, Step: chief-0"),
        service=(RUNNING,),
    ),
    Row(
        200,
        "POST /v1/plans/deploy/restart?phase=ps&step=ps-0",
        received("restart for Plan: deploy, Phase: ps, Step: ps-0"),
    ),
    Row(200, "POST /v1/plans/deploy/restart", received("restart for Plan: deploy, Phase: null, Step: null")),
    Row(200, "GET /v1/pod", ["chief-0", "ps-0"]),
    Row(200, "GET /v1/pod/ps-0/status", POD),
    Row(200, "POST /v1/pod/ps-0/restart", PODS),
    Row(200, "POST /v1/pod/ps-0/replace", PODS),
    Row(200, "POST /v1/pod/ps-0/pause", PODS, b'["ps-0"]'),
    Row(200, "POST /v1/pod/ps-0/resume", PODS, before=("/v1/pod/ps-0/pause",)),
    Row(200, "GET /v1/health", {"value": 200}),
    Row(200, "GET /v1/state/frameworkId", ["framework-1"]),
    Row(202, "GET /v1/plans/deploy", a_plan("IN_PROGRESS", "COMPLETE", "PENDING"), service=(RUNNING,)),
    Row(202, "GET /v1/health", {"value": 202}, service=(RUNNING,)),
    Row(204, "GET /v1/health", None, service=()),
    Row(208, "POST /v1/plans/deploy/continue", ALREADY),
    Row(208, "POST /v1/plans/deploy/interrupt", ALREADY),
    Row(208, "POST /v1/plans/deploy/interrupt", ALREADY, service=(RUNNING,), before=("/v1/plans/deploy/interrupt",)),
    Row(208, "POST /v1/plans/deploy/forceComplete?phase=ps&step=ps-0", ALREADY),
    Row(208, "POST /v1/plans/deploy/restart?phase=chief&step=chief-0", ALREADY, service=(RUNNING,)),
    Row(400, "POST /v1/plans/deploy/restart?step=ps-0", "Missing phase"),
    Row(400, "POST /v1/plans/deploy/start", f"{PREFIX}1-A is not a valid environment variable name", b'{"1-A": ""}'),
    Row(404, "GET /v1/plans/none", "Plan none not found"),
    Row(404, "POST /v1/plans/none/stop", "Plan none not found"),
    Row(404, "POST /v1/plans/deploy/continue?phase=none", "Phase none not found"),
    Row(404, "POST /v1/plans/deploy/restart?phase=ps&step=none", "Step none not found"),
    Row(404, "GET /v1/pod/none/status", "Pod none not found"),
    Row(404, "GET /v1/pod/none/info", "Pod none not found"),
    Row(404, "POST /v1/pod/none/restart", "Pod none not found"),
    Row(404, "POST /v1/pod/ps-0/pause", "Pod ps-0 not found", b'["another"]'),
    Row(404, "POST /v1/pod/ps-7/pause", "Pod ps-7 not found", b'["ps-7"]'),
    Row(409, "PUT /v1/state/refresh", ...),  # the SDK's has no body; this one says why
    Row(
        417,
        "GET /v1/plans/deploy",
        a_plan("ERROR", "COMPLETE", "COMPLETE", errors=("service.role: cannot change",)),
        rejected=("service.role: cannot change",),
    ),
    Row(417, "GET /v1/plan", a_plan("ERROR", "ERROR", "COMPLETE", errors=...), service=(TaskState.FAILED, RUNNING)),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_status_and_body_are_those_of_the_sdk(row: Row) -> None:
    """Its tools, and DC/OS itself, read them."""
    loop = ServiceLoop(launched(*row.service, rejected=row.rejected))
    for path in row.before:
        assert 200 == ask(loop.app, path, "POST").code
    method, _, path = row.request.partition(" ")

    reply = ask(loop.app, path, method, body=row.content)

    kind = reply.headers.get("content-type", "").partition(";")[0]
    assert row.status == reply.code
    if row.recorded is None:
        assert (b"", "") == (reply.content, kind)
    elif isinstance(row.recorded, str):
        assert (row.recorded, "text/plain") == (reply.text, kind)
    elif row.recorded is not ...:
        assert "application/json" == kind
        assert [] == list(differences(row.recorded, reply.body))


def differences(recorded: Any, actual: Any, place: str = "body") -> Any:
    """Yield each field that differs."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for name in sorted({*recorded, *actual}):
            yield from differences(recorded.get(name, "missing"), actual.get(name, "missing"), f"{place}.{name}")
    elif isinstance(recorded, list) and isinstance(actual, list) and len(recorded) == len(actual):
        for number, (left, right) in enumerate(zip(recorded, actual, strict=True)):
            yield from differences(left, right, f"{place}[{number}]")
    elif (actual == "missing") if recorded is ... else recorded != actual:
        yield f"{place}: {recorded!r} is recorded, not {actual!r}"


def test_each_status_is_in_the_scenario() -> None:
    assert {200, 202, 204, 208, 400, 404, 409, 417} == {row.status for row in ROWS}
