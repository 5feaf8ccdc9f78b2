"""The core as a whole: events in, decisions out."""

import json
from dataclasses import replace
from itertools import count

import pytest

from builders import a_spec, a_status, an_offer
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core.offers.rounds import NO_OFFER_WARNING_SECONDS, REFUSE_LONG
from tf_scheduler.core.plans.scheduling import KILL_INTERVAL
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.core.state.backoff import MIN_DELAY
from tf_scheduler.core.state.reducer import LAUNCH_TIMEOUT
from tf_scheduler.model.effects import (
    Accept,
    Acknowledge,
    Decline,
    FrameworkRegistered,
    Kill,
    Reconcile,
    ResultDecided,
    ShutdownExecutor,
    StatusStored,
    Suppress,
    TaskLaunched,
    Teardown,
)
from tf_scheduler.model.events import (
    AgentFailed,
    Disconnected,
    ExecutorFailed,
    OffersReceived,
    SharedUserFound,
    StatusUpdated,
    StopRequested,
    Subscribed,
    SubscriptionRefused,
    Tick,
    TornDown,
)
from tf_scheduler.model.state import SchedulerState

FAILED, FINISHED, RUNNING = TaskState.FAILED, TaskState.FINISHED, TaskState.RUNNING


class EventSender:
    """Sends events to a state, and keeps the last decision."""

    def __init__(self, spec=None, state=None) -> None:
        self.state = state or SchedulerState(spec or a_spec())
        self.now = 1000.0
        self.ids = (f"id-{number}" for number in count())
        self.uuids = (f"uuid-{number}" for number in count())

    def send(self, event):
        self.decision = handle(self.state, event, self.now, lambda: next(self.ids))
        self.state = self.decision.state
        return self.decision

    def calls(self, kind):
        return [call for call in self.decision.calls if isinstance(call, kind)]

    def changes(self, kind):
        return [change for change in self.decision.changes if isinstance(change, kind)]

    def status(self, name, state, **options):
        record = self.state.stored.tasks[name]
        status = a_status(record.id, state, next(self.uuids), agent_id=record.agent_id, **options)
        return self.send(StatusUpdated(status))

    def deployed(self):
        self.send(Subscribed("fw-1"))
        self.send(OffersReceived((an_offer(),)))
        for name in self.state.stored.tasks:
            self.status(name, RUNNING)
        return self


def test_framework_id_is_stored_first() -> None:
    """It comes with the first subscription; the second one changes nothing."""
    world = EventSender()

    assert (FrameworkRegistered("fw-1"),) == world.send(Subscribed("fw-1")).changes
    assert world.send(Subscribed("fw-1")).changes == ()


def test_gang_launches_in_one_decision_with_stored_records() -> None:
    """Intent first: changes hold a record per launch, calls hold one ACCEPT per agent."""
    world = EventSender()
    world.send(Subscribed("fw-1"))

    world.send(OffersReceived((an_offer(cpus=2), an_offer("offer-2", "agent-2", cpus=2))))

    launched = [launch.record for call in world.calls(Accept) for launch in call.launches]
    assert {change.record for change in world.changes(TaskLaunched)} == set(launched)
    assert {"ps-0", "worker-0", "worker-1", "chief-0"} == {record.name for record in launched}
    assert len(world.calls(Accept)) == 2
    assert [Suppress()] == world.calls(Suppress)


def test_every_task_gets_whole_cluster_and_its_own_index() -> None:
    """TF_CONFIG is complete at launch."""
    world = EventSender()
    world.send(Subscribed("fw-1"))
    world.send(OffersReceived((an_offer(),)))

    payloads = [json.loads(launch.payload) for call in world.calls(Accept) for launch in call.launches]

    addresses = {record.name: record.address for record in world.state.stored.tasks.values()}
    cluster = {
        "chief": [addresses["chief-0"]],
        "ps": [addresses["ps-0"]],
        "worker": [addresses["worker-0"], addresses["worker-1"]],
    }
    assert len(set(addresses.values())) == 4
    for payload in payloads:
        task = {"type": payload["job"], "index": payload["index"]}
        assert {"cluster": cluster, "task": task} == payload["tf_config"]


def test_held_offers_are_released_with_reasons() -> None:
    """After hold_seconds no offer is held, and the API lists the reasons."""
    world = EventSender()
    world.send(Subscribed("fw-1"))
    world.send(OffersReceived((an_offer(cpus=1),)))
    assert next_deadline(world.state) == 1005.0

    world.now = 1005.0
    decision = world.send(Tick())

    (declined,) = world.calls(Decline)
    assert declined.offer_ids == ("offer-1",)
    assert MIN_DELAY <= declined.refuse_seconds <= MIN_DELAY + 5.0, "drawn at random from a window of hold_seconds"
    assert world.state.session.round.offers == {}
    assert all("pending: agent agent-1: needs cpus 0.6, has" in outcome.message for outcome in decision.outcomes)
    assert decision.outcomes
    assert next_deadline(world.state) is None


def test_unused_offers_are_declined_with_launch() -> None:
    """Every offer is answered once."""
    world = EventSender()
    world.send(Subscribed("fw-1"))

    world.send(OffersReceived((an_offer(), an_offer("offer-2", "agent-2"))))

    assert [call.offer_ids for call in world.calls(Accept)] == [("offer-1",)]
    assert [Decline(("offer-2",), REFUSE_LONG)] == world.calls(Decline)


def test_update_is_stored_and_acknowledged() -> None:
    """The acknowledgement is a call, so it is sent after the change is stored."""
    world = EventSender().deployed()

    world.status("worker-0", RUNNING, healthy=True)

    status = world.state.status("worker-0")
    assert [StatusStored(status)] == world.changes(StatusStored)
    assert [Acknowledge(status.id, status.agent_id, status.uuid)] == world.calls(Acknowledge)


def test_repeated_update_is_acknowledged_but_not_stored() -> None:
    """Mesos repeats updates until it receives the acknowledgement."""
    world = EventSender().deployed()
    world.status("worker-0", RUNNING)
    again = world.state.status("worker-0")

    decision = world.send(StatusUpdated(again))

    assert ((), (Acknowledge(again.id, again.agent_id, again.uuid),)) == (decision.changes, decision.calls)


@pytest.mark.parametrize("task_id", ["worker-0__of-an-earlier-life", "stranger__1", "nonsense"])
def test_unknown_running_task_is_killed(task_id: str) -> None:
    """And its update is acknowledged, or Mesos would repeat it forever."""
    world = EventSender().deployed()

    decision = world.send(StatusUpdated(a_status(task_id, RUNNING)))

    assert (Acknowledge(task_id, "agent-1-id", "uuid"), Kill(task_id, "agent-1-id")) == decision.calls
    assert decision.changes == ()


@pytest.mark.parametrize(("chief", "name"), [(1, "chief-0"), (0, "worker-0")])
def test_finished_chief_or_worker_0_is_success(chief: int, name: str) -> None:
    """Then every task that never exits by itself is killed."""
    world = EventSender(a_spec(chief=chief)).deployed()

    world.status(name, FINISHED)

    assert [change.result.verdict for change in world.changes(ResultDecided)] == [Verdict.SUCCEEDED]
    others = {record.id for record in world.state.stored.tasks.values() if record.name != name}
    assert others == {call.task_id for call in world.calls(Kill)}


def test_finished_other_worker_does_not_end_job() -> None:
    """Only the chief's end counts."""
    world = EventSender().deployed()

    world.status("worker-0", FINISHED)

    assert world.state.stored.result is None
    assert tuple(world.calls(Kill)) == ()


def test_first_fatal_failure_ends_job_with_its_reason() -> None:
    """An unauthorized launch is final. Later events do not replace the reason."""
    world = EventSender().deployed()

    world.status("worker-1", TaskState.ERROR, message="more than was offered", reason="REASON_TASK_UNAUTHORIZED")
    world.status("worker-0", FAILED, message="exit code 1")

    assert Verdict.FAILED is world.state.stored.result.verdict
    assert world.state.stored.result.reason.startswith("worker-1 on agent-1 failed: more than was offered")


def test_job_end_shuts_executors_down_then_framework() -> None:
    """In that order; the service has ended when Mesos has accepted the TEARDOWN."""
    world = EventSender().deployed()
    world.status("chief-0", FINISHED)
    for name in ("ps-0", "worker-0"):
        world.status(name, TaskState.KILLED)
        assert world.calls(Teardown) == []

    world.status("worker-1", TaskState.KILLED)

    assert len(world.calls(ShutdownExecutor)) == 4
    assert Teardown() == world.decision.calls[-1]
    assert not world.state.process.finished
    world.send(TornDown())
    assert world.state.process.finished


def test_lost_teardown_is_sent_again() -> None:
    """Calls may be lost."""
    world = EventSender(a_spec(workers=1, ps=0, chief=0)).deployed()
    world.status("worker-0", FINISHED)
    assert [Teardown()] == world.calls(Teardown)

    assert [call for call in world.send(Tick()).calls if isinstance(call, Teardown)] == []
    assert world.now + KILL_INTERVAL == next_deadline(world.state)
    world.now += KILL_INTERVAL
    world.send(Tick())
    assert [Teardown()] == world.calls(Teardown)


def test_stop_before_subscription_ends_immediately() -> None:
    """There is nothing to tear down."""
    world = EventSender()

    decision = world.send(StopRequested("Ctrl-C"))

    assert world.state.process.finished
    assert decision.calls == ()
    assert Verdict.STOPPED is world.state.stored.result.verdict


def test_lost_connection_clears_offers() -> None:
    """Offers of the old connection are never accepted or declined on the new one."""
    world = EventSender()
    world.send(Subscribed("fw-1"))
    world.send(OffersReceived((an_offer(cpus=2),)))

    world.send(Disconnected("the master went away"))

    assert [True] == [outcome.warning for outcome in world.decision.outcomes]
    assert world.state.session.round.offers == {}
    assert world.decision.calls == ()
    assert next_deadline(world.state) is None


def test_new_subscription_reconciles_tasks_with_agents() -> None:
    """Explicitly for those that may run, then implicitly for all."""
    world = EventSender().deployed()
    world.status("worker-1", FINISHED)
    world.send(Disconnected("gone"))

    world.send(Subscribed("fw-1"))

    explicit, implicit = world.calls(Reconcile)
    assert {"chief-0", "ps-0", "worker-0"} == {task.partition("__")[0] for task in explicit.tasks}
    assert {"agent-1-id"} == set(explicit.tasks.values())
    assert implicit.tasks == {}
    assert [Suppress()] == world.calls(Suppress), "SUBSCRIBE un-suppresses"


def test_launch_without_update_is_reconciled() -> None:
    """The ACCEPT may be lost; RECONCILE is repeated at intervals."""
    world = EventSender(a_spec(workers=1, ps=0, chief=0))
    world.send(Subscribed("fw-1"))
    world.send(OffersReceived((an_offer(),)))
    assert next_deadline(world.state) == 1000.0 + LAUNCH_TIMEOUT

    world.now += LAUNCH_TIMEOUT
    record = world.state.stored.tasks["worker-0"]
    assert (Reconcile({record.id: record.agent_id}),) == world.send(Tick()).calls
    assert world.send(Tick()).calls == ()
    assert next_deadline(world.state) == 1000.0 + 2 * LAUNCH_TIMEOUT


def test_mesos_error_stops_scheduler_and_keeps_tasks() -> None:
    """No TEARDOWN, no new subscription: an operator must check."""
    world = EventSender().deployed()

    decision = world.send(SubscriptionRefused("Framework has been removed"))

    assert world.state.process.finished
    assert world.state.process.refused == "Mesos refused the framework: Framework has been removed"
    assert decision.calls == ()


def test_failure_events_change_nothing() -> None:
    """A FAILURE event is unreliable: the status of the task counts."""
    world = EventSender().deployed()
    before = world.state

    world.send(ExecutorFailed("agent-1-id", "worker-0__x", 9))

    assert before == world.state


def test_executor_with_wrong_digest_fails_job() -> None:
    """Another launch would fetch the same bundle."""
    executor = replace(a_spec().executor, uri="http://h/e.pyz", sha256="e" * 64)
    world = EventSender(replace(a_spec(), executor=executor)).deployed()
    launch = world.state.stored.tasks["worker-0"].id

    late = world.send(ExecutorFailed("agent-1-id", "worker-0__replaced", 65 << 8))
    assert not late.outcomes, "of an earlier launch"
    decision = world.send(ExecutorFailed("agent-1-id", launch, 65 << 8))

    assert world.state.stored.result.verdict is Verdict.FAILED
    assert f"http://h/e.pyz: wrong SHA-256 digest; expected {'e' * 64}" in (world.state.stored.result.reason)
    assert any(isinstance(call, Kill) for call in decision.calls)
    again = world.send(ExecutorFailed("agent-1-id", launch, 65 << 8))
    assert not again.outcomes


@pytest.mark.parametrize(("image", "has_failed"), [("tf", True), ("", False)])
def test_image_without_interpreter_fails_job(image: str, has_failed: bool) -> None:
    """An image is the same on each agent; agents themselves may differ."""
    jobs = tuple(replace(job, image=image) for job in a_spec().jobs)
    world = EventSender(replace(a_spec(), jobs=jobs)).deployed()

    world.send(ExecutorFailed("agent-1-id", world.state.stored.tasks["worker-0"].id, 127 << 8))

    result = world.state.stored.result
    assert has_failed is (result is not None)
    assert not has_failed or "executor.python: `python3`: cannot be started in the image `tf`" in result.reason


def test_unknown_event_raises_error() -> None:
    """The set of events is closed."""
    with pytest.raises(TypeError):
        EventSender().send("event")


def test_missing_offers_are_reported() -> None:
    """No agent is free, or constraints exclude all: the API still has a reason."""
    world = EventSender(a_spec(workers=1, ps=0, chief=0))
    world.send(Subscribed("fw-1"))
    assert world.now + NO_OFFER_WARNING_SECONDS == next_deadline(world.state)

    world.now += NO_OFFER_WARNING_SECONDS
    decision = world.send(Tick())

    assert ["needs cpus 0.6, mem 1088, ports 1; no offers from any agent"] == [
        str(reason) for reason in world.state.session.round.reasons["worker-0"]
    ]
    assert [True] == [outcome.warning for outcome in decision.outcomes]
    assert next_deadline(world.state) is None


def test_reasons_include_agents_declined_before() -> None:
    """An unsuitable agent is declined immediately, but listed until it is removed."""
    world = EventSender(a_spec(workers=1, ps=0, chief=0))
    world.send(Subscribed("fw-1"))

    world.send(OffersReceived((an_offer(cpus=0.1),)))
    assert [Decline(("offer-1",), REFUSE_LONG)] == world.calls(Decline)
    world.send(OffersReceived((an_offer("offer-2", "agent-2", cpus=0.2),)))

    def hostnames():
        world.now = next_deadline(world.state) or 0.0
        world.send(Tick())
        return {reason.hostname for reason in world.state.session.round.reasons["worker-0"][:-1]}

    assert {"agent-1", "agent-2"} == hostnames()
    world.send(AgentFailed("agent-1-id"))
    world.send(OffersReceived((an_offer("offer-3", "agent-3", cpus=0.3),)))
    assert {"agent-2", "agent-3"} == hostnames()


def test_shared_user_is_only_reported() -> None:
    """An operator sees it as a warning."""
    sender = EventSender(a_spec())
    before = sender.state

    (outcome,) = sender.send(SharedUserFound("nobody", ("marathon on agent-1",))).outcomes

    assert ("SharedUserFound", True) == (outcome.kind, outcome.warning)
    assert "as user nobody, which can read" in outcome.message
    assert before.stored == sender.state.stored
    assert () == sender.decision.calls


def test_refused_subscription_is_a_warning() -> None:
    world = EventSender()

    decision = world.send(SubscriptionRefused("role not allowed"))

    assert [("SubscriptionRefused", True)] == [(outcome.kind, outcome.warning) for outcome in decision.outcomes]
