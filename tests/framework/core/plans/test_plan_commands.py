"""Operators' commands for plans: answers, and stored controls."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec, declaring, with_fields
from tf_executor.contract.states import Verdict
from tf_scheduler.core.plans.plan_commands import handle
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import ResultDecided
from tf_scheduler.model.events import PlanCommand
from tf_scheduler.model.plan import Answer, PhaseSpec, PlanControl, PlanSpec, PlanStrategy, Reply, Verb
from tf_scheduler.model.state import Result, SchedulerState

SPEC = declaring(a_spec(), "EPOCHS", "A", "B")
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


def test_plan_accepts_declared_variables_only() -> None:
    """A client that may write could otherwise run any code as the service's user."""
    names = ("PYTHONWARNINGS", "BROWSER", "LD_PRELOAD", "PATH", "BASH_ENV", "HADOOP_CONF_DIR", "RATE")
    for plan in ("deploy", "update", "recovery"):
        state = with_fields(RUNNING, controls={"deploy": PlanControl(completed=TARGET)})
        for name in names:
            answer = send(state, Verb.START, plan, EPOCHS="1", **{name: "value"}).answer
            assert Reply.CONFLICT is answer.reply
            assert name in answer.message
            assert "value" not in answer.message


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "PYTHONWARNINGS",
        "PATH",
        "ENV",
        "BASH_ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "IFS",
        "PS4",
        "PERL5OPT",
        "RUBYOPT",
        "NODE_OPTIONS",
        "BROWSER",
        "GIT_SSH_COMMAND",
        "HADOOP_CONF_DIR",
        "JAVA_TOOL_OPTIONS",
        "AWS_CONFIG_FILE",
        "MPLBACKEND",
        "PIP_INDEX_URL",
        "SSH_ASKPASS",
        "HOME",
        "TASK_INDEX",
    ],
)
def test_user_plan_refuses_variables_that_run_code(name: str) -> None:
    """Unless the options declare the variable: then their author allows it."""
    plan = PlanSpec("retune", phases=(PhaseSpec("again", "worker"),))

    def answer(*declared):
        state = a_running_state(declaring(a_spec(plans={"retune": plan}), *declared))
        return send(state, Verb.START, "retune", RATE="1", **{name: "x"}).answer

    assert (Reply.CONFLICT, True) == (answer().reply, name in answer().message)
    if name not in ("HADOOP_CONF_DIR", "TASK_INDEX"):  # set by the scheduler itself
        assert Reply.OK is answer(name).reply


def test_event_names_variables_without_values() -> None:
    (outcome,) = send(PENDING, Verb.START, EPOCHS="12345", A="secret").outcomes

    assert "operator command: start plan deploy with EPOCHS, A" == outcome.message


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


CANARY = SchedulerState(a_spec(plans={"deploy": PlanSpec("deploy", PlanStrategy.CANARY)}))


@pytest.mark.parametrize(
    ("state", "node", "answer"),
    [
        (PENDING, (), "plan deploy is not waiting"),
        (PENDING, ("worker",), "plan deploy / worker is not waiting"),
        (PENDING, ("worker", "worker-0"), "plan deploy / worker / worker-0 is not waiting"),
        (CANARY, (), "plan deploy is not waiting; continue instead: ps, worker, chief"),
        (CANARY, ("worker", "worker-0"), "plan deploy / worker / worker-0 is not waiting"),
        (
            send(PENDING, Verb.INTERRUPT, phase="worker", step="worker-1").state,
            ("worker",),
            "plan deploy / worker is not waiting; continue instead: worker-1",
        ),
    ],
)
def test_continue_names_what_waits_instead(state, node, answer: str) -> None:
    phase, step = (*node, "", "")[:2]

    assert Answer(Reply.ALREADY, answer) == send(state, Verb.CONTINUE, phase=phase, step=step).answer


@pytest.mark.parametrize(
    ("verb", "node", "sentence"),
    [
        (Verb.START, (), "Received cmd: start deploy with parameters: {A=1, B=2}"),
        (Verb.RESTART, (), "Received cmd: restart for Plan: deploy, Phase: null, Step: null"),
        (Verb.RESTART, ("ps",), "Received cmd: restart for Plan: deploy, Phase: ps, Step: null"),
        (
            Verb.FORCE_COMPLETE,
            ("worker", "worker-0"),
            "Received cmd: forceComplete for Plan: deploy, Phase: worker, Step: worker-0",
        ),
        (Verb.INTERRUPT, (), "Received cmd: interrupt"),
    ],
)
def test_accepted_command_is_answered_like_the_sdk(verb, node, sentence: str) -> None:
    """Tools print the sentence."""
    phase, step = (*node, "", "")[:2]
    parameters = {"A": "1", "B": "2"} if verb is Verb.START else {}
    state = with_fields(RUNNING, tasks={"ps-0": RUNNING.stored.tasks["ps-0"]})

    assert sentence == send(state, verb, "deploy", phase, step, **parameters).answer.message


@pytest.mark.parametrize(
    ("verb", "reply"),
    [(Verb.START, Reply.ALREADY), (Verb.INTERRUPT, Reply.OK), (Verb.FORCE_COMPLETE, Reply.OK)],
)
def test_uninstall_plan_starts_by_itself(verb, reply) -> None:
    ended = apply(RUNNING, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))

    assert reply is send(ended, verb, "uninstall").answer.reply


def test_forced_uninstall_is_not_interrupted_any_more() -> None:
    """TEARDOWN follows; an interrupt of another plan's phase stays."""
    ended = apply(RUNNING, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))
    uninstall = send(send(ended, Verb.INTERRUPT, "uninstall").state, Verb.FORCE_COMPLETE, "uninstall")
    deploy = send(send(PENDING, Verb.INTERRUPT, phase="worker").state, Verb.FORCE_COMPLETE, phase="worker")

    assert set() == control(uninstall, "uninstall").interrupted
    assert {("worker",)} == control(deploy).interrupted


def test_start_of_complete_plan_restarts_it() -> None:
    tasks = {name: replace(record, serial=7) for name, record in RUNNING.stored.tasks.items()}

    complete = control(send(with_fields(RUNNING, tasks=tasks), Verb.START))
    pending = control(send(PENDING, Verb.START, A="1"))

    assert ({(): 7}, {}) == (complete.restarted, pending.restarted)


def test_complete_plan_is_not_interrupted_or_forced() -> None:
    replies = [send(RUNNING, verb).answer.reply for verb in (Verb.INTERRUPT, Verb.FORCE_COMPLETE, Verb.CONTINUE)]

    assert [Reply.ALREADY] * 3 == replies


def test_restart_of_step_keeps_its_released_siblings() -> None:
    released = frozenset({("worker", "worker-0")})
    state = with_fields(RUNNING, controls={"deploy": PlanControl(released=released, target=TARGET)})

    assert released == control(send(state, Verb.RESTART, phase="worker", step="worker-0")).released


def test_hint_names_only_waiting_steps_of_the_phase() -> None:
    """Steps of other phases, before and after it, wait too."""
    state = PENDING
    for phase, step in (("chief", "chief-0"), ("ps", "ps-0"), ("worker", "worker-1")):
        state = send(state, Verb.INTERRUPT, phase=phase, step=step).state

    answer = send(state, Verb.CONTINUE, phase="ps").answer

    assert answer.message.endswith("continue instead: ps-0"), answer.message


def test_continued_uninstall_names_what_waits() -> None:
    """Unlike `start`, which has no effect because the plan starts automatically."""
    ended = apply(RUNNING, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))

    sentences = [send(ended, verb, "uninstall").answer.message for verb in (Verb.START, Verb.CONTINUE)]

    assert ["automatically" in sentence for sentence in sentences] == [True, False]


def test_unknown_step_of_unknown_phase_is_not_found() -> None:
    answer = send(PENDING, Verb.RESTART, "deploy", "unknown", "unknown").answer

    assert (Reply.NOT_FOUND, "Phase unknown not found") == (answer.reply, answer.message)
