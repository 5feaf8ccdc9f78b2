"""Task reconciliation: which tasks, and how often (as documented by Mesos)."""

from __future__ import annotations

from dataclasses import replace

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from kit import worlds
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState
from tf_scheduler.core.recovery.reconcile import (
    ABANDONED_INTERVAL,
    FULL_INTERVAL,
    LONGEST_WAIT,
    MAX_ABANDONED,
    ask_about,
    ask_again,
    deadlines,
    mark_answered,
    poll,
    was_asked_again,
)
from tf_scheduler.core.recovery.startup_timeout import Wait, overdue_launches
from tf_scheduler.core.scheduler import next_deadline
from tf_scheduler.core.state.reducer import LAUNCH_TIMEOUT, apply
from tf_scheduler.model.effects import Decision, Reconcile, StatusStored, TaskLaunched
from tf_scheduler.model.ids import AgentId, TaskId, TaskName, name_of
from tf_scheduler.model.spec import RecoveryPolicy
from tf_scheduler.model.state import FIRST_WAIT, PendingReconciliation, SchedulerState
from tf_scheduler.model.task import AbandonedLaunch

ALL = {"ps-0", "worker-0", "worker-1", "chief-0"}


def on_two_agents() -> World:
    """Two tasks on each of two agents."""
    spec = a_spec(recovery=RecoveryPolicy(start_timeout=None))
    world = worlds.deployed(spec, an_agent("agent-1", cpus=1.3), an_agent("agent-2", cpus=1.3))
    return play(world, expect.alive(*ALL))


def on(world: World, agent: str) -> set[str]:
    return {record.name for record in world.state.stored.tasks.values() if record.hostname == agent}


def questions(world: World) -> list[set[str]]:
    """Return the task names of each RECONCILE."""
    return [{name_of(task) for task in call.tasks} for call in world.calls_of(Reconcile)]


def test_unanswered_reconciliation_is_repeated_with_back_off() -> None:
    """After a master failover, the master omits tasks of agents that are not back."""
    world = on_two_agents()
    world.mesos.missing = {"agent-2-id"}
    play(world, send.restart())
    assert [ALL, set()] == questions(world)

    waits = []
    for _ in range(6):
        before = world.now
        play(world, send.wait())
        assert [on(world, "agent-2")] == questions(world)
        waits.append(world.now - before)

    assert [FIRST_WAIT, 10, 20, 40, LONGEST_WAIT, LONGEST_WAIT] == waits


def test_answered_reconciliation_is_not_repeated() -> None:
    """Any update counts as an answer."""
    world = on_two_agents()
    world.mesos.missing = {"agent-2-id"}
    play(world, send.restart())
    first, second = sorted(on(world, "agent-2"))

    play(world, send.status(first, TaskState.RUNNING), send.wait())
    assert [{second}] == questions(world)
    world.mesos.missing = set()
    play(world, send.wait())
    assert [{second}] == questions(world)

    assert world.state.session.reconciliation.started_at + FULL_INTERVAL == next_deadline(world.state)


def test_new_connection_restarts_reconciliation() -> None:
    """One run at a time: requests to the previous master are void."""
    world = on_two_agents()
    world.mesos.missing = {"agent-2-id"}
    play(world, send.restart(), send.wait(60.0), send.disconnect(), send.register())

    assert [ALL, set()] == questions(world)
    assert world.now + FIRST_WAIT == next_deadline(world.state)


def test_full_reconciliation_runs_every_quarter_hour() -> None:
    """Both ways: known tasks may be gone, and unknown tasks may run."""
    world = on_two_agents()

    play(world, send.wait(FULL_INTERVAL))
    assert [ALL, set()] == questions(world)

    play(world, send.wait(FULL_INTERVAL))
    assert [ALL, set()] == questions(world)


def test_unchanged_status_is_not_stored() -> None:
    """Ten thousand tasks would be ten thousand transactions, every quarter of an hour."""
    world = on_two_agents()

    play(world, send.wait(FULL_INTERVAL))

    assert len(ALL) * 2 < len(world.decisions)
    assert [] == [decision.changes for decision in world.decisions if decision.changes]


def test_full_reconciliation_detects_lost_task() -> None:
    """Its last update never came."""
    world = on_two_agents()
    lost = world.mesos.tasks.pop(world.id_of("worker-1"))
    world.mesos.agents[lost.launch.record.agent_id].free += lost.pool

    play(world, send.wait(FULL_INTERVAL), expect.outcome("worker-1 is gone"))
    play(world, send.offers(), expect.launched("worker-1"))


def silent_state(**timestamps: float) -> SchedulerState:
    """Every task of `timestamps` is UNREACHABLE since then; the other ones run."""
    statuses = (
        StatusStored(a_status(f"{name.replace('_', '-')}__1", TaskState.UNREACHABLE, timestamp=at))
        for name, at in timestamps.items()
    )
    return apply(a_running_state(a_spec()), *statuses)


def asked(state: SchedulerState, *names: str, now: float = 100.0) -> Decision:
    return ask_again(state, [state.stored.statuses[TaskId(f"{name}__1")] for name in names], now)


def test_silent_launch_is_asked_about_once_per_silence() -> None:
    """What is known may be older than the scheduler's own silence."""
    decision = asked(silent_state(worker_0=5.0, ps_0=6.0), "worker-0")

    status = decision.state.stored.statuses
    assert (Reconcile({TaskId("worker-0__1"): AgentId("agent-1-id")}),) == decision.calls
    assert was_asked_again(decision.state, status[TaskId("worker-0__1")])
    assert not was_asked_again(decision.state, status[TaskId("ps-0__1")])
    assert not was_asked_again(decision.state, replace(status[TaskId("worker-0__1")], timestamp=50.0))


def test_answer_ends_wait_for_silent_launch() -> None:
    """Until then the question is repeated."""
    state = with_fields(asked(silent_state(worker_0=5.0), "worker-0").state, connected=True)
    assert 100.0 + FIRST_WAIT == min(deadlines(state))
    assert () == poll(state, 99.0 + FIRST_WAIT).calls
    (question,) = poll(state, 100.0 + FIRST_WAIT).calls
    assert {TaskId("worker-0__1")} == set(question.tasks)

    answered = mark_answered(state, TaskId("worker-0__1"))

    assert 100.0 + FIRST_WAIT not in deadlines(answered)


def test_later_question_keeps_earlier_ones_of_live_launches() -> None:
    """Launches that were replaced meanwhile are forgotten."""
    first = asked(silent_state(worker_0=5.0, ps_0=6.0), "worker-0", "ps-0").state
    pending = replace(
        first.session.reconciliation, asked_again={**first.session.reconciliation.asked_again, TaskId("old"): 1.0}
    )

    later = asked(with_fields(first, reconciliation=pending), "ps-0", now=200.0).state.session.reconciliation

    assert {"worker-0__1": 5.0, "ps-0__1": 6.0} == later.asked_again
    assert ({"worker-0__1", "ps-0__1"}, 200.0, FIRST_WAIT) == (set(later.unanswered), later.asked_at, later.retry_after)


def test_launch_without_agent_is_not_asked_about() -> None:
    """Mesos could only answer that it is unknown; the silence counts as asked."""
    state = apply(
        a_running_state(a_spec()),
        StatusStored(a_status("ps-0__1", TaskState.UNREACHABLE, agent_id=None, timestamp=6.0)),
    )
    decision = asked(state, "ps-0")

    assert () == decision.calls
    assert was_asked_again(decision.state, state.stored.statuses[TaskId("ps-0__1")])


def test_task_that_the_master_does_not_know_is_asked_about_again() -> None:
    """Its agent may come back; the answer itself settles nothing."""
    state = apply(a_running_state(a_spec()), StatusStored(a_status("worker-0__1", TaskState.UNKNOWN)))
    asked_at = PendingReconciliation(started_at=90.0, asked_at=100.0, retry_after=FIRST_WAIT)

    (question,) = poll(with_fields(state, reconciliation=asked_at), 100.0 + FIRST_WAIT).calls

    assert {"worker-0__1"} == set(question.tasks)


def test_nothing_is_asked_while_disconnected() -> None:
    state = with_fields(asked(silent_state(worker_0=5.0), "worker-0").state, connected=False)

    assert () == poll(state, 10_000.0).calls


def with_abandoned(*since: float, asked_at: float = 0.0) -> SchedulerState:
    """Launches were given up at these times; Mesos was last asked at `asked_at`."""
    items = (AbandonedLaunch(TaskId(f"old__{n}"), AgentId(f"a{n}"), "a", at) for n, at in enumerate(since))
    state = apply(SchedulerState(a_spec()), *items)
    return with_fields(state, connected=True, reconciliation=PendingReconciliation(abandoned_asked_at=asked_at))


def test_abandoned_launches_are_asked_about_regularly() -> None:
    """Their agent may come back with the program running."""
    state = with_abandoned(1.0, 2.0, asked_at=50.0)
    due = 50.0 + ABANDONED_INTERVAL

    decision = poll(state, due)

    assert [due] == list(deadlines(state))
    assert () == poll(state, due - 1).calls
    assert ((Reconcile({TaskId("old__0"): AgentId("a0"), TaskId("old__1"): AgentId("a1")}),), ()) == (
        decision.calls,
        decision.changes,
    )
    assert [due + ABANDONED_INTERVAL] == list(deadlines(decision.state))


def test_abandoned_launch_is_forgotten_when_it_is_too_old() -> None:
    state = with_abandoned(1.0, 2.0)

    # Two weeks, as the default of --registry_max_agent_age.
    one, none = (poll(state, at + 14 * 86_400.0) for at in (1.0, 2.0))

    assert ({"old__1"}, {"old__1"}) == (set(one.state.stored.abandoned), set(one.calls[0].tasks))
    assert ({}, ()) == (none.state.stored.abandoned, none.calls)


def test_newest_abandoned_launches_are_kept() -> None:
    state = with_abandoned(*(float(-at) for at in range(MAX_ABANDONED + 2)))

    after = poll(state, ABANDONED_INTERVAL).state

    assert {f"old__{n}" for n in range(MAX_ABANDONED)} == set(after.stored.abandoned)


def test_silent_launches_are_asked_about_after_a_while() -> None:
    """ACCEPT or its answer may be lost. Others may be younger."""
    state = with_fields(a_running_state(a_spec()), connected=True)
    records = [
        replace(state.stored.tasks[TaskName(name)], id=TaskId(f"{name}__2"), launched_at=at)
        for name, at in (("worker-0", 50.0), ("worker-1", 60.0))
    ]
    state = apply(state, *map(TaskLaunched, records))

    def ask(state: SchedulerState, now: float) -> Decision:
        checked, overdue = overdue_launches(state, now + LAUNCH_TIMEOUT)
        return ask_about(checked, overdue[Wait.ANSWER], now + LAUNCH_TIMEOUT)

    assert () == ask(state, 49.0).calls
    first = ask(state, 50.0)
    assert (Reconcile({TaskId("worker-0__2"): AgentId("a")}),) == first.calls
    second = ask(first.state, 60.0)
    assert (Reconcile({TaskId("worker-1__2"): AgentId("a")}),) == second.calls
    assert 50.0 + 2 * LAUNCH_TIMEOUT == overdue_launches(second.state, 62.0 + LAUNCH_TIMEOUT)[0].derived.next_check_at


def test_answer_about_launch_without_status_is_harmless() -> None:
    state = with_fields(a_running_state(a_spec()), statuses={})

    assert state.derived == mark_answered(state, TaskId("worker-0__1")).derived


def test_launch_without_status_is_not_unknown_to_the_master() -> None:
    """It has its own questions."""
    state = apply(a_running_state(a_spec()), StatusStored(a_status("worker-0__1", TaskState.UNKNOWN)))
    launched = apply(state, TaskLaunched(a_record(a_spec(), "worker-1", "2", launched_at=100.0)))
    asked_at = PendingReconciliation(started_at=90.0, asked_at=100.0, retry_after=FIRST_WAIT)

    (question,) = poll(with_fields(launched, reconciliation=asked_at), 100.0 + FIRST_WAIT).calls

    assert {"worker-0__1"} == set(question.tasks)


def test_unknown_task_is_asked_about_with_back_off_in_the_first_session() -> None:
    """No request was made at its start: nothing was known to ask about."""
    running = with_fields(
        a_running_state(a_spec()), connected=True, reconciliation=PendingReconciliation(started_at=100.0)
    )
    state = apply(running, StatusStored(a_status("worker-0__1", TaskState.UNKNOWN, timestamp=100.0)))
    asked: list[int] = []
    for now in range(100, 160):
        decision = poll(state, float(now))
        state = decision.state
        asked += [now for call in decision.calls if isinstance(call, Reconcile)]

    assert [100, 110, 130] == asked
