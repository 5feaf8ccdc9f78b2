"""End of a job: tasks that decide it, are killed with it, or keep running."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_job, a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.scheduler import next_deadline
from tf_scheduler.model.events import ScaleRequested
from tf_scheduler.model.plan import Reply, Verb
from tf_scheduler.model.spec import (
    AfterFinish,
    CleanupPolicy,
    FinishPolicy,
    JobKind,
    RestartPolicy,
    ServiceSpec,
    SuccessPolicy,
)
from tf_scheduler.model.task import PodVerb

FINISHED, FAILED = TaskState.FINISHED, TaskState.FAILED
ERROR = {"exit_code": 3, "message": "exit code 3"}
WORKERS = ("worker-0", "worker-1", "worker-2")
TRAINERS = ("ps-0", "worker-0", "worker-1")


def workers(success: SuccessPolicy = SuccessPolicy.DEFAULT, **options: Any) -> ServiceSpec:
    """Three independent workers."""
    jobs = (a_job(JobKind.WORKER, 3),)
    finish = FinishPolicy(success=success)
    return a_spec(**{"strategy": Strategy.INDEPENDENT, "jobs": jobs, "finish": finish, **options})


def between(*more: JobKind, **finish: Any) -> ServiceSpec:
    """A parameter server, two workers of which the first leads, and side jobs."""
    jobs = (a_job(JobKind.PS, 1), a_job(JobKind.WORKER, 2), *(a_job(kind) for kind in more))
    return a_spec(strategy=Strategy.BETWEEN_GRAPH, jobs=jobs, finish=FinishPolicy(**finish))


@pytest.mark.parametrize(
    ("success", "ends"),
    [
        (SuccessPolicy.CHIEF, ["worker-0"]),
        (SuccessPolicy.WORKER_0, ["worker-1", "worker-0"]),
        (SuccessPolicy.ANY_WORKER, ["worker-2"]),
        (SuccessPolicy.ALL_WORKERS, ["worker-0", "worker-2", "worker-1"]),
        (SuccessPolicy.DEFAULT, ["worker-0", "worker-2", "worker-1"]),
    ],
)
def test_success_policy_decides_which_exits_end_job(success: Any, ends: Any) -> None:
    """The last of these exits ends the job, none before it does."""
    world = deployed(workers(success))

    for name in ends:
        assert world.state.stored.result is None
        play(world, send.status(name, FINISHED))

    assert Verdict.SUCCEEDED is world.state.stored.result.verdict


def test_chief_counts_as_one_of_all_workers() -> None:
    """Without parameter servers the chief trains like a worker."""
    jobs = (a_job(JobKind.WORKER, 1), a_job(JobKind.CHIEF, 1))
    world = deployed(a_spec(strategy=Strategy.PYTORCH_DDP, jobs=jobs))

    play(world, send.status("worker-0", FINISHED))
    assert world.state.stored.result is None
    play(world, send.status("chief-0", FINISHED), expect.result(Verdict.SUCCEEDED))


@pytest.mark.parametrize("strategy", [Strategy.PYTORCH_DDP, Strategy.HOROVOD, Strategy.MULTI_WORKER_MIRRORED])
@pytest.mark.parametrize("end", [(FAILED, ERROR), (TaskState.GONE, {})])
def test_collective_loss_after_a_finish_fails_job(strategy: Any, end: Any) -> None:
    """The lost task cannot rejoin a ring with a finished peer, so the job fails."""
    finish = FinishPolicy(success=SuccessPolicy.ALL_WORKERS)
    world = deployed(a_spec(strategy=strategy, jobs=(a_job(JobKind.WORKER, 3),), finish=finish))

    play(world, send.status("worker-0", FINISHED))
    play(world, send.status("worker-1", end[0], **end[1]), expect.result(Verdict.FAILED))

    assert "worker-0 had already finished" in world.state.stored.result.reason


def test_independent_workers_continue_after_a_finish() -> None:
    """Independent workers do not depend on each other."""
    world = deployed(workers(SuccessPolicy.ALL_WORKERS))

    play(world, send.status("worker-0", FINISHED))
    play(world, send.status("worker-1", FAILED, **ERROR), send.offers(), expect.launched("worker-1"))

    assert world.state.stored.result is None


def test_any_worker_policy_fails_with_last_worker() -> None:
    """Two workers may fail while the third may succeed; its failure fails the job."""
    once = RestartPolicy(max_failures=0)
    world = deployed(workers(SuccessPolicy.ANY_WORKER, restart=once))

    for name in WORKERS[:2]:
        play(world, send.status(name, FAILED, **ERROR), send.offers(), expect.launched())
        assert world.state.stored.result is None
    play(world, send.status("worker-2", FAILED, **ERROR), expect.result(Verdict.FAILED))


@pytest.mark.parametrize("kind", [JobKind.EVALUATOR, JobKind.TENSORBOARD])
def test_side_jobs_do_not_fail_job(kind: Any) -> None:
    """Side jobs are relaunched, and abandoned after too many failures."""
    spec = between(kind)
    world = deployed(a_spec(strategy=spec.strategy, jobs=spec.jobs, restart=RestartPolicy(max_failures=0)))

    play(world, send.status(f"{kind.value}-0", FAILED, **ERROR), expect.outcome("; the job continues without it"))
    play(world, send.offers(), expect.launched(), expect.alive(*TRAINERS))

    assert world.state.stored.result is None


@pytest.mark.parametrize("clean_up", [CleanupPolicy.RUNNING, CleanupPolicy.ALL])
def test_running_tasks_are_killed_with_job(clean_up: Any) -> None:
    """The framework is removed from Mesos."""
    world = deployed(between(cleanup=clean_up))

    play(world, send.status("worker-0", FINISHED), expect.killed("ps-0", "worker-1"), expect.torn_down())


def mirrored(**finish: Any) -> ServiceSpec:
    """A chief and two workers that do the same steps."""
    jobs = (a_job(JobKind.CHIEF, 1), a_job(JobKind.WORKER, 2, kill_grace=7.0))
    return a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs, finish=FinishPolicy(**finish))


def test_mirrored_peers_may_end_by_themselves() -> None:
    """They may still save the model after the end of the leader, for kill_grace."""
    world = deployed(mirrored())

    play(world, send.status("chief-0", FINISHED), expect.killed(), expect.outcome("keeps running for up to 7 s"))
    play(world, send.status("worker-0", FINISHED), send.wait(6.0), expect.alive("worker-1"))
    play(world, send.wait(1.0), expect.killed("worker-1"), expect.torn_down())


def test_service_ends_with_the_last_mirrored_peer() -> None:
    """The grace is a limit, and a failure of a peer does not change the result."""
    world = deployed(mirrored())

    play(world, send.status("chief-0", FINISHED), send.status("worker-0", FINISHED))
    play(world, send.status("worker-1", FAILED, **ERROR), expect.torn_down())

    assert Verdict.SUCCEEDED is world.state.stored.result.verdict


def test_mirrored_peers_of_a_failed_job_stop_immediately() -> None:
    """Only a success leaves something to save."""
    failure = send.status("chief-0", TaskState.ERROR, message="no", reason="REASON_TASK_UNAUTHORIZED")

    play(deployed(mirrored()), failure, expect.result(Verdict.FAILED), expect.killed("worker-0", "worker-1"))


def test_tasks_left_running_are_killed_after_timeout() -> None:
    """With clean_up none, for debugging, but not forever."""
    world = deployed(between(cleanup=CleanupPolicy.NONE, keep_seconds=100.0))

    play(world, send.status("worker-0", FINISHED), expect.killed(), expect.outcome("keeps running for up to 100 s"))
    play(world, send.wait(99.0), expect.alive("ps-0", "worker-1"))
    play(world, send.wait(1.0), expect.killed("ps-0", "worker-1"), expect.torn_down())


def test_tasks_without_timeout_run_until_service_ends() -> None:
    """The scheduler waits without a limit."""
    world = deployed(between(cleanup=CleanupPolicy.NONE, keep_seconds=None))

    play(world, send.status("worker-0", FINISHED), expect.killed())
    play(world, send.wait(10_000.0), expect.killed(), expect.alive("ps-0", "worker-1"))
    play(world, send.stop(), expect.killed("ps-0", "worker-1"), expect.torn_down())

    assert Verdict.SUCCEEDED is world.state.stored.result.verdict, (
        "to end what was kept does not change how the job ended"
    )


def test_tensorboard_keep_time_survives_scheduler_restart() -> None:
    """The time counts from the stored end of the job."""
    world = deployed(between(JobKind.TENSORBOARD, after_finish=AfterFinish.KEEP_TENSORBOARD, keep_seconds=100.0))

    play(world, send.status("worker-0", FINISHED), expect.killed("ps-0", "worker-1"), expect.alive("tensorboard-0"))
    play(world, send.wait(60.0), send.restart(), expect.killed(), expect.alive("tensorboard-0"))
    play(world, send.wait(39.0), expect.alive("tensorboard-0"))
    play(world, send.wait(1.0), expect.killed("tensorboard-0"), expect.torn_down())


def test_tensorboard_is_kept_after_failed_job() -> None:
    """That is when its curves are needed most."""
    world = deployed(between(JobKind.TENSORBOARD, after_finish=AfterFinish.KEEP_TENSORBOARD))

    play(
        world,
        send.status("worker-0", TaskState.ERROR, message="no", reason="REASON_TASK_UNAUTHORIZED"),
        expect.result(Verdict.FAILED),
    )
    play(world, expect.alive("tensorboard-0"))


def test_stopped_job_keeps_no_tasks() -> None:
    """Stopping the job stops everything."""
    world = deployed(
        between(JobKind.TENSORBOARD, after_finish=AfterFinish.KEEP_TENSORBOARD, cleanup=CleanupPolicy.NONE)
    )

    play(world, send.stop(), expect.killed(*TRAINERS, "tensorboard-0"), expect.torn_down())


def test_evaluator_has_time_for_last_checkpoint() -> None:
    """After its time the evaluator is killed; the other tasks are killed immediately."""
    world = deployed(between(JobKind.EVALUATOR, evaluator_seconds=30.0))

    play(world, send.status("worker-0", FINISHED), expect.killed("ps-0", "worker-1"), expect.alive("evaluator-0"))
    play(world, send.wait(30.0), expect.killed("evaluator-0"), expect.torn_down())


def test_finished_evaluator_does_not_delay_end() -> None:
    """The service exits immediately."""
    world = deployed(between(JobKind.EVALUATOR, evaluator_seconds=30.0))

    play(world, send.status("worker-0", FINISHED), send.status("evaluator-0", FINISHED), expect.torn_down())


def test_idle_service_stays_until_uninstalled() -> None:
    """Without tasks, and without asking for offers."""
    world = deployed(between(after_finish=AfterFinish.IDLE))

    play(world, send.status("worker-0", FINISHED), expect.killed("ps-0", "worker-1"), expect.suppressed())
    play(world, send.wait(60), expect.quiet())
    assert (False, None) == (world.state.process.finished, next_deadline(world.state))
    play(world, send.restart(), send.wait(10_000.0))
    assert not world.state.process.finished
    play(world, send.stop(), expect.torn_down())


@pytest.mark.parametrize(
    "command",
    [
        send.command(Verb.RESTART, "deploy"),
        send.command(Verb.START, "deploy"),
        send.command(Verb.INTERRUPT, "deploy", "worker"),
        send.command(Verb.FORCE_COMPLETE, "recovery"),
        send.pod(PodVerb.RESTART, "worker-1"),
        send.pod(PodVerb.PAUSE, "worker-1"),
    ],
)
def test_ended_job_rejects_commands(command: Any) -> None:
    """A command could never complete; plans keep their last status, even when idle."""
    world = play(deployed(between(after_finish=AfterFinish.IDLE)), send.status("worker-0", FINISHED), send.wait())
    before = world.state

    play(world, command, expect.answered(Reply.CONFLICT, "the service has finished"), expect.quiet())

    assert before == world.state


def test_job_beyond_its_deadline_fails() -> None:
    """The deadline counts from the first launch; a relaunch or restart never moves it."""
    world = deployed(workers(finish=FinishPolicy(deadline=100.0)))

    play(world, send.wait(60.0), *(send.status(name, FAILED, signal=9) for name in WORKERS), send.wait(5.0))
    play(world, send.offers(), expect.launched(*WORKERS), send.running(), send.restart(), send.wait(34.0))
    assert world.state.stored.result is None
    play(world, send.wait(1.0), expect.result(Verdict.FAILED), expect.killed(*WORKERS), expect.torn_down())

    result: Any = world.state.stored.result
    assert "the job exceeded finish.deadline: 100 s since its first launch" == result.reason


def test_deadline_of_unlaunched_job_does_not_run() -> None:
    """The gang waits for resources; the time of the job has not started."""
    world = World(workers(finish=FinishPolicy(deadline=100.0)), an_agent(cpus=0.1))

    play(world, send.register(), send.offers(), send.wait(1000.0))

    assert world.state.stored.result is None


@pytest.mark.parametrize("strategy", [Strategy.INDEPENDENT, Strategy.PYTORCH_DDP])
@pytest.mark.parametrize("change", ["request", "options"])
def test_job_ends_when_what_is_missing_is_removed(strategy: Strategy, change: str) -> None:
    """The last unfinished worker is no longer wanted."""
    spec = replace(workers(strategy=strategy), min_workers=1, max_workers=4)
    smaller = replace(spec, jobs=(a_job(JobKind.WORKER, 2),))
    world = play(deployed(spec), *(send.status(name, FINISHED, exit_code=0) for name in WORKERS[:2]))

    play(world, expect.result(None), send.event(ScaleRequested(2)) if change == "request" else send.restart(smaller))

    play(world, expect.result(Verdict.SUCCEEDED), expect.killed("worker-2"))


def test_job_ends_when_another_task_decides() -> None:
    """New options name a task that has already finished."""
    world = play(deployed(between(success=SuccessPolicy.ALL_WORKERS)), send.status("worker-0", FINISHED, exit_code=0))

    play(world, expect.result(None), send.restart(between(success=SuccessPolicy.WORKER_0)))

    play(world, expect.result(Verdict.SUCCEEDED))


def test_worker_that_fails_while_surplus_is_relaunched_when_wanted() -> None:
    """It was not needed when it failed."""
    spec = replace(workers(), min_workers=1, max_workers=4)
    world = play(deployed(spec, kills_at_once=False), send.event(ScaleRequested(1)))
    play(world, send.status("worker-1", FAILED, **ERROR), send.event(ScaleRequested(3)))

    for _ in range(3):
        play(world, send.killed(), send.offers(), send.running())

    play(world, expect.alive(*WORKERS), expect.result(None))
