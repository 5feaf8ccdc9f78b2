"""Properties of plans that hold for every history of events.

Every simulated world also checks at each event that steps follow the transition table, that no task runs twice, and
that no call breaks the rules of Mesos.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from math import inf
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from builders import with_fields
from kit.memory_store import MemoryStore
from simulation.mesos import an_agent
from simulation.random_events import RandomEvent, apply_event, random_events, specs
from simulation.world import World
from tf_executor.contract.states import SILENT_STATES, Status, TaskState
from tf_scheduler.api.views.plan_messages import find_plan, plans
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery import startup_timeout
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.model.effects import ComputedPlans, Decision, LaunchRetired, Reconcile, TaskLaunched
from tf_scheduler.model.events import Event, PlanCommand, PodCommand
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import PodVerb
from tf_scheduler.runner import Decide, restore

histories = st.lists(random_events(), max_size=20)
#: No deadline: it says nothing here. The number of examples keeps the quick tests quick.
BOUNDED = settings(max_examples=25, deadline=None)


def a_world(drawn: Any, *, kills_at_once: Any = False, decide: Decide = handle) -> Any:
    world = World(
        drawn[0],
        *(an_agent(f"agent-{number}", cpus=3.5) for number in range(3)),
        kills_at_once=kills_at_once,
        decide=decide,
    )
    world.register()
    return world


def restored(world: Any) -> SchedulerState:
    """Return the state of a scheduler that starts now."""
    return restore(world.state.spec, MemoryStore(world.state.spec.name, world.disk))


def stored_part(state: Any) -> Any:
    """The stored state, and what follows from it alone."""
    names = [item.name for item in fields(state.stored) if item.name != "configurations"]  # stored beside the state
    counts = ("state_counts", "unhealthy_count", "starting_count")
    derived = (*counts, "first_launch_at", "launches_to_replace", "idle_tasks")
    stored = {name: getattr(state.stored, name) for name in names}
    return stored | {name: getattr(state.derived, name) for name in derived}


def check_deadline(state: SchedulerState, now: float) -> None:
    """Check that no timeout is missed: deadlines are kept with each change."""
    if state.session.connected and state.stored.result is None and not state.process.finished:
        due = max(min(timeouts(state), default=inf), state.session.connected_at + startup_timeout.RECONNECT_GRACE)
        deadline = next_deadline(state)
        assert (inf if deadline is None else deadline) <= max(due, now) + startup_timeout.CHECK_INTERVAL


def timeouts(state: SchedulerState) -> Iterator[float]:
    """Yield every due time of a task, computed from all tasks and statuses."""
    stored, timeout = state.stored, state.spec.recovery.start_timeout
    has_peers = startup_timeout.joined_count(state) > 0
    assert timeout is not None
    for record in stored.tasks.values():
        status, recovery = stored.statuses.get(record.id), stored.recoveries.get(record.name)
        if recovery is not None and recovery.launch == record.id:
            # Later, if a launch that is not wanted runs: it must end before.
            until = state.derived.delayed_tasks.get(record.name)
            yield from () if until is None else (max(until, recovery.ready_at),)
        elif status is None or status.state is TaskState.STAGING:
            yield record.launched_at + timeout
        elif status.state in SILENT_STATES and not state.session.reconciliation.awaits(record.id):
            yield status.timestamp + state.spec.recovery.unreachable_timeout
        elif (status.state, status.healthy) == (TaskState.RUNNING, None):
            must_join = has_peers and record.job.in_cluster and not record.is_placeholder
            is_excused = record.id in state.process.progress or record.id in stored.retired
            yield from (status.timestamp + timeout,) if must_join and not is_excused else ()


@given(specs(), histories, histories)
@BOUNDED
def test_restart_at_any_point_gives_same_future(drawn: Any, past: Any, future: Any) -> None:
    """After a lost connection and after a crash, the scheduler must act the same."""
    worlds = [a_world(drawn), a_world(drawn)]
    for world in worlds:
        for event in past:
            apply_event(world, event, drawn)
    steady, restarted = worlds
    if steady.state.process.finished:
        return
    steady.disconnect()
    restarted.restart()
    for world in worlds:
        world.decisions.clear()
        # The offers that this run has requested are not stored.
        world.state = with_fields(world.state, revives_used_until=-math.inf)
        world.register()
        for event in future:
            apply_event(world, event, drawn)

    assert deeds_of(steady) == deeds_of(restarted)
    assert stored_part(steady.state) == stored_part(restarted.state)
    assert plans(steady.state) == plans(restarted.state)


def deeds_of(world: Any) -> Any:
    """Stored writes and calls of each decision, in any order within a decision."""
    calls = [[call for call in decision.calls if not isinstance(call, Reconcile)] for decision in world.decisions]
    rows = [
        (Counter(map(repr, decision.changes)), Counter(map(repr, sent)))
        for decision, sent in zip(world.decisions, calls, strict=True)
    ]
    return [row for row in rows if row[0] or row[1]]


@given(specs(), histories)
@BOUNDED
def test_task_belongs_to_one_active_plan(drawn: Any, history: Any) -> None:
    """At no moment may two plans work on one task, or one task be requested twice."""
    world = a_world(drawn)
    for event in history:
        apply_event(world, event, drawn)

        claimed = [step.task for runnable in view_of(world.state).runnable for step in runnable.steps]
        names = [task.name for gang in view_of(world.state).gangs for task in gang.tasks]

        assert len(set(claimed)) == len(claimed)
        assert len(set(names)) == len(names)
        assert set(names) <= set(claimed)


def interrupted_plans(state: SchedulerState) -> set[str]:
    view = view_of(state)
    return {plan.name for plan in view.definitions if () in view.records.control_of(plan).interrupted}


@given(specs(), histories)
@BOUNDED
def test_interrupted_plan_starts_nothing(drawn: Any, history: Any) -> None:
    """An interrupted plan neither kills nor launches a task."""
    world = a_world(drawn)
    for event in history:
        before = interrupted_plans(world.state)
        world.decisions.clear()
        apply_event(world, event, drawn)
        after = interrupted_plans(world.state)

        changes = [change for decision in world.decisions for change in decision.changes]
        retired = {change.plan for change in changes if isinstance(change, LaunchRetired)}
        launched = {change.record.plan for change in changes if isinstance(change, TaskLaunched)}

        assert (retired | launched).isdisjoint(before & after) or event.name == "end"


@given(specs(), histories)
@BOUNDED
def test_every_rollout_completes(drawn: Any, history: Any) -> None:
    """If operators continue all plans and tasks can run, deploy and update complete."""
    world = a_world(drawn)
    for event in history:
        apply_event(world, event, drawn)
    for _ in range(60):
        if world.state.stored.result or world.state.process.finished or complete(world):
            break
        let_go(world)
        for event in (
            RandomEvent("killed"),
            RandomEvent("offers"),
            RandomEvent("run_all"),
            RandomEvent("wait", detail=12.0),
        ):
            apply_event(world, event, drawn)
    note(f"{[(plan.name, plan.status, plan.phases) for plan in plans(world.state)]}")

    assert world.state.stored.result or world.state.process.finished or complete(world)


def complete(world: World) -> bool:
    plans = (find_plan(world.state, name) for name in ("deploy", "update", "decommission"))
    return all(plan is not None and plan.status is Status.COMPLETE for plan in plans)


def let_go(world: World) -> None:
    """Continue everything that waits, from the whole to its parts."""
    for name in sorted(world.state.stored.paused):
        world.step(PodCommand(PodVerb.RESUME, name))
    for plan in plans(world.state):
        for node in [(), *((phase.name,) for phase in plan.phases)]:
            world.step(PlanCommand(Verb.CONTINUE, plan.name, *node))
        for phase in plan.phases:
            for step in phase.steps:
                if step.status is Status.WAITING:
                    world.step(PlanCommand(Verb.CONTINUE, plan.name, phase.name, step.name))
    world.settle()


def decide_twice(
    state: SchedulerState, event: Event, now: float, new_id: Callable[[], str], view: ComputedPlans | None
) -> Decision:
    """Decide with the last view and without it, with the same ids."""
    used: list[str] = []

    def recorded() -> str:
        used.append(new_id())
        return used[-1]

    decision = handle(state, event, now, recorded, view)
    assert handle(state, event, now, iter(used).__next__) == decision
    assert view_of(decision.state).gangs == view_of(decision.state, decision.view).gangs
    return decision


@given(specs(), histories)
@BOUNDED
def test_decision_without_last_view_is_same(drawn: Any, history: Any) -> None:
    """The view is a cache: no stale part of it may affect a decision."""
    world = a_world(drawn, decide=decide_twice)
    for event in history:
        apply_event(world, event, drawn)
