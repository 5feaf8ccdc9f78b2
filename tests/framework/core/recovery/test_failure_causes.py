"""Cause of a task's end, by an ordered table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.states import TaskState
from tf_scheduler.core.recovery.failure_causes import (
    CAUSE_RULES,
    SAME_INCIDENT_SECONDS,
    blames_agent,
    cause_of,
    failure_message,
    outdated_agents,
    record_failure,
)
from tf_scheduler.core.recovery.replacement import replace_launch, store_recoveries
from tf_scheduler.model.effects import Outcome
from tf_scheduler.model.spec import RecoveryPolicy
from tf_scheduler.model.task import AgentFailures, Cause, LaunchEnd

FAILED = "TASK_FAILED"


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (LaunchEnd("TASK_FINISHED", program=TaskEnd(exit_code=0)), Cause.FINISHED),
        (LaunchEnd("TASK_FINISHED", was_requested=True), Cause.FINISHED),
        (LaunchEnd("TASK_KILLED", program=TaskEnd(signal=15), was_requested=True), Cause.STOPPED),
        (LaunchEnd("TASK_ERROR", "REASON_TASK_INVALID"), Cause.INVALID_TASK),
        (LaunchEnd(FAILED, "REASON_TASK_UNAUTHORIZED"), Cause.INVALID_TASK),
        (LaunchEnd("TASK_DROPPED", "REASON_INVALID_OFFERS"), Cause.NOT_STARTED),
        (LaunchEnd("TASK_KILLED", "REASON_AGENT_DRAINING", program=TaskEnd(signal=15)), Cause.INFRASTRUCTURE),
        (LaunchEnd(FAILED, "REASON_CONTAINER_LIMITATION_MEMORY", program=TaskEnd(signal=9)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, "REASON_CONTAINER_LAUNCH_FAILED"), Cause.USER_ERROR),
        (LaunchEnd(FAILED, "REASON_EXECUTOR_TERMINATED", has_run=False), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(signal=15), was_unhealthy=True), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=42)), Cause.RESTART_ASKED),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=143)), Cause.RESTART_ASKED),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=137)), Cause.INFRASTRUCTURE),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=128)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=129)), Cause.INFRASTRUCTURE),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=159)), Cause.INFRASTRUCTURE),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=160)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(signal=9)), Cause.INFRASTRUCTURE),
        (LaunchEnd(FAILED, program=TaskEnd(signal=9, out_of_memory=True)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=1)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=127)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, program=TaskEnd(exit_code=200)), Cause.USER_ERROR),
        (LaunchEnd(FAILED, "REASON_EXECUTOR_TERMINATED"), Cause.INFRASTRUCTURE),
        (LaunchEnd("TASK_LOST"), Cause.INFRASTRUCTURE),
        (LaunchEnd("TASK_GONE"), Cause.INFRASTRUCTURE),
        (LaunchEnd("TASK_GONE_BY_OPERATOR"), Cause.INFRASTRUCTURE),
        (LaunchEnd("TASK_UNKNOWN"), Cause.INFRASTRUCTURE),
        (LaunchEnd("TASK_KILLED", program=TaskEnd(signal=15)), Cause.INFRASTRUCTURE),
    ],
)
def test_end_has_expected_cause(end, cause) -> None:
    """The cause in the user's terms."""
    assert cause is cause_of(end)


def test_restart_exit_codes_are_configurable() -> None:
    """A custom list replaces TensorFlow's."""
    assert Cause.RESTART_ASKED is cause_of(LaunchEnd(FAILED, program=TaskEnd(exit_code=75)), frozenset({75}))
    assert Cause.USER_ERROR is cause_of(LaunchEnd(FAILED, program=TaskEnd(exit_code=42)), frozenset({75}))


ends = st.builds(
    LaunchEnd,
    st.sampled_from([state.value for state in TaskState if state.has_ended]),
    st.sampled_from(["", "REASON_TASK_INVALID", "REASON_AGENT_DRAINING", "REASON_NEW_IN_MESOS_2"]),
    st.builds(TaskEnd, st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), st.booleans()),
    st.booleans(),
)


@given(ends)
def test_every_end_has_a_cause(end) -> None:
    """Total: also for reasons unknown today."""
    assert cause_of(end) in Cause


def test_no_row_is_shadowed_by_earlier_rows() -> None:
    """Each row decides at least one end."""
    samples = [
        LaunchEnd("TASK_FINISHED"),
        LaunchEnd("TASK_KILLED", was_requested=True),
        LaunchEnd("TASK_ERROR"),
        LaunchEnd("TASK_DROPPED"),
        LaunchEnd("TASK_KILLED", "REASON_AGENT_DRAINING"),
        LaunchEnd(FAILED, "REASON_CONTAINER_LIMITATION_DISK"),
        LaunchEnd(FAILED, program=TaskEnd(port_taken=True, failed_stage="fetch")),
        LaunchEnd(FAILED, "REASON_EXECUTOR_REGISTRATION_TIMEOUT"),
        LaunchEnd(FAILED, program=TaskEnd(exit_code=1, was_frozen=True)),
        LaunchEnd(FAILED, was_unhealthy=True),
        LaunchEnd(FAILED, program=TaskEnd(exit_code=42)),
        LaunchEnd(FAILED, program=TaskEnd(signal=11)),
        LaunchEnd(FAILED, program=TaskEnd(exit_code=1), awaited_peer=True),
        LaunchEnd(FAILED, program=TaskEnd(exit_code=3)),
        LaunchEnd("TASK_GONE"),
    ]

    first = [next(row for row in CAUSE_RULES if row.fits(end, frozenset({42}))) for end in samples]

    assert list(CAUSE_RULES) == first


def test_only_user_errors_count_and_only_fatal_ends_stop() -> None:
    """Counted against restart.max_failures; retried at all."""
    assert {Cause.USER_ERROR} == {cause for cause in Cause if cause.is_counted}
    assert {Cause.FINISHED, Cause.STOPPED, Cause.INVALID_TASK} == {cause for cause in Cause if not cause.is_retryable}


def test_avoided_agent_is_reported_while_avoided() -> None:
    """Once: a failure that does not lead to avoidance is silent."""
    agent = AgentFailures("agent-1-id", "agent-1", (1.0, 2.0, 3.0), avoided_until=160.0)

    (outcome,) = failure_message(agent, 100.0)

    assert "agent agent-1 is avoided for 1 min: 3 launches have failed there" == outcome.message
    assert ("AgentAvoided", True) == (outcome.kind, outcome.warning)
    assert () == failure_message(agent, 160.0) == failure_message(None, 100.0)


def test_failures_that_no_longer_count_are_forgotten() -> None:
    """An agent has a new id each time it registers, so its old entry would stay."""
    items = {
        "gone": AgentFailures("gone", "a", (1.0,), 0.0),
        "avoided": AgentFailures("avoided", "b", (1.0,), 9_000.0),
        "recent": AgentFailures("recent", "c", (4_900.0,), 0.0),
        "killed": AgentFailures("killed", "e", killed_task="worker-1", killed_at=4_900.0),
        "killed before": AgentFailures("killed before", "f", killed_task="worker-1", killed_at=1.0),
    }
    state = with_fields(a_running_state(a_spec()), agent_failures=items)
    recovery = replace_launch(state, state.stored.tasks["worker-0"], "lost", 5_000.0)

    decision = store_recoveries(
        state, [recovery], AgentFailures("new", "d", (5_000.0,), 0.0), Outcome("TaskRecovers", "lost")
    )

    assert ["gone", "killed before"] == outdated_agents(state, 5_000.0)
    assert {"avoided", "recent", "killed", "new"} == set(decision.state.stored.agent_failures)


AVOID = RecoveryPolicy(avoid_after=2, avoid_for=100.0)
WORKER = a_running_state(a_spec()).stored.tasks["worker-0"]


def recorded(before=None, now=200.0, policy=AVOID, killed=False):
    """The failures of the worker's agent after one more."""
    items = {} if before is None else {WORKER.agent_id: before}
    state = with_fields(a_running_state(a_spec(recovery=policy)), agent_failures=items)
    return record_failure(state, WORKER, now, killed=killed)


def failures(*times, **options):
    return AgentFailures(WORKER.agent_id, WORKER.hostname, times, **options)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, failures(200.0)),
        (failures(150.0), failures(150.0, 200.0, avoided_until=300.0)),
        (failures(150.0, avoided_until=400.0), failures(150.0, 200.0, avoided_until=400.0)),
        (failures(100.0), failures(200.0)),
        (failures(100.1), failures(100.1, 200.0, avoided_until=300.0)),
        (failures(200.0 - SAME_INCIDENT_SECONDS), failures(195.0, 200.0, avoided_until=300.0)),
        (failures(200.1 - SAME_INCIDENT_SECONDS), None),
    ],
    ids=["first", "too many", "avoided for longer", "the other is old", "just counts", "two incidents", "one incident"],
)
def test_agent_is_avoided_after_several_incidents(before, after) -> None:
    assert after == recorded(before)


def test_agents_are_never_avoided_without_limit() -> None:
    assert recorded(policy=RecoveryPolicy(avoid_after=0)) is None


@pytest.mark.parametrize(
    ("task", "at", "counts"),
    [("", 199.0, False), ("worker-0", 199.0, False), ("worker-1", 100.0, False), ("worker-1", 100.1, True)],
    ids=["first", "same task", "another task long ago", "another task"],
)
def test_killed_program_counts_if_another_was_killed_there(task: str, at: float, counts: bool) -> None:
    """The agent may kill whatever runs there; one task may use too much."""
    after = recorded(failures(killed_task=task, killed_at=at), killed=True)

    assert failures(*((200.0,) if counts else ()), killed_task="worker-0", killed_at=200.0) == after


@pytest.mark.parametrize(
    ("status", "cause", "ran", "blamed"),
    [
        ({}, Cause.USER_ERROR, False, True),
        ({}, Cause.INFRASTRUCTURE, False, True),
        ({}, Cause.INVALID_TASK, False, False),
        ({"reason": "REASON_AGENT_DRAINING"}, Cause.INFRASTRUCTURE, False, False),
        ({"reason": "REASON_AGENT_DRAINING"}, Cause.INFRASTRUCTURE, True, False),
        ({"failed_stage": "pre"}, Cause.USER_ERROR, False, False),
        ({"state": TaskState.KILLED}, Cause.INFRASTRUCTURE, False, False),
        ({"state": TaskState.KILLED, "signal": 9}, Cause.INFRASTRUCTURE, True, False),
        ({"out_of_memory": True}, Cause.INFRASTRUCTURE, True, False),
        ({"state": TaskState.DROPPED, "source": "SOURCE_AGENT"}, Cause.NOT_STARTED, False, True),
        ({"state": TaskState.DROPPED, "source": "SOURCE_AGENT"}, Cause.NOT_STARTED, True, True),
        ({}, Cause.USER_ERROR, True, False),
        ({}, Cause.INFRASTRUCTURE, True, True),
        ({"exit_code": 137}, Cause.INFRASTRUCTURE, True, False),
        ({"signal": 9}, Cause.INFRASTRUCTURE, True, True),
        ({"signal": 11}, Cause.INFRASTRUCTURE, True, False),
        ({"port_taken": True}, Cause.INFRASTRUCTURE, False, False),
        ({"signal": 15}, Cause.INFRASTRUCTURE, True, False),
    ],
)
def test_agent_is_blamed_for_ends_that_the_program_does_not_cause(status, cause, ran: bool, blamed: bool) -> None:
    status = a_status("worker-0__1", **{"state": TaskState.FAILED, **status})

    assert blamed is blames_agent(status, cause, ran)


def test_agents_are_kept_while_avoided_and_few_are_forgotten_together() -> None:
    old = {f"old-{n}": AgentFailures(f"old-{n}", "a", (1.0,)) for n in range(12)}
    due = {"due": AgentFailures("due", "a", (1.0,), avoided_until=500.0)}
    state = a_running_state(a_spec(recovery=AVOID))

    assert 10 == len(outdated_agents(with_fields(state, agent_failures=old), 500.0))
    assert ["due"] == outdated_agents(with_fields(state, agent_failures=due), 500.0)
    assert [] == outdated_agents(with_fields(state, agent_failures=due), 499.0)
