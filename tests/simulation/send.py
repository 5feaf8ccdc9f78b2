"""Events, as steps of a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builders import ports
from simulation.mesos import Agent
from simulation.pool import Pool
from simulation.world import Step, World
from tf_executor.contract.states import TaskState
from tf_scheduler.model.events import Event, PlanCommand, PodCommand, StopRequested
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import PodVerb


def _step(words: str, do: Callable[[World], object]) -> Step:
    def then_settle(world: World) -> None:
        do(world)
        world.settle()

    return Step(f"send {words}", then_settle, fresh=True)


def register() -> Step:
    """Subscribe, for the first time or again."""
    return _step("register", lambda world: world.register())


def offers() -> Step:
    """A round of the allocator, after a REVIVE if one waits for its token."""

    def allocate(world: World) -> None:
        while world.state.session.revive_at is not None:
            world.wait()
        world.mesos.allocate(world.now)

    return _step("offers", allocate)


def rescind() -> Step:
    """Mesos rescinds all offers that the scheduler holds."""
    return _step("rescind", lambda world: [*map(world.mesos.rescind, list(world.mesos.offers))])


def agent(joined: Agent) -> Step:
    """An agent joins the cluster, and its resources are offered."""

    def join(world: World) -> None:
        world.mesos.agents[joined.id] = joined
        world.mesos.allocate(world.now)

    return _step(f"agent {joined.hostname}", join)


def ports_taken(hostname: str, *ranges: tuple[int, int]) -> Step:
    """Another process uses these ports of an agent from now on, if they are free."""

    def take(world: World) -> None:
        agent = next(agent for agent in world.mesos.agents.values() if agent.hostname == hostname)
        agent.free -= Pool.of((ports(*ranges),))

    return _step(f"ports_taken {hostname}", take)


def agent_lost(hostname: str) -> Step:
    """An agent is removed."""
    return _step(f"agent_lost {hostname}", lambda world: world.mesos.lose(hostname))


def status(name: str, state: TaskState, **details: Any) -> Step:
    """The current launch of a task reports a state."""
    words = f"status {name} {state.label}"
    return _step(words, lambda world: world.mesos.report(world.id_of(name), state, **details))


def joined(*names: str) -> tuple[Step, ...]:
    """The TensorFlow servers of these tasks answer."""
    return tuple(status(name, TaskState.RUNNING, healthy=True) for name in names)


def running(*names: str) -> Step:
    """These tasks run; without names: all launched tasks that do not run yet."""

    def report_running(world: World) -> None:
        for name, task in world.mesos.live().items():
            if task.state is not TaskState.RUNNING and (not names or name in names):
                world.mesos.report(task.launch.record.id, TaskState.RUNNING)

    return _step(f"running {' '.join(names) or 'all'}", report_running)


def killed(*names: str) -> Step:
    """Kills take effect (with `kills_at_once=False`); without names, all."""

    def kill(world: World) -> None:
        live, doomed = world.mesos.live(), world.mesos.doomed
        for name in names or [name for name, task in live.items() if task.launch.record.id in doomed]:
            world.mesos.report(world.mesos.live()[name].launch.record.id, TaskState.KILLED)

    return _step(f"killed {' '.join(names)}", kill)


def updates_again() -> Step:
    """Updates without acknowledgement are sent again."""
    return _step("updates_again", lambda world: world.mesos.resend())


def disconnect() -> Step:
    """The connection breaks."""
    return _step("disconnect", lambda world: world.disconnect())


def restart(spec: ServiceSpec | None = None) -> Step:
    """The scheduler exits and restarts, perhaps with other options, and registers."""

    def again(world: World) -> None:
        world.restart(spec)
        world.register()

    return _step("restart", again)


def wait(seconds: float | None = None) -> Step:
    """Time passes: `seconds`, or until the next deadline."""
    return _step(f"wait {seconds or 'for the next deadline'}", lambda world: world.wait(seconds))


def stop(reason: str = "enough") -> Step:
    """The operator stops the job."""
    return event(StopRequested(reason))


def command(verb: Verb, plan: str, phase: str = "", step: str = "", **parameters: str) -> Step:
    """An operator's command for a plan."""
    event = PlanCommand(verb, plan, phase, step, parameters)
    words = " ".join(part for part in (verb.value, plan, phase, step) if part)
    return _step(words, lambda world: world.step(event))


def pod(verb: PodVerb, task: str) -> Step:
    """An operator's command for one task."""
    return _step(f"{verb.value} {task}", lambda world: world.step(PodCommand(verb, TaskName(task))))


def event(happened: Event) -> Step:
    """Send any event."""
    return _step(type(happened).__name__, lambda world: world.step(happened))
