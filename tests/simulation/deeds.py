"""Random events in the life of a service, as data: the same ones can happen in two worlds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from builders import a_spec
from simulation.world import World
from tf_scheduler.core.plans.view import plans
from tf_scheduler.model.events import PlanCommand, PodCommand, StopRequested
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy, Verb
from tf_scheduler.model.spec import ServiceSpec, Strategy
from tf_scheduler.model.task import PodVerb, TaskState

#: User plans, in every spec.
CUSTOM = (
    PlanSpec("retune", PlanStrategy.SERIAL, (PhaseSpec("again", "worker", PlanStrategy.SERIAL),)),
    PlanSpec("first", phases=(PhaseSpec("first", "worker", indexes=(0,)), PhaseSpec("ps", "ps")), gang=False),
)
#: With strategies under which every task must know all addresses, an order makes no sense.
_ORDERED = st.sampled_from([*PlanStrategy])
_GANG = st.just(PlanStrategy.PARALLEL)


@dataclass(frozen=True)
class Deed:
    """An event and its target: `which` is an index into the possible targets."""

    name: str
    which: int = 0
    detail: object = None


@st.composite
def specs(draw: st.DrawFn) -> list[ServiceSpec]:
    """Options of a service, and what they change to later: other sizes, commands and orders."""
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


def deeds(*names: str) -> st.SearchStrategy[Deed]:
    """Random events; only those named, if names are given."""
    details = {
        "offers": st.none(),
        "run": st.none(),
        "run_all": st.none(),
        "end": st.sampled_from([TaskState.FINISHED, TaskState.FAILED, TaskState.LOST]),
        "unwell": st.none(),
        "vanish": st.none(),
        "killed": st.none(),
        "command": st.sampled_from(Verb),
        "pod": st.sampled_from([PodVerb.PAUSE, PodVerb.RESUME]),
        "options": st.none(),
        "wait": st.sampled_from([1.0, 12.0, 40.0, 300.0]),
        "resend": st.none(),
        "stop": st.none(),
    }
    return st.sampled_from(names or [name for name in details if name != "stop"]).flatmap(
        lambda name: st.builds(Deed, st.just(name), st.integers(0, 50), details[name])
    )


def do(world: World, deed: Deed, specs: list[ServiceSpec]) -> None:
    """Let it happen, and run the scheduler until it is idle."""
    if world.state.process.finished:
        return
    if deed.name == "wait":
        world.wait(float(str(deed.detail)))
    elif deed.name == "options":
        world.restart(specs[deed.which % len(specs)])
        world.register()
    elif deed.name == "command":
        world.step(_command(world, deed))
    elif deed.name == "pod":
        names = [task.name for task in world.state.spec.tasks()]
        world.step(PodCommand(PodVerb(deed.detail), names[deed.which % len(names)]))
    elif deed.name == "stop":
        world.step(StopRequested("enough"))
    else:
        _to_mesos(world, deed)
    world.settle()


def _to_mesos(world: World, deed: Deed) -> None:
    mesos = world.mesos
    live = [task for _, task in sorted(mesos.live().items())]
    if deed.name == "offers":
        mesos.allocate(world.now)
    elif deed.name == "resend":
        mesos.resend()
    elif deed.name == "run_all":
        for task in live:
            mesos.report(task.launch.record.id, TaskState.RUNNING)
    elif deed.name == "killed":
        for task in [task for task in live if task.launch.record.id in mesos.doomed]:
            mesos.report(task.launch.record.id, TaskState.KILLED)
    elif live:
        chosen = live[deed.which % len(live)].launch.record.id
        if deed.name == "unwell":
            mesos.report(chosen, TaskState.RUNNING, healthy=False)
        else:
            state = {"run": TaskState.RUNNING, "vanish": TaskState.UNREACHABLE}.get(deed.name, deed.detail)
            mesos.report(chosen, state)


def _command(world: World, deed: Deed) -> PlanCommand:
    """A command for an existing plan, phase or step."""
    nodes: list[tuple[str, str, str]] = []
    for plan in plans(world.state):
        nodes.append((plan.name, "", ""))
        for phase in plan.phases:
            nodes.append((plan.name, phase.name, ""))
            nodes += [(plan.name, phase.name, step.name) for step in phase.steps]
    verb = Verb(deed.detail)
    parameters = {"NUMBER": str(deed.which)} if verb is Verb.START else {}
    return PlanCommand(verb, *nodes[deed.which % len(nodes)], parameters)
