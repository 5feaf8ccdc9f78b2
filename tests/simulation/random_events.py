"""Random events as data, so that a test can apply the same events to two worlds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from builders import a_spec
from simulation.world import World
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views.plan_messages import plans
from tf_scheduler.model.events import PlanCommand, PodCommand, StopRequested
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy, Verb
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import PodVerb

#: User plans, in every spec.
CUSTOM = (
    PlanSpec("retune", PlanStrategy.SERIAL, (PhaseSpec("again", "worker", PlanStrategy.SERIAL),)),
    PlanSpec("first", phases=(PhaseSpec("first", "worker", indexes=(0,)), PhaseSpec("ps", "ps")), gang=False),
)
#: With other strategies every task must know all addresses, so all tasks start together.
_ORDERED = st.sampled_from([*PlanStrategy])
_GANG = st.just(PlanStrategy.PARALLEL)


@dataclass(frozen=True)
class RandomEvent:
    """An event and its target: `target` is an index into the possible targets."""

    name: str
    target: int = 0
    detail: object = None


@st.composite
def specs(draw: st.DrawFn) -> list[ServiceSpec]:
    """Generate a spec and two updates of it with other sizes, users and orders."""
    strategy = draw(st.sampled_from(Strategy))
    specs = []
    for number in range(3):
        workers, ps, chief = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
        spec = a_spec(workers=workers, ps=ps, chief=chief, strategy=strategy, user=draw(st.sampled_from(["me", "you"])))
        order = _ORDERED if strategy is Strategy.PARAMETER_SERVER else _GANG
        gang = draw(st.booleans())
        mine = [PlanSpec("deploy", draw(order), gang=gang), PlanSpec("update", draw(order), gang=gang), *CUSTOM]
        specs.append(replace(spec, plans={plan.name: plan for plan in mine}, principal=f"options-{number}"))
    return specs


def random_events(*names: str) -> st.SearchStrategy[RandomEvent]:
    """Generate random events of `names`, by default of every name except `stop`."""
    details = {
        "offers": st.none(),
        "run": st.none(),
        "run_all": st.none(),
        "end": st.sampled_from([TaskState.FINISHED, TaskState.FAILED, TaskState.LOST]),
        "unhealthy": st.none(),
        "unreachable": st.none(),
        "killed": st.none(),
        "command": st.sampled_from(Verb),
        "pod": st.sampled_from([PodVerb.PAUSE, PodVerb.RESUME]),
        "options": st.none(),
        "wait": st.sampled_from([1.0, 12.0, 40.0, 300.0]),
        "resend": st.none(),
        "stop": st.none(),
    }
    return st.sampled_from(names or [name for name in details if name != "stop"]).flatmap(
        lambda name: st.builds(RandomEvent, st.just(name), st.integers(0, 50), details[name])
    )


def apply_event(world: World, event: RandomEvent, specs: list[ServiceSpec]) -> None:
    """Apply an event to the world, and run the scheduler until no event is pending."""
    if world.state.process.finished:
        return
    if event.name == "wait":
        world.wait(float(str(event.detail)))
    elif event.name == "options":
        world.restart(specs[event.target % len(specs)])
        world.register()
    elif event.name == "command":
        world.step(_command(world, event))
    elif event.name == "pod":
        names = [task.name for task in world.state.spec.tasks()]
        world.step(PodCommand(PodVerb(event.detail), names[event.target % len(names)]))
    elif event.name == "stop":
        world.step(StopRequested("enough"))
    else:
        _to_mesos(world, event)
    world.settle()


def _to_mesos(world: World, event: RandomEvent) -> None:
    mesos = world.mesos
    live = [task for _, task in sorted(mesos.live().items())]
    if event.name == "offers":
        mesos.allocate(world.now)
    elif event.name == "resend":
        mesos.resend()
    elif event.name == "run_all":
        for task in live:
            mesos.report(task.launch.record.id, TaskState.RUNNING)
    elif event.name == "killed":
        for task in [task for task in live if task.launch.record.id in mesos.doomed]:
            mesos.report(task.launch.record.id, TaskState.KILLED)
    elif live:
        chosen = live[event.target % len(live)].launch.record.id
        if event.name == "unhealthy":
            mesos.report(chosen, TaskState.RUNNING, healthy=False)
        else:
            state = {"run": TaskState.RUNNING, "unreachable": TaskState.UNREACHABLE}.get(event.name, event.detail)
            mesos.report(chosen, state)


def _command(world: World, event: RandomEvent) -> PlanCommand:
    """Return a command for an existing plan, phase or step."""
    nodes: list[tuple[str, str, str]] = []
    for plan in plans(world.state):
        nodes.append((plan.name, "", ""))
        for phase in plan.phases:
            nodes.append((plan.name, phase.name, ""))
            nodes += [(plan.name, phase.name, step.name) for step in phase.steps]
    verb = Verb(event.detail)
    parameters = {"NUMBER": str(event.target)} if verb is Verb.START else {}
    return PlanCommand(verb, *nodes[event.target % len(nodes)], parameters)
