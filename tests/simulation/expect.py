"""What must have followed from the last `send`, as steps of a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from simulation.world import Step, World
from tf_executor.contract.payload import Payload
from tf_scheduler.core.plans.view import find_plan
from tf_scheduler.model.effects import Accept, Decline, Kill, Reconcile, Revive, Suppress, Teardown
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.plan import Reply, Status
from tf_scheduler.model.state import Verdict


def _step(words: str, check: Callable[[World], None]) -> Step:
    return Step(f"expect {words}", check)


def _same(words: str, expected: object, actual: Callable[[World], object]) -> Step:
    def check(world: World) -> None:
        found = actual(world)
        assert expected == found, f"expected {expected}, found {found}"

    return _step(words, check)


def launched(*names: str) -> Step:
    """Exactly these tasks were launched."""

    def found(world: World) -> object:
        return Counter(launch.record.name for call in world.made(Accept) for launch in call.launches)

    return _same(f"launched {' '.join(names)}", Counter(names), found)


def killed(*names: str) -> Step:
    """Exactly these tasks were asked to end, each once."""
    return _same(
        f"killed {' '.join(names)}",
        Counter(names),
        lambda world: Counter(name_of(call.task_id) for call in world.made(Kill)),
    )


def declined(count: int) -> Step:
    """So many offers were declined."""
    return _same(f"declined {count}", count, lambda world: sum(len(call.offer_ids) for call in world.made(Decline)))


def holds(count: int) -> Step:
    """So many offers are held, and Mesos agrees."""

    def found(world: World) -> object:
        assert set(world.state.session.offers) == set(world.mesos.offers), "Mesos waits for answers to other offers"
        return len(world.state.session.offers)

    return _same(f"holds {count}", count, found)


def suppressed(wanted: bool = True) -> Step:
    """Offers are suppressed."""
    return _same(f"suppressed {wanted}", wanted, lambda world: world.mesos.suppressed)


def suppresses(count: int) -> Step:
    """So many SUPPRESS calls."""
    return _same(f"suppresses {count}", count, lambda world: len(world.made(Suppress)))


def revives(count: int) -> Step:
    """So many REVIVE calls."""
    return _same(f"revives {count}", count, lambda world: len(world.made(Revive)))


def reconciled(*names: str) -> Step:
    """Mesos was asked about exactly these tasks by name, then about all."""

    def found(world: World) -> object:
        calls = world.made(Reconcile)
        assert calls, "Mesos was asked nothing"
        assert calls[-1].tasks == {}, "the last question is about all tasks"
        return {name_of(task) for call in calls for task in call.tasks}

    return _same(f"reconciled {' '.join(names)}", set(names), found)


def alive(*names: str) -> Step:
    """Exactly these tasks live in the cluster, each once."""
    return _same(f"alive {' '.join(names)}", set(names), lambda world: set(world.mesos.live()))


def plan(name: str, status: Status) -> Step:
    """A plan as a whole."""

    def found(world: World) -> object:
        shown = find_plan(world.state, name)
        return shown and shown.status

    return _same(f"plan {name} {status.value}", status, found)


def no_plan(name: str) -> Step:
    """The plan does not exist."""
    return _same(f"no_plan {name}", None, lambda world: find_plan(world.state, name))


def steps(name: str, **statuses: Status) -> Step:
    """Exactly these steps of a plan, `worker_0=COMPLETE`, in whatever phase."""

    def found(world: World) -> object:
        shown = find_plan(world.state, name)
        return {} if shown is None else {step.name: step.status for phase in shown.phases for step in phase.steps}

    wanted = {step.replace("_", "-"): status for step, status in statuses.items()}
    return _same(f"steps of {name}", wanted, found)


def says(name: str, step: str, words: str) -> Step:
    """The message of a step of a plan has these words in it."""

    def check(world: World) -> None:
        shown = find_plan(world.state, name)
        messages = (
            [each.message for phase in shown.phases for each in phase.steps if each.name == step] if shown else []
        )
        assert any(words in message for message in messages), f"{step} says {messages}"

    return _step(f"says {name} {step}", check)


def phases(name: str, *rows: tuple[str, Status]) -> Step:
    """Exactly these phases of a plan, in this order."""

    def found(world: World) -> object:
        shown = find_plan(world.state, name)
        return () if shown is None else tuple((phase.name, phase.status) for phase in shown.phases)

    return _same(f"phases of {name}", rows, found)


def answered(reply: Reply, words: str = "") -> Step:
    """The operator's last command was answered so."""

    def check(world: World) -> None:
        answer = next(decision.answer for decision in reversed(world.decisions) if decision.answer)
        assert reply is answer.reply, f"answered {answer}"
        assert words in answer.message

    return _step(f"answered {reply.name}", check)


def environment(task: str, **variables: str) -> Step:
    """The last launch of a task carries these variables."""

    def check(world: World) -> None:
        launch = world.mesos.tasks[world.id_of(task)].launch
        found = Payload.decode(launch.payload).environment
        assert variables.items() <= found.items(), f"its environment is {found}"

    return _step(f"environment of {task}", check)


def cluster(task: str, **counts: int) -> Step:
    """The last launch of a task knows so many addresses per job, all of them those of the last launches."""

    def check(world: World) -> None:
        launch = world.mesos.tasks[world.id_of(task)].launch
        found = Payload.decode(launch.payload).tf_config["cluster"]
        known = {record.address for record in world.state.stored.tasks.values()}
        assert counts == {job: len(addresses) for job, addresses in found.items()}
        assert {address for addresses in found.values() for address in addresses} <= known

    return _step(f"cluster of {task}", check)


def outcome(words: str) -> Step:
    """An outcome contains these words."""

    def check(world: World) -> None:
        found = [outcome.message for outcome in world.outcomes]
        assert any(words in message for message in found), f"nothing but {found}"

    return _step(f"outcome {words!r}", check)


def quiet() -> Step:
    """No call at all."""
    return _same("quiet", [], lambda world: world.calls)


def result(verdict: Verdict | None) -> Step:
    """How the service ended; None: it has not."""
    return _same(
        f"result {verdict}", verdict, lambda world: world.state.stored.result and world.state.stored.result.verdict
    )


def torn_down() -> Step:
    """The framework is gone from the cluster, and the scheduler knows."""

    def check(world: World) -> None:
        assert world.made(Teardown), "no TEARDOWN"
        assert world.mesos.removed
        assert world.state.process.finished
        assert world.mesos.live() == {}

    return _step("torn_down", check)
