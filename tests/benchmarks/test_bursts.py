"""Cost of a thousand simultaneous losses until all are stored and planned.

Run with `-s` to see the numbers. Correctness is asserted first, then that the time grows little more than the number.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import pytest

from benchmarks.services import a_service, launched
from builders import a_spec, a_status, an_offer
from kit.memory_store import MemoryStore
from tf_executor.contract.states import TaskState
from tf_scheduler.core.plans import scheduling
from tf_scheduler.core.scheduler import handle
from tf_scheduler.model.effects import Accept, Acknowledge, Call
from tf_scheduler.model.events import OffersReceived, StatusUpdated
from tf_scheduler.model.spec import RestartPolicy
from tf_scheduler.model.state import SchedulerState, SessionState
from tf_scheduler.runner import Runner

#: Maximum growth from a thousand losses to four thousand: 4 is linear, 16 is quadratic.
LIMIT = 7


class Counting:
    """A driver that only records calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def perform(self, call: Call) -> None:
        self.calls.append(call)


def losses(state: SchedulerState, **end: object) -> list[StatusUpdated]:
    """Return the loss of every worker."""
    names = [name for name in state.stored.tasks if name.startswith("worker-")]
    records = [state.stored.tasks[name] for name in names]
    return [
        StatusUpdated(a_status(record.id, TaskState.FAILED, f"uuid-{record.name}", agent_id=record.agent_id, **end))
        for record in records
    ]


def lose(state: SchedulerState, events: list[StatusUpdated], bursts: bool) -> tuple[float, Runner, Counting]:
    """Return the seconds for all losses, handled in bursts or one by one."""
    store, driver = MemoryStore("digits"), Counting()
    store.load()
    runner = Runner(state, store, clock=lambda: 100.0, new_id=lambda: "id")
    gc.collect()
    gc.freeze()
    begun = time.process_time()
    for place in range(0, len(events), 500 if bursts else 1):
        runner.process_batch(driver, events[place : place + 500] if bursts else [events[place]])
    return time.process_time() - begun, runner, driver


@pytest.mark.parametrize("end", [{"signal": 9}, {"exit_code": 1}], ids=["killed", "failed"])
def test_thousands_of_losses(end) -> None:
    """Each is to be launched again, and acknowledged once."""
    seconds = {}
    for count in (100, 1_000, 4_000):
        spec = replace(a_service(count), restart=RestartPolicy(max_failures=3))
        state = launched(spec, TaskState.RUNNING)
        events = losses(state, **end)
        alone = lose(state, events, bursts=False)[0] if count == 100 else float("nan")
        rounds = [lose(state, events, bursts=True) for _ in range(3)]
        seconds[count], (_, runner, driver) = min(taken for taken, _, _ in rounds), rounds[0]

        after = runner.state
        assert {event.status.id for event in events} == {item.launch for item in after.stored.recoveries.values()}
        assert len(events) == sum(isinstance(call, Acknowledge) for call in driver.calls)
        assert len(events) == len([task for gang in scheduling.view_of(after).gangs for task in gang.tasks])
        print(f"{count:5} lost at once {seconds[count] * 1000:9.1f} ms; one by one {alone * 1000:9.1f} ms")
    print(f"{end}: ratio {seconds[4_000] / seconds[1_000]:.1f}")
    assert seconds[4_000] <= LIMIT * seconds[1_000]


def test_launch_of_thousands_of_workers() -> None:
    """Each task gets every address, which are encoded once."""
    seconds = {}
    for count in (1_000, 4_000):
        state = SchedulerState(a_spec(workers=count), session=SessionState(connected=True))
        offers = tuple(an_offer(f"o-{n}", f"agent-{n}", cpus=64, mem=10**6) for n in range(count // 10 + 1))
        begun = time.process_time()
        calls = handle(state, OffersReceived(offers), 1000.0, iter(map(str, range(10**6))).__next__).calls
        seconds[count] = time.process_time() - begun
        assert count + 2 == sum(len(call.launches) for call in calls if isinstance(call, Accept))
    print(f"launch of 4,000 workers {seconds[4_000]:.1f} s: ratio {seconds[4_000] / seconds[1_000]:.1f}")
    assert seconds[4_000] <= LIMIT * seconds[1_000]
