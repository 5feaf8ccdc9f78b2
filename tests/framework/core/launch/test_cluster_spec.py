"""From addresses to ClusterSpec and TF_CONFIG."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.launch.cluster_spec import (
    cluster_of,
    cluster_records,
    hosts_rendezvous,
    tf_config,
    training_hosts,
    with_generation,
)
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import TaskRecord


def record(job, index, address):
    name = TaskName(f"{job.value}-{index}")
    return TaskRecord(name, TaskId(f"{name}__x"), job, index, AgentId("a"), "host", address, 1, (), 0.0)


def test_addresses_are_ordered_by_index() -> None:
    """TensorFlow looks up task i of a job at position i, whatever the launch order."""
    records = [record(JobKind.WORKER, index, f"h:{index}") for index in (2, 0, 1)] + [record(JobKind.PS, 0, "p:1")]

    assert cluster_of(records) == {"ps": ["p:1"], "worker": ["h:0", "h:1", "h:2"]}


def test_evaluator_is_not_in_cluster_spec() -> None:
    """A parameter-server chief that sees an evaluator waits for it forever."""
    cluster = {"chief": ["c:1"], "evaluator": ["e:1"], "worker": ["w:1"]}

    assert tf_config(cluster, JobKind.EVALUATOR, 0) == {
        "cluster": {"chief": ["c:1"], "worker": ["w:1"]},
        "task": {"type": "evaluator", "index": 0},
    }


@pytest.mark.parametrize(
    ("job", "address", "expected"),
    [
        pytest.param(JobKind.WORKER, "h:0", 4, id="same address"),
        pytest.param(JobKind.WORKER, "h:9", 5, id="other address"),
        pytest.param(JobKind.PS, "h:1", 5, id="new task"),
        pytest.param(JobKind.EVALUATOR, "h:9", 4, id="outside the ClusterSpec"),
    ],
)
def test_new_address_is_a_new_generation(job: JobKind, address: str, expected: int) -> None:
    """Every peer then restarts: not for a task that no peer knows."""
    worker, evaluator = record(JobKind.WORKER, 0, "h:0"), replace(record(JobKind.EVALUATOR, 0, "h:2"), generation=4)
    previous = {item.name: item for item in (worker, evaluator)}

    launched = with_generation(previous, [record(job, 0, address), worker])

    assert [expected] * 2 == [item.generation for item in launched]


def test_removed_task_is_not_in_cluster_spec() -> None:
    """It still runs, but the options have one worker less."""
    state = replace(a_running_state(a_spec(workers=2, ps=0, chief=0)), spec=a_spec(workers=1, ps=0, chief=0))

    assert ["worker-0"] == [item.name for item in cluster_records(state)]


def test_training_hosts_are_unique_and_sorted() -> None:
    spec = a_spec(workers=3, ps=0, chief=0, strategy=Strategy.HOROVOD)
    cluster = {"worker": ["10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:2"], "evaluator": ["10.0.0.9:1"]}
    assert ("10.0.0.1", "10.0.0.2") == training_hosts(spec, cluster)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_only_rank_0_of_horovod_hosts_rendezvous(strategy: Strategy) -> None:
    spec = a_spec(workers=2, ps=0, chief=0, strategy=strategy)

    assert [strategy is Strategy.HOROVOD, False] == [hosts_rendezvous(spec, JobKind.WORKER, index) for index in (0, 1)]
