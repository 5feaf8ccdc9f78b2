"""Operators' commands for plans: answers, and stored controls."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec, with_fields
from tf_scheduler.core.plans.commands import handle
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import ResultDecided
from tf_scheduler.model.events import PlanCommand
from tf_scheduler.model.plan import PhaseSpec, PlanControl, PlanSpec, PlanStrategy, Reply, Verb
from tf_scheduler.model.state import Result, SchedulerState, Verdict

SPEC = a_spec()
PENDING = SchedulerState(SPEC)
RUNNING = a_running_state(SPEC)
TARGET = index_of(SPEC).target


def send(state, verb, plan="deploy", phase="", step="", **parameters):
    command = PlanCommand(verb=verb, plan=plan, phase=phase, step=step, parameters=parameters)
    return handle(state, command, view_of(state))


def control(decision, plan="deploy"):
    return decision.state.stored.controls[plan]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((Verb.RESTART, "unknown"), Reply.NOT_FOUND),
        ((Verb.RESTART, "deploy", "unknown"), Reply.NOT_FOUND),
        ((Verb.RESTART, "deploy", "worker", "unknown"), Reply.NOT_FOUND),
        ((Verb.RESTART, "deploy", "", "worker-0"), Reply.BAD_REQUEST),
        ((Verb.RESTART, "deploy"), Reply.ALREADY),
        ((Verb.CONTINUE, "deploy"), Reply.ALREADY),
    ],
)
def test_command_without_target_or_effect_is_refused(arguments, expected) -> None:
    decision = send(PENDING, *arguments)

    assert (expected, ()) == (decision.answer.reply, decision.changes)


def test_parameters_require_start_and_valid_names() -> None:
    assert Reply.BAD_REQUEST is send(PENDING, Verb.RESTART, EPOCHS="1").answer.reply
    assert Reply.BAD_REQUEST is send(PENDING, Verb.START, **{"1-x": "1"}).answer.reply
    assert {"EPOCHS": "1"} == control(send(PENDING, Verb.START, EPOCHS="1")).parameters


def test_ended_job_accepts_only_uninstall_commands() -> None:
    ended = apply(RUNNING, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))

    replies = [send(ended, verb, "uninstall").answer.reply for verb in (Verb.RESTART, Verb.STOP, Verb.INTERRUPT)]

    assert Reply.CONFLICT is send(ended, Verb.INTERRUPT).answer.reply
    assert [Reply.CONFLICT, Reply.CONFLICT, Reply.OK] == replies


def test_interrupt_lasts_until_continue() -> None:
    interrupted = send(PENDING, Verb.INTERRUPT, phase="worker")
    again = send(interrupted.state, Verb.INTERRUPT, phase="worker")
    continued = send(interrupted.state, Verb.CONTINUE, phase="worker")

    assert {("worker",)} == control(interrupted).interrupted
    assert Reply.ALREADY is again.answer.reply
    assert set() == control(continued).interrupted


def test_continue_releases_one_canary_then_all() -> None:
    state = SchedulerState(a_spec(plans={"deploy": PlanSpec("deploy", PlanStrategy.CANARY)}))

    first = send(state, Verb.CONTINUE, phase="worker")
    second = send(first.state, Verb.CONTINUE, phase="worker")

    assert {("worker", "worker-0")} == control(first).released
    assert {("worker", "worker-0"), ("worker", "*")} == control(second).released


def test_restart_marks_all_earlier_launches_as_outdated() -> None:
    tasks = {name: replace(record, serial=7) for name, record in RUNNING.stored.tasks.items()}

    restarted = control(send(with_fields(RUNNING, tasks=tasks), Verb.RESTART, phase="worker"))

    assert ({("worker",): 7}, "") == (restarted.restarted, restarted.completed)


def test_restart_of_step_keeps_siblings_forced() -> None:
    forced = with_fields(RUNNING, controls={"deploy": PlanControl(forced=frozenset({()}), target=TARGET)})

    restarted = control(send(forced, Verb.RESTART, phase="worker", step="worker-0"))

    assert {("ps",), ("chief",), ("worker", "worker-1")} == restarted.forced


def test_restart_of_phase_discards_orders_below_it() -> None:
    """Forced and released steps of other phases stay."""
    nodes = frozenset({("worker", "worker-0"), ("ps", "ps-0")})
    ordered = with_fields(RUNNING, controls={"deploy": PlanControl(forced=nodes, released=nodes, target=TARGET)})

    restarted = control(send(ordered, Verb.RESTART, phase="worker"))

    assert ({("ps", "ps-0")}, {("ps", "ps-0")}) == (restarted.forced, restarted.released)


def test_force_complete_is_stored_once() -> None:
    forced = send(PENDING, Verb.FORCE_COMPLETE, phase="worker")

    assert {("worker",)} == control(forced).forced
    assert Reply.ALREADY is send(forced.state, Verb.FORCE_COMPLETE, phase="worker").answer.reply


def test_user_plan_starts_and_stops() -> None:
    plan = PlanSpec("some", phases=(PhaseSpec("first", "worker"),))
    started = send(SchedulerState(a_spec(plans={"some": plan})), Verb.START, "some")
    stopped = send(started.state, Verb.STOP, "some")

    assert (set(), {()}) == (control(started, "some").interrupted, control(stopped, "some").interrupted)
