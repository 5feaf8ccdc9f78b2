"""Validated options: the service, its jobs, programs, policies and executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import quote, unquote

from tf_executor.contract.settings import RunSettings
from tf_executor.contract.strategies import Strategy

from .ids import TaskName, task_name
from .placement import REGION, Constraint, PlacementSpec
from .plan import PlanSpec
from .resources import Needs, VirtualNetwork, Volume
from .secrets import SecretAccess, SecretDelivery, SecretSpec

# --- Program


@dataclass(frozen=True, slots=True)
class Program:
    """A module with `main(server, log_dir, context)`, run by jobs without a command."""

    name: str
    #: Directory of the module, relative to the working directory.
    path: str = ""
    #: JSON object as text.
    context: str = "{}"


# --- Checkpoints


class StorageMode(str, Enum):
    """How checkpoints get to checkpoint_dir."""

    AUTO = "auto"
    #: TensorFlow writes to the URL.
    DIRECT = "direct"
    #: The executor carries complete checkpoints between a local folder and the URL.
    CARRIED = "carried"
    #: checkpoint_dir is a path that all agents mount.
    MOUNTED = "mounted"


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """How checkpoints get to `checkpoint_dir`, how often, and how many are kept."""

    mode: StorageMode = StorageMode.AUTO
    #: Seconds between two checks for new checkpoints.
    every: float = 60.0
    #: Number of checkpoints in the storage.
    keep: int = 3
    #: Options of the file system in fsspec.
    options: Mapping[str, Any] = field(default_factory=dict)


# --- Policies for failed, lost and finished tasks (times in seconds)


class SuccessPolicy(str, Enum):
    """Tasks whose success makes the job succeed (compare Kubeflow's successPolicy)."""

    #: All workers if each works independently, otherwise the chief.
    DEFAULT = "default"
    #: The chief, or worker 0 without a chief.
    CHIEF = "chief"
    WORKER_0 = "worker_0"
    ALL_WORKERS = "all_workers"
    ANY_WORKER = "any_worker"


class CleanupPolicy(str, Enum):
    """Tasks that are stopped when the job ends (Kubeflow's cleanPodPolicy)."""

    RUNNING = "running"
    #: Same as RUNNING: Mesos keeps nothing of ended tasks.
    ALL = "all"
    NONE = "none"


class AfterFinish(str, Enum):
    """What the service does after the job."""

    TEARDOWN = "teardown"
    KEEP_TENSORBOARD = "keep_tensorboard"
    IDLE = "idle"


class RestartWhen(str, Enum):
    """When an ended task is relaunched, never if FINISHED (Kubeflow's restartPolicy)."""

    #: Relaunch; errors count as failures.
    ON_FAILURE = "on_failure"
    #: Relaunch; no end counts as a failure.
    ALWAYS = "always"
    #: Do not relaunch if the program caused the end.
    NEVER = "never"
    #: Exit codes 1 to 127 are final; higher codes and signals are not.
    EXIT_CODE = "exit_code"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits and back-off for restarts of failed tasks."""

    #: Allowed failures of one task within `window`.
    max_failures: int = 3
    window: float = 3600.0
    #: Delay of the first restart; it doubles with each restart up to `max_backoff`.
    backoff: float = 1.0
    max_backoff: float = 300.0
    #: Exit codes that request a restart and do not count as failures.
    uncounted_exit_codes: frozenset[int] = frozenset({42, 143})
    when: RestartWhen = RestartWhen.ON_FAILURE
    #: Whether two launches that end with the same error before the first training step end the job.
    fail_fast: bool = True
    #: Ends of one task's program within `window` that may be infrastructure's and do not count; 0 for unlimited.
    max_uncounted: int = 20


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """Timeouts after which tasks are lost, clusters shrink, or agents are avoided."""

    #: Time without contact to the agent.
    unreachable_timeout: float = 300.0
    #: Time from the program's start until its server answers; `None` for unlimited.
    start_timeout: float | None = 600.0
    #: Time after the back-off of a restart until a cluster with fewer workers (`min_count`) may start.
    shrink_after: float = 60.0
    #: Failed launches within `avoid_for` after which an agent is avoided for that time; 0 for never.
    avoid_after: int = 3
    avoid_for: float = 900.0


@dataclass(frozen=True, slots=True)
class FinishPolicy:
    """Conditions for the end of the job, and actions after it."""

    success: SuccessPolicy = SuccessPolicy.DEFAULT
    cleanup: CleanupPolicy = CleanupPolicy.RUNNING
    #: Maximum time from the job's first launch; `None` for unlimited.
    deadline: float | None = None
    after_finish: AfterFinish = AfterFinish.TEARDOWN
    #: How long remaining tasks are kept; `None` until an operator stops the service.
    keep_seconds: float | None = 3600.0
    #: Maximum run time of the evaluator after the job's success.
    evaluator_seconds: float = 60.0


# --- Jobs and service


class JobKind(str, Enum):
    """Kind of a task; TensorFlow's TFConfigClusterResolver has the first four."""

    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"
    TENSORBOARD = "tensorboard"
    #: Dispatcher and workers of the tf.data service.
    DISPATCHER = "data-dispatcher"
    DATA_WORKER = "data-worker"

    @property
    def in_cluster(self) -> bool:
        """Whether addresses of these tasks are in the ClusterSpec of their peers."""
        return self in (JobKind.PS, JobKind.WORKER, JobKind.CHIEF)

    @property
    def is_builtin(self) -> bool:
        """Whether this package provides the program, so that no option sets its command."""
        return self in (JobKind.TENSORBOARD, JobKind.DISPATCHER, JobKind.DATA_WORKER)

    @property
    def is_side_job(self) -> bool:
        """Whether training neither waits for these tasks nor fails with them."""
        return self in (JobKind.EVALUATOR, JobKind.TENSORBOARD)


def kind_of(name: TaskName) -> JobKind:
    """Return the kind of a task from its name, such as `ps-0`."""
    return JobKind(name.rpartition("-")[0])


@dataclass(frozen=True, slots=True)
class Uri:
    """A file that the agent fetches into the sandbox (Mesos CommandInfo.URI)."""

    value: str
    extract: bool = True
    #: Whether the agent caches it for later tasks.
    cache: bool = False
    output_file: str = ""
    #: Whether the executor links the agent's file, which is not fetched.
    link: bool = False

    @property
    def file_name(self) -> str:
        """Name in the sandbox, including a query as in Mesos; decoded for `file:` URLs."""
        name = self.value.rstrip("/").rpartition("/")[2]
        return self.output_file or (unquote(name) if self.value.startswith("file:") else name)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """`count` identical tasks, which form a job of the ClusterSpec or a part of a job.

    The job `worker` has two parts if there are workers with and without GPUs.
    """

    kind: JobKind
    count: int
    needs: Needs
    #: Shell command of the user's program.
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Limits, hooks, checks and output, which its executor gets unchanged.
    settings: RunSettings = field(default_factory=RunSettings)
    #: Preferred port; 0 for any.
    port: int = 0
    #: Minimum number of tasks after a restart of the whole cluster; 0 for `count`.
    min_count: int = 0
    #: Section of the options, such as `gpu_worker`; empty if it is the only one of its kind.
    section: str = ""
    #: Index of its first task in the job.
    first_index: int = 0
    #: Constraints, all of which must hold.
    constraints: tuple[Constraint, ...] = ()
    #: Docker image; empty for the agent's own file system.
    image: str = ""
    volumes: tuple[Volume, ...] = ()
    #: Maximum run time of each task in seconds; `None` for unlimited.
    max_completion_time: float | None = None
    #: Restart policy; `None` for the service's.
    restart: RestartPolicy | None = None
    #: `RecoveryPolicy.unreachable_timeout` of its tasks; `None` for the service's.
    unreachable_timeout: float | None = None

    @property
    def group(self) -> str:
        """Name of this part, unique in the service; constraints count tasks per group."""
        return self.section or self.kind.value


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """Settings of the executor that each task has; `uri` names its bundle."""

    uri: str
    #: Interpreter on the agents, Python 3.8 or newer.
    python: str = "python3"
    needs: Needs = field(default_factory=lambda: Needs(cpus=100, mem=64_000))
    #: Whether users may run commands in the tasks.
    allows_exec: bool = True
    #: SHA-256 digest of the bundle in lower-case hex; empty: not checked.
    sha256: str = ""
    #: Whether agents extract archives instead of the executor.
    agents_extract: bool = False
    #: Whether the executor links volumes into the working directory instead of the agents mounting them.
    links_volumes: bool = False
    #: Whether the executor kills programs that use more memory than their tasks have.
    enforces_memory: bool = False


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a job."""

    name: TaskName
    index: int
    job: JobSpec
    #: Earlier options that the task is launched with; `None` for the current ones.
    options: ServiceSpec | None = None


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """Specification of one service."""

    name: str
    #: Operating system user of the tasks.
    user: str
    #: Mesos role of the resources.
    role: str
    strategy: Strategy
    jobs: tuple[JobSpec, ...]
    executor: ExecutorSpec
    uris: tuple[Uri, ...] = ()
    #: URLs that the executor fetches because the agents' fetcher cannot.
    fetch: tuple[str, ...] = ()
    #: SHA-256 digest in lower-case hex by name of a fetched file.
    digests: Mapping[str, str] = field(default_factory=dict)
    #: Program of jobs without a command.
    program: Program | None = None
    principal: str = ""
    #: Shared directory, passed to all tasks as CHECKPOINT_DIR.
    checkpoint_dir: str = ""
    #: Maximum bytes of files that tasks keep in checkpoint_dir beside their checkpoints.
    keep_files: int = 0
    storage: StoragePolicy = field(default_factory=StoragePolicy)
    #: Seconds for which Mesos keeps the tasks of a disconnected scheduler (default: one week).
    failover_timeout: float = 604_800.0
    #: Maximum seconds for which offers are held while a gang is incomplete.
    hold_seconds: float = 5.0
    placement: PlacementSpec = field(default_factory=PlacementSpec)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    finish: FinishPolicy = field(default_factory=FinishPolicy)
    secrets: tuple[SecretSpec, ...] = ()
    secret_delivery: SecretDelivery = field(default_factory=SecretDelivery)
    secret_access: SecretAccess = field(default_factory=SecretAccess)
    #: `None` for the agents' network.
    network: VirtualNetwork | None = None
    #: Whether workers join and leave a running chief (strategy parameter_server).
    live: bool = False
    #: Largest number of workers, for the tasks of such a job; 0: unknown.
    max_workers: int = 0
    #: Smallest number of workers that an operator may request while the job runs.
    min_workers: int = 0
    #: Whether the job takes up to `max_workers` while agents are idle.
    grows: bool = False
    #: Longest time in seconds that a change of the number of workers waits for the next checkpoint.
    resize_wait: float = 0.0
    #: User plans, and custom strategies of `deploy` and `update`, by name.
    plans: Mapping[str, PlanSpec] = field(default_factory=dict)
    #: Specs of earlier options with which tasks still run.
    earlier: tuple[ServiceSpec, ...] = ()

    @property
    def journals(self) -> str:
        """Folder for journals of the tf.data dispatcher; empty without a shared path."""
        # Hidden, and not searched for new checkpoints (tf_executor.launch.fencing).
        name = f".dcos-tensorflow/{quote(self.name, safe='')}.journals"
        return f"{self.checkpoint_dir.rstrip('/')}/{name}" if self.checkpoint_dir.startswith("/") else ""

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return sum(job.count for job in self.jobs)

    def tasks(self) -> Iterator[TaskSpec]:
        """Return every task, in the order of `jobs` and by index."""
        for job in self.jobs:
            for index in range(job.first_index, job.first_index + job.count):
                yield TaskSpec(task_name(job.kind.value, index), index, job)

    def job_of(self, kind: JobKind, index: int) -> JobSpec | None:
        """Return the JobSpec that contains this task; `None` if the options have none."""
        jobs = (job for job in self.jobs if job.kind is kind and 0 <= index - job.first_index < job.count)
        return next(jobs, None)

    @property
    def leader(self) -> TaskName | None:
        """The task that decides success: the chief, else worker 0 (as in TensorFlow)."""
        heads = [kind for kind in (JobKind.CHIEF, JobKind.WORKER) if self.job_of(kind, 0) is not None]
        return task_name(heads[0].value, 0) if heads else None

    def is_leader(self, kind: JobKind, index: int) -> bool:
        return self.leader == task_name(kind.value, index)

    def unreachable_timeout(self, kind: JobKind, index: int) -> float:
        """Return the seconds until an unreachable task counts as lost."""
        job = self.job_of(kind, index)
        own = None if job is None else job.unreachable_timeout
        return self.recovery.unreachable_timeout if own is None else own

    @property
    def needs_gpus(self) -> bool:
        """Whether any task needs a GPU; required for the GPU_RESOURCES capability."""
        return any(job.needs.gpus for job in self.jobs if job.count)

    @property
    def spans_regions(self) -> bool:
        """Whether agents outside the master's region may be used and must be offered."""
        rules = (rule for job in self.jobs for rule in job.constraints)
        return bool(self.placement.region) or any(rule.field == REGION for rule in rules)


# --- Address dependencies


#: Strategy -> jobs whose tasks need every address.
ADDRESS_DEPENDENTS: Mapping[Strategy, frozenset[JobKind]] = {
    strategy: frozenset(map(JobKind, strategy.traits.address_dependents)) for strategy in Strategy
}
