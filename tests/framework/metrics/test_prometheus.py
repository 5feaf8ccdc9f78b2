"""Counters and gauges of a simulated service, for Prometheus and the SDK."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import a_spec
from metered_world import MeteredWorld, a_life
from simulation import send
from simulation.mesos import an_agent
from simulation.world import play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.spec import RestartPolicy
from tf_scheduler.model.task import PodVerb


@pytest.fixture(scope="module")
def world():
    return a_life()


def test_offers_are_counted_by_outcome(world) -> None:
    """Accepted, declined and held offers add up to the received ones."""
    offers = {labels["outcome"]: value for name, labels, value in world.samples() if name == "tensorflow_offers_total"}
    received = offers.pop("received")

    assert offers["accepted"] >= 2
    assert received == sum(offers.values()) + world.value("offers_held")
    assert received == world.meter.dropwizard()["counters"]["offers.received"]["count"]


def test_launches_failures_and_recoveries_are_counted(world) -> None:
    """One worker was killed, and launched again for that reason."""
    assert 3 == world.value("launches_total", job_name="worker")
    assert 1 == world.value("failures_total", cause="infrastructure")
    assert 1 == world.value("recoveries_total", cause="infrastructure")
    assert 1 == world.value("recovery_seconds_count")
    assert 5 == world.value("operations_total", operation="launch")


def test_subscriptions_and_disconnections_are_counted(world) -> None:
    counted = [world.value(name) for name in ("subscriptions_total", "disconnections_total", "subscribed")]

    assert [2, 1, 1] == counted
    assert world.value("reconciliations_total", kind="explicit") + world.value("reconciliations_total", kind="implicit")


def test_decisions_and_transactions_are_measured(world) -> None:
    """Every decision by its event; every transaction that stored something."""
    kinds = [labels["event"] for name, labels, _ in world.samples() if name == "tensorflow_decision_seconds_count"]

    assert {"Subscribed", "OffersReceived", "StatusUpdated", "ProgressReported", "Disconnected"} <= set(kinds)
    assert world.value("store_seconds_count") > 5
    assert 0 == world.value("store_failures_total")


def test_training_gauges_of_reporting_tasks(world) -> None:
    """Unreported values are missing; a loss may be NaN."""
    worker = {"task": "worker-0", "job_name": "worker"}

    assert (120, 1000, 400.0) == tuple(
        world.value(f"training_{name}", **worker) for name in ("step", "total_steps", "examples_per_second")
    )
    text = world.meter.prometheus().decode()
    assert 'tensorflow_training_loss{job_name="chief",task="chief-0"} NaN' in text
    assert 'training_total_steps{job_name="chief"' not in text
    assert 'training_step{job_name="worker",task="worker-1"' not in text


def test_memory_of_tasks_is_shown_beside_its_limit(world) -> None:
    """The limit is that of the container: with the executor. Unknown use is missing."""
    record = next(record for record in world.state.live() if record.name == "worker-0")
    limit = sum(each.value for each in record.resources if each.name == "mem") / 1000 * 2**20

    assert limit == world.value("task_memory_bytes", task="worker-0", job_name="worker", kind="limit")
    assert 'kind="used"' not in world.meter.prometheus().decode()


def test_allocated_resources_are_summed_by_job(world) -> None:
    """Two workers with a GPU each; memory in bytes, with that of their executors."""
    assert 2 == world.value("allocated", job_name="worker", resource="gpus")
    assert 0 == world.value("allocated", job_name="ps", resource="gpus")
    assert 2 * (64 + 64) * 2**20 == world.value("allocated", job_name="worker", resource="mem")


def test_each_plan_has_one_status(world) -> None:
    assert 1 == world.value("plan_status", plan="deploy", status="COMPLETE")
    assert 0 == world.value("plan_status", plan="deploy", status="PENDING")
    assert 4 == world.value("tasks", state="TASK_RUNNING") == world.value("tasks_wanted")


def test_text_is_valid_for_prometheus(world) -> None:
    """By Prometheus' own parser; every metric has a description and the prefix."""
    families = list(text_string_to_metric_families(world.meter.prometheus().decode()))

    assert len(families) > 30
    assert all(family.documentation for family in families)
    assert {"tensorflow", "process"} == {family.name.partition("_")[0] for family in families}


def test_sdk_metrics_have_sdk_names(world) -> None:
    """dcos-commons, metrics/Metrics.java; the scheduler's own are among the gauges."""
    document = world.meter.dropwizard()

    assert {"version", "gauges", "counters", "histograms", "meters", "timers"} == set(document)
    assert 5 == document["counters"]["operation.launch"]["count"]
    assert document["counters"]["task_status.task_running"]["count"] >= 5
    assert {"value": 0} == document["gauges"]["plan_status.deploy"]
    assert {"value": True} == document["gauges"]["is_suppressed"]
    assert {"value": 120} == document["gauges"]["tensorflow_training_step.worker-0.worker"]
    assert "tensorflow_training_loss.chief-0.chief" not in document["gauges"]
    timer = document["timers"]["offers.process"]
    assert 0 < timer["min"] <= timer["p50"] <= timer["p99"] <= timer["max"]
    assert timer["count"] == world.value("decision_seconds_count", event="OffersReceived")


def test_requested_ends_are_not_failures() -> None:
    """Restarts of peers or by an operator are not failures; a final failure is."""
    world = MeteredWorld(a_spec(restart=RestartPolicy(max_failures=0)), an_agent("agent-1"), an_agent("agent-2"))
    play(world, send.register(), send.offers(), send.running(), send.pod(PodVerb.RESTART, "worker-0"))
    play(world, send.offers(), send.running(), send.status("ps-0", TaskState.FAILED, signal=9, message="killed"))
    play(world, send.wait(100), send.offers(), send.running())
    play(world, send.status("worker-1", TaskState.FAILED, exit_code=3, message="exit code 3"), send.killed())

    counted = {labels["cause"]: value for name, labels, value in world.samples() if name == "tensorflow_failures_total"}
    assert {"infrastructure": 1, "user error": 1} == counted
    assert 1 == world.value("recoveries_total", cause="ordered")


def test_deadlines_and_waiting_events_are_measured() -> None:
    """A loop that falls behind shows in both."""
    world = MeteredWorld(a_spec())
    metrics = world.meter.loop

    assert [7.0, 7.0] == [metrics.deadline(lambda _: 7.0)(world.state) for _ in range(2)]
    metrics.watch_events(lambda: 3)

    assert (2, 3) == (world.value("deadline_seconds_count"), world.value("events_queued"))


def test_examples_of_the_whole_job_are_exported_once() -> None:
    """So that the sum over all tasks is right; other values are those of each task."""
    world = a_life()
    progress = Progress(9, world.now, 5, examples=64, examples_per_second=8.0, of="job")
    names = ("chief-0", "worker-0")
    play(world, *(send.event(ProgressReported(world.id_of(name), progress)) for name in names))

    samples = [(name, labels["task"]) for name, labels, _ in world.samples() if name.startswith("tensorflow_training")]

    assert ["chief-0"] == [task for name, task in samples if "examples_per_second" in name]
    assert ["chief-0"] == [task for name, task in samples if name == "tensorflow_training_examples"]
    assert ["chief-0", "worker-0"] == sorted(task for name, task in samples if name == "tensorflow_training_step")
