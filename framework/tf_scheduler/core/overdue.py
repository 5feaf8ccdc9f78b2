"""The deadline of the whole job (Kubeflow's activeDeadlineSeconds): from its first launch, whatever ran since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tf_scheduler.model.effects import Decision, Outcome, ResultDecided
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord

from .memo import remembered
from .reduce import decide


@remembered
def begun(tasks: Mapping[TaskName, TaskRecord]) -> float | None:
    """When the first task was launched, in seconds since the epoch; None: none was. Later launches know it, too."""
    return min((record.begun or record.launched_at for record in tasks.values()), default=None)


def ended(state: SchedulerState, now: float) -> Decision:
    """The job fails when its deadline has passed."""
    at = next(deadlines(state), None)
    if at is None or now < at:
        return decide(state)
    why = f"it took longer than finish.deadline allows: {state.spec.finish.deadline:g} s after its first launch"
    return decide(state, ResultDecided(Result(Verdict.FAILED, why, now)), outcomes=(Outcome(why, warning=True),))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """The one, as long as the job runs."""
    start = begun(state.tasks)
    if state.result is None and state.spec.finish.deadline is not None and start is not None:
        yield start + state.spec.finish.deadline
