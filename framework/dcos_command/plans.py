"""`plan ...`, `pod ...`: show and control plans, phases and steps, and pods."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

from tf_executor.contract.text import format_number, pluralize

from .client import ServiceClient, api_path
from .command import Command, CommandArgument, CommandOption, Fetch, Params, get, show_json, show_message, show_names
from .errors import UsageError
from .output import Line, Renderable, Table, Word, dim, status_word

#: Status of a plan with errors that is accepted as an answer; 200 is complete, 202 in progress.
PLAN_ERROR_CODES = (417,)
_UPDATE, _DEPLOY = "update", "deploy"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

Plan = Mapping[str, Any]


def fetch_plan(service: ServiceClient, name: str) -> Any:
    """The plan as the API returns it, also when it has errors."""
    return service.get(api_path("plans", name), PLAN_ERROR_CODES)


def rollout_plan(service: ServiceClient) -> str:
    """Plan that rolls out options: `update`, or `deploy` before the first update."""
    return _UPDATE if _UPDATE in service.get(api_path("plans")) else _DEPLOY


def _fetch_plans(service: ServiceClient, params: Params) -> Any:
    if params.get("plan"):
        return fetch_plan(service, params["plan"])
    return {name: fetch_plan(service, name) for name in service.get(api_path("plans"))}


def _show_plans(answer: Any, params: Params) -> Renderable:
    return plan_tree(params["plan"], answer) if params.get("plan") else _overview(answer)


def restart_loss(restart: Mapping[str, Any]) -> str:
    """What the restart of a task loses; empty for a task without steps."""
    step, saved = restart.get("step"), restart.get("saved_step")
    if step is None:
        return ""
    if saved is None:
        return f", at step {format_number(step)}; what it has not saved is lost"
    lost = max(0, step - saved)
    return f"; {pluralize(lost, 'step')} since its last checkpoint {'is' if lost == 1 else 'are'} lost"


def plan_tree(name: str, plan: Plan) -> Iterator[Line]:
    """The plan with phases, steps and why each step waits; then its errors."""
    yield _heading("", name, plan)
    for last, phase in _with_last(plan["phases"]):
        yield _heading("└─ " if last else "├─ ", phase["name"], phase)
        for final, step in _with_last(phase["steps"]):
            yield _step(("   " if last else "│  ") + ("└─ " if final else "├─ "), step)
    if plan.get("errors"):
        yield from (Line(("",)), Line(("Errors:",)))
        yield from (Line((f"- {error}",)) for error in plan["errors"])


def _heading(indent: str, name: str, part: Plan) -> Line:
    return Line((indent, Word(name, "strong"), f" ({part['strategy']} strategy) (", status_word(part["status"]), ")"))


def _step(indent: str, step: Plan) -> Line:
    message = step.get("message") if step["status"] != "COMPLETE" else ""
    words = (indent, step["name"], " (", status_word(step["status"]), ")", dim(f"  {message}" if message else ""))
    return Line(words, wrap=False)


def _with_last(items: Sequence[Plan]) -> Iterator[Any]:
    """Each item with whether it is the last."""
    return ((index == len(items) - 1, item) for index, item in enumerate(items))


def _overview(plans: Mapping[str, Plan]) -> Iterator[Any]:
    def row(name: str, plan: Plan) -> Sequence[Any]:
        steps = [step for phase in plan["phases"] for step in phase["steps"]]
        done = sum(step["status"] == "COMPLETE" for step in steps)
        return name, status_word(plan["status"]), f"{done} of {len(steps)}", plan["strategy"], "; ".join(plan["errors"])

    rows = [row(name, plan) for name, plan in plans.items()]
    yield Table(("plan", "status", "steps", "strategy", "errors"), rows, empty="There are no plans.")


def _start(service: ServiceClient, params: Params) -> Any:
    for text in params["parameter"]:
        if not _VARIABLE.fullmatch(text):
            raise UsageError(f"--parameter: `{text}`: must be NAME=VALUE, where NAME is an environment variable")
    variables = dict(text.split("=", 1) for text in params["parameter"])
    return service.post(api_path("plans", params["plan"], "start"), variables)


def plan_command(verb: str) -> Fetch:
    """Send the verb to the named plan, by default to the one that rolls out options."""

    def send(service: ServiceClient, params: Params) -> Any:
        path = api_path("plans", params.get("plan") or rollout_plan(service), verb)
        return service.post(path, phase=params.get("phase"), step=params.get("step"))

    return send


PHASE = CommandArgument("phase", "phase", required=False, help="Name or id of a phase.", example="worker")
STEP = CommandArgument("step", "step", required=False, help="Name or id of a step of the phase.", example="worker-0")
_PLAN = CommandArgument("plan", "plan", help="Name of the plan.", example="deploy")
_ANY_PLAN = CommandArgument("plan", "plan", required=False, help="Name of the plan.", example="deploy")
_PARAMETER = CommandOption(
    "parameter", "Environment variable for the tasks of the plan.", "texts", short="p", metavar="NAME=VALUE", default=()
)


def _control(words: str, help_text: str, verb: str, *aliases: str) -> Command:
    return Command(words, help_text, plan_command(verb), show_message, (_PLAN, PHASE, STEP), aliases=aliases)


# --- pod


def _show_pod_status(answer: Mapping[str, Any], params: Params) -> Renderable:
    pods = [answer] if params.get("pod") else [pod for kind in answer["pods"] for pod in kind["instances"]]
    rows = [
        (pod["name"], task["name"], status_word(task["status"]), task["id"]) for pod in pods for task in pod["tasks"]
    ]
    yield Table(("pod", "task", "status", "id"), rows, empty="There are no pods yet.")


def _pod_command(verb: str) -> Fetch:
    def send(service: ServiceClient, params: Params) -> Any:
        return service.post(api_path("pod", params["pod"], verb), list(params.get("task") or ()) or None)

    return send


_POD = CommandArgument("pod", "pod", help="Name of the pod.", example="worker-0")
_ANY_POD = CommandArgument("pod", "pod", required=False, help="Name of the pod.", example="worker-0")
_POD_TASKS = CommandOption("task", "Select only this task of the pod.", "texts", short="t", metavar="TASK", kind="task")


def _pod_control(verb: str, help_text: str, done: str, **more: Any) -> Command:
    def show(answer: Mapping[str, Any], _params: Params) -> Renderable:
        if "pod" not in answer:  # it was done before; the message is the scheduler's
            yield Line((answer["message"],))
            return
        tasks = "" if answer["tasks"] == [answer["pod"]] else f": {', '.join(answer['tasks']) or 'no task'}"
        yield Line((f"{answer['pod']} {done}{tasks}",))

    return Command(f"pod {verb}", help_text, _pod_command(verb), show, (_POD,), **more)


COMMANDS = (
    Command("plan list", "List the plans.", get("plans"), show_names, sdk_json=True),
    Command(
        "plan status",
        "Show a plan with its steps, or all plans.",
        _fetch_plans,
        _show_plans,
        (_ANY_PLAN,),
        aliases=("plan show",),
    ),
    Command(
        "plan start",
        "Start a plan, or restart a completed plan.",
        _start,
        show_message,
        (_PLAN,),
        (_PARAMETER,),
        examples=("deploy", "deploy -p EPOCHS=10"),
    ),
    Command(
        "plan stop",
        "Interrupt a plan; a later start begins at the first step.",
        plan_command("stop"),
        show_message,
        (_PLAN,),
    ),
    _control("plan pause", "Stop starting new steps; running steps continue.", "interrupt", "plan interrupt"),
    _control("plan resume", "Resume after a pause, or start the next canary.", "continue", "plan continue"),
    _control("plan restart", "Restart a plan, phase or step with its tasks.", "restart", "plan force-restart"),
    _control("plan force-complete", "Mark a plan, phase or step as complete.", "forceComplete", "plan force"),
    Command("pod list", "List the pods.", get("pod"), show_names, sdk_json=True),
    Command(
        "pod status", "List the tasks of a pod, or of all pods.", get("pod/{pod}/status"), _show_pod_status, (_ANY_POD,)
    ),
    Command("pod info", "Show TaskInfo and TaskStatus of the pod's tasks.", get("pod/{pod}/info"), show_json, (_POD,)),
    _pod_control("restart", "Relaunch a pod on its reserved resources.", "is restarted"),
    _pod_control(
        "replace",
        "Release a pod's resources and launch the pod elsewhere.",
        "is replaced",
        confirm="Release the resources of {pod}?",
        examples=("worker-0 --yes",),
    ),
    _pod_control(
        "pause", "Stop a pod, but keep its resources.", "is paused", options=(_POD_TASKS,), aliases=("debug pod pause",)
    ),
    _pod_control(
        "resume",
        "Launch a paused pod's program again.",
        "is resumed",
        options=(_POD_TASKS,),
        aliases=("debug pod resume",),
    ),
)
