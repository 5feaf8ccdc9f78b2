"""The loop: store before calls, acknowledge after storing, stop at the end."""

from functools import partial
from itertools import groupby

import pytest

from builders import a_spec, a_status, an_offer
from kit.memory_store import MemoryStore
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.model.effects import Acknowledge, Teardown
from tf_scheduler.model.events import (
    ClockDrifted,
    ExecutorFailed,
    OffersReceived,
    StatusUpdated,
    Subscribed,
    SubscriptionRefused,
    TornDown,
)
from tf_scheduler.runner import Runner, restore
from tf_scheduler.store.interface import StoreUnavailableError

SPEC = a_spec(workers=1, ps=0, chief=0)


class Journal:
    """A store and a driver that write down, in one list, what was asked of them."""

    def __init__(self, runner=None, fail_at=None):
        self.entries, self.inner, self.fail_at = [], MemoryStore("digits"), fail_at
        self.script = []
        self.runner = runner

    @property
    def place(self):
        return self.inner.place

    def load(self):
        return self.inner.load()

    def apply(self, writes):
        if len(self.entries) == self.fail_at:
            raise StoreUnavailableError("the disk is full")
        self.entries.append(("store", tuple(write.key.partition("__")[0] for write in writes)))
        self.inner.apply(writes)

    def erase(self):
        self.inner.erase()

    def remove(self):
        self.inner.remove()

    def close(self):
        self.inner.close()

    def start(self):
        self.entries.append(("start", ()))

    def stop(self):
        self.entries.append(("stop", ()))

    def perform(self, call):
        self.entries.append(("call", type(call).__name__))
        if isinstance(call, Teardown):
            self.runner.put(TornDown)


def run_service(journal, *script):
    """Run a service over a script of event makers, each called with the current state."""
    runner = Runner(restore(SPEC, journal), journal, clock=lambda: 1000.0, new_id=lambda: "id")
    journal.runner = runner
    for make in script:
        runner.put(partial(lambda make: make(runner.state), make))
    return runner.run(journal)


def subscribed(_state):
    return Subscribed("fw-1")


def offers(_state):
    return OffersReceived((an_offer(),))


def status(state, what):
    return StatusUpdated(a_status(state.stored.tasks["worker-0"].id, what, uuid=what.value))


SCRIPT = (
    subscribed,
    offers,
    lambda state: status(state, TaskState.RUNNING),
    lambda state: status(state, TaskState.FINISHED),
)


def test_service_from_start_to_end():
    """State is stored before the call that depends on it; the loop ends with TEARDOWN."""
    journal = Journal()

    final = run_service(journal, *SCRIPT)

    assert Verdict.SUCCEEDED is final.stored.result.verdict
    assert journal.entries == [
        ("start", ()),
        ("store", ("framework",)),
        ("store", ("tasks/worker-0",)),
        ("call", "Accept"),
        ("call", "Suppress"),
        ("store", ("statuses/worker-0", "statuses/worker-0", "result")),
        ("call", "Acknowledge"),
        ("call", "Acknowledge"),
        ("call", "ShutdownExecutor"),
        ("call", "Teardown"),
        ("store", ("framework",)),
        ("stop", ()),
    ]


@pytest.mark.parametrize("fail_at", [1, 2, 5])
def test_failed_transaction_sends_no_calls(fail_at):
    """Whichever transaction fails; the driver stops, and tasks keep running."""
    journal = Journal(fail_at=fail_at)

    with pytest.raises(StoreUnavailableError):
        run_service(journal, *SCRIPT)

    assert journal.entries[-1] == ("stop", ())
    assert fail_at == len(journal.entries) - 1, "after the failing transaction nothing happened but stop"


def test_next_scheduler_continues():
    """Stored: framework id, launches, statuses, result."""
    journal = Journal()
    run_service(
        journal,
        subscribed,
        offers,
        lambda s: status(s, TaskState.RUNNING),
        lambda s: SubscriptionRefused("another one leads"),
    )

    state = restore(SPEC, journal)

    assert state.stored.framework_id == "fw-1"
    assert TaskState.RUNNING is state.status("worker-0").state
    assert state.stored.tasks["worker-0"].generation == 1
    assert (state.stored.tasks["worker-0"].address, state.stored.tasks["worker-0"].hostname) == (
        ("10.0.0.1:31000", "agent-1")
    )


def test_stop_from_another_thread_ends_the_service():
    """Without a framework, a connection would register one that is never torn down."""
    journal = Journal()
    runner = Runner(restore(SPEC, journal), journal)
    journal.runner = runner
    runner.request_stop("Ctrl-C")

    final = runner.run(journal)

    assert (final.stored.result.verdict, final.stored.result.reason) == (Verdict.STOPPED, "Ctrl-C")
    assert [] == [entry for entry in journal.entries if entry[0] == "start"]


def test_abort_sends_no_calls():
    """The next start takes over."""
    journal = Journal()
    runner = Runner(restore(SPEC, journal), journal)
    runner.abort()

    runner.run(journal)

    assert journal.entries == [("start", ()), ("stop", ())]


def test_observers_see_every_decision_after_its_calls():
    seen, journal = [], Journal()
    runner = Runner(restore(SPEC, journal), journal)
    runner.attach(lambda event, _: seen.append(event.kind))
    journal.runner = runner
    runner.put(lambda: SubscriptionRefused("no"))

    runner.run(journal)

    assert seen == ["Tick", "Refused"]


def test_acknowledgement_follows_stored_status():
    """For every update of the script above."""
    journal = Journal()
    run_service(journal, *SCRIPT)

    stored = 0
    for kind, what in journal.entries:
        stored += kind == "store" and sum(key.startswith("statuses/") for key in what)
        if (kind, what) == ("call", Acknowledge.__name__):
            stored -= 1
            assert stored >= 0
    assert stored == 0


def test_queued_updates_are_stored_together():
    """The events behind them follow, and each observer call has its own decision."""
    seen, journal = [], Journal()

    def see(event, decision):
        seen.append((event.kind, [type(call).__name__ for call in decision.calls]))

    runner = Runner(restore(SPEC, journal), journal, clock=lambda: 1000.0, new_id=lambda: "id")
    runner.attach(see)
    journal.runner = runner
    updates = [lambda what=what: status(runner.state, what) for what in (TaskState.STARTING, TaskState.RUNNING)]
    for thunk in (lambda: Subscribed("fw-1"), lambda: OffersReceived((an_offer(),)), *updates, lambda: None):
        runner.put(thunk)
    runner.put(lambda: ExecutorFailed("agent-1-id", "another", 9))
    runner.put(lambda: SubscriptionRefused("no"))

    runner.run(journal)

    assert [("StatusUpdated", ["Acknowledge"])] * 2 == seen[3:5]
    assert ["ExecutorFailed", "Refused"] == [name for name, _ in seen[5:]]
    assert ("store", ("statuses/worker-0", "statuses/worker-0", "plans/deploy", "plans/update")) in journal.entries


def test_due_tick_is_not_delayed_by_waiting_events():
    """Tasks may report faster than the loop reads."""
    seen, journal = [], Journal()
    runner = Runner(
        restore(SPEC, journal), journal, clock=lambda: 1000.0, new_id=lambda: "id", deadline=lambda _: 999.0
    )
    runner.attach(lambda event, _decision: seen.append(event.kind))
    journal.runner = runner
    for thunk in (lambda: Subscribed("fw-1"), *[lambda: ClockDrifted(1.0)] * 5, lambda: SubscriptionRefused("no")):
        runner.put(thunk)

    runner.run(journal)

    assert [1] * 5 == [len(list(run)) for kind, run in groupby(seen) if kind == "ClockDrifted"]


def test_finished_service_does_not_connect():
    """Mesos would refuse the removed framework, or register another one without an id."""
    journal = Journal()
    run_service(journal, *SCRIPT)
    journal.entries.clear()

    final = run_service(journal)

    assert (True, []) == (final.process.finished, journal.entries)


def test_checkpoints_of_the_loop():
    """Each step of the loop has a name, in order."""
    passed, journal = [], Journal()
    runner = Runner(restore(SPEC, journal), journal, checkpoint=lambda *point: passed.append(point))
    journal.runner = runner
    runner.put(lambda: Subscribed("fw-1"))
    runner.put(lambda: OffersReceived((an_offer(),)))
    runner.put(lambda: runner.abort())

    runner.run(journal)

    reported = ("after", "outcomes")
    store = [("before", "store"), ("after", "store")]
    accept = [("before", "Accept"), ("after", "Accept"), ("before", "Suppress"), ("after", "Suppress")]
    assert [reported, *store, reported, *store, *accept, reported] == passed


def test_waiting_events_are_counted():
    """The thread that puts them does not wait for the loop."""
    journal = Journal()
    runner = Runner(restore(SPEC, journal), journal)
    for _ in range(3):
        runner.put(lambda: None)

    assert 3 == runner.queued_events
