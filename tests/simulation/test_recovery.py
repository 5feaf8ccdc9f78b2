"""Recovery: lost tasks restart with as few others as possible; the job continues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_job, a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import Step, World, play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_executor.lifecycle.steps import FENCED
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.plan import Reply, Verb
from tf_scheduler.model.resources import VirtualNetwork
from tf_scheduler.model.spec import JobKind, RecoveryPolicy, RestartPolicy, RestartWhen, ServiceSpec
from tf_scheduler.model.task import PodVerb

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
FAILED, FINISHED, LOST = TaskState.FAILED, TaskState.FINISHED, TaskState.LOST
KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}
#: The agent reports it instead of the executor.
EXECUTOR_DIED = {"reason": "REASON_EXECUTOR_TERMINATED", "message": "Executor terminated"}


def address(world: World, name: str) -> str:
    return world.state.stored.tasks[name].address


def generation(world: World, name: str) -> int:
    return world.state.stored.tasks[name].generation


def mirrored() -> ServiceSpec:
    jobs = (a_job(JobKind.WORKER, 3),)
    return a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs)


def test_lost_worker_restarts_alone_at_its_old_address() -> None:
    """With parameter servers the chief reconnects to the worker and need not restart."""
    world = deployed()
    before = address(world, "worker-1")

    play(
        world,
        send.status("worker-1", FAILED, **KILLED_HARD),
        expect.killed(),
        expect.revives(1),
        send.offers(),
        expect.launched("worker-1"),
        expect.killed(),
        send.running(),
        expect.alive(*ALL),
    )

    assert before == address(world, "worker-1")
    assert {1} == {generation(world, name) for name in ALL}


def test_relaunched_task_stays_in_the_plan_until_it_runs() -> None:
    """A restore of checkpoints may take long, and its storage may not answer."""
    world = deployed()
    play(
        world,
        send.status("worker-1", FAILED, **KILLED_HARD),
        send.offers(),
        expect.launched("worker-1"),
        expect.plan("recovery", Status.STARTING),
        expect.steps("recovery", worker_1=Status.STARTING),
        send.status("worker-1", TaskState.STARTING, message="the restore of checkpoints runs"),
        expect.plan("deploy", Status.COMPLETE),
        expect.plan("recovery", Status.STARTING),
        expect.says("recovery", "worker-1", "the restore of checkpoints runs"),
        send.command(Verb.INTERRUPT, "recovery", "worker-1"),
        expect.answered(Reply.OK),
        send.command(Verb.CONTINUE, "recovery", "worker-1"),
        send.running(),
        expect.steps("recovery"),
        expect.plan("recovery", Status.COMPLETE),
    )


def test_worker_at_new_address_restarts_chief() -> None:
    """Only a restarted chief finds the worker's new address; the ps keeps running."""
    world = deployed(None, an_agent("agent-1", cpus=2), an_agent("agent-2", cpus=2))
    (name,) = (name for name in ("worker-0", "worker-1", "ps-0", "chief-0") if on(world, name, "agent-2"))
    others = [other for other in ALL if other not in (name, "chief-0")]
    spare = an_agent("agent-3", cpus=8)

    play(world, send.agent_lost("agent-2"), send.agent(spare), send.running(), send.offers(), send.running())

    assert set(ALL) == set(world.mesos.live())
    assert 2 == generation(world, "chief-0") == generation(world, name)
    assert {1} == {generation(world, other) for other in others}
    assert world.state.stored.result is None


def on(world: World, name: str, hostname: str) -> bool:
    return world.state.stored.tasks[name].hostname == hostname


def test_ps_failure_restarts_chief_uncounted() -> None:
    """The chief notices the loss and exits 1: collateral, not a failure of its own."""
    world = deployed()

    play(
        world,
        send.status("ps-0", FAILED, **KILLED_HARD),
        expect.killed("chief-0"),
        send.offers(),
        expect.launched("ps-0", "chief-0"),
        send.running(),
        expect.alive(*ALL),
    )

    assert () == world.state.stored.recoveries["chief-0"].failures
    assert {1} == {generation(world, name) for name in ALL}


def test_collective_training_restarts_as_a_whole() -> None:
    """Survivors are killed, not left to time out; all come back together."""
    world = deployed(mirrored())

    play(
        world,
        send.status("worker-2", FAILED, **KILLED_HARD),
        expect.killed("worker-0", "worker-1"),
        send.offers(),
        expect.launched("worker-0", "worker-1", "worker-2"),
        send.running(),
        expect.alive("worker-0", "worker-1", "worker-2"),
    )

    assert world.state.stored.result is None


def test_repeated_failure_ends_job_after_max_failures() -> None:
    """With max_failures 2, three launches with growing back-off precede the job's end."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=2, backoff=4.0)))
    error = send.status("worker-1", FAILED, exit_code=3, message="exit code 3")

    play(world, error, send.offers(), expect.launched("worker-1"), send.running())
    play(world, error, expect.outcome("launched again in "), send.offers(), expect.launched())
    play(world, send.wait(10.0), send.offers(), send.running(), error, expect.result(Verdict.FAILED))

    assert (
        "worker-1 on agent-1 failed: exit code 3; failure 3, restart.max_failures is 2"
        in world.state.stored.result.reason
    )


def test_external_kills_are_not_counted() -> None:
    """Ten kills from outside, each retried."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0)))
    again: list[Step] = []
    for _ in range(10):
        again += [send.status("worker-1", FAILED, **KILLED_HARD), send.wait(400), send.offers(), send.running()]

    play(world, *again, expect.alive(*ALL))

    assert world.state.stored.result is None


@pytest.mark.parametrize("code", [42, 143])
def test_restart_exit_code_is_not_a_failure(code: Any) -> None:
    """TensorFlow's preemption handler exits with this code after saving a checkpoint."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0)))

    play(
        world,
        send.status("worker-0", FAILED, exit_code=code, message=f"exit code {code}"),
        send.offers(),
        expect.launched("worker-0"),
    )


def test_finished_task_is_never_relaunched() -> None:
    """A finished task stays finished even when its whole gang restarts."""
    world = deployed(mirrored())

    play(
        world,
        send.status("worker-2", FINISHED),
        send.pod(PodVerb.RESTART, "worker-1"),
        send.offers(),
        expect.launched("worker-0", "worker-1"),
    )


def test_unreachable_task_may_return() -> None:
    """If it returns within its timeout, nothing happens."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))

    play(
        world,
        send.status("worker-1", TaskState.UNREACHABLE),
        send.wait(59.0),
        expect.launched(),
        send.status("worker-1", TaskState.RUNNING),
        send.wait(120.0),
        expect.launched(),
        expect.alive(*ALL),
    )

    assert {} == world.state.stored.recoveries


def test_replaced_unreachable_task_is_killed_on_return() -> None:
    """The two are never both kept."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    old = world.id_of("worker-1")

    play(world, send.status("worker-1", TaskState.UNREACHABLE), send.wait(60.0))
    assert LOST is world.state.status("worker-1").state
    play(world, send.status("worker-1", TaskState.RUNNING), expect.killed("worker-1"))

    assert old == world.id_of("worker-1")


def test_unknown_task_is_awaited() -> None:
    """After the master lost its registry, agents register again with running tasks."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    world.mesos.unregistered = {"agent-1-id"}
    before = {name: world.id_of(name) for name in ALL}

    play(world, send.restart(), send.offers(), expect.launched(), send.wait(20.0), expect.launched())
    assert TaskState.UNKNOWN is world.state.status("worker-1").state
    world.mesos.unregistered = set()
    play(world, send.wait(30.0), send.wait(300.0), expect.launched(), expect.killed(), expect.alive(*ALL))

    assert before == {name: world.id_of(name) for name in ALL}
    assert {} == world.state.stored.recoveries


def test_unknown_task_is_lost_after_timeout() -> None:
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    world.mesos.unregistered = {"agent-1-id"}

    play(world, send.restart(), send.wait(30.0))
    assert TaskState.UNKNOWN is world.state.status("worker-1").state
    play(world, send.wait(31.0), expect.outcome("Mesos did not know the task for 60 s"))

    assert LOST is world.state.status("worker-1").state


@pytest.mark.parametrize("restart", [True, False], ids=["restart", "reconnect"])
def test_silent_task_is_lost_only_after_an_answer(restart: bool) -> None:
    """Its agent may have returned while the scheduler was away."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    play(world, send.status("worker-1", TaskState.UNREACHABLE), send.disconnect())
    before, world.now = world.id_of("worker-1"), world.now + 120.0
    world.mesos.tasks[before].state = TaskState.RUNNING

    play(world, send.restart() if restart else send.register(), expect.killed(), send.offers(), expect.launched())

    assert (before, TaskState.RUNNING) == (world.id_of("worker-1"), world.state.status("worker-1").state)


def test_tasks_that_returned_while_the_scheduler_stood_still_are_kept() -> None:
    """It was stopped, or its machine was, and has not yet received the news."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    play(world, send.status("worker-1", TaskState.UNREACHABLE))
    before, world.now = world.id_of("worker-1"), world.now + 120.0
    world.mesos.tasks[before].state = TaskState.RUNNING

    play(world, send.wait(0.0), expect.killed(), send.offers(), expect.launched())

    assert (before, TaskState.RUNNING) == (world.id_of("worker-1"), world.state.status("worker-1").state)


def test_each_silence_is_asked_about() -> None:
    """An answer about an earlier silence is none about this one."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    before = world.id_of("worker-1")
    for _ in range(2):
        play(world, send.status("worker-1", TaskState.UNREACHABLE))
        world.now += 120.0
        world.mesos.tasks[before].state = TaskState.RUNNING
        play(world, send.wait(0.0), expect.killed(), expect.alive(*ALL))
    assert before == world.id_of("worker-1")


def test_late_success_of_chief_ends_job() -> None:
    """Until the lost chief is replaced, its success counts."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    play(world, send.status("chief-0", TaskState.UNREACHABLE), send.wait(60.0))
    assert LOST is world.state.status("chief-0").state

    play(world, send.status("chief-0", FINISHED), expect.result(Verdict.SUCCEEDED))


def test_late_success_of_worker_cancels_relaunch() -> None:
    world = deployed(a_spec(strategy=Strategy.INDEPENDENT, recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    play(world, send.status("worker-1", TaskState.UNREACHABLE), send.wait(60.0), send.status("worker-1", FINISHED))

    play(world, send.wait(30.0), send.offers(), expect.launched())

    assert FINISHED is world.state.status("worker-1").state


def test_late_success_does_not_exempt_member_of_gang() -> None:
    """The others cannot train without it."""
    world = deployed(mirrored())
    world.mesos.report(world.id_of("worker-0"), FAILED, exit_code=1)
    world.mesos.report(world.id_of("worker-1"), FINISHED)

    play(world, send.wait(30.0), send.offers(), expect.launched("worker-0", "worker-1", "worker-2"))


def test_back_off_is_no_longer_after_clock_is_set_back() -> None:
    """The next scheduler starts an hour before the last one, by its clock."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=9, backoff=10.0, max_backoff=10.0)))
    error = send.status("worker-1", FAILED, exit_code=3, message="exit code 3")
    play(world, send.wait(3600.0), error, send.offers(), send.running(), error)
    world.now -= 3600.0

    play(world, send.restart(), send.wait(10.0), send.offers(), expect.launched("worker-1"))


def test_recovery_continues_after_scheduler_restart() -> None:
    """The back-off and the number of failures are stored."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=2, backoff=40.0)))
    error = send.status("worker-1", FAILED, exit_code=3, message="exit code 3")
    play(world, error, send.offers(), send.running(), error)
    before = world.state.stored.recoveries["worker-1"]

    play(world, send.restart(), send.offers(), expect.launched())
    assert before == world.state.stored.recoveries["worker-1"]
    play(world, send.wait(41.0), send.offers(), send.running(), error, expect.result(Verdict.FAILED))


def test_refused_task_is_not_relaunched() -> None:
    """TASK_ERROR: the same launch would be refused again, also on another agent."""
    world = deployed()
    refused = send.status("worker-1", TaskState.ERROR, message="not allowed")

    play(world, refused, expect.outcome("not allowed (final if repeated)"), send.offers(), expect.launched("worker-1"))
    play(world, refused, expect.result(Verdict.FAILED))

    assert "not allowed; a relaunch would end in the same way" in world.state.stored.result.reason


def test_job_without_its_checkpoint_folder_fails() -> None:
    """Two schedulers that relaunch their tasks would stop each other's tasks forever."""
    world = deployed()
    refused = send.status("chief-0", FAILED, reason=FENCED, message="used by framework f")

    play(world, refused, expect.result(Verdict.FAILED))

    assert "used by framework f; a relaunch would end in the same way" in world.state.stored.result.reason


def test_decided_job_recovers_nothing() -> None:
    """After the chief's finish, no worker that fails while stopping is relaunched."""
    world = World(a_spec(), an_agent(), kills_at_once=False)
    play(
        world,
        send.register(),
        send.offers(),
        send.running(),
        send.status("chief-0", FINISHED),
        send.status("worker-1", FAILED, exit_code=1, message="exit code 1"),
        send.offers(),
        expect.launched(),
        expect.result(Verdict.SUCCEEDED),
    )


def test_task_that_does_not_join_is_relaunched() -> None:
    """A relaunch after start_timeout restarts no other task and counts as no failure."""
    world = play(deployed(), *send.joined("ps-0", "worker-0", "chief-0"))
    before = address(world, "worker-1")

    play(world, send.wait(599.0), expect.killed())
    play(
        world,
        send.wait(1.0),
        expect.killed("worker-1"),
        expect.outcome("worker-1 on agent-1 has not joined the others"),
    )
    play(world, expect.outcome("600 s after its start, its TensorFlow server does not answer, and 3 other servers do"))
    play(world, send.offers(), expect.launched("worker-1"), send.running(), *send.joined("worker-1"))
    play(world, send.wait(7200.0), expect.alive(*ALL))

    assert before == address(world, "worker-1")
    assert ((), 1) == (
        world.state.stored.recoveries["worker-1"].failures,
        world.state.stored.recoveries["worker-1"].start_timeouts,
    )


def test_task_that_never_joins_ends_job() -> None:
    """Three late launches fail the job; the result names the task and the reason."""
    spec = a_spec(recovery=RecoveryPolicy(start_timeout=5000.0))
    world = play(deployed(spec), *send.joined("ps-0", "worker-0", "chief-0"))
    again = (send.wait(5000.0), send.wait(2.0), send.offers(), send.running())

    play(world, *again, *again, expect.result(None), send.wait(5000.0), expect.result(Verdict.FAILED))

    assert "worker-1 on agent-1 has not joined the others" in world.state.stored.result.reason
    assert "this happened to 3 of its launches" in world.state.stored.result.reason


def test_programs_without_servers_are_not_late() -> None:
    """A program without a server is not late, nor is a task that makes progress."""
    world = play(deployed(), send.wait(86_400.0), expect.killed())
    assert world.state.stored.recoveries == {}

    reported = ProgressReported(world.id_of("worker-1"), Progress(1, 0.0, step=3))
    play(
        world,
        send.event(reported),
        *send.joined("ps-0", "worker-0", "chief-0"),
        send.wait(86_400.0),
        expect.alive(*ALL),
    )
    assert world.state.stored.recoveries == {}


def test_restarted_scheduler_waits_before_start_timeouts() -> None:
    """No task counts as late in the first minute; tasks late before count afterwards."""
    world = play(deployed(), *send.joined("ps-0", "worker-0", "chief-0"), send.wait(590.0))
    play(world, send.restart(), send.wait(59.0), expect.killed(), send.wait(2.0), expect.killed("worker-1"))


def test_agent_with_failing_launches_is_avoided() -> None:
    """Tasks avoid even the agent of their old address, also after a scheduler restart."""
    world = deployed()
    host = world.state.stored.tasks["worker-1"].hostname
    dies = (send.status("worker-1", FAILED, **EXECUTOR_DIED), send.wait(30.0), send.offers(), send.running())
    play(world, *dies, *dies)
    assert on(world, "worker-1", host)

    play(
        world,
        send.status("worker-1", FAILED, **EXECUTOR_DIED),
        expect.outcome(f"{host} is avoided for 15 min: 3 launches"),
    )
    play(world, send.restart(), send.wait(30.0), send.offers(), send.running(), send.offers(), send.running())
    assert not on(world, "worker-1", host)
    assert set(ALL) == set(world.mesos.live())
    (suspect,) = world.state.stored.agent_failures.values()
    assert (host, 3) == (suspect.hostname, len(suspect.failures))


def test_avoided_agent_is_used_as_last_resort() -> None:
    """After an offer round without success; before that, the reasons explain the wait."""
    world = deployed(None, an_agent("agent-1"))
    dies = (send.status("worker-1", FAILED, **EXECUTOR_DIED), send.wait(30.0), send.offers(), send.running())
    play(world, *dies, *dies, send.status("worker-1", FAILED, **EXECUTOR_DIED), send.wait(30.0), send.offers())
    play(world, expect.launched(), send.wait(5.0), expect.outcome("3 launches failed; avoided for another"))
    play(world, send.wait(100.0), send.offers(), expect.launched("worker-1"))


def test_killed_program_counts_against_agent_with_that_of_another_task() -> None:
    """One program that is killed again and again may be killed for its own reasons."""
    world = deployed(None, an_agent("agent-1", cpus=8))
    for _ in range(4):
        play(world, send.status("worker-1", FAILED, **KILLED_HARD), send.wait(30.0), send.offers(), send.running())
    (noted,) = world.state.stored.agent_failures.values()
    assert ("worker-1", ()) == (noted.killed_task, noted.failures)

    play(world, send.restart(), send.status("worker-0", FAILED, **KILLED_HARD))

    (suspect,) = world.state.stored.agent_failures.values()
    assert ("worker-0", 1) == (suspect.killed_task, len(suspect.failures))


def test_program_that_is_killed_again_and_again_fails_job() -> None:
    """Such ends do not count as failures, but a job must not restart indefinitely."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0, max_uncounted=2)))
    for _ in range(2):
        play(world, send.status("worker-1", FAILED, **KILLED_HARD), send.wait(30.0), send.offers(), send.running())
    play(world, send.restart(), send.status("worker-1", FAILED, **KILLED_HARD))

    play(
        world,
        expect.result(Verdict.FAILED),
        expect.outcome("ended 3 times in 3600 s without being counted as a failure, restart.max_unc"),
    )


@pytest.mark.parametrize(
    ("policy", "end"),
    [
        (RestartPolicy(max_failures=0, max_uncounted=1), (TaskState.GONE, {})),
        (RestartPolicy(max_failures=0, max_uncounted=1), (FAILED, {"exit_code": 42})),
        (RestartPolicy(max_failures=0, max_uncounted=1, window=20.0), (FAILED, {"signal": 9})),
        (RestartPolicy(max_failures=0, max_uncounted=0), (FAILED, {"signal": 9})),
        (RestartPolicy(max_uncounted=1, when=RestartWhen.ALWAYS), (FAILED, {"signal": 9})),
    ],
    ids=["lost agent", "asks for a restart", "outside the window", "no limit", "restarts always"],
)
def test_other_uncounted_ends_have_no_limit(policy: RestartPolicy, end: tuple[TaskState, dict[str, Any]]) -> None:
    world = deployed(a_spec(restart=policy))
    for _ in range(3):
        play(world, send.status("worker-1", end[0], **end[1]), send.wait(30.0), send.offers(), send.running())

    assert world.state.stored.result is None


def test_program_failure_does_not_count_against_agent() -> None:
    """Exit codes, segmentation faults and joint failures are no fault of the agent."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=100)))
    play(world, send.status("worker-0", FAILED, exit_code=3), send.offers(), send.running())
    play(world, send.status("worker-0", FAILED, signal=11), send.offers(), send.wait(60.0), send.offers())
    assert {} == world.state.stored.agent_failures

    play(world, send.status("worker-1", FAILED, signal=9), send.status("ps-0", FAILED, signal=9))
    assert [1] == [len(suspect.failures) for suspect in world.state.stored.agent_failures.values()]


def with_worker(**options: Any) -> ServiceSpec:
    jobs = (a_job(JobKind.PS), a_job(JobKind.WORKER, 2, **options), a_job(JobKind.CHIEF))
    return a_spec(jobs=jobs, restart=RestartPolicy(max_failures=0))


ERROR = send.status("worker-1", FAILED, exit_code=3, message="exit code 3")


def test_job_restart_policy_overrides_service() -> None:
    """The tasks of this job may fail more often than the tasks of other jobs."""
    world = deployed(with_worker(restart=RestartPolicy(max_failures=1)))
    play(world, ERROR, send.offers(), expect.launched("worker-1"), expect.result(None))
    play(world, send.wait(60.0), send.status("ps-0", FAILED, exit_code=3), expect.result(Verdict.FAILED))


@pytest.mark.parametrize(
    ("when", "end", "verdict", "words"),
    [
        (RestartWhen.ALWAYS, {"exit_code": 3}, None, ""),
        (RestartWhen.NEVER, KILLED_HARD, Verdict.FAILED, "its restart_policy is never"),
        (RestartWhen.EXIT_CODE, {"exit_code": 3}, Verdict.FAILED, "its restart_policy is exit_code"),
        (RestartWhen.EXIT_CODE, {"exit_code": 137}, None, ""),
        (RestartWhen.EXIT_CODE, {"exit_code": 42}, None, ""),
        (RestartWhen.ON_FAILURE, {"exit_code": 3}, Verdict.FAILED, "restart.max_failures is 0"),
    ],
)
def test_job_chooses_when_tasks_restart(when: Any, end: Any, verdict: Any, words: Any) -> None:
    """The option has the meaning of restartPolicy in Kubeflow."""
    world = deployed(with_worker(restart=RestartPolicy(max_failures=0, when=when)))
    play(world, send.status("worker-1", FAILED, **end), expect.result(verdict))
    assert words in (world.state.stored.result.reason if world.state.stored.result else "")


def test_job_has_its_own_unreachable_timeout() -> None:
    """The ps is given up sooner than others, if its section says so."""
    world = deployed(with_worker(unreachable_timeout=20.0))
    play(world, send.status("worker-1", TaskState.UNREACHABLE), send.status("ps-0", TaskState.UNREACHABLE))
    play(world, send.wait(21.0))
    assert (LOST, TaskState.UNREACHABLE) == tuple(world.state.status(name).state for name in ("worker-1", "ps-0"))


def test_failures_of_independent_workers_all_count() -> None:
    """Each error of an independent worker counts, whichever task ended just before."""
    jobs = (a_job(JobKind.WORKER, 3),)
    world = deployed(a_spec(strategy=Strategy.INDEPENDENT, jobs=jobs, restart=RestartPolicy(max_failures=0)))
    play(world, send.status("worker-0", FAILED, **KILLED_HARD), send.wait(1.0), ERROR, expect.result(Verdict.FAILED))


def test_excused_failure_excuses_no_other_failure() -> None:
    """Otherwise tasks that crash in turns would never end the job."""
    world = deployed(a_spec(strategy=Strategy.BETWEEN_GRAPH, restart=RestartPolicy(max_failures=0)))
    play(world, send.status("ps-0", FAILED, **KILLED_HARD), send.wait(15.0), ERROR, expect.result(None))
    play(world, expect.outcome("worker-1 has failed: exit code 3 (collateral of the end of ps-0)"))
    play(world, send.wait(10.0), send.status("worker-0", FAILED, exit_code=3), expect.result(Verdict.FAILED))


def test_restarted_gang_is_not_excused() -> None:
    """The next failure soon after counts, whichever of its tasks it is."""
    world = deployed(replace(mirrored(), restart=RestartPolicy(max_failures=0, backoff=1.0)))
    play(world, send.status("worker-2", FAILED, **KILLED_HARD), expect.killed("worker-0", "worker-1"))
    play(world, send.wait(2.0), send.offers(), expect.launched("worker-0", "worker-1", "worker-2"), send.running())
    play(world, send.wait(1.0), send.status("worker-0", FAILED, exit_code=3), expect.result(Verdict.FAILED))


def test_hung_program_killed_by_executor_is_blamed() -> None:
    """The executor sent the signal because it saw no sign of life."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0)))
    play(world, send.status("worker-1", FAILED, signal=15, healthy=False), expect.result(Verdict.FAILED))
    assert {} == world.state.stored.agent_failures


def test_program_that_lacks_a_module_trains_on_another_machine() -> None:
    """A second launch there that lacks it, too, ends the job."""
    world = deployed(replace(mirrored(), restart=RestartPolicy(backoff=1.0)))
    host = world.state.stored.tasks["worker-0"].hostname
    lacks = send.status("worker-0", FAILED, exit_code=1, error="ModuleNotFoundError: x", cannot_start=True)

    play(world, lacks, expect.result(None), send.wait(2.0), send.offers(), send.running())
    assert not on(world, "worker-0", host)
    play(world, lacks, expect.result(Verdict.FAILED))


def test_task_of_drained_agent_moves_immediately() -> None:
    """The agent sends no offers; its task had a grace period, so no failure counts."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0)))
    host = world.state.stored.tasks["worker-1"].hostname
    for offer_id in [key for key, (offer, _) in world.mesos.offers.items() if offer.hostname == host]:
        world.mesos.rescind(offer_id)
    world.mesos.agents[f"{host}-id"].up = False

    drained = send.status("worker-1", TaskState.KILLED, reason="REASON_AGENT_DRAINING", signal=15)
    play(world, drained, send.offers(), expect.killed("chief-0"), send.offers(), send.running())

    assert not on(world, "worker-1", host)
    assert {} == world.state.stored.agent_failures


def shrinking(*agents: Any) -> World:
    jobs = (a_job(JobKind.WORKER, 3, min_count=2),)
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs, recovery=RecoveryPolicy(shrink_after=60.0))
    return deployed(spec, *(agents or [an_agent(f"agent-{number}", cpus=1) for number in range(3)]))


def rounds(count: int) -> list[Step]:
    return [step for _ in range(count) for step in (send.offers(), send.wait(20.0))]


def test_collective_training_shrinks_without_resources() -> None:
    """After a timeout, the lowest indexes continue; the next scheduler keeps them."""
    world = shrinking()
    host = world.state.stored.tasks["worker-0"].hostname

    play(world, send.agent_lost(host), expect.killed("worker-1", "worker-2"), *rounds(2), expect.launched())
    play(world, *rounds(3), send.running(), expect.alive("worker-0", "worker-1"))
    play(world, expect.cluster("worker-0", worker=2), expect.cluster("worker-1", worker=2))
    play(
        world,
        send.restart(shrinking().state.spec),
        send.offers(),
        send.wait(600.0),
        expect.alive("worker-0", "worker-1"),
    )
    assert (2, 3) == (world.state.spec.task_count, world.state.stored.full_spec.task_count)


def test_shrunk_training_grows_at_next_restart() -> None:
    """Running training is not interrupted, although more workers would fit."""
    world = shrinking()
    host = world.state.stored.tasks["worker-0"].hostname
    play(world, send.agent_lost(host), *rounds(5), send.running(), send.agent(an_agent("agent-9", cpus=1)))
    play(world, *rounds(2), expect.alive("worker-0", "worker-1"))

    play(world, send.status("worker-0", FAILED, **KILLED_HARD), send.offers(), *rounds(2), send.running())

    play(world, expect.alive("worker-0", "worker-1", "worker-2"), expect.cluster("worker-0", worker=3))
    assert world.state.stored.full_spec is None


@pytest.mark.parametrize("strategy", [Strategy.PARAMETER_SERVER, Strategy.BETWEEN_GRAPH])
def test_replaced_task_with_dns_name_moves_alone(strategy: Strategy) -> None:
    """Its peers look up the name again; the ClusterSpec stays the same."""
    world = deployed(a_spec(strategy=strategy, network=VirtualNetwork("dcos")))
    host = world.state.stored.tasks["worker-1"].hostname

    play(world, send.pod(PodVerb.REPLACE, "worker-1"), expect.killed("worker-1"), send.offers())
    play(world, expect.launched("worker-1"), send.running(), send.offers(), expect.killed())

    assert host != world.state.stored.tasks["worker-1"].hostname
    assert {1} == {generation(world, name) for name in ALL}


def test_named_task_of_lost_agent_restarts_dependents() -> None:
    """Their connections stay open, so they would wait for an answer."""
    spec = a_spec(strategy=Strategy.BETWEEN_GRAPH, network=VirtualNetwork("dcos"))
    world = deployed(spec, an_agent("agent-1", cpus=2), an_agent("agent-2", cpus=2))
    remaining = [name for name in ALL if on(world, name, "agent-1")]

    play(world, send.agent_lost("agent-2"), expect.killed(*remaining))

    assert len(ALL) > len(remaining) > 0


def test_gone_task_is_replaced_immediately() -> None:
    """The task does not wait for an address on a removed agent."""
    world = deployed()
    play(world, send.status("worker-1", TaskState.GONE_BY_OPERATOR), send.offers(), expect.launched("worker-1"))
