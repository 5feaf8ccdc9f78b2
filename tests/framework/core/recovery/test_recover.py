"""Recovery of ended tasks: relaunch, or failure of the job."""

import signal
from dataclasses import replace

import pytest

from builders import a_job, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.recovery import recover, replacement
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.recovery.startup_timeout import CHECK_INTERVAL, Wait, overdue_launches
from tf_scheduler.core.state.reducer import COLLATERAL_SECONDS, apply
from tf_scheduler.model.effects import RecoveryDecided, StatusStored
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.offer import AgentSnapshot
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobKind, RecoveryPolicy, RestartPolicy, RestartWhen
from tf_scheduler.model.state import PendingReconciliation
from tf_scheduler.model.task import AgentFailures, Cause, Recovery

SPEC = a_spec()
STATE = a_running_state(SPEC)
NOW = 20.0


def unreachable(state, now):
    """Return the launches that were silent for too long."""
    return [record.id for record in overdue_launches(state, now)[1][Wait.RETURN]]


def end(state, name="worker-0", task_state=TaskState.FAILED, now=NOW, ran=True, **options):
    """The task ends, by default with exit code 1."""
    record = state.stored.tasks[name]
    status = a_status(record.id, task_state, **{"exit_code": 1, **options})
    before = a_status(record.id) if ran else None
    after = apply(state, StatusStored(status))
    return recover.on_task_end(after, recover.StatusChange(record, status, before, now, lambda: "id"))


def recoveries(decision):
    return {change.recovery.task: change.recovery for change in decision.changes if isinstance(change, RecoveryDecided)}


def verdict(decision):
    return decision.state.stored.result and decision.state.stored.result.verdict


def with_history(state=STATE, name="worker-0", **options):
    """The task was relaunched before."""
    base = Recovery(name, f"{name}__0", Cause.USER_ERROR, "x", 1.0, 1.0, 1.0, consecutive_failures=1)
    return apply(state, RecoveryDecided(replace(base, **options)))


HERE, THERE = (AgentSnapshot(name, "", "", 1, 1, 0, 5.0, name) for name in ("here", "there"))


def on_machines(*machines: AgentSnapshot, state=STATE):
    """The task ran on the first machine; all offer resources."""
    records = {name: replace(record, address="here:1") for name, record in state.stored.tasks.items()}
    snapshots = {AgentId(item.hostname): item for item in machines}
    return with_fields(state, tasks=records, agent_snapshots=snapshots)


def test_failed_worker_is_relaunched_alone() -> None:
    (item,) = recoveries(end(STATE)).values()

    assert ("worker-0", Cause.USER_ERROR, (NOW,), 1, NOW) == (
        item.task,
        item.cause,
        item.failures,
        item.consecutive_failures,
        item.ready_at,
    )


def test_tasks_that_depend_on_lost_task_restart_with_it() -> None:
    """The chief ends with its ps."""
    items = recoveries(end(STATE, "ps-0"))

    assert {"ps-0", "chief-0"} == items.keys()
    assert items["ps-0"].ready_at == items["chief-0"].ready_at
    assert items["ps-0"].previous_address_until == items["chief-0"].previous_address_until
    assert () == items["chief-0"].failures


@pytest.mark.parametrize(
    ("launched_at", "expected"),
    [(NOW - recover.STEADY_SECONDS, 1), (NOW - recover.STEADY_SECONDS + 1, 2)],
)
def test_steady_launch_resets_back_off(launched_at: float, expected: int) -> None:
    state = with_history()
    tasks = {name: replace(record, launched_at=launched_at) for name, record in state.stored.tasks.items()}

    assert expected == recoveries(end(with_fields(state, tasks=tasks)))["worker-0"].consecutive_failures


@pytest.mark.parametrize(("failures", "expected"), [((15.0,), None), ((15.0, 16.0), Verdict.FAILED)])
def test_job_fails_after_too_many_failures(failures, expected) -> None:
    state = with_history(a_running_state(replace(SPEC, restart=RestartPolicy(max_failures=2))), failures=failures)

    assert expected is verdict(end(state))


@pytest.mark.parametrize(
    ("peer", "failures", "last_end", "expected"),
    [
        ("worker-1", (5.0, 12.0), "1: bug at step #", Verdict.FAILED),
        ("worker-1", (5.0, 12.0), "1: another bug", None),
        ("worker-1", (5.0, NOW - 4.0), "1: bug at step #", None),
        ("chief-0", (5.0, 12.0), "1: bug at step #", None),
    ],
)
def test_like_failures_of_job_count_together(peer: str, failures, last_end: str, expected) -> None:
    """Two within five seconds once: a full disk stops all workers."""
    state = a_running_state(replace(SPEC, restart=RestartPolicy(max_failures=2)))
    state = with_history(state, peer, since=-1.0, failures=failures, last_end=last_end)

    assert expected is verdict(end(state, error="bug at step 51"))


def test_job_fails_if_relaunch_is_not_allowed() -> None:
    never = a_running_state(replace(SPEC, restart=RestartPolicy(when=RestartWhen.NEVER)))

    assert Verdict.FAILED is verdict(end(never))
    assert Verdict.FAILED is verdict(end(STATE, exit_code=None, reason="REASON_TASK_GROUP_INVALID"))


def test_failed_side_job_does_not_fail_job() -> None:
    jobs = (a_job(JobKind.WORKER), a_job(JobKind.EVALUATOR))
    unauthorized = {"task_state": TaskState.ERROR, "reason": "REASON_TASK_UNAUTHORIZED"}
    decision = end(a_running_state(a_spec(jobs=jobs)), "evaluator-0", **unauthorized)

    assert (None, ()) == (verdict(decision), decision.changes)


def test_finished_peer_makes_recovery_impossible() -> None:
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    finished = apply(a_running_state(spec), StatusStored(a_status("worker-1__1", TaskState.FINISHED)))

    assert Verdict.FAILED is verdict(end(finished))
    assert verdict(end(a_running_state(spec))) is None


@pytest.mark.parametrize(
    ("seconds", "strategy", "cause"),
    [
        (COLLATERAL_SECONDS - 1, Strategy.PARAMETER_SERVER, Cause.COLLATERAL),
        (COLLATERAL_SECONDS, Strategy.PARAMETER_SERVER, Cause.USER_ERROR),
        (1.0, Strategy.INDEPENDENT, Cause.USER_ERROR),
    ],
)
def test_failure_soon_after_loss_of_peer_is_collateral(seconds: float, strategy, cause) -> None:
    state = with_history(a_running_state(replace(SPEC, strategy=strategy)), "worker-1", since=NOW - seconds)

    item = recoveries(end(state))["worker-0"]

    assert (cause, cause is Cause.USER_ERROR) == (item.cause, bool(item.failures))


@pytest.mark.parametrize(("port_taken", "bad"), [(True, True), (False, False)])
def test_address_is_bad_if_another_process_listens(port_taken: bool, bad: bool) -> None:
    """Only this counts: how often a program fails says nothing about its port."""
    address = STATE.stored.tasks["worker-0"].address

    item = recoveries(end(with_history(bad_addresses=("x:1",)), port_taken=port_taken))["worker-0"]

    assert (("x:1", address) if bad else ("x:1",)) == item.bad_addresses
    assert ((Cause.INFRASTRUCTURE, ()) if bad else (Cause.USER_ERROR, (NOW,))) == (item.cause, item.failures)


def test_all_ports_of_a_task_are_bad_if_it_could_not_start() -> None:
    """It may stay on its agent; restart.max_uncounted limits such ends."""
    record = replace(STATE.stored.tasks["worker-0"], address="a:6", resources=(Resource("ports", ((5, 6),)),))
    state = with_fields(STATE, tasks={**STATE.stored.tasks, "worker-0": record})

    item = recoveries(end(state, ran=False, exit_code=None, port_taken=True))["worker-0"]

    assert (("a:6", "a:5"), False, (NOW,)) == (item.bad_addresses, item.must_move, item.uncounted)


def test_failure_of_a_frozen_program_does_not_count() -> None:
    item = recoveries(end(STATE, was_frozen=True))["worker-0"]

    assert (Cause.INFRASTRUCTURE, ()) == (item.cause, item.failures)


ERROR = {"error": "KeyError: 1 (a.py line 2)"}
LIKE_ERROR = "1: KeyError: # (a.py line #)"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ERROR, LIKE_ERROR),
        ({}, ""),
        ({**ERROR, "port_taken": True}, ""),
        ({**ERROR, "exit_code": 42}, ""),
        ({"error": "died at 0x7f3a with 12 threads"}, "1: died at # with # threads"),
    ],
)
def test_error_of_early_end_is_remembered(options, expected) -> None:
    """Without numbers, to compare it with the next one."""
    assert expected == recoveries(end(STATE, **options))["worker-0"].last_end


def test_error_of_program_that_had_begun_is_remembered() -> None:
    """To count the failures of the job that are alike."""
    trained = with_fields(STATE, progress={"worker-0__1": None})
    items = [
        recoveries(end(trained, **ERROR)),
        recoveries(end(STATE, now=NOW + replacement.EARLY_SECONDS, **ERROR)),
        recoveries(end(with_history(has_begun=True), exit_code=None, **ERROR)),
    ]

    ends = [LIKE_ERROR, LIKE_ERROR, ""]
    assert [(like, True) for like in ends] == [
        (item["worker-0"].last_end, item["worker-0"].has_begun) for item in items
    ]


@pytest.mark.parametrize(
    ("seconds", "has_begun"), [(replacement.EARLY_SECONDS, True), (replacement.EARLY_SECONDS - 1.0, False)]
)
def test_silence_does_not_count_as_training(seconds, has_begun) -> None:
    record = STATE.stored.tasks["worker-0"]
    silent = a_status(record.id, TaskState.UNREACHABLE, timestamp=record.launched_at + seconds)
    lost, now = replace(silent, state=TaskState.LOST), silent.timestamp + 1000.0

    decision = recover.on_task_end(
        apply(STATE, StatusStored(lost)), recover.StatusChange(record, lost, silent, now, lambda: "id")
    )

    assert has_begun is recoveries(decision)["worker-0"].has_begun


def test_time_of_a_program_counts_from_its_start() -> None:
    """Not from its launch: images and hooks may take longer than the program runs."""
    before = a_status("worker-0__1", timestamp=NOW - 3.0)
    change = recover.StatusChange(STATE.stored.tasks["worker-0"], before, before, NOW, lambda: "id")

    assert 3.0 == change.seconds_run


@pytest.mark.parametrize(("timeout", "seconds", "expected"), [(50.0, 110.0, 0), (50.0, 109.0, 2), (None, 0.0, 0)])
def test_launch_that_outlives_start_timeout_resets_late_launches(timeout, seconds: float, expected: int) -> None:
    state = a_running_state(replace(SPEC, recovery=RecoveryPolicy(start_timeout=timeout)))
    launched_at = state.stored.tasks["worker-0"].launched_at

    items = recoveries(end(with_history(state, start_timeouts=2), now=launched_at + seconds))

    assert expected == items["worker-0"].start_timeouts


def test_peers_that_restart_remember_the_error() -> None:
    """Their own end, of the same program, is not read."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))

    items = recoveries(end(a_running_state(spec), **ERROR))

    assert [LIKE_ERROR] * 2 == [items[name].last_end for name in ("worker-0", "worker-1")]


@pytest.mark.parametrize(
    ("peer_cause", "last_end", "options", "cause"),
    [
        (Cause.USER_ERROR, "", ERROR, Cause.COLLATERAL),
        (Cause.USER_ERROR, "1: other", ERROR, Cause.COLLATERAL),
        (Cause.USER_ERROR, LIKE_ERROR, ERROR, Cause.USER_ERROR),
        (Cause.INFRASTRUCTURE, LIKE_ERROR, ERROR, Cause.COLLATERAL),
        (Cause.USER_ERROR, "", {"cannot_start": True}, Cause.USER_ERROR),
        (Cause.INFRASTRUCTURE, "", {"cannot_start": True, "port_taken": True}, Cause.USER_ERROR),
    ],
)
def test_error_like_the_former_one_is_not_collateral(peer_cause, last_end, options, cause) -> None:
    """Broken programs do not excuse each other; a lost agent may cause an error twice."""
    state = with_history(with_history(last_end=last_end), "worker-1", since=NOW - 0.01, cause=peer_cause)
    state = on_machines(HERE, THERE, state=state)

    assert cause is recoveries(end(state, **options))["worker-0"].cause


def test_second_end_with_same_error_before_first_step_fails_job() -> None:
    decision = end(with_history(last_end=LIKE_ERROR), **ERROR, message="KeyError: 1 (a.py line 2), exit code 1")

    result = decision.state.stored.result
    assert result is not None
    assert Verdict.FAILED is result.verdict
    cause = "worker-0: KeyError: 1 (a.py line 2), exit code 1"
    why = "the same error twice before the first step (restart.fail_fast)"
    assert f"{cause}; {why}" == result.sentence


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE])
def test_second_crash_before_first_step_fails_job(number: signal.Signals) -> None:
    """Also as a shell's exit code; not after training, and not a kill."""
    by_signal = {"exit_code": None, "signal": number}
    first = recoveries(end(STATE, **by_signal))["worker-0"].last_end
    for options in (by_signal, {"exit_code": 128 + number}):
        result = end(with_history(last_end=first), **options).state.stored.result
        assert result is not None
        assert "the same error twice before the first step" in result.sentence
    assert "" == recoveries(end(STATE, **{**by_signal, "signal": signal.SIGKILL}))["worker-0"].last_end
    assert end(with_history(last_end=first, has_begun=True), **by_signal).state.stored.result is None


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("KeyError: 1 (a.py line 2), exit code 1", "worker-0: KeyError: 1 (a.py line 2), exit code 1"),
        ("exit code 1; stderr: x", "worker-0 has failed: exit code 1; stderr: x"),
    ],
)
def test_restart_names_the_cause_first(message: str, why: str) -> None:
    assert why == recoveries(end(STATE, **ERROR, message=message))["worker-0"].why


def test_end_like_that_of_peer_is_not_called_the_tasks_second() -> None:
    """The peer has failed once, with the same program as the first task."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    first = relaunched(end(a_running_state(spec), **ERROR).state, "worker-0", "worker-1")

    result = end(first, "worker-1", **ERROR, now=NOW + 30).state.stored.result

    assert result is not None
    assert result.sentence.startswith("worker-1 on ")
    assert "the same error twice before the first step" in result.sentence


REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"
UP = apply(STATE, *(StatusStored(a_status(task.id, healthy=True)) for task in STATE.stored.tasks.values()))
PS = a_status("ps-0__1", timestamp=NOW - 10)
STORING = apply(UP, StatusStored(replace(PS, end=TaskEnd(137), healthy=True)))


@pytest.mark.parametrize(
    ("state", "options", "cause"),
    [
        (UP, {}, Cause.USER_ERROR),
        (apply(UP, StatusStored(PS)), {}, Cause.INFRASTRUCTURE),
        (apply(UP, StatusStored(PS)), {"error": "KeyError: x"}, Cause.USER_ERROR),
        (apply(UP, StatusStored(PS)), {"now": NOW + 700.0}, Cause.USER_ERROR),
        (with_fields(apply(UP, StatusStored(PS)), progress={"ps-0__1": None}), {}, Cause.USER_ERROR),
        (replace(apply(UP, StatusStored(PS)), spec=a_spec(strategy=Strategy.INDEPENDENT)), {}, Cause.USER_ERROR),
        (apply(UP, StatusStored(replace(PS, state=TaskState.STARTING))), {}, Cause.INFRASTRUCTURE),
        (apply(UP, StatusStored(replace(PS, state=TaskState.UNREACHABLE))), {}, Cause.INFRASTRUCTURE),
        (with_history(UP, "ps-0", launch="ps-0__1", since=NOW - 60), {}, Cause.INFRASTRUCTURE),
        (with_fields(STORING, progress={"ps-0__1": None}), {}, Cause.INFRASTRUCTURE),
        (apply(UP, StatusStored(replace(PS, end=TaskEnd(0), healthy=True))), {}, Cause.USER_ERROR),
    ],
    ids=[
        *("all answer", "starts", "other error", "late", "trains", "independent", "not started", "silent", "restarts"),
        *("has failed and stores its checkpoints", "has ended"),
    ],
)
def test_failed_connection_does_not_count_while_a_peer_is_not_up(state, options, cause: Cause) -> None:
    """But towards restart.max_uncounted, so that it ends."""
    item = recoveries(end(state, **{"error": REFUSED, **options}))["worker-0"]
    assert (cause, cause is Cause.USER_ERROR) == (item.cause, bool(item.failures))
    assert bool(item.uncounted) is (cause is Cause.INFRASTRUCTURE)


BROKEN = with_history(last_end=LIKE_ERROR)


@pytest.mark.parametrize(
    ("state", "options"),
    [
        (STATE, {}),
        (BROKEN, {"error": ""}),
        (BROKEN, {"error": "KeyError: other"}),
        (BROKEN, {"exit_code": 2}),
        (BROKEN, {"exit_code": 42}),
        (BROKEN, {"port_taken": True}),
        (BROKEN, {"out_of_memory": True}),
        (BROKEN, {"healthy": False}),
        (BROKEN, {"exit_code": None, "signal": 9}),
        (with_history(last_end=LIKE_ERROR, has_begun=True), {}),
        (with_fields(BROKEN, progress={"worker-0__1": None}), {}),
        (with_fields(BROKEN, last_progress=("ps-0", 1.0)), {}),
        (BROKEN, {"error": "UnavailableError: x"}),
        (with_history(BROKEN, "ps-0", since=NOW - 1, last_end="1: other"), {}),
        (with_history(BROKEN, "ps-0", launch="ps-0__1", since=NOW - 60), {}),
        (apply(with_history(BROKEN, "ps-0", since=NOW - 60), StatusStored(a_status("ps-0__1", TaskState.STAGING))), {}),
        (with_fields(with_history(BROKEN, "ps-0", since=NOW - 60), statuses={}), {}),
        (apply(BROKEN, StatusStored(a_status("ps-0__1", TaskState.UNREACHABLE))), {}),
        (
            apply(BROKEN, AgentFailures(STATE.stored.tasks["worker-0"].agent_id, "a", (1.0,))),
            {},
        ),
        (replace(BROKEN, spec=a_spec(restart=RestartPolicy(fail_fast=False))), {}),
        (replace(BROKEN, spec=a_spec(restart=RestartPolicy(when=RestartWhen.ALWAYS))), {}),
    ],
    ids=[
        "first end",
        "error unknown",
        "other error",
        "other exit code",
        "asks for a restart",
        "port taken",
        "out of memory",
        "unhealthy",
        "killed",
        "had trained before",
        "has trained",
        "the job has trained",
        "a lost peer",
        "after the loss of a peer",
        "a lost peer is not launched yet",
        "a lost peer does not run yet",
        "a lost peer has no status yet",
        "a peer does not answer",
        "agent is suspected",
        "fail_fast is off",
        "restarts always",
    ],
)
def test_end_that_may_have_another_reason_is_retried(state, options) -> None:
    assert verdict(end(state, **{**ERROR, **options})) is None


@pytest.mark.parametrize(
    ("state", "options", "expected"),
    [
        (on_machines(HERE), {}, Verdict.FAILED),
        (on_machines(), {}, Verdict.FAILED),
        (on_machines(HERE, THERE), {}, None),
        (on_machines(HERE, THERE, state=BROKEN), {}, Verdict.FAILED),
        (on_machines(HERE, THERE, state=BROKEN), {"error": "KeyError: other"}, None),
        (on_machines(HERE), {"cannot_start": False}, None),
        (on_machines(HERE), {"port_taken": True}, Verdict.FAILED),
        (on_machines(HERE), {"exit_code": 42}, None),
        (with_fields(on_machines(HERE), last_progress=("ps-0", 1.0)), {}, None),
        (replace(on_machines(HERE), spec=a_spec(restart=RestartPolicy(fail_fast=False))), {}, None),
    ],
    ids=[
        "one machine",
        "no offers",
        "another machine",
        "a second time",
        "two reasons",
        "can start",
        "port taken",
        "asks for a restart",
        "the job has trained",
        "fail_fast is off",
    ],
)
def test_program_that_cannot_start_ends_job(state, options, expected) -> None:
    decision = end(
        state, **{**ERROR, "cannot_start": True, **options}, message="KeyError: 1 (a.py line 2), exit code 1"
    )

    assert expected is verdict(decision)
    if expected:
        sentence = (
            "worker-0: KeyError: 1 (a.py line 2), exit code 1; each launch would fail in this way (restart.fail_fast)"
        )
        assert sentence == decision.state.stored.result.sentence


def test_program_that_cannot_start_moves_to_another_machine() -> None:
    """A module may be missing on one agent only."""
    item = recoveries(end(on_machines(HERE, THERE), **ERROR, cannot_start=True))["worker-0"]

    assert (True, LIKE_ERROR, ()) == (item.must_move, item.last_end, item.bad_addresses)


def test_broken_side_job_is_given_up() -> None:
    spec = a_spec(jobs=(a_job(JobKind.WORKER), a_job(JobKind.EVALUATOR)))
    decision = end(with_history(a_running_state(spec), "evaluator-0", last_end=LIKE_ERROR), "evaluator-0", **ERROR)

    (outcome,) = decision.outcomes
    assert (None, "TaskGivenUp") == (verdict(decision), outcome.kind)
    assert outcome.message.endswith(" (restart.fail_fast); the job continues without it")


@pytest.mark.parametrize(("ran", "moves"), [(True, False), (False, True)])
@pytest.mark.parametrize(
    ("task_state", "reason"), [(TaskState.LOST, ""), (TaskState.FAILED, "REASON_CONTAINER_LAUNCH_FAILED")]
)
def test_launch_that_ends_before_its_start_moves(task_state: TaskState, reason: str, ran: bool, moves: bool) -> None:
    """The disk of its agent may be full, so that nothing can be fetched there."""
    decision = end(STATE, task_state=task_state, ran=ran, exit_code=None, reason=reason)

    assert moves is recoveries(decision)["worker-0"].must_move
    blamed = any(isinstance(change, AgentFailures) for change in decision.changes)
    assert blamed is (not ran or task_state is TaskState.LOST)


@pytest.mark.parametrize(("source", "blamed"), [("SOURCE_AGENT", True), ("SOURCE_MASTER", False)])
def test_launch_dropped_by_its_agent_moves(source: str, blamed: bool) -> None:
    """An agent with a full disk drops each launch; the master drops invalid ones."""
    decision = end(STATE, task_state=TaskState.DROPPED, ran=False, exit_code=None, source=source)

    recovery = recoveries(decision)["worker-0"]
    assert (Cause.NOT_STARTED, (), blamed) == (recovery.cause, recovery.failures, recovery.must_move)
    assert blamed is any(isinstance(change, AgentFailures) for change in decision.changes)


def test_out_of_memory_counts_as_failure_of_task_only() -> None:
    decision = end(STATE, exit_code=None, signal=9, out_of_memory=True)

    recovery = recoveries(decision)["worker-0"]
    assert (Cause.USER_ERROR, (NOW,)) == (recovery.cause, recovery.failures)
    assert not any(isinstance(change, AgentFailures) for change in decision.changes)


@pytest.mark.parametrize(
    ("stage", "cause", "blamed"),
    [
        ("pre", Cause.USER_ERROR, False),
        ("fetch", Cause.USER_ERROR, True),
        ("storage", Cause.USER_ERROR, True),
        ("choice of GPUs", Cause.INFRASTRUCTURE, True),
    ],
)
def test_failed_stage_decides_cause(stage: str, cause: Cause, blamed: bool) -> None:
    """What the user has configured counts, so that it does not fail indefinitely."""
    decision = end(STATE, ran=False, exit_code=None, failed_stage=stage)

    assert cause is recoveries(decision)["worker-0"].cause
    assert blamed is any(isinstance(change, AgentFailures) for change in decision.changes)


def test_unreachable_task_is_lost_after_timeout() -> None:
    timeout = SPEC.recovery.unreachable_timeout
    state = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=10.0)))

    assert 10.0 + timeout == overdue_launches(state, 1.0)[0].derived.next_check_at
    assert [] == unreachable(state, 9.0 + timeout)
    (silent,) = unreachable(state, 10.0 + timeout)
    status = recover.lost(state, state.stored.statuses[silent])
    assert ("worker-0__1", TaskState.LOST) == (status.id, status.state)


@pytest.mark.parametrize(
    ("replaces", "is_first", "expected"), [(True, True, 30.0), (True, False, 40.0), (False, True, None)]
)
def test_unreachable_task_that_an_operator_replaces_is_lost_at_once(
    replaces: bool, is_first: bool, expected: float | None
) -> None:
    """Before or after its agent is silent; a restart waits for the agent."""
    record, timeout = STATE.stored.tasks["worker-0"], SPEC.recovery.unreachable_timeout
    command = replace(replace_launch(STATE, record, "by an operator", 30.0, Cause.ORDERED), must_move=replaces)
    silent = a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=10.0 if is_first else 40.0)
    changes = [StatusStored(silent), RecoveryDecided(command)]

    state = apply(STATE, *(changes if is_first else changes[::-1]))

    at = 10.0 + timeout if expected is None else expected
    assert ([], [silent.id]) == (unreachable(state, at - 1.0), unreachable(state, at))


def test_launch_is_ready_after_its_back_off() -> None:
    state = with_history(launch="worker-0__1", ready_at=30.0)

    assert 30.0 == min(recover.deadlines(state))
    assert [False, True] == [recover.mark_ready(state, now).is_ready("worker-0") for now in (29.0, 30.0)]


def test_back_off_of_a_removed_task_is_not_a_deadline() -> None:
    """It would stay in the past, and the loop would never wait."""
    assert 7.0 not in recover.deadlines(with_fields(STATE, next_ready_at=7.0))


def test_rejected_launch_is_tried_on_another_agent_once() -> None:
    """The resources of the agent may have changed since the offer."""
    first = end(STATE, task_state=TaskState.ERROR, ran=False, exit_code=None, reason="REASON_TASK_INVALID")
    again = with_history(cause=Cause.INVALID_TASK, last_end=recoveries(first)["worker-0"].last_end)

    assert (None, True) == (verdict(first), recoveries(first)["worker-0"].must_move)
    assert Verdict.FAILED is verdict(end(again, task_state=TaskState.ERROR, ran=False, exit_code=None))
    assert Verdict.FAILED is verdict(end(STATE, task_state=TaskState.ERROR, reason="REASON_TASK_UNAUTHORIZED"))


def relaunched(state, *names):
    """Each task has a new launch without a status."""
    launches = {name: replace(state.stored.tasks[name], id=f"{name}__{state.stored.tasks[name].id}") for name in names}
    return with_fields(state, tasks={**state.stored.tasks, **launches})


@pytest.mark.parametrize(("accepted", "expected"), [(False, Verdict.FAILED), (True, None)])
def test_rejections_of_gang_members_count_for_each_task(accepted, expected) -> None:
    """The peers restart with it; their own first rejection is not final."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    rejected = {"task_state": TaskState.ERROR, "ran": False, "exit_code": None}
    gang = ("worker-0", "worker-1")

    first = relaunched(end(a_running_state(spec), "worker-0", **rejected).state, *gang)
    if accepted:
        first = apply(first, StatusStored(a_status(first.stored.tasks["worker-0"].id)))
    second = end(first, "worker-1", **rejected)

    assert {*gang} == recoveries(second).keys()
    assert verdict(second) is None
    assert expected is verdict(end(relaunched(second.state, *gang), "worker-0", **rejected))


def test_launch_that_waits_to_start_does_not_reset_back_off() -> None:
    """A launch may stay in TASK_STAGING for minutes."""
    item = recoveries(end(with_history(), task_state=TaskState.LOST, now=NOW + 600.0, ran=False, exit_code=None))

    assert 2 == item["worker-0"].consecutive_failures


def test_tasks_become_ready_one_by_one() -> None:
    """The next deadline is that of the first task that still waits."""
    ready_at = {"worker-0": 30.0, "worker-1": 40.0, "ps-0": 50.0}
    base = Recovery("x", "x", Cause.USER_ERROR, "x", 1.0, 1.0, 1.0)
    waiting = (replace(base, task=name, launch=f"{name}__1", ready_at=at) for name, at in ready_at.items())
    state = apply(STATE, *map(RecoveryDecided, waiting))

    state = recover.mark_ready(state, 30.0)

    assert [True, False, False] == [state.is_ready(name) for name in ready_at]
    assert 40.0 == min(recover.deadlines(state))
    assert [True, True, False] == [recover.mark_ready(state, 40.0).is_ready(name) for name in ready_at]


@pytest.mark.parametrize(
    "state",
    [
        apply(
            with_history(a_running_state(replace(SPEC, strategy=Strategy.INDEPENDENT)), last_end=LIKE_ERROR),
            StatusStored(a_status("worker-1__1", TaskState.UNREACHABLE)),
        ),
        with_fields(
            with_history(BROKEN, "worker-1", since=NOW - 60, last_end="1: other"),
            tasks={name: record for name, record in STATE.stored.tasks.items() if name != "worker-1"},
        ),
        apply(
            with_history(
                with_history(
                    a_running_state(a_spec(jobs=(a_job(JobKind.WORKER), a_job(JobKind.EVALUATOR)))),
                    last_end=LIKE_ERROR,
                ),
                "evaluator-0",
                since=NOW - 60,
            ),
            StatusStored(a_status("evaluator-0__1", TaskState.FAILED)),
        ),
        apply(with_history(BROKEN, "ps-0", since=NOW - 60), StatusStored(a_status("ps-0__1", TaskState.FINISHED))),
        with_history(BROKEN, "ps-0", since=NOW - 60),
        with_history(BROKEN, "worker-1", since=NOW - 0.01, last_end=LIKE_ERROR),
    ],
    ids=[
        "tasks are independent",
        "the lost peer was removed",
        "an evaluator is lost",
        "the lost peer has finished",
        "the lost peer runs again",
        "the peer has ended with the same error",
    ],
)
def test_peer_that_is_not_missed_does_not_hide_broken_program(state) -> None:
    assert Verdict.FAILED is verdict(end(state, **ERROR))


def test_program_whose_server_answered_has_not_trained() -> None:
    """Its first batch may fail each time."""
    record = STATE.stored.tasks["worker-0"]
    failed = a_status(record.id, TaskState.FAILED, exit_code=1, **ERROR)
    change = recover.StatusChange(
        record, failed, a_status(record.id, timestamp=NOW - 1, healthy=True), NOW, lambda: "i"
    )

    item = recoveries(recover.on_task_end(apply(STATE, StatusStored(failed)), change))["worker-0"]

    assert (True, False, LIKE_ERROR) == (item.has_served, item.has_begun, item.last_end)


@pytest.mark.parametrize(("times", "expected"), [((), None), ((15.0,), Verdict.FAILED)])
def test_job_fails_after_too_many_uncounted_ends(times, expected) -> None:
    """One is allowed: this is the first, or the second."""
    policy = RestartPolicy(max_uncounted=1)
    state = with_history(a_running_state(replace(SPEC, restart=policy)), uncounted=times)
    always = with_history(
        a_running_state(replace(SPEC, restart=replace(policy, when=RestartWhen.ALWAYS))), uncounted=times
    )

    assert expected is verdict(end(state, exit_code=None, signal=9))
    assert verdict(end(always, exit_code=None, signal=9)) is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exit_code": None, "signal": 9}, (5.0, NOW)),
        ({"exit_code": None, "signal": 9, "ran": False}, (5.0,)),
        ({}, (5.0,)),
        ({"task_state": TaskState.GONE, "exit_code": None}, (5.0,)),
    ],
    ids=["killed", "not started", "failed", "agent gone"],
)
def test_uncounted_ends_are_those_of_a_program_on_a_live_agent(options, expected) -> None:
    assert expected == recoveries(end(with_history(uncounted=(5.0,)), **options))["worker-0"].uncounted


@pytest.mark.parametrize(("launched_at", "cause"), [(19.5, Cause.COLLATERAL), (19.6, Cause.USER_ERROR)])
def test_launches_that_were_lost_together_do_not_excuse_their_next_ones(launched_at: float, cause) -> None:
    """The end of the same launch follows from the loss; that of a later one does not."""
    state = with_history(with_history(since=19.5), "worker-1", since=19.5)
    tasks = {name: replace(record, launched_at=launched_at) for name, record in state.stored.tasks.items()}

    assert cause is recoveries(end(with_fields(state, tasks=tasks)))["worker-0"].cause


def test_collateral_end_names_the_first_loss() -> None:
    state = with_history(with_history(with_history(since=19.0), "worker-1", since=19.8), "ps-0", since=19.5)

    decision = end(apply(state, StatusStored(a_status("ps-0__1", TaskState.FAILED))), exit_code=2)

    (outcome,) = decision.outcomes
    assert "(collateral of the end of ps-0)" in outcome.message


def test_silent_task_without_agent_is_due_again_immediately() -> None:
    """Mesos cannot be asked about it, so no answer would make it due."""
    silent = a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=10.0, agent_id=None)
    state = apply(STATE, StatusStored(silent))
    due = 10.0 + SPEC.recovery.unreachable_timeout

    checked, _ = overdue_launches(state, due)

    assert due + CHECK_INTERVAL == checked.derived.next_check_at


def test_loss_without_fault_does_not_fail_a_job_that_has_reached_its_limit() -> None:
    """The limit was lowered since."""
    state = with_history(a_running_state(replace(SPEC, restart=RestartPolicy(max_failures=1))), failures=(15.0, 16.0))

    assert None is verdict(end(state, task_state=TaskState.LOST, exit_code=None))


def test_loss_of_long_ago_is_not_the_reason_of_a_collateral_end() -> None:
    state = with_history(with_history(STATE, "worker-1", since=NOW - COLLATERAL_SECONDS), "ps-0", since=19.5)

    (outcome,) = end(apply(state, StatusStored(a_status("ps-0__1", TaskState.FAILED))), exit_code=2).outcomes

    assert "(collateral of the end of ps-0)" in outcome.message


@pytest.mark.parametrize("has_served", [False, True])
def test_server_of_an_earlier_launch_is_remembered(has_served: bool) -> None:
    item = recoveries(end(with_history(has_served=has_served)))["worker-0"]

    assert has_served is item.has_served


def test_peers_keep_their_errors_when_mesos_loses_a_task() -> None:
    """The loss shows no error of the program."""
    state = with_history(STATE, "chief-0", last_end=LIKE_ERROR)

    item = recoveries(end(state, "ps-0", TaskState.LOST, exit_code=None))["chief-0"]

    assert LIKE_ERROR == item.last_end


def test_silent_task_is_not_lost_before_mesos_has_answered() -> None:
    silent = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=10.0)))
    due = 10.0 + SPEC.recovery.unreachable_timeout
    awaiting = with_fields(silent, reconciliation=PendingReconciliation(frozenset({"worker-0__1"})))

    assert [1, 0] == [len(unreachable(state, due)) for state in (silent, awaiting)]
