"""`plan ...`: ordered work: what is done, what is left, and what operators do to it."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

from .command import Argument, Command, Fetch, Given, Option
from .errors import UsageError
from .parts import Line, Parts, Table, Word, dim, status
from .service import Service, path

#: Of a question about a plan: in error. Complete is 200, under way 202.
IN_ERROR = (417,)
_UPDATE, _DEPLOY = "update", "deploy"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

Tree = Mapping[str, Any]


def names(service: Service, _given: Given) -> Any:
    """The names of the plans, as the API gives them."""
    return service.get(path("plans"))


def roll_out(service: Service) -> str:
    """The plan that rolls out options: update, or deploy as long as there is no other."""
    return _UPDATE if _UPDATE in service.get(path("plans")) else _DEPLOY


def show_names(found: Sequence[str], _given: Given) -> Parts:
    """One a line."""
    return found


def one_or_all(service: Service, given: Given) -> Any:
    """The plan that is named; without a name all of them, by name."""
    wanted = given.get("plan")
    if wanted:
        return service.get(path("plans", wanted), IN_ERROR)
    return {name: service.get(path("plans", name), IN_ERROR) for name in names(service, given)}


def show_plans(found: Any, given: Given) -> Parts:
    """One plan as a tree, several as a table."""
    return tree(given["plan"], found) if given.get("plan") else _overview(found)


def tree(name: str, plan: Tree) -> Iterator[Line]:
    """A plan with its phases and their steps; what is not complete says why. Then the errors."""
    yield _heading("", name, plan)
    for last, phase in _marked(plan["phases"]):
        yield _heading("└─ " if last else "├─ ", phase["name"], phase)
        for final, step in _marked(phase["steps"]):
            yield _step(("   " if last else "│  ") + ("└─ " if final else "├─ "), step)
    if plan.get("errors"):
        yield from (Line(("",)), Line(("Errors:",)))
        yield from (Line((f"- {error}",)) for error in plan["errors"])


def _heading(indent: str, name: str, part: Tree) -> Line:
    return Line((indent, Word(name, "strong"), f" ({part['strategy']} strategy) (", status(part["status"]), ")"))


def _step(indent: str, step: Tree) -> Line:
    said = step.get("message") if step["status"] != "COMPLETE" else ""
    return Line(
        (indent, step["name"], " (", status(step["status"]), ")", dim(f"  {said}" if said else "")), whole=False
    )


def _marked(items: Sequence[Tree]) -> Iterator[Any]:
    """Each item with whether it is the last."""
    return ((index == len(items) - 1, item) for index, item in enumerate(items))


def _overview(plans: Mapping[str, Tree]) -> Iterator[Any]:
    def row(name: str, plan: Tree) -> Sequence[Any]:
        steps = [step for phase in plan["phases"] for step in phase["steps"]]
        done = sum(step["status"] == "COMPLETE" for step in steps)
        return name, status(plan["status"]), f"{done} of {len(steps)}", plan["strategy"], "; ".join(plan["errors"])

    rows = [row(name, plan) for name, plan in plans.items()]
    yield Table(("plan", "status", "steps", "strategy", "errors"), rows, empty="There are no plans.")


def show_message(found: Any, _given: Given) -> Parts:
    """What the scheduler answers to a command."""
    return (str(found.get("message", "done")),)


def _parameters(given: Given) -> dict[str, str]:
    wrong = [text for text in given["parameter"] if not _VARIABLE.fullmatch(text)]
    if wrong:
        raise UsageError(f"--parameter {wrong[0]}: must be NAME=VALUE, with the name of an environment variable")
    return dict(text.split("=", 1) for text in given["parameter"])


def _start(service: Service, given: Given) -> Any:
    return service.post(path("plans", given["plan"], "start"), _parameters(given))


def _command(verb: str) -> Fetch:
    def send(service: Service, given: Given) -> Any:
        where = path("plans", given["plan"], verb)
        return service.post(where, phase=given.get("phase"), step=given.get("step"))

    return send


PLAN = Argument("plan", "plan", help="Name of the plan.")
_PHASE = Argument("phase", "phase", required=False, help="Name or id of a phase.")
_STEP = Argument("step", "step", required=False, help="Name or id of a step of the phase.")
_PARAMETER = Option(
    "parameter", "Environment of the tasks that it launches.", "texts", short="p", metavar="NAME=VALUE", default=()
)
_PART = (PLAN, _PHASE, _STEP)


def _control(words: str, help_text: str, verb: str, aliases: Sequence[str]) -> Command:
    return Command(words, help_text, _command(verb), show_message, _PART, aliases=aliases)


COMMANDS = (
    Command("plan list", "The names of the plans.", names, show_names, sdk_json=True),
    Command(
        "plan status",
        "A plan with its phases and steps; without PLAN an overview of all.",
        one_or_all,
        show_plans,
        (Argument("plan", "plan", required=False, help="Name of the plan."),),
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
