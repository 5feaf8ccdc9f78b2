"""Task completions that end the job, and failures that it survives."""

import pytest

from builders import a_job, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.recovery.replacement import is_survivable, replace_launch, success, success_policy
from tf_scheduler.core.recovery.status import conclude
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, StatusStored
from tf_scheduler.model.spec import FinishPolicy, JobKind, SuccessPolicy

JOBS = (a_job(JobKind.WORKER, 2), a_job(JobKind.PS, 1), a_job(JobKind.CHIEF, 1), a_job(JobKind.EVALUATOR, 1))


def a_state(policy=SuccessPolicy.DEFAULT, jobs=JOBS, **options):
    return a_running_state(a_spec(jobs=jobs, finish=FinishPolicy(success=policy), **options))


def completed(state):
    """Names of the tasks whose completion alone ends the job."""
    names = []
    for record in state.stored.tasks.values():
        after = apply(state, StatusStored(a_status(record.id, TaskState.FINISHED)))
        names += [record.name] if success(after) == record else []
    return names


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (SuccessPolicy.DEFAULT, ["chief-0"]),
        (SuccessPolicy.CHIEF, ["chief-0"]),
        (SuccessPolicy.WORKER_0, ["worker-0"]),
        (SuccessPolicy.ALL_WORKERS, []),
        (SuccessPolicy.ANY_WORKER, ["chief-0", "worker-0", "worker-1"]),
    ],
)
def test_policy_decides_which_completion_ends_job(policy, expected) -> None:
    assert expected == sorted(completed(a_state(policy)))


@pytest.mark.parametrize("alone", [False, True])
def test_lone_training_is_part_of_the_reason(alone) -> None:
    jobs = (a_job(JobKind.WORKER, 2),)
    state = a_state(jobs=jobs, strategy=Strategy.PYTORCH_DDP, policy=SuccessPolicy.ALL_WORKERS)
    for record in state.stored.tasks.values():
        status = a_status(record.id, TaskState.FINISHED, alone=alone and record.index == 0)
        state = apply(state, StatusStored(status))
    result = conclude(state, 5.0).state.stored.result
    warning = "; warning: the workers did not train together: worker-0 had no connection to another task; it needs "
    needed = '`torch.distributed.init_process_group("gloo")`, and the MASTER_ADDR that the scheduler sets'
    assert alone == (warning + needed in result.reason)


def test_failed_task_is_part_of_the_reason() -> None:
    """The job has no evaluation, for example, although it was asked for one."""
    state = a_state(jobs=(a_job(JobKind.CHIEF), a_job(JobKind.WORKER, 1), a_job(JobKind.EVALUATOR)))
    failed = [StatusStored(a_status(f"{name}-0__1", TaskState.FAILED)) for name in ("evaluator", "worker")]
    state = apply(state, *failed, StatusStored(a_status("chief-0__1", TaskState.FINISHED)))

    reason = conclude(state, 5.0).state.stored.result.reason
    assert {f"warning: {name}-0 on a has failed" for name in ("evaluator", "worker")} == set(reason.split("; ")[1:])


def test_worker_0_leads_without_chief() -> None:
    jobs = (a_job(JobKind.WORKER, 2),)

    assert ["worker-0"] == completed(a_state(SuccessPolicy.CHIEF, jobs=jobs))
    assert ["worker-0"] == completed(a_state(SuccessPolicy.CHIEF, jobs=(*jobs, a_job(JobKind.CHIEF, 0))))


def test_all_workers_policy_completes_with_last_worker() -> None:
    state = a_state(SuccessPolicy.ALL_WORKERS)
    for name in ("worker-0", "worker-1", "chief-0"):
        assert success(state) is None
        state = apply(state, StatusStored(a_status(f"{name}__1", TaskState.FINISHED)))

    assert success(state) is not None


def test_independent_strategy_ends_with_all_workers() -> None:
    spec = a_spec(strategy=Strategy.INDEPENDENT, jobs=(a_job(JobKind.WORKER, 2),))

    assert SuccessPolicy.ALL_WORKERS is success_policy(spec)


def test_job_survives_side_jobs_and_spare_workers() -> None:
    state = a_state(SuccessPolicy.ANY_WORKER)
    strict = a_state()

    assert all(is_survivable(state, state.stored.tasks[name]) for name in ("evaluator-0", "worker-0", "chief-0"))
    assert not is_survivable(state, state.stored.tasks["ps-0"])
    assert not is_survivable(strict, strict.stored.tasks["worker-0"])


def test_worker_that_is_not_launched_yet_may_still_finish() -> None:
    state = a_state(SuccessPolicy.ANY_WORKER, jobs=(a_job(JobKind.WORKER, 2),))
    failed = apply(state, StatusStored(a_status("worker-1__1", TaskState.FAILED)))
    waiting = with_fields(state, tasks={"worker-0": state.stored.tasks["worker-0"]})

    assert not is_survivable(failed, state.stored.tasks["worker-0"])
    assert is_survivable(waiting, state.stored.tasks["worker-0"])


def test_all_workers_policy_awaits_each_of_them() -> None:
    """Others may have finished instead."""
    state = a_state(SuccessPolicy.ALL_WORKERS, jobs=(a_job(JobKind.WORKER, 2), a_job(JobKind.EVALUATOR, 2)))
    for name in ("worker-0", "evaluator-0", "evaluator-1"):
        state = apply(state, StatusStored(a_status(f"{name}__1", TaskState.FINISHED)))

    assert success(state) is None


def test_one_live_worker_is_enough_to_survive() -> None:
    state = apply(a_state(SuccessPolicy.ANY_WORKER), StatusStored(a_status("worker-1__1", TaskState.FAILED)))

    assert is_survivable(state, state.stored.tasks["worker-0"])


def test_failed_worker_that_is_relaunched_may_still_finish() -> None:
    state = a_state(SuccessPolicy.ANY_WORKER, jobs=(a_job(JobKind.WORKER, 2),))
    failed = apply(state, StatusStored(a_status("worker-1__1", TaskState.FAILED)))
    relaunched = apply(failed, RecoveryDecided(replace_launch(failed, failed.stored.tasks["worker-1"], "x", 1.0)))

    answers = [is_survivable(item, item.stored.tasks["worker-0"]) for item in (failed, relaunched)]

    assert [False, True] == answers


def test_all_workers_policy_awaits_a_worker_that_is_not_launched() -> None:
    """As many other tasks have finished."""
    state = a_state(SuccessPolicy.ALL_WORKERS, jobs=(a_job(JobKind.WORKER, 2), a_job(JobKind.EVALUATOR)))
    for name in ("worker-0", "evaluator-0"):
        state = apply(state, StatusStored(a_status(f"{name}__1", TaskState.FINISHED)))
    tasks = {name: record for name, record in state.stored.tasks.items() if name != "worker-1"}

    assert success(with_fields(state, tasks=tasks)) is None
