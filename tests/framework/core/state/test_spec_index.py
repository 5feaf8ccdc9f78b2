"""Index of the spec: digests, deployed tasks, and launch plans."""

from dataclasses import replace

import pytest

from builders import a_job, a_spec, needs
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state.spec_index import config_digest, index_of
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy
from tf_scheduler.model.resources import Volume
from tf_scheduler.model.spec import JobKind

SPEC = a_spec()
#: Digests of the tasks ps-0, worker-0 and chief-0 of SPEC.
RECORDED = ["7f7b83dce23f072a", "71598dee9e1f0b2a", "4abf0399962c423e"]


def changed(**options):
    """Tasks whose launch digest differs if the worker job has other options."""
    jobs = tuple(replace(job, **options) if job.kind is JobKind.WORKER else job for job in SPEC.jobs)
    other = replace(SPEC, jobs=jobs)
    return {name for name in index_of(SPEC).tasks if config_digest(SPEC, name) != config_digest(other, name)}


def test_digest_of_options_ignores_their_notation() -> None:
    """A restarted scheduler must not take its own tasks for outdated."""
    assert index_of(a_spec()).target == index_of(a_spec()).target
    assert index_of(a_spec(workers=2)).target != index_of(a_spec(workers=3)).target


def test_digest_changes_with_launch_options_of_own_job() -> None:
    assert {"worker-0", "worker-1"} == changed(command="other") == changed(needs=needs(cpus=9))


def test_job_size_changes_digest_of_tasks_with_all_addresses() -> None:
    assert {"chief-0"} == changed(count=3)


def test_digest_of_unknown_task_is_empty() -> None:
    assert "" == config_digest(SPEC, "worker-9")


def test_side_jobs_are_not_members() -> None:
    jobs = (a_job(JobKind.WORKER), a_job(JobKind.EVALUATOR), a_job(JobKind.TENSORBOARD))
    index = index_of(a_spec(jobs=jobs))

    assert {"worker-0", "evaluator-0", "tensorboard-0"} == index.deployed
    assert {"worker-0"} == index.cluster_members


def test_strategy_decides_which_tasks_need_all_addresses() -> None:
    together = index_of(a_spec(strategy=Strategy.BETWEEN_GRAPH))

    assert {"chief-0"} == index_of(SPEC).address_dependents
    assert together.cluster_members == together.address_dependents


def test_deploy_launches_sections_of_its_phases_only() -> None:
    deploy = PlanSpec("deploy", phases=(PhaseSpec("first", "worker"),))

    assert {"worker-0", "worker-1"} == index_of(a_spec(plans={"deploy": deploy})).deployed


def test_update_has_phases_of_deploy_by_default() -> None:
    deploy = PlanSpec("deploy", PlanStrategy.CANARY)
    plans = index_of(a_spec(plans={"deploy": deploy})).launch_plans

    assert ["deploy", "update"] == [plan.name for plan in plans]
    assert plans[0].phases == plans[1].phases
    assert {PlanStrategy.CANARY} == {phase.strategy for phase in plans[1].phases}


def test_index_is_cached_by_identity() -> None:
    """The index of 10,000 tasks is computed once."""
    assert index_of(SPEC) is index_of(SPEC)


def test_built_in_jobs_surround_the_phases_of_a_rollout() -> None:
    """Options cannot name them. A user plan has only what it lists."""
    kinds = (JobKind.WORKER, JobKind.DISPATCHER, JobKind.DATA_WORKER, JobKind.TENSORBOARD, JobKind.EVALUATOR)
    jobs = tuple(a_job(kind) for kind in kinds)
    phases = (PhaseSpec("first", "worker"), PhaseSpec("unknown", "ps"))
    spec = a_spec(jobs=jobs, plans={name: PlanSpec(name, phases=phases) for name in ("deploy", "some")})

    deploy, update, some = index_of(spec).launch_plans

    built_in = [job.group for job in jobs if job.kind.is_builtin and job.kind is not JobKind.DISPATCHER]
    assert ["data-dispatcher", "first", *built_in] == [phase.name for phase in deploy.phases]
    assert [phase.name for phase in deploy.phases] == [phase.name for phase in update.phases]
    assert ["first"] == [phase.name for phase in some.phases]


def test_number_of_shards_changes_digest_of_independent_workers() -> None:
    one, two = (a_spec(workers, 0, 1, strategy=Strategy.INDEPENDENT) for workers in (1, 2))

    assert config_digest(one, "worker-0") != config_digest(two, "worker-0")
    assert config_digest(one, "chief-0") == config_digest(two, "chief-0")


def test_digest_is_that_of_other_versions() -> None:
    """An upgrade of the scheduler restarts no task."""
    digests = [config_digest(SPEC, name) for name in ("ps-0", "worker-0", "chief-0")]

    assert RECORDED == digests
    mounted = replace(SPEC, jobs=(replace(SPEC.jobs[1], volumes=(Volume("/a", "/b"),)),))
    assert RECORDED[1] != config_digest(mounted, "worker-0")


def test_trainers_are_those_that_end_the_job() -> None:
    # A specification that is not cached: this is the test of the index.
    assert {"worker-0", "worker-1", "chief-0"} == index_of(a_spec()).trainers


def test_lost_task_that_the_options_do_not_have_restarts_alone() -> None:
    assert {"worker-9"} == index_of(SPEC).restarts([TaskName("worker-9")], moved=False)


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [((), ["worker-0", "worker-1"]), ((1,), ["worker-1"]), ((1, 9, 0), ["worker-1", "worker-0"])],
)
def test_phase_launches_the_listed_tasks_of_its_job(indexes: tuple[int, ...], expected: list[str]) -> None:
    plan = PlanSpec("some", phases=(PhaseSpec("first", "worker", indexes=indexes),))
    some = index_of(a_spec(plans={"some": plan})).launch_plans[-1]

    assert expected == [step.task for _, step in some.steps()]
