"""Whatever happens in whatever order: the promises that plans make.

In every world, each event is checked besides: no step moves in a way that the table does not have, no task runs
twice, and the simulated Mesos objects to calls that break its rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, note, settings
from hypothesis import strategies as st

from simulation.deeds import Deed, deeds, do, specs
from simulation.mesos import an_agent
from simulation.world import World
from tf_scheduler.core.plans import plan_named, plans, wanted
from tf_scheduler.core.plans.claims import claims
from tf_scheduler.core.plans.control import control_of
from tf_scheduler.core.plans.define import definitions
from tf_scheduler.model.effects import Kill, LaunchRetired, Reconcile, TaskLaunched
from tf_scheduler.model.evaluation import FULL_BUCKET, Gathering
from tf_scheduler.model.events import PlanCommand, PodCommand
from tf_scheduler.model.plan import Status, Verb
from tf_scheduler.model.recovery import PodVerb
from tf_scheduler.runner import restore
from tf_scheduler.store.memory import MemoryStore

histories = st.lists(deeds(), max_size=20)
#: Time says nothing here; the number is what a quick lane can bear.
BOUNDED = settings(max_examples=25, deadline=None)


def a_world(found, *, kills_at_once=False):
    world = World(
        found[0], *(an_agent(f"agent-{number}", cpus=3.5) for number in range(3)), kills_at_once=kills_at_once
    )
    world.register()
    return world


def stored_part(state):
    """Without what is void with the connection."""
    names = ("framework_id", "tasks", "statuses", "result", "reservations", "retired", "controls", "tally", "paused")
    return {name: getattr(state, name) for name in names}


@given(specs(), histories)
@BOUNDED
def test_the_stored_state_is_all_that_a_restart_needs(found, history):
    """At any point, what the store gives back is the state without what is void anyway."""
    world = a_world(found)
    for deed in history:
        do(world, deed, found)

        again = restore(world.state.spec, MemoryStore(world.state.spec.name, world.disk))

        assert stored_part(again) == stored_part(world.state)
        assert [plan.name for plan in plans(again)] == [plan.name for plan in plans(world.state)]


@given(specs(), histories, histories)
@BOUNDED
def test_a_restart_at_any_point_gives_the_same_future(found, past, future):
    """Two schedulers with the same past: one loses its connection, the other dies. They do the same from then on."""
    lives = [a_world(found), a_world(found)]
    for world in lives:
        for deed in past:
            do(world, deed, found)
    steady, restarted = lives
    if steady.state.over:
        return
    steady.disconnect()
    restarted.restart()
    for world in lives:
        world.decisions.clear()
        # How often this life has asked for offers, and in vain, is no part of the past that counts.
        world.state = replace(world.state, bucket=FULL_BUCKET, gathering=Gathering())
        world.register()
        for deed in future:
            do(world, deed, found)

    assert deeds_of(steady) == deeds_of(restarted)
    assert stored_part(steady.state) == stored_part(restarted.state)
    assert plans(steady.state) == plans(restarted.state)


def deeds_of(world):
    """What was stored and called, decision by decision, in whatever order within one."""
    calls = [[call for call in decision.calls if not isinstance(call, Reconcile)] for decision in world.decisions]
    rows = [
        (Counter(map(repr, decision.changes)), Counter(map(_shown, made)))
        for decision, made in zip(world.decisions, calls, strict=True)
    ]
    return [row for row in rows if row[0] or row[1]]


def _shown(call: object) -> str:
    return repr(call)


@given(specs(), histories)
@BOUNDED
def test_one_plan_works_on_a_task_at_a_time(found, history):
    """Of all that plans may work on at one moment, no task is in two; and no task is wanted twice."""
    world = a_world(found)
    for deed in history:
        do(world, deed, found)

        claimed = [step.task for claim in claims(world.state) for step in claim.steps]
        asked = [task.name for gang in wanted(world.state) for task in gang.tasks]

        assert len(set(claimed)) == len(claimed)
        assert len(set(asked)) == len(asked)
        assert set(asked) <= set(claimed)


@given(specs(), histories)
@BOUNDED
def test_an_interrupted_plan_begins_nothing(found, history):
    """Neither tells a task to end nor launches one, on its own behalf."""
    world = a_world(found)
    for deed in history:
        before = {plan.name for plan in definitions(world.state) if () in control_of(world.state, plan).interrupted}
        world.decisions.clear()
        do(world, deed, found)
        after = {plan.name for plan in definitions(world.state) if () in control_of(world.state, plan).interrupted}

        changes = [change for decision in world.decisions for change in decision.changes]
        told = {change.plan for change in changes if isinstance(change, LaunchRetired)}
        launched = {change.record.plan for change in changes if isinstance(change, TaskLaunched)}

        assert (told | launched).isdisjoint(before & after) or deed.name == "end"


@given(specs(), histories)
@BOUNDED
def test_the_tally_counts_what_mesos_said(found, history):
    """It is kept beside the statuses, and equal to a count of them."""
    world = a_world(found)
    for deed in history:
        do(world, deed, found)

        assert Counter(status.state for status in world.state.statuses.values()) == Counter(world.state.tally)
        assert len(world.state.live()) == world.state.live_count()


@given(specs(), histories)
@BOUNDED
def test_what_is_told_to_end_is_told_again_until_it_has(found, history):
    """With time, a KILL goes out for every launch that a plan has told to end.

    Not for one that counts as lost: if it returns, it is killed then.
    """
    world = a_world(found)
    for deed in history:
        do(world, deed, found)
    if world.state.over or world.state.result:
        return
    world.decisions.clear()

    world.wait(30.0)

    ended = {launch for launch, status in world.state.statuses.items() if status.state.ended}
    lively = {launch for launch in world.state.retired if world.mesos.tasks[launch].live} - ended
    assert lively <= {call.task_id for call in world.made(Kill)}


@given(specs(), histories)
@BOUNDED
def test_every_roll_out_is_complete_in_the_end(found, history):
    """When operators let everything go on, tasks run and there is room, deploy and update come to their end."""
    world = a_world(found)
    for deed in history:
        do(world, deed, found)
    for _ in range(60):
        if world.state.result or world.state.over or complete(world):
            break
        let_go(world)
        for deed in (Deed("killed"), Deed("offers"), Deed("run_all"), Deed("wait", detail=12.0)):
            do(world, deed, found)
    note(f"{[(plan.name, plan.status, plan.phases) for plan in plans(world.state)]}")

    assert world.state.result or world.state.over or complete(world)


def complete(world: World) -> bool:
    shown: Iterable[object] = (plan_named(world.state, name) for name in ("deploy", "update", "decommission"))
    return all(plan is not None and plan.status is Status.COMPLETE for plan in shown)


def let_go(world: World) -> None:
    """Continue everything that waits, from the whole to its parts."""
    for name in sorted(world.state.paused):
        world.step(PodCommand(PodVerb.RESUME, name))
    for plan in plans(world.state):
        for node in [(), *((phase.name,) for phase in plan.phases)]:
            world.step(PlanCommand(Verb.CONTINUE, plan.name, *node))
        for phase in plan.phases:
            for step in phase.steps:
                if step.status is Status.WAITING:
                    world.step(PlanCommand(Verb.CONTINUE, plan.name, phase.name, step.name))
    world.settle()
