"""The first failure is blamed; its consequences are listed next to it."""

from __future__ import annotations

from typing import Any

from builders import a_job, a_spec
from kit import worlds
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import overview
from tf_scheduler.model.spec import JobKind, RestartPolicy, RestartWhen

FAILED = TaskState.FAILED


def without_tolerance(workers: int = 2, **options: object) -> World:
    """A service that tolerates no failure."""
    spec = a_spec(workers=workers, restart=RestartPolicy(max_failures=0), **options)
    return worlds.deployed(spec, an_agent("agent-1", cpus=100, mem=1_000_000), kills_at_once=False)


def failed(name: str) -> Any:
    return send.status(name, FAILED, exit_code=1, message="exit code 1")


def test_consequences_are_listed_and_first_failure_is_blamed() -> None:
    """The result lists consequences, without killed tasks and later failures."""
    world = without_tolerance()
    play(world, failed("worker-1"), expect.result(Verdict.FAILED), failed("chief-0"), failed("worker-0"))
    reason = "worker-1 on agent-1 failed: exit code 1; failure 1, restart.max_failures is 0 in 3600 s"
    sentence = f"{reason}; 2 others failed as a consequence: chief-0, worker-0"

    assert (reason, sentence) == (world.state.stored.result.reason, world.state.stored.result.sentence)
    assert sentence == overview(Snapshot(world.state)).reason
    play(world, send.restart(), send.killed("ps-0"), expect.outcome(f"failed: {sentence}"), expect.torn_down())


def test_late_failure_is_not_a_consequence() -> None:
    """Also when the scheduler killed the task in between."""
    world = without_tolerance()
    play(world, failed("worker-1"), send.killed("chief-0"), send.wait(21.0), failed("worker-0"))

    assert () == world.state.stored.result.collateral


def test_long_list_of_consequences_is_shortened() -> None:
    """The message has their number too."""
    world = without_tolerance(workers=10)
    play(world, *(failed(f"worker-{index}") for index in range(9)))

    end = "; 8 others failed as a consequence: worker-1, worker-2, worker-3, worker-4, worker-5 ..."
    assert world.state.stored.result.sentence.endswith(end)
    assert (5, 8) == (len(world.state.stored.result.collateral), world.state.stored.result.collateral_count)
    play(world, send.restart())
    assert world.state.stored.result.sentence.endswith(end)


def test_collateral_failure_that_ends_job_names_its_cause() -> None:
    """The chief has no restart left; the ps was lost first."""
    jobs = (
        a_job(JobKind.PS),
        a_job(JobKind.WORKER, 2, restart=RestartPolicy(when=RestartWhen.NEVER)),
        a_job(JobKind.CHIEF),
    )
    world = without_tolerance(jobs=jobs)
    play(world, send.status("ps-0", FAILED, signal=9, message="killed by signal 9 (SIGKILL)"), failed("worker-0"))

    reason = "worker-0 on agent-1 failed: exit code 1 (collateral: ps-0 has failed: killed by signal 9 (SIGKILL))"
    assert f"{reason}; its restart_policy is never" == world.state.stored.result.reason


def test_lone_training_is_part_of_each_result() -> None:
    """Also if the job fails or is stopped; once, although each task has trained alone."""
    warning = "; warning: the workers did not train together: worker-1 had no connection to another task; it needs `"
    alone = [send.status(name, FAILED, exit_code=1, alone=True) for name in ("worker-1", "worker-0")]
    for steps in (alone, [send.stop("enough"), *alone]):
        world = without_tolerance()
        play(world, *steps)
        assert 1 == world.state.stored.result.reason.count("did not train together")
        assert warning in world.state.stored.result.reason
