"""What an operator wants of a plan, and the answer. Everything that an operator did is stored with the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import Decision, Outcome, PlanControlled
from tf_scheduler.model.events import PlanCommand
from tf_scheduler.model.plan import (
    SERVICE_ENDED,
    UNINSTALL,
    Answer,
    Node,
    Phase,
    Plan,
    PlanControl,
    PlanDef,
    PlanKind,
    Reply,
    Status,
    Step,
    Verb,
)
from tf_scheduler.model.state import SchedulerState

from .rollout import ALL, latest_launch_number
from .scheduling import CANARIES, Children, PlanView, held_back, phase_children, step_children
from .step_status import plan_progress
from .tables import ALREADY
from .view import find_plan, plan_definitions, status_at

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def handle(state: SchedulerState, wish: PlanCommand, view: PlanView) -> Decision:
    """Do what the operator wants, or say why not; the answers are the SDK's (dcos-commons, PlansQueries)."""
    refused = _refused(state, wish, view)
    if refused is not None:
        return replace(decide(state), answer=refused)
    plan = next(plan for plan in plan_definitions(state, view) if plan.name == wish.plan)
    node = tuple(part for part in (wish.phase, wish.step) if part)
    control = view.records.control_of(plan)
    shown = find_plan(state, plan.name, view)
    status = Status.ERROR if shown is None else status_at(shown, node)
    changed = _VERBS[wish.verb](view, plan, control, node, status, wish.parameters)
    if changed == control and status in ALREADY[wish.verb]:
        answer = Answer(Reply.ALREADY, "Command has already been reported or completed")
        return replace(decide(state), answer=answer)
    if changed == control and wish.verb is Verb.START and plan.kind is PlanKind.UNINSTALL:
        return replace(decide(state), answer=Answer(Reply.ALREADY, f"Plan {plan.name} has begun by itself"))
    if changed == control and wish.verb is Verb.CONTINUE:
        return replace(decide(state), answer=Answer(Reply.ALREADY, _nothing_waits(shown, wish)))
    told = Outcome(f"an operator wants {wish.verb.value} of {_spoken(wish)}")
    return replace(
        decide(state, PlanControlled(plan.name, changed), outcomes=(told,)),
        answer=Answer(Reply.OK, _received(wish)),
    )


def _refused(state: SchedulerState, wish: PlanCommand, view: PlanView) -> Answer | None:
    """Why the command makes no sense; None: it does."""
    if wish.step and not wish.phase:
        return Answer(Reply.BAD_REQUEST, "Missing phase")
    for name in wish.parameters:
        if not _VARIABLE.fullmatch(name):
            words = f"Couldn't parse parameters: {name} is not a valid environment variable name"
            return Answer(Reply.BAD_REQUEST, words)
    if wish.parameters and wish.verb is not Verb.START:
        return Answer(Reply.BAD_REQUEST, f"Parameters are for start only, not for {wish.verb.value}")
    # What was decided stays: only the plan that ends everything goes on.
    ended = state.stored.result is not None and wish.plan != UNINSTALL
    return _not_found(plan_definitions(state, view), wish) or (SERVICE_ENDED if ended else _irrevocable(wish))


def _irrevocable(wish: PlanCommand) -> Answer | None:
    if wish.plan != UNINSTALL or wish.verb not in (Verb.RESTART, Verb.STOP):
        return None
    words = "what it has ended is not begun again. interrupt holds it up, continue lets it go on"
    return Answer(Reply.CONFLICT, f"Plan {UNINSTALL} knows no {wish.verb.value}: {words}")


def _not_found(plans: Iterable[PlanDef], wish: PlanCommand) -> Answer | None:
    plan = next((plan for plan in plans if plan.name == wish.plan), None)
    if plan is None:
        return Answer(Reply.NOT_FOUND, f"Plan {wish.plan} not found")
    phase = next((phase for phase in plan.phases if phase.name == wish.phase), None)
    if wish.phase and phase is None:
        return Answer(Reply.NOT_FOUND, f"Phase {wish.phase} not found")
    if wish.step and phase is not None and all(step.name != wish.step for step in phase.steps):
        return Answer(Reply.NOT_FOUND, f"Step {wish.step} not found")
    return None


def _nothing_waits(plan: Plan | None, wish: PlanCommand) -> str:
    """With what is to be continued instead: a continue does not reach what is below."""
    parts: Sequence[Phase | Step] = () if plan is None or wish.step else plan.phases
    if wish.phase:
        parts = next((phase.steps for phase in plan.phases if phase.name == wish.phase), ()) if parts and plan else ()
    waiting = ", ".join(part.name for part in parts if part.status is Status.WAITING)
    return f"{_spoken(wish)} waits for no continue of its own{f'; continue what does: {waiting}' if waiting else ''}"


def _spoken(wish: PlanCommand) -> str:
    return " / ".join(part for part in (f"plan {wish.plan}", wish.phase, wish.step) if part)


def _received(wish: PlanCommand) -> str:
    """The SDK's sentence, which tools print."""
    if wish.verb is Verb.START:
        given = ", ".join(f"{name}={value}" for name, value in wish.parameters.items())
        return f"Received cmd: start {wish.plan} with parameters: {{{given}}}"
    if wish.verb in (Verb.RESTART, Verb.FORCE_COMPLETE):
        phase, step = wish.phase or "null", wish.step or "null"
        return f"Received cmd: {wish.verb.value} for Plan: {wish.plan}, Phase: {phase}, Step: {step}"
    return f"Received cmd: {wish.verb.value}"


# --- the verbs: what they make of a plan's control

_Change = Callable[[PlanView, PlanDef, PlanControl, Node, Status, Mapping[str, str]], PlanControl]


def _interrupt(
    _view: PlanView, _plan: PlanDef, control: PlanControl, node: Node, status: Status, _given: Mapping[str, str]
) -> PlanControl:
    if status is Status.COMPLETE:
        return control
    return replace(control, interrupted=control.interrupted | {node})


def _continue(
    view: PlanView, plan: PlanDef, control: PlanControl, node: Node, status: Status, _given: Mapping[str, str]
) -> PlanControl:
    """Ends the interrupt of this very node; without one, the next canary of the phase (or plan) may go.

    It does not reach what is below: a phase of canaries is continued by its own name, as in the SDK.
    """
    if node in control.interrupted:
        return replace(control, interrupted=control.interrupted - {node})
    if status is Status.COMPLETE or len(node) > 1:
        return control
    children = _children(view, plan, node)
    waiting = held_back(children)
    if not waiting:
        return control
    enough = len(children.released) + 1 >= CANARIES
    return replace(control, released=control.released | {(*node, ALL if enough else waiting[0])})


def _force_complete(
    _view: PlanView, plan: PlanDef, control: PlanControl, node: Node, status: Status, _given: Mapping[str, str]
) -> PlanControl:
    if status is Status.COMPLETE:
        return control
    if plan.kind is PlanKind.UNINSTALL:
        # TEARDOWN is still to be sent: nothing may hold it up any more.
        control = replace(control, interrupted=_outside(control.interrupted, node))
    return replace(control, forced=control.forced | {node})


def _restart(
    view: PlanView, plan: PlanDef, control: PlanControl, node: Node, status: Status, _given: Mapping[str, str]
) -> PlanControl:
    """Every launch until now is old for the node; interrupts of it and orders below it are void."""
    if status is Status.PENDING:
        return control
    return replace(
        control,
        interrupted=control.interrupted - {node},
        forced=_unforced(plan, control.forced, node),
        released=_outside(control.released, node) if len(node) < 2 else control.released,
        restarted={**control.restarted, node: latest_launch_number(view.inputs.tasks, view.inputs.controls)},
        completed="",
    )


def _start(
    view: PlanView, plan: PlanDef, control: PlanControl, node: Node, status: Status, given: Mapping[str, str]
) -> PlanControl:
    if status is Status.COMPLETE and plan.kind is not PlanKind.UNINSTALL:
        control = _restart(view, plan, control, node, status, given)
    return replace(control, parameters=dict(given), interrupted=control.interrupted - {node})


def _stop(
    view: PlanView, plan: PlanDef, control: PlanControl, node: Node, status: Status, given: Mapping[str, str]
) -> PlanControl:
    """Nothing is ended now: what runs goes on until the plan is started again."""
    anew = _restart(view, plan, control, node, status, given)
    return replace(anew, interrupted=anew.interrupted | {node})


def _outside(nodes: frozenset[Node], node: Node) -> frozenset[Node]:
    """Those that are neither the node nor below it."""
    return frozenset(other for other in nodes if other[: len(node)] != node)


def _unforced(plan: PlanDef, forced: frozenset[Node], node: Node) -> frozenset[Node]:
    """What is forced without the node: of a whole that is forced, everything else stays so."""
    for depth in range(len(node)):
        whole = node[:depth]
        if whole in forced:
            forced = (forced - {whole}) | _parts(plan, whole)
    return _outside(forced, node)


def _parts(plan: PlanDef, node: Node) -> frozenset[Node]:
    if not node:
        return frozenset((phase.name,) for phase in plan.phases)
    return frozenset(found for found, _ in plan.steps() if found[:1] == node)


def _children(view: PlanView, plan: PlanDef, node: Node) -> Children:
    now = view.progress.get(plan.name) or plan_progress(view, plan)
    if not node:
        return phase_children(now, frozenset())
    phase = next(phase for phase in plan.phases if phase.name == node[0])
    return step_children(now, phase, frozenset())


_VERBS: Mapping[Verb, _Change] = {
    Verb.INTERRUPT: _interrupt,
    Verb.CONTINUE: _continue,
    Verb.FORCE_COMPLETE: _force_complete,
    Verb.RESTART: _restart,
    Verb.START: _start,
    Verb.STOP: _stop,
}
