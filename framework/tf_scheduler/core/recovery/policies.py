"""What holds for one task: its job's own policy, else the service's."""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.failure import Cause
from tf_scheduler.model.policy import RestartPolicy, RestartWhen
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import TaskRecord, TaskStatus


def restart_policy(spec: ServiceSpec, record: TaskRecord) -> RestartPolicy:
    """How often it is launched again."""
    job = spec.job_of(record.job, record.index)
    found = spec.restart if job is None or job.restart is None else job.restart
    # What only keeps a place has no failures of its own.
    return replace(found, when=RestartWhen.ALWAYS) if record.idle else found


def unreachable_timeout(spec: ServiceSpec, record: TaskRecord) -> float:
    """Seconds that it is waited for when its agent does not answer."""
    job = spec.job_of(record.job, record.index)
    own = None if job is None else job.unreachable_timeout
    return spec.recovery.unreachable_timeout if own is None else own


def counts(policy: RestartPolicy, cause: Cause) -> bool:
    """Whether such an end counts as a failure."""
    return cause.counted and policy.when is not RestartWhen.ALWAYS


def is_final(policy: RestartPolicy, cause: Cause, status: TaskStatus) -> str:
    """Why the task is not launched again, as half a sentence; empty: it may be."""
    if not cause.retried:
        return "another launch would end in the same way"
    if policy.when is RestartWhen.NEVER and cause is not Cause.NOT_STARTED:
        return "its restart_policy is never"
    if policy.when is RestartWhen.EXIT_CODE and cause is Cause.USER_ERROR and status.exit_code in range(1, 128):
        return "its restart_policy is exit_code, and 1 to 127 are final"
    return ""
