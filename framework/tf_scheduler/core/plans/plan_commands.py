"""Operators' commands for plans: check them, change the plan's control, answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tf_executor.contract.payload import setter_of
from tf_executor.contract.states import Status
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
    Step,
    Verb,
)
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState

from .plan_status import plan_definitions, plan_statuses, progress_in, status_at
from .rollout import ALL, latest_launch_number
from .scheduling import CANARIES, Children, PlanView, held_back, phase_children, step_children
from .status_tables import ALREADY
from .step_status import plan_progress

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Set by the scheduler if `service.hdfs` is configured, not declared in the options.
_OWN_VARIABLES = frozenset({"HADOOP_CONF_DIR"})
#: Variables that make loaders, shells, interpreters or libraries run other code.
_RUNS_CODE = re.compile(
    "(AWS_|BASH_|BUNDLE_|DYLD_|FI_|GEM_|GIT_|HADOOP_|JAVA_|LD_|LUA_|NCCL_|NPM_|OCL_|OMPI_|OPENSSL_|PERL|PIP_|PJRT_"
    "|PMIX_|PYTHON|RUBY|R_|UCX_|XDG_).*"
    "|BASHOPTS|BROWSER|CDPATH|CLASSPATH|CUDA_INJECTION(32|64)_PATH|CURL_HOME|EDITOR|ENV|GCONV_PATH|GLIBC_TUNABLES"
    "|GLOBIGNORE|HOME|HOSTALIASES|IFS|JDK_JAVA_OPTIONS|LESSCLOSE|LESSOPEN|LOCPATH|MANPAGER|MAVEN_OPTS|MPLBACKEND"
    "|NLSPATH|NODE_OPTIONS|NODE_PATH|PAGER|PATH|PROMPT_COMMAND|PS4|SHELL|SHELLOPTS|SSH_ASKPASS|SSLKEYLOGFILE"
    "|TF_PLUGGABLE_DEVICE_LIBRARY_PATH|VISUAL|XLA_FLAGS|ZDOTDIR|_JAVA_OPTIONS"
)


def handle(state: SchedulerState, command: PlanCommand, view: PlanView) -> Decision:
    """Execute or refuse a command; answers are the SDK's (dcos-commons, PlansQueries)."""
    refused = _refused(state, command, view)
    if refused is not None:
        return replace(decide(state), answer=refused)
    plan = next(plan for plan in plan_definitions(state, view) if plan.name == command.plan)
    node = tuple(part for part in (command.phase, command.step) if part)
    control = view.records.control_of(plan)
    present = plan_statuses(state, progress_in(state, plan, view))
    status = status_at(present, node)
    changed = _VERBS[command.verb](_Target(view, plan, control, node, status, command.parameters))
    if changed == control and (why := _no_effect(command, plan, status, present)):
        return replace(decide(state), answer=Answer(Reply.ALREADY, why))
    # Only the names: a value may be a secret.
    names = f" with {', '.join(command.parameters)}" if command.parameters else ""
    outcome = Outcome("PlanCommanded", f"operator command: {command.verb.value} {_target_text(command)}{names}")
    decision = decide(state, PlanControlled(plan.name, changed), outcomes=(outcome,))
    return replace(decision, answer=Answer(Reply.OK, _received(command)))


def _no_effect(command: PlanCommand, plan: PlanDef, status: Status, present: Plan) -> str:
    """Return why a command without effect gets the answer ALREADY; empty: accept it."""
    if status in ALREADY[command.verb]:
        return "Command has already been reported or completed"
    if command.verb is Verb.START and plan.kind is PlanKind.UNINSTALL:
        return f"Plan {plan.name} starts automatically"
    return _not_waiting(present, command) if command.verb is Verb.CONTINUE else ""


def _refused(state: SchedulerState, command: PlanCommand, view: PlanView) -> Answer | None:
    """Return why the command is refused; `None` if it is valid."""
    if command.step and not command.phase:
        return Answer(Reply.BAD_REQUEST, "Missing phase")
    for name in command.parameters:
        if not _VARIABLE.fullmatch(name):
            words = f"Couldn't parse parameters: {name} is not a valid environment variable name"
            return Answer(Reply.BAD_REQUEST, words)
    if command.parameters and command.verb is not Verb.START:
        return Answer(Reply.BAD_REQUEST, f"Parameters are allowed for `start` only, not for `{command.verb.value}`")
    # The result is final: only the uninstall plan continues.
    ended = state.stored.result is not None and command.plan != UNINSTALL
    plans = plan_definitions(state, view)
    return _not_found(plans, command) or (
        SERVICE_ENDED if ended else _irrevocable(command) or _refused_variable(state.spec, plans, command)
    )


def _refused_variable(spec: ServiceSpec, plans: Iterable[PlanDef], command: PlanCommand) -> Answer | None:
    """Return why an undeclared parameter is refused; `None` if all are allowed.

    If every parameter were allowed, a client with write permission could run any code as the service's user, for
    example with PYTHONWARNINGS.
    """
    declared = {name for job in spec.jobs for name in job.environment} - _OWN_VARIABLES
    is_custom = any(plan.name == command.plan and plan.kind is PlanKind.CUSTOM for plan in plans)
    for name in command.parameters:
        if setter := setter_of(name, spec.strategy):
            return Answer(Reply.CONFLICT, f"Variable {name} is not allowed: {setter} sets it for each task")
        if name in declared or (is_custom and not _RUNS_CODE.fullmatch(name)):
            continue
        why = (
            "it can make a program run other code" if is_custom else f"plan {command.plan} accepts declared names only"
        )
        message = f"Variable {name} is not allowed: {why}; declare it in service.environment or a job's environment"
        return Answer(Reply.CONFLICT, message)
    return None


def _irrevocable(command: PlanCommand) -> Answer | None:
    if command.plan != UNINSTALL or command.verb not in (Verb.RESTART, Verb.STOP):
        return None
    words = "stopped tasks are not launched again; use `interrupt` to pause the plan and `continue` to resume it"
    return Answer(Reply.CONFLICT, f"Plan {UNINSTALL} does not support {command.verb.value}: {words}")


def _not_found(plans: Iterable[PlanDef], command: PlanCommand) -> Answer | None:
    plan = next((plan for plan in plans if plan.name == command.plan), None)
    if plan is None:
        return Answer(Reply.NOT_FOUND, f"Plan {command.plan} not found")
    phase = next((phase for phase in plan.phases if phase.name == command.phase), None)
    if command.phase and phase is None:
        return Answer(Reply.NOT_FOUND, f"Phase {command.phase} not found")
    if command.step and phase is not None and all(step.name != command.step for step in phase.steps):
        return Answer(Reply.NOT_FOUND, f"Step {command.step} not found")
    return None


def _not_waiting(plan: Plan, command: PlanCommand) -> str:
    """Return a message that the node does not wait, with its children that do.

    `continue` does not affect the children of its node.
    """
    phases = () if command.step else plan.phases
    parts: Sequence[Phase | Step] = phases
    if command.phase:
        parts = [step for phase in phases if phase.name == command.phase for step in phase.steps]
    waiting = ", ".join(part.name for part in parts if part.status is Status.WAITING)
    return f"{_target_text(command)} is not waiting{f'; continue instead: {waiting}' if waiting else ''}"


def _target_text(command: PlanCommand) -> str:
    return " / ".join(part for part in (f"plan {command.plan}", command.phase, command.step) if part)


def _received(command: PlanCommand) -> str:
    """Return the SDK's sentence for an accepted command, which tools print."""
    if command.verb is Verb.START:
        parameters = ", ".join(f"{name}={value}" for name, value in command.parameters.items())
        return f"Received cmd: start {command.plan} with parameters: {{{parameters}}}"
    if command.verb in (Verb.RESTART, Verb.FORCE_COMPLETE):
        phase, step = command.phase or "null", command.step or "null"
        return f"Received cmd: {command.verb.value} for Plan: {command.plan}, Phase: {phase}, Step: {step}"
    return f"Received cmd: {command.verb.value}"


# --- Verbs


@dataclass(frozen=True, slots=True)
class _Target:
    """The node of a command, and the control of its plan, which a verb changes."""

    view: PlanView
    plan: PlanDef
    control: PlanControl
    node: Node
    status: Status
    parameters: Mapping[str, str]


def _interrupt(target: _Target) -> PlanControl:
    control = target.control
    if target.status is Status.COMPLETE:
        return control
    return replace(control, interrupted=control.interrupted | {target.node})


def _continue(target: _Target) -> PlanControl:
    """End the node's interrupt, or else release the next canary of the plan or phase.

    The node's children are not affected: as in the SDK, a phase of canaries is continued by its own name.
    """
    control, node = target.control, target.node
    if node in control.interrupted:
        return replace(control, interrupted=control.interrupted - {node})
    if target.status is Status.COMPLETE or len(node) > 1:
        return control
    children = _children(target.view, target.plan, node)
    waiting = held_back(children)
    if not waiting:
        return control
    enough = len(children.released) + 1 >= CANARIES
    return replace(control, released=control.released | {(*node, ALL if enough else waiting[0])})


def _force_complete(target: _Target) -> PlanControl:
    control, node = target.control, target.node
    if target.status is Status.COMPLETE:
        return control
    if target.plan.kind is PlanKind.UNINSTALL:
        # TEARDOWN follows, and no interrupt may delay it.
        control = replace(control, interrupted=_outside(control.interrupted, node))
    return replace(control, forced=control.forced | {node})


def _restart(target: _Target) -> PlanControl:
    """Mark the node's launches as outdated; undo its interrupt, force and release."""
    view, control, node = target.view, target.control, target.node
    if target.status is Status.PENDING:
        return control
    return replace(
        control,
        interrupted=control.interrupted - {node},
        forced=_unforced(target.plan, control.forced, node),
        released=_outside(control.released, node) if len(node) < 2 else control.released,
        restarted={
            **control.restarted,
            node: latest_launch_number(view.state.stored.tasks, view.state.stored.controls),
        },
        completed="",
    )


def _start(target: _Target) -> PlanControl:
    restarts = target.status is Status.COMPLETE and target.plan.kind is not PlanKind.UNINSTALL
    control = _restart(target) if restarts else target.control
    return replace(control, parameters=dict(target.parameters), interrupted=control.interrupted - {target.node})


def _stop(target: _Target) -> PlanControl:
    """Restart and interrupt: running tasks continue until the plan is started again."""
    control = _restart(target)
    return replace(control, interrupted=control.interrupted | {target.node})


def _outside(nodes: frozenset[Node], node: Node) -> frozenset[Node]:
    """Return the nodes without `node` and its children."""
    return frozenset(other for other in nodes if other[: len(node)] != node)


def _unforced(plan: PlanDef, forced: frozenset[Node], node: Node) -> frozenset[Node]:
    """Return the forced nodes without `node`; siblings stay forced if its parent was."""
    for depth in range(len(node)):
        whole = node[:depth]
        if whole in forced:
            forced = (forced - {whole}) | _parts(plan, whole)
    return _outside(forced, node)


def _parts(plan: PlanDef, node: Node) -> frozenset[Node]:
    if not node:
        return frozenset((phase.name,) for phase in plan.phases)
    return frozenset(child for child, _ in plan.steps() if child[:1] == node)


def _children(view: PlanView, plan: PlanDef, node: Node) -> Children:
    progress = view.progress.get(plan.name) or plan_progress(view, plan)
    if not node:
        return phase_children(progress, frozenset())
    phase = next(phase for phase in plan.phases if phase.name == node[0])
    return step_children(progress, phase, frozenset())


_VERBS: Mapping[Verb, Callable[[_Target], PlanControl]] = {
    Verb.INTERRUPT: _interrupt,
    Verb.CONTINUE: _continue,
    Verb.FORCE_COMPLETE: _force_complete,
    Verb.RESTART: _restart,
    Verb.START: _start,
    Verb.STOP: _stop,
}
