"""Every reported state against every believed state of a launch."""

import pytest

from builders import a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery import status as updates
from tf_scheduler.core.recovery.status import REACTIONS, Belief, Report, belief_of, report_of
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import Acknowledge, Kill, ResultDecided, StatusStored
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import AbandonedLaunch

#: Letters: s stored, k killed, r remembered, i ignored. Columns in the order of REPORTED.
EXPECTED = """
-                 s s s s  s s  s  s s s s  s s s
STAGING           s s s s  s s  s  s s s s  s s s
STARTING          i s s s  s s  s  s s s s  s s s
RUNNING           i i s s  s s  s  s s s s  s s s
KILLING           i i i i  s s  s  s s s s  s s s
UNREACHABLE       s s s s  s s  s  s s s s  s s s
UNKNOWN           s s s s  s s  s  s s s s  s s s
LOST              k k k k  r i  s  i i i i  i i i
GONE              k k k k  r i  s  i i i i  i i i
GONE_BY_OPERATOR  k k k k  r i  s  i i i i  i i i
DROPPED           k k k k  r i  s  i i i i  i i i
FAILED            i i i i  i i  i  i i i i  i i i
KILLED            i i i i  i i  i  i i i i  i i i
ERROR             i i i i  i i  i  i i i i  i i i
FINISHED          i i i i  i i  i  i i i i  i i i
replaced          k k k k  r i  i  i i i i  i i i
"""
REPORTED = (
    *("STAGING", "STARTING", "RUNNING", "KILLING", "UNREACHABLE", "UNKNOWN", "FINISHED"),
    *("FAILED", "KILLED", "ERROR", "DROPPED", "LOST", "GONE", "GONE_BY_OPERATOR"),
)
PAIRS = [
    (believed, reported, letter)
    for believed, *letters in map(str.split, EXPECTED.strip().splitlines())
    for reported, letter in zip(REPORTED, letters, strict=True)
]


def believing(state: str) -> SchedulerState:
    before = a_running_state(a_spec())
    if state in ("-", "replaced"):
        return with_fields(before, statuses={})
    return apply(before, StatusStored(a_status("worker-0__1", TaskState[state], uuid="old")))


@pytest.mark.parametrize("decided", [False, True], ids=["job runs", "job ended"])
@pytest.mark.parametrize(("believed", "reported", "letter"), PAIRS)
def test_reaction_to_status(believed: str, reported: str, letter: str, decided: bool) -> None:
    """Each update is acknowledged, after it is stored."""
    state = believing(believed)
    if decided:
        state = apply(state, ResultDecided(Result(Verdict.FAILED, "x", 100.0)))
    launch = "worker-0__0" if believed == "replaced" else "worker-0__1"
    status = a_status(launch, TaskState[reported], "new")

    decision = updates.on_update(state, status, 110.0, lambda: "id", view_of(state))

    stored = [change.status.state for change in decision.changes if isinstance(change, StatusStored)]
    kills = [call for call in decision.calls if isinstance(call, Kill)]
    assert ([TaskState[reported]] if letter == "s" else []) == stored
    assert (letter == "k") is bool(kills)
    assert (letter == "r") is any(isinstance(change, AbandonedLaunch) for change in decision.changes)
    assert [launch] == [call.task_id for call in decision.calls if isinstance(call, Acknowledge)]


def test_table_is_complete() -> None:
    assert {Belief.REPLACED} == set(Belief) - {belief_of(state) for state in TaskState}
    assert set(Report) == {report_of(state) for state in TaskState}
    assert {belief: set(Report) for belief in Belief} == {belief: set(row) for belief, row in REACTIONS.items()}
