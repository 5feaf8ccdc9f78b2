"""Tasks that must restart with a lost task."""

import pytest

from builders import a_job, a_spec
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state.spec_index import index_of, trains_together
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind

PSS, MWMS, BETWEEN = Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.BETWEEN_GRAPH
WITH_PS = (PSS, BETWEEN)
WITH_DATA = (JobKind.WORKER, JobKind.CHIEF, JobKind.DISPATCHER, JobKind.DATA_WORKER)
EVERY = {"ps-0", "ps-1", "worker-0", "worker-1", "chief-0"}


def spec(strategy):
    jobs = (a_job(JobKind.PS, 2), a_job(JobKind.WORKER, 2), a_job(JobKind.CHIEF), a_job(JobKind.EVALUATOR))
    return a_spec(strategy=strategy, jobs=jobs)


@pytest.mark.parametrize(
    ("strategy", "lost", "same", "moved"),
    [
        (PSS, "worker-1", {"worker-1"}, {"worker-1", "chief-0"}),
        (PSS, "ps-0", {"ps-0", "chief-0"}, {"ps-0", "chief-0"}),
        (PSS, "chief-0", {"chief-0"}, {"chief-0"}),
        (MWMS, "worker-1", EVERY, EVERY),
        (MWMS, "chief-0", EVERY, EVERY),
        (BETWEEN, "worker-0", {"worker-0"}, EVERY),
        (BETWEEN, "ps-1", {"ps-1"}, EVERY),
        (BETWEEN, "chief-0", {"chief-0"}, EVERY),
        *((strategy, "evaluator-0", {"evaluator-0"}, {"evaluator-0"}) for strategy in Strategy),
    ],
)
def test_lost_task_restarts_minimal_set(strategy, lost, same, moved):
    """As measured with TensorFlow, per strategy, at the same address and at a new one."""
    assert same == index_of(spec(strategy)).restarts([lost], moved=False)
    assert moved == index_of(spec(strategy)).restarts([lost], moved=True)


@pytest.mark.parametrize(
    ("folder", "lost", "same"),
    [("", "data-dispatcher-0", False), ("/mnt/run", "data-dispatcher-0", True), ("", "data-worker-0", True)],
)
def test_data_service_restarts_alone_at_its_address(folder: str, lost: str, same: bool) -> None:
    """A dispatcher needs a path for its journal; a ps and an evaluator do not read."""
    jobs = tuple(a_job(kind, 1) for kind in (*WITH_DATA, JobKind.PS, JobKind.EVALUATOR))
    index = index_of(a_spec(jobs=jobs, checkpoint_dir=folder))
    everything = {f"{kind.value}-0" for kind in WITH_DATA}

    assert ({lost} if same else everything) == index.restarts([TaskName(lost)], moved=False)
    assert everything == index.restarts([TaskName(lost)], moved=True)


def test_several_losses_are_one_recovery():
    """The union: no task restarts twice."""
    assert {"ps-0", "worker-1", "chief-0"} == index_of(spec(PSS)).restarts(
        map(TaskName, ("worker-1", "ps-0")), moved=False
    )


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("lost", ["chief-0", "worker-0", "ps-0"])
def test_new_address_restarts_tasks_that_know_all_addresses(strategy, lost):
    """Plans agree: a new ClusterSpec outdates exactly the tasks that know it."""
    kinds = (JobKind.PS, JobKind.WORKER, JobKind.CHIEF) if strategy in WITH_PS else (JobKind.WORKER, JobKind.CHIEF)
    about = a_spec(strategy=strategy, jobs=tuple(a_job(kind, 1 + (kind is JobKind.WORKER)) for kind in kinds))
    lost = lost if strategy in WITH_PS else "worker-1"

    assert index_of(about).address_dependents | {lost} == index_of(about).restarts([lost], moved=True)


@pytest.mark.parametrize(
    ("strategy", "kind", "together"),
    [
        (MWMS, JobKind.WORKER, True),
        (MWMS, JobKind.EVALUATOR, False),
        (PSS, JobKind.PS, False),
        (BETWEEN, JobKind.PS, False),
        (Strategy.INDEPENDENT, JobKind.WORKER, False),
    ],
)
def test_tasks_of_collective_strategies_train_together(strategy, kind, together: bool) -> None:
    assert together is trains_together(strategy, kind)
