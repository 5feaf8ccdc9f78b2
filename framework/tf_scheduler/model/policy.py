"""What shall happen to tasks that fail, get lost or end. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SuccessPolicy(str, Enum):
    """Whose success is the job's (Kubeflow's TFJob has the same idea in its successPolicy)."""

    #: All workers' where each works for itself, else the chief's.
    DEFAULT = "default"
    #: The chief's, or worker 0's where there is no chief.
    CHIEF = "chief"
    WORKER_0 = "worker_0"
    ALL_WORKERS = "all_workers"
    ANY_WORKER = "any_worker"


class CleanUp(str, Enum):
    """What is ended with the job (Kubeflow's cleanPodPolicy)."""

    RUNNING = "running"
    #: The same: of a task that has ended Mesos keeps nothing that could be ended.
    ALL = "all"
    NONE = "none"


class Then(str, Enum):
    """What the service does after the job."""

    TEARDOWN = "teardown"
    KEEP_TENSORBOARD = "keep_tensorboard"
    IDLE = "idle"


class RestartWhen(str, Enum):
    """After which ends a task is launched again; one that has finished never is (Kubeflow's restartPolicy)."""

    #: Errors count as failures.
    ON_FAILURE = "on_failure"
    #: Nothing counts.
    ALWAYS = "always"
    #: After none that its program had a part in.
    NEVER = "never"
    #: Exit codes from 1 to 127 are final; from 128 on, and signals, are not.
    EXIT_CODE = "exit_code"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a task that failed by itself is started again."""

    #: Failures of one task within `window` that are forgiven.
    max_failures: int = 3
    window: float = 3600.0
    #: Before the first restart; doubles with each that follows, up to `max_backoff`.
    backoff: float = 1.0
    max_backoff: float = 300.0
    #: Exit codes that ask for a restart and count as no failure.
    uncounted_exit_codes: frozenset[int] = frozenset({42, 143})
    when: RestartWhen = RestartWhen.ON_FAILURE


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """When a task counts as lost."""

    #: After its agent stopped to answer.
    unreachable_timeout: float = 300.0
    #: After the start of its program, without having joined the others; None: never.
    start_timeout: float | None = 600.0
    #: After the back-off of a restart, until a cluster that may be smaller (`min_count`) is.
    shrink_after: float = 60.0
    #: An agent with so many lost or unstartable launches within `avoid_for` is avoided for as long; 0: never.
    avoid_after: int = 3
    avoid_for: float = 900.0


@dataclass(frozen=True, slots=True)
class FinishPolicy:
    """When the job is done, and what becomes of the rest."""

    success: SuccessPolicy = SuccessPolicy.DEFAULT
    clean_up: CleanUp = CleanUp.RUNNING
    #: Of the whole job, from its first launch; None: none.
    deadline: float | None = None
    then: Then = Then.TEARDOWN
    #: How long what is kept is kept: TensorBoard, or what `clean_up` leaves; None: until somebody ends the service.
    keep_seconds: float | None = 3600.0
    #: How long the evaluator may go on after the job's success.
    evaluator_seconds: float = 60.0
