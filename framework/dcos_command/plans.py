"""Commands about plans, pods and queues of jobs: show and control them."""

from __future__ import annotations

import re
import time
from http import HTTPStatus
from typing import Any, Callable, Iterator, Mapping, Sequence

import click

from tf_executor.contract.bodies import MAX_PRIORITY
from tf_executor.contract.text import format_duration

from .client import QueuedJob, ServiceClient, api_path
from .command import (
    CommandCall,
    IntRange,
    Name,
    Params,
    argument,
    command,
    group,
    show_json,
    show_message,
    show_names,
    yes_option,
)
from .errors import CommandError, NotStartedError, RefusedError, UsageError
from .output import Line, Renderable, Table, Word, dim, status_word

#: Status of a plan with errors that is accepted as an answer; 200 is complete, 202 in progress.
PLAN_ERROR_CODES = (417,)
_UPDATE, _DEPLOY = "update", "deploy"
_POLL_SECONDS = 0.5
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

Plan = Mapping[str, Any]


def fetch_plan(service: ServiceClient, name: str) -> Any:
    """Return the plan from the API, also a plan with errors."""
    return service.get(api_path("plans", name), PLAN_ERROR_CODES)


def rollout_plan(service: ServiceClient) -> str:
    """Return the plan that rolls out options: `deploy` until the first update."""
    return _UPDATE if _UPDATE in service.get(api_path("plans")) else _DEPLOY


def plan_tree(name: str, plan: Plan) -> Iterator[Line]:
    """Render a plan with its phases, its steps with reasons to wait, and its errors."""
    yield _heading("", name, plan)
    for last, phase in _with_last(plan["phases"]):
        yield _heading("└─ " if last else "├─ ", phase["name"], phase)
        for final, step in _with_last(phase["steps"]):
            indent = ("   " if last else "│  ") + ("└─ " if final else "├─ ")
            text = step.get("message") if step["status"] != "COMPLETE" else ""
            words = (indent, step["name"], " (", status_word(step["status"]), ")", dim(f"  {text}" if text else ""))
            yield Line(words, wrap=False)
    if plan.get("errors"):
        yield from (Line(("",)), Line(("Errors:",)))
        yield from (Line((f"- {error}",)) for error in plan["errors"])


def _heading(indent: str, name: str, part: Plan) -> Line:
    return Line((indent, Word(name, "strong"), f" ({part['strategy']} strategy) (", status_word(part["status"]), ")"))


def _with_last(items: Sequence[Plan]) -> Iterator[Any]:
    """Yield pairs: whether the item is the last, and the item."""
    return ((index == len(items) - 1, item) for index, item in enumerate(items))


def _overview(plans: Mapping[str, Plan]) -> Iterator[Any]:
    def row(name: str, plan: Plan) -> Sequence[Any]:
        steps = [step for phase in plan["phases"] for step in phase["steps"]]
        done = sum(step["status"] == "COMPLETE" for step in steps)
        return name, status_word(plan["status"]), f"{done} of {len(steps)}", plan["strategy"], "; ".join(plan["errors"])

    rows = [row(name, plan) for name, plan in plans.items()]
    yield Table(("plan", "status", "steps", "strategy", "errors"), rows, empty="There are no plans.")


def control_plan(service: ServiceClient, verb: str, plan: str | None, phase: str | None, step: str | None) -> Any:
    """Send the verb to the named plan, by default to the plan that rolls out options."""
    return service.post(api_path("plans", plan or rollout_plan(service), verb), phase=phase, step=step)


def _phase_names(service: ServiceClient, params: Params) -> Sequence[str]:
    phases = fetch_plan(service, params.get("plan") or rollout_plan(service))["phases"]
    return [phase["name"] for phase in phases]


def _step_names(service: ServiceClient, params: Params) -> Sequence[str]:
    phases = fetch_plan(service, params.get("plan") or rollout_plan(service))["phases"]
    return [step["name"] for phase in phases if phase["name"] == params.get("phase") for step in phase["steps"]]


class _PlanPart(Name):
    """Names of phases or steps of the named plan, by default of the rollout plan."""

    def listing_of(self, params: Params) -> str:
        return f"plan status {params['plan']}" if params.get("plan") else "update status"


_PLAN = Name("plan", "plan list", lambda service, _: service.get(api_path("plans")))
_plan = argument("plan", _PLAN, help="Name of the plan.", example="deploy")
_any_plan = argument("plan", _PLAN, required=False, help="Name of the plan.", example="deploy")
phase_argument = argument(
    "phase", _PlanPart("phase", "", _phase_names), required=False, help="Name or id of a phase.", example="worker"
)
step_argument = argument(
    "step",
    _PlanPart("step", "", _step_names),
    required=False,
    help="Name or id of a step of the phase.",
    example="worker-0",
)

group("plan", "Show and control the plans of the service.", "plan status", "plan pause deploy worker")


@command("plan list", sdk_json=True)
def list_plans(call: CommandCall) -> int:
    """List the plans."""
    return call.show(call.service.get(api_path("plans")), show_names)


@command("plan status", "plan show")
@_any_plan
def plan_status(call: CommandCall, plan: str | None) -> int:
    """Show a plan with its steps, or all plans."""
    service = call.service
    if plan:
        return call.show(fetch_plan(service, plan), lambda answer: plan_tree(plan, answer))
    plans = {name: fetch_plan(service, name) for name in service.get(api_path("plans"))}
    return call.show(plans, _overview)


@command("plan start", examples=("deploy", "deploy -p EPOCHS=10"))
@_plan
@click.option(
    "--parameter", "-p", multiple=True, metavar="NAME=VALUE", help="Environment variable for the tasks of the plan."
)
def start_plan(call: CommandCall, plan: str, parameter: Sequence[str]) -> int:
    """Start a plan, or restart a completed plan."""
    service = call.service
    for text in parameter:
        if not _VARIABLE.fullmatch(text):
            raise UsageError(f"--parameter: `{text}`: must be NAME=VALUE, where NAME is an environment variable")
    variables = dict(text.split("=", 1) for text in parameter)
    return call.show(service.post(api_path("plans", plan, "start"), variables), show_message)


@command("plan stop")
@_plan
def stop_plan(call: CommandCall, plan: str) -> int:
    """Interrupt a plan; a later start begins at the first step."""
    return call.show(control_plan(call.service, "stop", plan, None, None), show_message)


def _control(words: str, help_text: str, verb: str, *also: str) -> None:
    @command(words, *also, help=help_text)
    @_plan
    @phase_argument
    @step_argument
    def control(call: CommandCall, plan: str, phase: str | None, step: str | None) -> int:
        return call.show(control_plan(call.service, verb, plan, phase, step), show_message)


_control("plan pause", "Stop starting new steps; running steps continue.", "interrupt", "plan interrupt")
_control("plan resume", "Resume after a pause, or start the next canary.", "continue", "plan continue")
_control("plan restart", "Restart a plan, phase or step with its tasks.", "restart", "plan force-restart")
_control("plan force-complete", "Mark a plan, phase or step as complete.", "forceComplete", "plan force")


# --- pod


def _show_pods(pods: Sequence[Mapping[str, Any]]) -> Renderable:
    rows = [
        (pod["name"], task["name"], status_word(task["status"]), task["id"]) for pod in pods for task in pod["tasks"]
    ]
    yield Table(("pod", "task", "status", "id"), rows, empty="There are no pods yet.")


_POD = Name("pod", "pod list", lambda service, _: service.get(api_path("pod")))
TASK = Name("task", "tasks", lambda service, _: [task["name"] for task in service.get(api_path("tasks"))["tasks"]])
_pod = argument("pod", _POD, help="Name of the pod.", example="worker-0")
_pod_tasks = click.option(
    "--task", "-t", type=TASK, multiple=True, metavar="TASK", help="Select only this task of the pod."
)

group("pod", "Show, restart, replace and pause pods.", "pod status worker-0", "pod restart worker-0")
group("debug pod", "Same as `pod`.", hidden=True)


@command("pod list", sdk_json=True)
def list_pods(call: CommandCall) -> int:
    """List the pods."""
    return call.show(call.service.get(api_path("pod")), show_names)


@command("pod status")
@argument("pod", _POD, required=False, help="Name of the pod.", example="worker-0")
def pod_status(call: CommandCall, pod: str | None) -> int:
    """List the tasks of a pod, or of all pods."""
    if pod:
        return call.show(call.service.get(api_path("pod", pod, "status")), lambda answer: _show_pods([answer]))
    return call.show(
        call.service.get(api_path("pod", "status")),
        lambda answer: _show_pods([instance for kind in answer["pods"] for instance in kind["instances"]]),
    )


@command("pod info")
@_pod
def pod_info(call: CommandCall, pod: str) -> int:
    """Show TaskInfo and TaskStatus of the pod's tasks."""
    return call.show(call.service.get(api_path("pod", pod, "info")), show_json)


def _control_pod(call: CommandCall, pod: str, verb: str, done: str, tasks: Sequence[str] = ()) -> int:
    answer = call.service.post(api_path("pod", pod, verb), list(tasks) or None)
    return call.show(answer, lambda answer: show_pod_control(answer, done))


def show_pod_control(answer: Mapping[str, Any], done: str) -> Renderable:
    """Render the pod, what was done, and its tasks if their names differ from it."""
    if "pod" not in answer:  # it was done before; the message is the scheduler's
        yield Line((answer["message"],))
        return
    tasks = "" if answer["tasks"] == [answer["pod"]] else f": {', '.join(answer['tasks']) or 'no task'}"
    yield Line((f"{answer['pod']} {done}{tasks}",))


@command("pod restart")
@_pod
def restart_pod(call: CommandCall, pod: str) -> int:
    """Relaunch a pod on its reserved resources."""
    return _control_pod(call, pod, "restart", "is restarted")


@command("pod replace", examples=("worker-0 --yes",))
@_pod
@yes_option
def replace_pod(call: CommandCall, pod: str, yes: bool) -> int:
    """Release a pod's resources and launch the pod elsewhere."""
    call.confirm(f"Release the resources of {pod}?", yes=yes)
    return _control_pod(call, pod, "replace", "is replaced")


@command("pod pause", "debug pod pause")
@_pod
@_pod_tasks
def pause_pod(call: CommandCall, pod: str, task: Sequence[str]) -> int:
    """Stop a pod, but keep its resources."""
    return _control_pod(call, pod, "pause", "is paused", task)


@command("pod resume", "debug pod resume")
@_pod
@_pod_tasks
def resume_pod(call: CommandCall, pod: str, task: Sequence[str]) -> int:
    """Launch a paused pod's program again."""
    return _control_pod(call, pod, "resume", "is resumed", task)


# --- queues of jobs


def queue_of(service: ServiceClient) -> Any:
    """Return the jobs and shares of a queue service; None: another service."""
    try:
        return None if service.job else service.get(api_path("queue"))
    except RefusedError as error:
        if error.http_status != HTTPStatus.NOT_FOUND:
            raise
    return None


def waiting_job(service: ServiceClient) -> Any:
    """Return the body of a job of a queue that has no scheduler yet, else None."""
    if not service.job:
        return None
    try:
        service.get(api_path("tf", "result"))
    except NotStartedError:
        return QueuedJob(service).body()
    return None


def wait_for_start(service: ServiceClient, echo: Callable[[str], None]) -> None:
    """Wait until a job of a queue has a scheduler; print why it waits.

    Raise NotStartedError if it has ended without one.
    """
    why = ""
    while service.job:
        try:
            service.get(api_path("tf", "result"))
        except NotStartedError as error:
            if QueuedJob(service).result() is not None:
                raise
            if str(error) != why:
                why = str(error)
                echo(why)
            time.sleep(_POLL_SECONDS)
        else:
            return


def show_waiting_job(body: Mapping[str, Any]) -> Iterator[Line]:
    """Render a job that waits: its place, its expected start, and why it waits."""
    place = (
        f"  position {body['position']} in queue {body['queue']}" if body["position"] else f"  queue {body['queue']}"
    )
    yield Line((Word(body["name"], "strong"), "  ", status_word(body["state"].upper()), place))
    yield from (Line((f"  {text}",)) for text in (body["reason"], _expected_start(body)) if text)


def _expected_start(body: Mapping[str, Any]) -> str:
    if body["state"] != "queued" or not body["grounds"]:
        return ""
    if body["expected_start"] is None:
        return f"start unknown: {body['grounds']}"
    seconds = round(max(0.0, body["expected_start"] - time.time()))
    return f"in {format_duration(seconds)}: {body['grounds']}"


def show_queue(answer: Mapping[str, Any]) -> Iterator[Any]:
    """Render the queues with their shares, and their jobs in order."""
    if answer["problem"]:
        yield Line((Word(answer["problem"], "bad"),))
    resources = ("cpus", "gpus") if answer["capacity"]["gpus"] else ("cpus",)
    columns = ("queue", "weight", "share", *resources, "running", "waiting", "CPU-hours in the last hour")
    rows = [
        (
            each["name"],
            f"{each['weight']:g}",
            f"{each['share']:.0%}",
            *(f"{each['used'][name]:g} of {answer['capacity'][name]:g}" for name in resources),
            str(each["running"]),
            str(each["queued"]),
            f"{each['seconds'] / 3600:.1f}",
        )
        for each in answer["queues"]
    ]
    yield Table(columns, rows)
    yield Line(("",))
    yield Table(
        ("", "job", "queue", "owner", "priority", "state", "needs", "start", "why"),
        [_queue_row(body) for body in answer["jobs"]],
        empty="No job waits or runs.",
    )
    if more := answer["waiting"] - sum(body["state"] == "queued" for body in answer["jobs"]):
        yield Line((dim(f"... and {more} more jobs wait."),))
    yield Line((dim(answer["identities"]),))


def _queue_row(body: Mapping[str, Any]) -> Sequence[Any]:
    return (
        str(body["position"] or "-"),
        body["id"],
        body["queue"],
        body["owner"],
        str(body["priority"]),
        status_word(body["state"].upper()),
        ", ".join(f"{body['needs'][name]:g} {name}" for name in ("cpus", "gpus") if body["needs"][name]),
        _expected_start(body) or "-",
        dim(body["reason"]),
    )


group(
    "queue",
    "Show and control the jobs of a queue service.",
    "queue",
    "queue move train-3 --priority 50",
    default="show",
)


def _job_names(service: ServiceClient, _params: Params) -> Sequence[str]:
    return [body["id"] for body in service.queue.get(api_path("queue"))["jobs"]]


_JOB = Name("job", "queue", _job_names)


@command("queue show", examples=("", "--name ml"))
def show(call: CommandCall) -> int:
    """Show jobs in order, their expected starts, and shares."""
    return call.show(find_queue(call).get(api_path("queue")), show_queue)


@command("queue move", examples=("train-3 --priority 50", "train-3 --queue research"))
@argument("job", _JOB, help="Id of the job.", example="train-3")
@click.option("--queue", metavar="QUEUE", help="Queue to move it to.")
@click.option(
    "--priority", type=IntRange(0, MAX_PRIORITY), metavar="NUMBER", help=f"New priority, 0 to {MAX_PRIORITY}."
)
def move(call: CommandCall, job: str, queue: str | None, priority: int | None) -> int:
    """Change the queue or the priority of a job."""
    changes = {name: value for name, value in (("queue", queue), ("priority", priority)) if value is not None}
    if not changes:
        raise UsageError("nothing to change: pass --queue or --priority")
    service = find_queue(call)
    path = api_path("jobs", job.rpartition("/")[2], "move")
    return call.show(service.post(path, changes), show_waiting_job)


def find_queue(call: CommandCall) -> ServiceClient:
    """Return the named or the only queue service. Raise UsageError."""
    if call.options.name or call.options.url:
        return call.service.queue
    services = (each.queue for each in call.program.find_all(call.options, call.program.environment))
    queues = [each for each in services if _answers_queue(each)]
    if len(queues) == 1:
        call.client = queues[0]
        return call.client
    names = ", ".join(each.name for each in queues)
    raise UsageError(f"several queue services: {names}; pass --name" if names else "no queue service is known")


def _answers_queue(service: ServiceClient) -> bool:
    try:
        return queue_of(service) is not None
    except CommandError:  # no answer
        return False
