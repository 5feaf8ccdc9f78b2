"""Expected effects of the last `send`, as steps of a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from simulation.world import Step, World
from tf_executor.contract.payload import Payload
from tf_executor.contract.states import Status, Verdict
from tf_scheduler.api.views.plan_messages import find_plan
from tf_scheduler.model.effects import Accept, Decline, Kill, Reconcile, Revive, Suppress, Teardown
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.plan import Reply


def _step(words: str, check: Callable[[World], None]) -> Step:
    return Step(f"expect {words}", check)


def _same(words: str, expected: object, actual: Callable[[World], object]) -> Step:
    def check(world: World) -> None:
        value = actual(world)
        assert expected == value, f"expected {expected}, got {value}"

    return _step(words, check)


def launched(*names: str) -> Step:
    """Exactly these tasks were launched."""

    def value(world: World) -> object:
        return Counter(launch.record.name for call in world.calls_of(Accept) for launch in call.launches)

    return _same(f"launched {' '.join(names)}", Counter(names), value)


def killed(*names: str) -> Step:
    """Exactly these tasks were killed, each once."""
    return _same(
        f"killed {' '.join(names)}",
        Counter(names),
        lambda world: Counter(name_of(call.task_id) for call in world.calls_of(Kill)),
    )


def declined(count: int) -> Step:
    """`count` offers were declined."""
    return _same(f"declined {count}", count, lambda world: sum(len(call.offer_ids) for call in world.calls_of(Decline)))


def holds(count: int) -> Step:
    """`count` offers are held, and Mesos agrees."""

    def value(world: World) -> object:
        held = world.state.session.round.offers
        assert held.keys() == world.mesos.offers.keys(), "Mesos waits for answers to other offers"
        return len(held)

    return _same(f"holds {count}", count, value)


def suppressed(expected: bool = True) -> Step:
    """Whether offers are suppressed."""
    return _same(f"suppressed {expected}", expected, lambda world: world.mesos.suppressed)


def suppresses(count: int) -> Step:
    """`count` SUPPRESS calls."""
    return _same(f"suppresses {count}", count, lambda world: len(world.calls_of(Suppress)))


def revives(count: int) -> Step:
    """`count` REVIVE calls."""
    return _same(f"revives {count}", count, lambda world: len(world.calls_of(Revive)))


def reconciled(*names: str) -> Step:
    """Exactly these tasks were reconciled by name, then all of them."""

    def value(world: World) -> object:
        calls = world.calls_of(Reconcile)
        assert calls, "no RECONCILE"
        assert calls[-1].tasks == {}, "the last RECONCILE is not implicit"
        return {name_of(task) for call in calls for task in call.tasks}

    return _same(f"reconciled {' '.join(names)}", set(names), value)


def alive(*names: str) -> Step:
    """Exactly these tasks run in the cluster, each once."""
    return _same(f"alive {' '.join(names)}", set(names), lambda world: set(world.mesos.live()))


def plan(name: str, status: Status) -> Step:
    """Status of a whole plan."""

    def value(world: World) -> object:
        computed = find_plan(world.state, name)
        return computed and computed.status

    return _same(f"plan {name} {status.value}", status, value)


def no_plan(name: str) -> Step:
    """The plan does not exist."""
    return _same(f"no_plan {name}", None, lambda world: find_plan(world.state, name))


def steps(name: str, **statuses: Status) -> Step:
    """Exactly these steps of a plan, `worker_0=COMPLETE`, in any phase."""

    def value(world: World) -> object:
        computed = find_plan(world.state, name)
        return {} if computed is None else {step.name: step.status for phase in computed.phases for step in phase.steps}

    expected = {step.replace("_", "-"): status for step, status in statuses.items()}
    return _same(f"steps of {name}", expected, value)


def says(name: str, step: str, words: str) -> Step:
    """The message of a step of a plan contains these words."""

    def check(world: World) -> None:
        computed = find_plan(world.state, name)
        messages = (
            [each.message for phase in computed.phases for each in phase.steps if each.name == step] if computed else []
        )
        assert any(words in message for message in messages), f"{step} says {messages}"

    return _step(f"says {name} {step}", check)


def phases(name: str, *rows: tuple[str, Status]) -> Step:
    """Exactly these phases of a plan, in this order."""

    def value(world: World) -> object:
        computed = find_plan(world.state, name)
        return () if computed is None else tuple((phase.name, phase.status) for phase in computed.phases)

    return _same(f"phases of {name}", rows, value)


def answered(reply: Reply, words: str = "") -> Step:
    """Reply to the operator's last command."""

    def check(world: World) -> None:
        answer = next(decision.answer for decision in reversed(world.decisions) if decision.answer)
        assert reply is answer.reply, f"answered {answer}"
        assert words in answer.message

    return _step(f"answered {reply.name}", check)


def environment(task: str, **variables: str) -> Step:
    """The last launch of a task has these environment variables."""

    def check(world: World) -> None:
        launch = world.mesos.tasks[world.id_of(task)].launch
        value = Payload.decode(launch.payload).environment
        assert variables.items() <= value.items(), f"its environment is {value}"

    return _step(f"environment of {task}", check)


def cluster(task: str, **counts: int) -> Step:
    """Check the number of addresses per job in a task's last launch; all are current."""

    def check(world: World) -> None:
        launch = world.mesos.tasks[world.id_of(task)].launch
        value = Payload.decode(launch.payload).tf_config["cluster"]
        current = {record.address for record in world.state.stored.tasks.values()}
        assert counts == {job: len(addresses) for job, addresses in value.items()}
        assert {address for addresses in value.values() for address in addresses} <= current

    return _step(f"cluster of {task}", check)


def outcome(words: str) -> Step:
    """At least one outcome contains these words."""

    def check(world: World) -> None:
        value = [entry.message for entry in world.outcomes]
        assert any(words in message for message in value), f"outcomes: {value}"

    return _step(f"outcome {words!r}", check)


def quiet() -> Step:
    """The scheduler made no call."""
    return _same("quiet", [], lambda world: world.calls)


def result(verdict: Verdict | None) -> Step:
    """The result of the service; None before its end."""
    return _same(
        f"result {verdict}", verdict, lambda world: world.state.stored.result and world.state.stored.result.verdict
    )


def torn_down() -> Step:
    """The framework is removed from the cluster, and the scheduler knows."""

    def check(world: World) -> None:
        assert world.calls_of(Teardown), "no TEARDOWN"
        assert world.mesos.removed
        assert world.state.process.finished
        assert world.mesos.live() == {}

    return _step("torn_down", check)
