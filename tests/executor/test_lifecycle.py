from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.contract.reports import NO_END, TaskEnd
from tf_executor.lifecycle.events import (
    Acknowledged,
    Action,
    AgentConnected,
    AgentDisconnected,
    AgentLost,
    Event,
    Exited,
    FreezeChanged,
    KillTree,
    LaunchRefused,
    LaunchRequested,
    Leave,
    LifecycleState,
    MemoryExceeded,
    Overdue,
    Ready,
    SendReport,
    Spawn,
    Spawned,
    SpawnFailed,
    Stage,
    TaskPhase,
    TaskStopRequested,
    Terminate,
    TreeGone,
    Unhealthy,
)
from tf_executor.lifecycle.steps import ACKNOWLEDGE_LIMIT, SWEEP_LIMIT, IllegalTaskTransitionError, step

OK, FAILED = TaskEnd(exit_code=0), TaskEnd(exit_code=3)
STOP = TaskStopRequested("stopped on request", 10.0)


IDLE = LifecycleState()


def play(*events: Event, state: LifecycleState = IDLE, now: float = 100.0) -> tuple[LifecycleState, list[Action]]:
    actions: list[Action] = []
    for event in events:
        state, more = step(state, event, now)
        actions += more
    return state, actions


def states(actions: list[Action]) -> list[str]:
    return [action.state for action in actions if isinstance(action, SendReport)]


RUNNING = play(AgentConnected(killing_known=True), LaunchRequested(), Spawned())[0]


def test_stop_of_frozen_program_reports_its_last_answer() -> None:
    """Otherwise the scheduler would believe that the program has never begun."""
    _, actions = play(
        Ready("up"), FreezeChanged("is stopped", is_frozen=True), Unhealthy("frozen", is_frozen=True), state=RUNNING
    )
    reports = [(action.state, action.healthy) for action in actions if isinstance(action, SendReport)]
    assert [("TASK_RUNNING", True), ("TASK_RUNNING", False), ("TASK_KILLING", True)] == reports


def test_program_that_exceeds_its_memory_is_killed_at_once() -> None:
    """Other stages are not: their memory says nothing about the program."""
    state, actions = play(MemoryExceeded("too much"), Exited(FAILED, "evidence"), TreeGone(), state=RUNNING)
    report = SendReport("TASK_FAILED", "too much; killed by signal 9 (SIGKILL)", TaskEnd(signal=9, out_of_memory=True))
    assert ([KillTree(), report], TaskPhase.ENDED) == (actions, state.phase)
    post = play(AgentConnected(), LaunchRequested((Stage.PROGRAM, Stage.POST)), Spawned(), Exited(OK), Spawned())[0]
    assert (post, []) == play(MemoryExceeded("too much"), state=post)


@pytest.mark.parametrize(("ending", "last"), [(OK, "TASK_FINISHED"), (FAILED, "TASK_FAILED")])
def test_complete_life_sends_all_reports(ending: TaskEnd, last: str) -> None:
    state, actions = play(AgentConnected(), LaunchRequested(), Spawned(), Exited(ending), TreeGone(), Acknowledged())
    assert TaskPhase.CLOSED == state.phase
    assert ["TASK_STARTING", "TASK_RUNNING", last] == states(actions)
    kinds = [type(action) for action in actions]
    assert [SendReport, Spawn, SendReport, KillTree, SendReport, Leave] == kinds
    assert Leave(0) == actions[-1]


@pytest.mark.parametrize(
    "trouble", [(LaunchRefused("no such"),), (LaunchRequested(), SpawnFailed("no such"), TreeGone())]
)
def test_task_that_never_ran_has_failed(trouble: tuple[Event, ...]) -> None:
    state, actions = play(*trouble)
    assert TaskPhase.ENDED == state.phase
    last = actions[-1]
    assert isinstance(last, SendReport)
    assert ("TASK_FAILED", "no such", NO_END) == (last.state, last.message, last.ending or NO_END)


@pytest.mark.parametrize(("known", "expected"), [(True, ["TASK_KILLING"]), (False, [])])
def test_killing_is_reported_only_if_supported(known: bool, expected: list[str]) -> None:
    state, actions = play(AgentConnected(known), STOP, state=RUNNING)
    assert expected == states(actions)
    assert Terminate() == actions[-1]
    assert (TaskPhase.STOPPING, 110.0) == (state.phase, state.deadline)


def test_other_processes_keep_grace_after_shell_exit() -> None:
    """A shell dies of SIGTERM immediately."""
    state, actions = play(STOP, Exited(TaskEnd(signal=15)), state=RUNNING)
    assert (TaskPhase.STOPPING, 110.0) == (state.phase, state.deadline)
    assert KillTree() not in actions
    _, actions = play(TreeGone(), state=state)
    assert [SendReport("TASK_KILLED", "stopped on request", TaskEnd(signal=15))] == actions


def test_grace_period_ends_with_sigkill() -> None:
    state, actions = play(STOP, Overdue(), state=RUNNING)
    assert (TaskPhase.KILLING, KillTree()) == (state.phase, actions[-1])
    # A shell may have stopped in time, and its child may not.
    for end in (TaskEnd(signal=9), TaskEnd(signal=15)):
        _, actions = play(Exited(end), TreeGone(), state=state)
        message = "stopped on request; it was killed after 0 s (kill_grace)"
        assert [SendReport("TASK_KILLED", message, end)] == actions


@pytest.mark.parametrize(("grace", "deadline"), [(2.0, 107.0), (60.0, 110.0), (0.0, 105.0)])
def test_repeated_kill_only_shortens_grace(grace: float, deadline: float) -> None:
    state, actions = play(STOP, state=RUNNING)
    state, actions = play(TaskStopRequested("again", grace), state=state, now=105.0)
    assert (deadline, []) == (state.deadline, actions)


@pytest.mark.parametrize("before", [(Exited(OK),), (STOP, Overdue())])
def test_unkillable_process_does_not_hide_end(before: tuple[Event, ...]) -> None:
    state, _ = play(*before, state=RUNNING)
    assert 100.0 + SWEEP_LIMIT == state.deadline
    state, actions = play(Overdue(), state=state)
    assert TaskPhase.ENDED == state.phase
    (report,) = actions
    assert isinstance(report, SendReport)
    assert "could not be killed" in report.message


def test_acknowledgement_has_timeout_while_connected() -> None:
    ended, _ = play(Exited(OK), TreeGone(), state=RUNNING)
    assert 100.0 + ACKNOWLEDGE_LIMIT == ended.deadline
    away, _ = play(AgentDisconnected(), state=ended)
    assert away.deadline is None
    back, _ = play(AgentConnected(), state=away, now=200.0)
    assert 200.0 + ACKNOWLEDGE_LIMIT == back.deadline
    assert [Leave(0)] == play(Overdue(), state=back)[1]


def test_end_while_disconnected_waits_for_agent() -> None:
    state, actions = play(AgentDisconnected(), Exited(OK), TreeGone(), state=RUNNING)
    assert (["TASK_FINISHED"], None) == (states(actions), state.deadline)


def test_lost_agent_grants_grace_without_reports() -> None:
    state, actions = play(AgentLost("no agent for 15 minutes", 30.0), state=RUNNING)
    assert ([Terminate()], 130.0) == (actions, state.deadline)
    assert [Leave(1)] == play(Exited(OK), TreeGone(), state=state)[1]


@pytest.mark.parametrize("before", [(), (LaunchRefused("broken"),)])
def test_lost_agent_without_program_leaves_immediately(before: tuple[Event, ...]) -> None:
    state, _ = play(*before)
    assert [Leave(1)] == play(AgentLost("gone", 30.0), state=state)[1]


def test_shutdown_before_launch_leaves() -> None:
    assert [Leave(0)] == play(AgentConnected(), STOP)[1]


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (LifecycleState(), Exited(OK)),
        (LifecycleState(), Acknowledged()),
        (RUNNING, LaunchRequested()),
        (RUNNING, Acknowledged()),
        (LifecycleState(phase=TaskPhase.STARTING), STOP),
        (LifecycleState(phase=TaskPhase.CLOSED), AgentConnected()),
    ],
)
def test_impossible_event_raises(state: LifecycleState, event: Event) -> None:
    with pytest.raises(IllegalTaskTransitionError, match=f"while {state.phase.value}"):
        step(state, event, 0.0)


WORLD = st.sampled_from(
    [
        STOP,
        TaskStopRequested("again", 0.0),
        Overdue(),
        AgentConnected(True),
        AgentDisconnected(),
        AgentLost("gone", 1.0),
        MemoryExceeded("too much"),
    ]
)


@given(noise=st.lists(WORLD, max_size=8), exits_after=st.integers(0, 8), gone_after=st.integers(0, 8))
def test_every_event_sequence_has_one_end(noise: list[Event], exits_after: int, gone_after: int) -> None:
    pending: dict[int, list[Event]] = {exits_after: [Exited(OK)]}
    pending.setdefault(max(exits_after, gone_after), []).append(TreeGone())
    # Overdue comes only while there is a deadline.
    state = RUNNING
    actions: list[Any] = []
    for number, event in enumerate(itertools.chain(noise, [None] * 9)):
        due = pending.get(number, [])
        for happening in [*due, *([event] if event else [])]:
            if state.phase is TaskPhase.CLOSED or (isinstance(happening, Overdue) and state.deadline is None):
                continue
            state, more = step(state, happening, float(number))
            actions += more
    finals = [action for action in actions if isinstance(action, SendReport) and action.is_final]
    left = [action for action in actions if isinstance(action, Leave)]
    assert len(finals) <= 1
    assert len(left) <= 1
    assert state.phase in (TaskPhase.ENDED, TaskPhase.CLOSED)
    assert finals or left == [Leave(1)]
    if KillTree() in actions:
        assert Terminate() not in actions[actions.index(KillTree()) :]


@given(noise=st.lists(WORLD, max_size=8))
def test_timeouts_alone_end_every_sequence(noise: list[Event]) -> None:
    """The executor must exit even if no further event arrives."""
    state = RUNNING
    for event in [*noise, STOP, AgentConnected()]:
        if state.phase is not TaskPhase.CLOSED and not (isinstance(event, Overdue) and state.deadline is None):
            state, _ = step(state, event, 0.0)
    for _ in range(4):
        if state.phase is not TaskPhase.CLOSED:
            state, _ = step(state, Overdue(), 0.0)
    assert TaskPhase.CLOSED == state.phase
