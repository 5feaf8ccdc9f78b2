"""`plan ...`: ordered work: what is done, what is left, and what operators do to it."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import Command, CommandArgument, CommandOption, Fetch, Params
from .errors import UsageError
from .output import Line, Renderable, Table, Word, dim, status_word

#: Of a question about a plan: in error. Complete is 200, under way 202.
PLAN_ERROR_CODES = (417,)
_UPDATE, _DEPLOY = "update", "deploy"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

Plan = Mapping[str, Any]


def fetch_plan_names(service: ServiceClient, _given: Params) -> Any:
    """The names of the plans, as the API gives them."""
    return service.get(api_path("plans"))


def rollout_plan(service: ServiceClient) -> str:
    """The plan that rolls out options: update, or deploy as long as there is no other."""
    return _UPDATE if _UPDATE in service.get(api_path("plans")) else _DEPLOY


def show_names(found: Sequence[str], _given: Params) -> Renderable:
    """One a line."""
    return found


def fetch_plans(service: ServiceClient, given: Params) -> Any:
    """The plan that is named; without a name all of them, by name."""
    wanted = given.get("plan")
    if wanted:
        return service.get(api_path("plans", wanted), PLAN_ERROR_CODES)
    return {name: service.get(api_path("plans", name), PLAN_ERROR_CODES) for name in fetch_plan_names(service, given)}


def show_plans(found: Any, given: Params) -> Renderable:
    """One plan as a tree, several as a table."""
    return plan_tree(given["plan"], found) if given.get("plan") else _overview(found)


def plan_tree(name: str, plan: Plan) -> Iterator[Line]:
    """A plan with its phases and their steps; what is not complete says why. Then the errors."""
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
    said = step.get("message") if step["status"] != "COMPLETE" else ""
    return Line(
        (indent, step["name"], " (", status_word(step["status"]), ")", dim(f"  {said}" if said else "")), wrap=False
    )


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


def show_message(found: Any, _given: Params) -> Renderable:
    """What the scheduler answers to a command."""
    return (str(found.get("message", "done")),)


def _parameters(given: Params) -> dict[str, str]:
    wrong = [text for text in given["parameter"] if not _VARIABLE.fullmatch(text)]
    if wrong:
        raise UsageError(f"--parameter {wrong[0]}: must be NAME=VALUE, with the name of an environment variable")
    return dict(text.split("=", 1) for text in given["parameter"])


def _start(service: ServiceClient, given: Params) -> Any:
    return service.post(api_path("plans", given["plan"], "start"), _parameters(given))


def _command(verb: str) -> Fetch:
    def send(service: ServiceClient, given: Params) -> Any:
        where = api_path("plans", given["plan"], verb)
        return service.post(where, phase=given.get("phase"), step=given.get("step"))

    return send


PLAN = CommandArgument("plan", "plan", help="Name of the plan.")
_PHASE = CommandArgument("phase", "phase", required=False, help="Name or id of a phase.")
_STEP = CommandArgument("step", "step", required=False, help="Name or id of a step of the phase.")
_PARAMETER = CommandOption(
    "parameter", "Environment of the tasks that it launches.", "texts", short="p", metavar="NAME=VALUE", default=()
)
_PART = (PLAN, _PHASE, _STEP)


def _control(words: str, help_text: str, verb: str, aliases: Sequence[str]) -> Command:
    return Command(words, help_text, _command(verb), show_message, _PART, aliases=aliases)


COMMANDS = (
    Command("plan list", "The names of the plans.", fetch_plan_names, show_names, sdk_json=True),
    Command(
        "plan status",
        "A plan with its phases and steps; without PLAN an overview of all.",
        fetch_plans,
        show_plans,
        (CommandArgument("plan", "plan", required=False, help="Name of the plan."),),
        aliases=("plan show",),
    ),
    Command(
        "plan start",
        "Go on, with parameters; from the beginning if it was complete.",
        _start,
        show_message,
        (PLAN,),
        (_PARAMETER,),
    ),
    Command(
        "plan stop",
        "Interrupt it; from the beginning when it is started again.",
        _command("stop"),
        show_message,
        (PLAN,),
    ),
    _control("plan pause", "Begin no further step; what is under way goes on.", "interrupt", ("plan interrupt",)),
    _control("plan resume", "Go on after a pause, or let the next canary go.", "continue", ("plan continue",)),
    _control("plan restart", "From the beginning: its tasks are launched again.", "restart", ("plan force-restart",)),
    _control("plan force-complete", "Count as complete, whatever it is.", "forceComplete", ("plan force",)),
)
