"""Decide which workers a running chief uses (`worker.elastic` with mode live).

The running chief gets a complete list of the workers to use, with a version. A list is stored before it is sent, and
sent again until the chief confirms its version. A worker is listed when its server answers. Its task is stopped only
after the chief has confirmed a list without the worker. A change that is impossible in this way restarts the chief, as
it would without the option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tf_executor.contract.payload import WantedMembers
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_scheduler.core.plans.scheduling import PlanView
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import Decision, LaunchRetired, MessageExecutor, Outcome
from tf_scheduler.model.ids import TaskId, TaskName, executor_of
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Members, TaskRecord

#: Seconds after which the workers are compared with the list, a list is sent again, a list must be confirmed, and
#: a chief that has not confirmed its first list restarts when its workers change.
CHECK_AGAIN, SEND_AGAIN, CONFIRM_WITHIN, FIRST_WITHIN = 1.0, 5.0, 60.0, 600.0
#: Version of the first list: a program may read its data for minutes before it can answer, and nothing changes yet.
_FIRST = 1


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield when to compare the workers next; after each event it would cost too much."""
    if state.living_chief() is not None:
        yield state.session.members_checked_at + CHECK_AGAIN


def direct_chief(state: SchedulerState, now: float, view: PlanView) -> Decision:
    """Send the running chief its workers; restart the chief if it cannot change them."""
    state = state.with_session(members_checked_at=now)
    chief = state.living_chief()
    if chief is None or state.stored.result is not None or not state.session.connected:
        return decide(state)
    current = state.members_of_chief() or Members(chief.id, 0, {}, now, confirmed=True)
    due = (record for _, _, record in view.launched_steps if record.job is JobKind.WORKER)
    stopping = frozenset(record.name for record in due if record.id not in state.stored.retired)
    if state.chief_in_service() is None:
        return _restart_mute(state, view, chief, stopping, now)
    target = _wanted(state, current, stopping)
    if problem := _why_restart(state, current, target, now):
        return _restart(state, view, chief, problem)
    if not current.confirmed:  # one list at a time, so that each has its time
        return _sent(state, chief, current, now)
    if again := _left_but_wanted(state, current, stopping):
        return decide(state, *(LaunchRetired(launch, view.records.rollout.name) for launch in again))
    if target == current.workers and (current.version or not stopping):
        return decide(state)
    if current.error:
        return _restart(state, view, chief, current.error)
    # TensorFlow waits for a lost worker, and so allows no change.
    statuses = (state.status(name) for name in current.workers if name in index_of(state.spec).tasks)
    if any(status is None or status.state.has_ended or status.state.is_silent for status in statuses):
        return decide(state)
    tasks = state.stored.tasks
    leaving = {tasks[name].id for name in current.workers.keys() - target.keys() if name in tasks}
    leaving |= {record.id for record in tasks.values() if record.id in current.left}
    next_list = Members(chief.id, current.version + 1, target, now, left=tuple(sorted(leaving)))
    decision = decide(state.with_session(members_sent_at=0.0), next_list, outcomes=_changes(current, target))
    return decision.then(lambda after: _sent(after, chief, next_list, now))


def _restart_mute(
    state: SchedulerState, view: PlanView, chief: TaskRecord, stopping: frozenset[TaskName], now: float
) -> Decision:
    """Restart a running chief that never answered, if stops of workers wait for it."""
    status = state.stored.statuses.get(chief.id)
    if not stopping or status is None or status.state is not TaskState.RUNNING or status.healthy is not None:
        return decide(state)
    if now < status.timestamp + FIRST_WITHIN:
        return decide(state)
    return _restart(state, view, chief, f"it has not answered within {FIRST_WITHIN:.0f} s")


def record_members(state: SchedulerState, launch: str, progress: Progress) -> tuple[Members, ...]:
    """Return the change to store after a chief's answer; empty if nothing is new."""
    current = state.stored.members
    if current is None or current.chief != launch or progress.members is None:
        return ()
    error = progress.members_error or ""
    confirmed = progress.members == current.version
    if (confirmed, error) == (current.confirmed, current.error):
        return ()
    return (replace(current, confirmed=confirmed, error=error),)


def _left_but_wanted(state: SchedulerState, current: Members, stopping: frozenset[TaskName]) -> list[TaskId]:
    """Return running launches that have left the chief, but whose workers are wanted.

    These launches must end first. Otherwise all training steps would wait, for up to a minute, until TensorFlow has
    closed the contexts of the launches.
    """
    names = index_of(state.spec).by_kind.get(JobKind.WORKER, frozenset())
    records = (state.stored.tasks[name] for name in sorted((names & state.stored.tasks.keys()) - stopping))
    leavers = (record for record in records if record.id in current.left and record.id not in state.stored.retired)
    return [record.id for record in leavers if state.is_live(record)]


def _wanted(state: SchedulerState, current: Members, stopping: frozenset[TaskName]) -> Mapping[TaskName, str]:
    """Return the workers that answer, without those that are about to stop.

    A lost worker stays in the list, because TensorFlow waits for it at its address.
    """
    workers = {}
    for name in sorted(index_of(state.spec).by_kind.get(JobKind.WORKER, ())):
        record, status = state.stored.tasks.get(name), state.status(name)
        if record is None or record.is_placeholder:
            continue
        can_join = (
            status is not None and status.healthy is True and name not in stopping and record.id not in current.left
        )
        is_awaited = current.workers.get(name) == record.address and not (status is not None and status.healthy)
        if record.id not in state.stored.retired and (can_join or is_awaited):
            workers[name] = record.address
    return workers


def _why_restart(state: SchedulerState, current: Members, target: Mapping[TaskName, str], now: float) -> str:
    """Return why the chief must restart to change its workers; empty if it need not."""
    tasks = state.stored.tasks
    elsewhere = (name for name, address in current.workers.items() if name in tasks and tasks[name].address != address)
    if name := next(elsewhere, ""):
        return f"{name} was lost, and runs at another address"
    is_first = current.version <= _FIRST
    if current.error and not is_first:
        return current.error
    if current.confirmed or (is_first and target == current.workers):
        return ""
    limit = FIRST_WITHIN if is_first else CONFIRM_WITHIN
    # An absent scheduler hears no answer.
    is_late = now >= max(current.since + limit, state.session.connected_at + CONFIRM_WITHIN)
    return f"it did not confirm its workers within {limit:.0f} s" if is_late else ""


def _restart(state: SchedulerState, view: PlanView, chief: TaskRecord, why: str) -> Decision:
    outcome = Outcome("ChiefRestarts", f"{chief.name} restarts to change its workers: {why}", chief.name, warning=True)
    return decide(state, LaunchRetired(chief.id, view.records.rollout.name), outcomes=(outcome,))


def _sent(state: SchedulerState, chief: TaskRecord, current: Members, now: float) -> Decision:
    if now < state.session.members_sent_at + SEND_AGAIN:
        return decide(state)
    # A listed worker may have been removed: the chief must confirm this list before it gets one without the worker.
    workers = {name.rpartition("-")[2]: address for name, address in current.workers.items()}
    data = WantedMembers(chief.id, current.version, workers).encode(chief.exec_key)
    call = MessageExecutor(executor_of(chief.id), chief.agent_id, data)
    return decide(state.with_session(members_sent_at=now), calls=(call,))


def _changes(current: Members, target: Mapping[TaskName, str]) -> tuple[Outcome, ...]:
    """Return an outcome if the chief changes its workers; none for the first list."""
    if not current.version:
        return ()
    joining, leaving = sorted(target.keys() - current.workers.keys()), sorted(current.workers.keys() - target.keys())
    texts = (f"joining: {', '.join(joining)}" if joining else "", f"leaving: {', '.join(leaving)}" if leaving else "")
    return (Outcome("MembersChanged", f"the running chief changes its workers; {'; '.join(filter(None, texts))}"),)
