"""Operators' commands for single tasks."""

from dataclasses import replace

import pytest

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.payload import ExecRequest
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core.recovery.operator_commands import handle, resume_dependents
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import (
    MessageExecutor,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
)
from tf_scheduler.model.events import ExecRequested, PodCommand
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import Cause, PodVerb

SPEC = a_spec()
STATE = a_running_state(SPEC)
PAUSED = with_fields(STATE, paused={"ps-0": 1.0})
FINISHED = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.FINISHED)))
ENDED = apply(STATE, ResultDecided(Result(Verdict.FAILED, "x", 9.0)))


def send(state, verb, task="worker-0", now=20.0):
    return handle(state, PodCommand(verb=verb, task=task), now)


def recoveries(decision):
    return {item.recovery.task: item.recovery for item in decision.changes if isinstance(item, RecoveryDecided)}


def placeholder(state, name):
    launch = replace(a_record(state.spec, name, "2"), is_placeholder=True)
    return apply(state, TaskLaunched(launch), StatusStored(a_status(launch.id)))


@pytest.mark.parametrize(
    ("state", "verb", "task", "expected"),
    [
        (STATE, PodVerb.RESTART, "worker-9", Reply.NOT_FOUND),
        (SchedulerState(SPEC), PodVerb.RESTART, "worker-0", Reply.CONFLICT),
        (ENDED, PodVerb.RESTART, "worker-0", Reply.CONFLICT),
        (FINISHED, PodVerb.RESTART, "worker-0", Reply.CONFLICT),
        (STATE, PodVerb.RESUME, "worker-0", Reply.ALREADY),
        (PAUSED, PodVerb.PAUSE, "ps-0", Reply.ALREADY),
        (PAUSED, PodVerb.RESTART, "ps-0", Reply.CONFLICT),
        (PAUSED, PodVerb.RESTART, "chief-0", Reply.CONFLICT),
    ],
)
def test_command_without_meaning_is_refused(state, verb, task: str, expected) -> None:
    decision = send(state, verb, task)

    assert (expected, ()) == (decision.answer.reply, decision.changes)


def test_restart_relaunches_at_previous_address_without_failure() -> None:
    (item,) = recoveries(send(STATE, PodVerb.RESTART)).values()

    assert ("worker-0", Cause.ORDERED, False, ()) == (item.task, item.cause, item.must_move, item.failures)
    assert item.previous_address_until > 20.0


def test_replaced_task_moves_and_restarts_its_dependents() -> None:
    """Only a new chief learns the new address."""
    items = recoveries(send(STATE, PodVerb.REPLACE))

    assert {"worker-0", "chief-0"} == items.keys()
    assert (True, 20.0) == (items["worker-0"].must_move, items["worker-0"].previous_address_until)


def test_command_ends_back_off_of_lost_task() -> None:
    lost = send(STATE, PodVerb.RESTART).state
    item = replace(lost.stored.recoveries["worker-0"], ready_at=99.0, consecutive_failures=4)

    (after,) = recoveries(send(apply(lost, RecoveryDecided(item)), PodVerb.RESTART, now=30.0)).values()

    assert (30.0, 0) == (after.ready_at, after.consecutive_failures)


def test_pause_and_resume_relaunch_dependents() -> None:
    paused = send(STATE, PodVerb.PAUSE, "ps-0")
    resumed = send(placeholder(placeholder(PAUSED, "ps-0"), "chief-0"), PodVerb.RESUME, "ps-0")

    assert {"ps-0", "chief-0"} == recoveries(paused).keys() == recoveries(resumed).keys()
    assert ({"ps-0": 20.0}, {}) == (paused.state.stored.paused, resumed.state.stored.paused)


def test_dependents_resume_when_paused_task_is_removed() -> None:
    """The options no longer have it."""
    state = placeholder(PAUSED, "chief-0")

    assert () == resume_dependents(state, 20.0).changes
    assert {"chief-0"} == recoveries(resume_dependents(apply(state, TaskForgotten("ps-0")), 20.0)).keys()


def test_pause_leaves_finished_and_restarting_dependents() -> None:
    finished = apply(STATE, StatusStored(a_status("chief-0__1", TaskState.FINISHED)))
    replaced = apply(STATE, RecoveryDecided(replace_launch(STATE, STATE.stored.tasks["chief-0"], "x", 1.0)))

    commanded = [recoveries(send(state, PodVerb.PAUSE, "ps-0")).keys() for state in (finished, replaced)]

    assert [{"ps-0"}, {"ps-0"}] == commanded


def test_dependent_that_is_being_stopped_does_not_resume() -> None:
    """A plan stops it, or a recovery replaces it already."""
    state = apply(placeholder(PAUSED, "chief-0"), TaskForgotten("ps-0"))
    chief = state.stored.tasks["chief-0"]
    retired = with_fields(state, retired={chief.id: "update"})
    replaced = apply(state, RecoveryDecided(replace_launch(state, chief, "x", 1.0)))

    assert [(), ()] == [resume_dependents(item, 20.0).changes for item in (retired, replaced)]


# --- exec

KEYED = with_fields(STATE, tasks={name: replace(item, exec_key="key") for name, item in STATE.stored.tasks.items()})
EXEC = ExecRequested("0" * 32, "worker-0", ("echo", "pass-word"), 5.0)
FORBIDDEN = replace(KEYED, spec=replace(SPEC, executor=replace(SPEC.executor, allows_exec=False)))


def test_command_is_sent_with_key_of_launch() -> None:
    """Only the executor of this launch accepts it; the journal has no command."""
    decision = handle(KEYED, EXEC, 20.0)

    (call,) = decision.calls
    assert isinstance(call, MessageExecutor)
    assert ("worker-0__1", KEYED.stored.tasks["worker-0"].agent_id) == (call.executor_id, call.agent_id)
    request = ExecRequest.decode(call.data, "key", "worker-0__1")
    assert (["echo", "pass-word"], 5.0, "0" * 32) == (request.command, request.timeout, request.id)
    assert (Reply.OK, ()) == (decision.answer.reply, decision.changes)
    assert "pass-word" not in repr(decision.outcomes) + repr(decision.calls) + repr(EXEC)


@pytest.mark.parametrize(
    ("state", "task", "reply", "words"),
    [
        (KEYED, "worker-9", Reply.NOT_FOUND, "worker-9 not found"),
        (SchedulerState(SPEC), "worker-0", Reply.CONFLICT, "was never launched"),
        (FORBIDDEN, "worker-0", Reply.FORBIDDEN, "option executor.exec"),
        (
            apply(KEYED, StatusStored(a_status("worker-0__1", TaskState.FINISHED))),
            "worker-0",
            Reply.CONFLICT,
            "has fin",
        ),
        (apply(KEYED, StatusStored(a_status("worker-0__1", TaskState.KILLING))), "worker-0", Reply.CONFLICT, "stopped"),
        (STATE, "worker-0", Reply.CONFLICT, "launched by an older release"),
        (replace(KEYED, session=replace(KEYED.session, connected=False)), "worker-0", Reply.RETRY, "not connected"),
    ],
)
def test_command_without_running_task_is_refused(state, task: str, reply, words: str) -> None:
    decision = handle(state, replace(EXEC, task=task), 20.0)

    assert (reply, ()) == (decision.answer.reply, decision.calls)
    assert words in decision.answer.message
