"""Why a task ended, by an ordered table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.core.recovery.causes import ROWS, cause_of
from tf_scheduler.model.failure import Cause, Ended
from tf_scheduler.model.task import TaskState

FAILED = "TASK_FAILED"


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (Ended("TASK_FINISHED", exit_code=0), Cause.FINISHED),
        (Ended("TASK_FINISHED", asked=True), Cause.FINISHED),
        (Ended("TASK_KILLED", signal=15, asked=True), Cause.STOPPED),
        (Ended("TASK_ERROR", "REASON_TASK_INVALID"), Cause.NEVER),
        (Ended(FAILED, "REASON_TASK_UNAUTHORIZED"), Cause.NEVER),
        (Ended("TASK_DROPPED", "REASON_INVALID_OFFERS"), Cause.NOT_STARTED),
        (Ended("TASK_KILLED", "REASON_AGENT_DRAINING", signal=15), Cause.INFRASTRUCTURE),
        (Ended(FAILED, "REASON_CONTAINER_LIMITATION_MEMORY", signal=9), Cause.USER_ERROR),
        (Ended(FAILED, "REASON_CONTAINER_LAUNCH_FAILED"), Cause.USER_ERROR),
        (Ended(FAILED, "REASON_EXECUTOR_TERMINATED", ran=False), Cause.USER_ERROR),
        (Ended(FAILED, signal=15, hung=True), Cause.USER_ERROR),
        (Ended(FAILED, exit_code=42), Cause.RESTART_ASKED),
        (Ended(FAILED, exit_code=143), Cause.RESTART_ASKED),
        (Ended(FAILED, exit_code=137), Cause.INFRASTRUCTURE),
        (Ended(FAILED, signal=9), Cause.INFRASTRUCTURE),
        (Ended(FAILED, exit_code=1), Cause.USER_ERROR),
        (Ended(FAILED, exit_code=127), Cause.USER_ERROR),
        (Ended(FAILED, exit_code=200), Cause.USER_ERROR),
        (Ended(FAILED, "REASON_EXECUTOR_TERMINATED"), Cause.INFRASTRUCTURE),
        (Ended("TASK_LOST"), Cause.INFRASTRUCTURE),
        (Ended("TASK_GONE"), Cause.INFRASTRUCTURE),
        (Ended("TASK_GONE_BY_OPERATOR"), Cause.INFRASTRUCTURE),
        (Ended("TASK_UNKNOWN"), Cause.INFRASTRUCTURE),
        (Ended("TASK_KILLED", signal=15), Cause.INFRASTRUCTURE),
    ],
)
def test_each_end_has_its_cause(end, cause):
    """What a user would say of it."""
    assert cause is cause_of(end)


def test_the_exit_codes_that_ask_for_a_restart_are_the_users_to_choose():
    """An own list replaces TensorFlow's."""
    assert Cause.RESTART_ASKED is cause_of(Ended(FAILED, exit_code=75), frozenset({75}))
    assert Cause.USER_ERROR is cause_of(Ended(FAILED, exit_code=42), frozenset({75}))


ends = st.builds(
    Ended,
    st.sampled_from([state.value for state in TaskState if state.ended]),
    st.sampled_from(["", "REASON_TASK_INVALID", "REASON_AGENT_DRAINING", "REASON_NEW_IN_MESOS_2"]),
    st.none() | st.integers(0, 255),
    st.none() | st.integers(1, 64),
    st.booleans(),
)


@given(ends)
def test_every_end_has_a_cause(end):
    """Total: also for reasons that nobody has heard of yet."""
    assert cause_of(end) in Cause


def test_no_row_is_shadowed_by_the_rows_before_it():
    """Each row decides at least one end."""
    samples = [
        Ended("TASK_FINISHED"),
        Ended("TASK_KILLED", asked=True),
        Ended("TASK_ERROR"),
        Ended("TASK_DROPPED"),
        Ended("TASK_KILLED", "REASON_AGENT_DRAINING"),
        Ended(FAILED, "REASON_CONTAINER_LIMITATION_DISK"),
        Ended(FAILED, "REASON_EXECUTOR_REGISTRATION_TIMEOUT"),
        Ended(FAILED, hung=True),
        Ended(FAILED, exit_code=42),
        Ended(FAILED, signal=11),
        Ended(FAILED, exit_code=3),
        Ended("TASK_GONE"),
    ]

    first = [next(row for row in ROWS if row.fits(end, frozenset({42}))) for end in samples]

    assert list(ROWS) == first


def test_only_the_users_own_errors_are_counted_and_only_hopeless_ends_are_not_retried():
    """Counted against restart.max_failures; retried at all."""
    assert {Cause.USER_ERROR} == {cause for cause in Cause if cause.counted}
    assert {Cause.FINISHED, Cause.STOPPED, Cause.NEVER} == {cause for cause in Cause if not cause.retried}
