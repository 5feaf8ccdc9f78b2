"""What the user asked for, validated: the service, its jobs, its executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .ids import TaskName, task_name
from .network import VirtualNetwork
from .placement import REGION, Constraint, GangSpec, PlacementSpec
from .plan import PlanSpec
from .policy import FinishPolicy, RecoveryPolicy, RestartPolicy
from .program import Hooks, Limits, Liveness, Output, Program
from .resources import Needs
from .secrets import Access, Delivery, SecretSpec
from .volume import Volume


class JobKind(str, Enum):
    """What a task does; the first four in TensorFlow's words (its TFConfigClusterResolver)."""

    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"
    TENSORBOARD = "tensorboard"
    #: tf.data service: the one that is asked, and those that prepare the data.
    DISPATCHER = "data-dispatcher"
    DATA_WORKER = "data-worker"

    @property
    def in_cluster(self) -> bool:
        """Whether its addresses belong to the ClusterSpec that the others see."""
        return self in (JobKind.PS, JobKind.WORKER, JobKind.CHIEF)

    @property
    def ours(self) -> bool:
        """Whether its program is ours: no section of the options says what it runs."""
        return self in (JobKind.TENSORBOARD, JobKind.DISPATCHER, JobKind.DATA_WORKER)

    @property
    def aside(self) -> bool:
        """Whether it runs beside the training, which neither waits for it nor fails with it."""
        return self in (JobKind.EVALUATOR, JobKind.TENSORBOARD)


class Strategy(str, Enum):
    """How the training program distributes its work; decides which jobs it needs and what ends it."""

    PARAMETER_SERVER = "parameter_server"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    BETWEEN_GRAPH = "between_graph"
    #: One process per worker, each for itself.
    INDEPENDENT = "independent"
    PYTORCH_DDP = "pytorch_ddp"
    HOROVOD = "horovod"

    @property
    def ends_with_all(self) -> bool:
        """Whether the job is done when all workers are, not when the first one is."""
        return self in (Strategy.INDEPENDENT, Strategy.PYTORCH_DDP, Strategy.HOROVOD)

    @property
    def has_servers(self) -> bool:
        """Whether its tasks are TensorFlow servers, which TF_CONFIG tells of each other."""
        return self in (Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.BETWEEN_GRAPH)


@dataclass(frozen=True, slots=True)
class Uri:
    """A file that the agent fetches into the task's working directory (Mesos CommandInfo.URI)."""

    value: str
    extract: bool = True
    executable: bool = False
    #: Whether the agent keeps it for the next task that wants it.
    cache: bool = False
    output_file: str = ""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """`count` tasks that are alike: a whole job of the ClusterSpec, or a part of one.

    The job `worker` has two parts when there are workers with and without GPUs.
    """

    kind: JobKind
    count: int
    needs: Needs
    #: Shell command line of the user's program.
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Interpreter that `python` means inside `command`; empty: the executor's own.
    python: str = ""
    #: Seconds between SIGTERM and SIGKILL.
    kill_grace: float = 10.0
    #: Port that it gets if that is on offer; 0: any.
    port: int = 0
    #: Tasks that a restart of the whole cluster may do with, when no more find a place; 0: all.
    min_count: int = 0
    #: Section of the options that it comes from, such as `gpu_worker`; empty: the only one of its kind.
    section: str = ""
    #: Index of its first task in the job.
    first_index: int = 0
    #: All of them hold.
    constraints: tuple[Constraint, ...] = ()
    #: Docker image of the container; empty: the agent's own file system.
    image: str = ""
    volumes: tuple[Volume, ...] = ()
    #: Whether --ps_hosts, --worker_hosts, --job_name and --task_index are appended to the command.
    cluster_flags: bool = False
    hooks: Hooks = field(default_factory=Hooks)
    limits: Limits = field(default_factory=Limits)
    #: Whether TensorFlow must see all GPUs of the task before the program starts.
    gpu_check: bool = True
    #: Seconds that each task may run; None: for ever.
    max_completion_time: float | None = None
    liveness: Liveness | None = None
    #: Seconds without progress and output after which a program counts as failed; None: never.
    stalled_after: float | None = None
    #: Of its tasks; None: the service's.
    restart: RestartPolicy | None = None
    #: Seconds, as `RecoveryPolicy.unreachable_timeout`; None: that one.
    unreachable_timeout: float | None = None

    @property
    def group(self) -> str:
        """Name of this part of the service, unique in it; constraints count tasks within it."""
        return self.section or self.kind.value


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """The executor that carries one task."""

    #: The bundle, one file, that the agent fetches.
    uri: str
    #: Interpreter on the agents that runs the bundle: 3.8 or newer.
    python: str = "python3"
    needs: Needs = field(default_factory=lambda: Needs(cpus=100, mem=64_000))


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a job, with its name."""

    name: TaskName
    index: int
    job: JobSpec


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One installed instance of the package."""

    name: str
    #: Operating system user of the tasks on the agents.
    user: str
    #: Mesos role that the resources are allocated to.
    role: str
    strategy: Strategy
    jobs: tuple[JobSpec, ...]
    executor: ExecutorSpec
    uris: tuple[Uri, ...] = ()
    #: URLs for the working directory that the agents' fetcher cannot fetch; the executor does.
    fetch: tuple[str, ...] = ()
    #: What tasks without a command run.
    program: Program | None = None
    output: Output = field(default_factory=Output)
    principal: str = ""
    #: Shared by all tasks; reaches them as CHECKPOINT_DIR.
    checkpoint_dir: str = ""
    #: Seconds that Mesos keeps the tasks of a scheduler that is gone (default: one week).
    failover_timeout: float = 604_800.0
    gang: GangSpec = field(default_factory=GangSpec)
    placement: PlacementSpec = field(default_factory=PlacementSpec)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    finish: FinishPolicy = field(default_factory=FinishPolicy)
    secrets: tuple[SecretSpec, ...] = ()
    delivery: Delivery = field(default_factory=Delivery)
    access: Access = field(default_factory=Access)
    #: None: tasks use the network of their agent.
    network: VirtualNetwork | None = None
    #: Plans of the user, and other strategies for `deploy` and `update`; by name.
    plans: Mapping[str, PlanSpec] = field(default_factory=dict)

    @property
    def hold_seconds(self) -> float:
        """Seconds that offers are held while the gang is not complete."""
        return self.gang.hold_seconds

    @property
    def task_count(self) -> int:
        """How many tasks shall run."""
        return sum(job.count for job in self.jobs)

    def tasks(self) -> Iterator[TaskSpec]:
        """Every task that shall run, job by job in the order of `jobs`, by index."""
        for job in self.jobs:
            for index in range(job.first_index, job.first_index + job.count):
                yield TaskSpec(task_name(job.kind.value, index), index, job)

    def job_of(self, kind: JobKind, index: int) -> JobSpec | None:
        """The part of the service that a task belongs to; None: the options no longer have it."""
        found = (job for job in self.jobs if job.kind is kind and 0 <= index - job.first_index < job.count)
        return next(found, None)

    @property
    def asks_for_gpus(self) -> bool:
        """Whether any task needs a GPU; only then is the GPU_RESOURCES capability a promise that we keep."""
        return any(job.needs.gpus for job in self.jobs if job.count)

    @property
    def asks_for_regions(self) -> bool:
        """Whether agents of other regions than the master's may be used; only then are they to be offered."""
        rules = (rule for job in self.jobs for rule in job.constraints)
        return bool(self.placement.region) or any(rule.field == REGION for rule in rules)
