from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.events import (
    Aborted,
    Acknowledged,
    Action,
    Connected,
    Disconnected,
    Event,
    Exited,
    Kill,
    Launch,
    Leave,
    Overdue,
    Refused,
    Report,
    Spawn,
    Spawned,
    SpawnFailed,
    Stop,
    Terminate,
    TreeGone,
)
from tf_executor.lifecycle import IllegalTransitionError, step
from tf_executor.reports import NO_ENDING, Ending
from tf_executor.stages import ACKNOWLEDGE_LIMIT, SWEEP_LIMIT
from tf_executor.task_state import Phase, State

OK, FAILED = Ending(exit_code=0), Ending(exit_code=3)
STOP = Stop("killed on request", 10.0)


def play(*events: Event, state: State = State(), now: float = 100.0) -> tuple[State, list[Action]]:  # noqa: B008
    actions: list[Action] = []
    for event in events:
        state, more = step(state, event, now)
        actions += more
    return state, actions


def states(actions: list[Action]) -> list[str]:
    return [action.state for action in actions if isinstance(action, Report)]


RUNNING = play(Connected(killing_known=True), Launch(), Spawned())[0]


@pytest.mark.parametrize(("ending", "last"), [(OK, "TASK_FINISHED"), (FAILED, "TASK_FAILED")])
def test_a_whole_life(ending: Ending, last: str) -> None:
    """Each update in its place, the tree swept before the last one, the executor gone after its acknowledgement."""
    state, actions = play(Connected(), Launch(), Spawned(), Exited(ending), TreeGone(), Acknowledged())
    assert Phase.CLOSED == state.phase
    assert ["TASK_STARTING", "TASK_RUNNING", last] == states(actions)
    kinds = [type(action) for action in actions]
    assert [Report, Spawn, Report, Kill, Report, Leave] == kinds
    assert Leave(0) == actions[-1]


@pytest.mark.parametrize("trouble", [(Refused("no such"),), (Launch(), SpawnFailed("no such"), TreeGone())])
def test_what_never_ran_has_failed(trouble: tuple[Event, ...]) -> None:
    """The reason is in the message, and there is no exit code to report."""
    state, actions = play(*trouble)
    assert Phase.ENDED == state.phase
    last = actions[-1]
    assert isinstance(last, Report)
    assert ("TASK_FAILED", "no such", NO_ENDING) == (last.state, last.message, last.ending or NO_ENDING)


@pytest.mark.parametrize(("known", "expected"), [(True, ["TASK_KILLING"]), (False, [])])
def test_killing_is_reported_to_those_who_know_it(known: bool, expected: list[str]) -> None:
    """The agent would refuse the state otherwise."""
    state, actions = play(Connected(known), STOP, state=RUNNING)
    assert expected == states(actions)
    assert Terminate() == actions[-1]
    assert (Phase.STOPPING, 110.0) == (state.phase, state.deadline)


def test_a_checkpoint_gets_its_grace_when_the_shell_is_gone() -> None:
    """The first process may be a shell: while others live, its death ends nothing."""
    state, actions = play(STOP, Exited(Ending(signal=15)), state=RUNNING)
    assert (Phase.STOPPING, 110.0) == (state.phase, state.deadline)
    assert Kill() not in actions
    _, actions = play(TreeGone(), state=state)
    assert [Report("TASK_KILLED", "killed on request; killed by signal 15 (SIGTERM)", Ending(signal=15))] == actions


def test_after_the_grace_comes_sigkill() -> None:
    """And the end is reported when the tree is gone."""
    state, actions = play(STOP, Overdue(), state=RUNNING)
    assert (Phase.KILLING, Kill()) == (state.phase, actions[-1])
    state, actions = play(Exited(Ending(signal=9)), TreeGone(), state=state)
    assert ["TASK_KILLED"] == states(actions)


@pytest.mark.parametrize(("grace", "deadline"), [(2.0, 107.0), (60.0, 110.0), (0.0, 105.0)])
def test_a_repeated_kill_shortens_only(grace: float, deadline: float) -> None:
    """Five seconds into a grace of ten."""
    state, actions = play(STOP, state=RUNNING)
    state, actions = play(Stop("again", grace), state=state, now=105.0)
    assert (deadline, []) == (state.deadline, actions)


@pytest.mark.parametrize("before", [(Exited(OK),), (STOP, Overdue())])
def test_a_process_that_cannot_be_killed_does_not_hide_the_end(before: tuple[Event, ...]) -> None:
    """After the limit the update goes out and says what may be left."""
    state, _ = play(*before, state=RUNNING)
    assert 100.0 + SWEEP_LIMIT == state.deadline
    state, actions = play(Overdue(), state=state)
    assert Phase.ENDED == state.phase
    (report,) = actions
    assert isinstance(report, Report)
    assert "could not be killed" in report.message


def test_the_agent_gets_limited_time_to_acknowledge_while_it_is_there() -> None:
    """Away: no limit, the driver keeps the update. Back: the clock starts."""
    ended, _ = play(Exited(OK), TreeGone(), state=RUNNING)
    assert 100.0 + ACKNOWLEDGE_LIMIT == ended.deadline
    away, _ = play(Disconnected(), state=ended)
    assert away.deadline is None
    back, _ = play(Connected(), state=away, now=200.0)
    assert 200.0 + ACKNOWLEDGE_LIMIT == back.deadline
    assert [Leave(0)] == play(Overdue(), state=back)[1]


def test_a_task_that_ends_while_the_agent_is_away_waits_for_it() -> None:
    """The update must not be lost because an agent is being upgraded."""
    state, actions = play(Disconnected(), Exited(OK), TreeGone(), state=RUNNING)
    assert (["TASK_FINISHED"], None) == (states(actions), state.deadline)


def test_without_agent_the_program_gets_its_grace_and_nobody_a_report() -> None:
    """The executor leaves with an error, after the last process."""
    state, actions = play(Aborted("no agent for 15 minutes", 30.0), state=RUNNING)
    assert ([Terminate()], 130.0) == (actions, state.deadline)
    assert [Leave(1)] == play(Exited(OK), TreeGone(), state=state)[1]


@pytest.mark.parametrize("before", [(), (Refused("broken"),)])
def test_without_agent_and_program_the_executor_leaves_at_once(before: tuple[Event, ...]) -> None:
    """Nothing is left to wait for."""
    state, _ = play(*before)
    assert [Leave(1)] == play(Aborted("gone", 30.0), state=state)[1]


def test_shutdown_before_any_task() -> None:
    """The agent has changed its mind: leave in peace."""
    assert [Leave(0)] == play(Connected(), STOP)[1]


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State(), Exited(OK)),
        (State(), Acknowledged()),
        (RUNNING, Launch()),
        (RUNNING, Acknowledged()),
        (State(phase=Phase.STARTING), STOP),
        (State(phase=Phase.CLOSED), Connected()),
    ],
)
def test_what_cannot_happen_raises(state: State, event: Event) -> None:
    """A defect shows itself instead of leaving a task in limbo."""
    with pytest.raises(IllegalTransitionError, match=f"while {state.phase.value}"):
        step(state, event, 0.0)


WORLD = st.sampled_from([STOP, Stop("again", 0.0), Overdue(), Connected(True), Disconnected(), Aborted("gone", 1.0)])


@given(noise=st.lists(WORLD, max_size=8), exits_after=st.integers(0, 8), gone_after=st.integers(0, 8))
def test_every_story_has_one_end(noise: list[Event], exits_after: int, gone_after: int) -> None:
    """Whatever the agent says and when, at most one last update goes out, and no SIGTERM follows a SIGKILL."""
    pending: dict[int, list[Event]] = {exits_after: [Exited(OK)]}
    pending.setdefault(max(exits_after, gone_after), []).append(TreeGone())
    # Overdue comes only while there is a deadline.
    state, actions = RUNNING, []
    for number, event in enumerate(itertools.chain(noise, [None] * 9)):
        due = pending.get(number, [])
        for happening in [*due, *([event] if event else [])]:
            if state.phase is Phase.CLOSED or (isinstance(happening, Overdue) and state.deadline is None):
                continue
            state, more = step(state, happening, float(number))
            actions += more
    finals = [action for action in actions if isinstance(action, Report) and action.is_final]
    left = [action for action in actions if isinstance(action, Leave)]
    assert len(finals) <= 1
    assert len(left) <= 1
    assert state.phase in (Phase.ENDED, Phase.CLOSED)
    assert finals or left == [Leave(1)]
    if Kill() in actions:
        assert Terminate() not in actions[actions.index(Kill()) :]


@given(noise=st.lists(WORLD, max_size=8))
def test_time_alone_ends_every_story(noise: list[Event]) -> None:
    """With a connected agent and a program that hangs for ever, a stop and enough Overdue close the executor."""
    state = RUNNING
    for event in [*noise, STOP, Connected()]:
        if state.phase is not Phase.CLOSED and not (isinstance(event, Overdue) and state.deadline is None):
            state, _ = step(state, event, 0.0)
    for _ in range(4):
        if state.phase is not Phase.CLOSED:
            state, _ = step(state, Overdue(), 0.0)
    assert Phase.CLOSED == state.phase
