"""Schema of training and side jobs, and of their `volumes` and `plans`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_executor.contract.strategies import Strategy, named
from tf_scheduler.model.plan import PlanStrategy
from tf_scheduler.model.spec import JobKind, RestartWhen

from .fields import (
    NEXT_LAUNCH_ONLY,
    Boolean,
    Cores,
    Environment,
    Integer,
    IntegerList,
    Memory,
    OnUpdate,
    RecordList,
    Seconds,
    Section,
    String,
    choice,
    parse_ulimits,
)
from .fields import section as nested
from .values import parse_constraints

_LIVE = named(lambda traits: traits.can_resize_live, "or")
_SMALLER = named(lambda traits: traits.can_start_smaller, "or")
_COLLECTIVE = named(lambda traits: traits.is_collective, "and")


class JobPolicySection(Section):
    """Restart policy of a job; omitted values are taken from `restart` and `recovery`."""

    restart_policy = choice(
        "When to relaunch a failed task. on_failure: up to max_failures times. always: without a limit. never: a "
        "failed task fails the job. exit_code: as on_failure, but exit codes from 1 to 127 fail the job.",
        RestartWhen.ON_FAILURE,
    )
    max_failures = Integer(
        "Maximum number of failures of each task within restart.window; -1: the value of restart.max_failures.",
        -1,
        minimum=-1,
        maximum=100_000,
    )
    uncounted_exit_codes = IntegerList(
        "Exit codes that do not count as failures of these tasks; empty: the value of restart.uncounted_exit_codes.",
        minimum=1,
        maximum=255,
    )
    unreachable_timeout = Seconds(
        "Time until tasks on unreachable agents count as lost; -1: recovery.unreachable_timeout.", -1.0, minimum=-1.0
    )


#: Section of options.json -> job of the ClusterSpec, in the order in which tasks are listed.
JOBS: Mapping[str, JobKind] = {
    "parameter_server": JobKind.PS,
    "worker": JobKind.WORKER,
    "gpu_worker": JobKind.WORKER,
    "chief": JobKind.CHIEF,
    "evaluator": JobKind.EVALUATOR,
}


def default_strategy(options: Mapping[str, Any]) -> tuple[Strategy, str]:
    """Return the strategy for options that name none, and the reason."""
    # The original package had no commands. The check job, without a program, checks parameter servers, too.
    if options["service"]["job_name"] or not names_program(options):
        return Strategy.BETWEEN_GRAPH, "service.job_name is set"
    if options["parameter_server"]["count"]:
        return Strategy.BETWEEN_GRAPH, "there are parameter servers"
    if sum(options[section]["count"] or 0 for section in ("worker", "gpu_worker", "chief")) < 2:
        return Strategy.INDEPENDENT, "a single task trains"
    return Strategy.MULTI_WORKER_MIRRORED, "several tasks train, without parameter servers"


def add_strategy(options: Mapping[str, Any]) -> None:
    """Set an omitted strategy and omitted counts in resolved options, in place."""
    if options["service"]["strategy"] is None:
        options["service"]["strategy"] = default_strategy(options)[0].value
    counts = Strategy(options["service"]["strategy"]).traits.omitted_counts
    for section in ("parameter_server", "chief"):
        if options[section]["count"] is None:
            options[section]["count"] = counts.get(section, 0)


def _omitted(section: str) -> str:
    """Describe the number of tasks that an omitted `count` means.

    config.json has no default for `count`. Cosmos would add the default to the options, as if a user had chosen it.
    """
    counts = {strategy.value: strategy.traits.omitted_counts.get(section, 0) for strategy in Strategy}
    numbers = [f"{count} with strategy {name}" for name, count in counts.items() if count]
    return f"Omitted: {', '.join(numbers)}, else 0; a running service keeps its number."


#: Options that name a program.
_PROGRAM = ("command", "job_url", "job_name")


def names_program(document: Mapping[str, Any]) -> bool:
    """Whether any section names a program; the document may be invalid."""
    sections = [section for section in document.values() if isinstance(section, Mapping)]
    return any(section.get(name) for section in sections for name in _PROGRAM)


_PORT = "tasks use ports from Mesos offers, because two services may share an agent"
_VOLUME = "tasks store files in their working directory; keep permanent files in checkpoint_dir"


class JobOptions(Section):
    """Options of every training job, except the options of its policies."""

    count = Integer("Number of tasks.", 0, maximum=100_000, update=OnUpdate.SCALE, form_required=True)
    cpus = Cores("CPUs of each task.", 1.0, update=OnUpdate.RESTART, form_required=True)
    mem = Memory("Memory of each task.", 4096, update=OnUpdate.RESTART, form_required=True)
    disk = Integer(
        "Disk of each task.", 4096, maximum=1_000_000_000, unit="MB", update=OnUpdate.RESTART, form_required=True
    )
    gpus = Integer("Whole GPUs of each task.", 0, maximum=1024, update=OnUpdate.RESTART)
    ports = Integer(
        "Number of ports of each task: {port} is that of its address, {port_1} and so on are further ones, for example "
        "of a profiler.",
        1,
        minimum=1,
        maximum=10,
        update=OnUpdate.RESTART,
    )
    placement_constraint = String(
        "Marathon placement constraints, as JSON or as field:OPERATOR:value,...; [] or empty: no constraints. A new "
        "value applies to tasks placed afterwards.",
        "[]",
        parse=parse_constraints,
        media="application/x-zone-constraints+json",
        examples=['[["hostname", "UNIQUE"]]', "rack:MAX_PER:2"],
    )
    command = String("Shell command line of the tasks; empty: the value of service.command.", update=OnUpdate.RESTART)
    environment = Environment(
        "Environment variables, in addition to service.environment (same form).", update=OnUpdate.RESTART
    )
    python = String("Python interpreter of the tasks; empty: the value of service.python.", update=OnUpdate.RESTART)
    image = String(
        "Docker image of the tasks; empty: service.gpu_tf_image for tasks with GPUs, service.tf_image for all others.",
        update=OnUpdate.RESTART,
        examples=["tensorflow/tensorflow:2.15.0"],
    )
    kill_grace = Seconds(
        f"Time between SIGTERM and SIGKILL, for example to write a checkpoint. {NEXT_LAUNCH_ONLY}", 10.0, maximum=3600.0
    )
    cluster_flags = Boolean(
        "Append --ps_hosts, --worker_hosts, --job_name and --task_index to the command.", update=OnUpdate.RESTART
    )
    pre_command = String(
        f"Command to run before the program, for example to fetch data; empty: none. {NEXT_LAUNCH_ONLY}",
        title="Command before the program",
    )
    post_command = String(
        "Command to run after the program exits by itself, for example to upload the model; empty: none. "
        f"{NEXT_LAUNCH_ONLY}",
        title="Command after the program",
    )
    hook_timeout = Seconds(
        f"Maximum duration of pre_command, of post_command, and of fetching and extracting files. {NEXT_LAUNCH_ONLY}",
        3600.0,
        minimum=1.0,
    )
    max_completion_time = Seconds(f"Maximum run time of each task; 0: unlimited. {NEXT_LAUNCH_ONLY}", 0.0)
    nice = Integer(
        f"Value added to the program's niceness; negative values need an executor with root rights. {NEXT_LAUNCH_ONLY}",
        0,
        minimum=-20,
        maximum=19,
    )
    ulimits = String(
        "Resource limits as name=soft:hard, separated by commas. The names are those of setrlimit(2), without RLIMIT_ "
        f"and in lower case. Empty: limits are not changed. {NEXT_LAUNCH_ONLY}",
        parse=parse_ulimits,
        examples=["nofile=65536", "core=0:unlimited,nproc=4096"],
    )
    gpu_check = Boolean(
        f"Before the program starts, check that TensorFlow or PyTorch sees all GPUs. {NEXT_LAUNCH_ONLY}",
        default=True,
        title="Check GPUs",
    )


class JobSection(JobPolicySection, JobOptions):
    """Options of every training job; marshmallow lists the policies last."""


class VolumeSection(JobSection):
    """Options of a job that has a persistent volume in the original package."""

    disk_type = String(
        "Disk type of the original package's persistent volumes.",
        "ROOT",
        choices=("ROOT", "MOUNT"),
        form_required=True,
        obsolete=_VOLUME,
    )


class ChiefSection(JobSection):
    count = Integer(
        f"Number of chiefs, 0 or 1; without a chief, worker 0 leads. {_omitted('chief')}",
        None,
        maximum=1,
        update=OnUpdate.SCALE,
    )


class EvaluatorSection(JobSection):
    count = Integer("Number of evaluators, 0 or 1.", 0, maximum=1, update=OnUpdate.SCALE)


class ParameterServerSection(VolumeSection):
    count = Integer(
        f"Number of parameter servers. {_omitted('parameter_server')}",
        None,
        maximum=100_000,
        update=OnUpdate.SCALE,
    )
    port = Integer(
        "Port of each parameter server.", 2223, minimum=1, maximum=65_535, form_required=True, obsolete=_PORT
    )


#: Values of `worker.elastic.mode`: what a changed number of workers restarts.
ELASTIC_MODES = ("restart", "live")


class ElasticSection(Section):
    mode = String(
        "What happens when the number of workers changes. restart: the chief, or all tasks of collective training, "
        "restart from the last checkpoint; collective training waits for its next checkpoint first. live: workers join "
        "and leave the running chief, and nothing restarts. "
        f"Requires service.strategy {_LIVE}, gpu_worker.count 0 and TensorFlow 2.13 to 2.21; with another "
        "TensorFlow the chief restarts.",
        ELASTIC_MODES[0],
        choices=ELASTIC_MODES,
        update=OnUpdate.RESTART,
    )
    min = Integer(
        "Smallest number of workers. With max, it suffices for a restart of collective training if not all workers fit "
        "within recovery.shrink_after.",
        0,
        maximum=100_000,
    )
    max = Integer(
        "Largest number of workers. 0: no limit, and POST /v1/tf/scale is refused.",
        0,
        maximum=100_000,
    )
    grow = String(
        "when_idle: while agents are idle and no other framework asks for offers, the job takes up to max workers, and "
        "gives the additional ones back when another framework asks; only with mode live, or if "
        f"{_COLLECTIVE} wait for their next checkpoint. manual: only worker.count and POST /v1/tf/scale change the "
        "number.",
        "manual",
        choices=("manual", "when_idle"),
    )
    checkpoint_wait = Seconds(
        f"Longest time that {_COLLECTIVE} wait for their next checkpoint before they restart with another number of "
        "workers. 0, or without service.checkpoint_dir: they restart at once, and may save when they get SIGTERM.",
        600.0,
    )


class WorkerSection(VolumeSection):
    count = Integer(
        "Number of workers, except those of gpu_worker.", 3, maximum=100_000, update=OnUpdate.SCALE, form_required=True
    )
    min_count = Integer(
        "Number of workers that suffice for a restart if not all workers fit within recovery.shrink_after; 0: all. The "
        f"next restart requests all again. Requires service.strategy {_SMALLER} and gpu_worker.count 0.",
        0,
        maximum=100_000,
    )
    elastic = nested(ElasticSection, "Changes of the number of workers while the job runs.")
    port = Integer("Port of each worker.", 2222, minimum=1, maximum=65_535, obsolete=_PORT)


class GpuWorkerSection(VolumeSection):
    """More worker tasks, with GPUs; their indexes start after those of `worker`."""

    count = Integer("Number of workers with GPUs.", 0, maximum=100_000, update=OnUpdate.SCALE, form_required=True)
    gpus = Integer("Whole GPUs of each task.", 1, minimum=1, maximum=1024, update=OnUpdate.RESTART, form_required=True)


class TensorBoardSection(Section):
    port = Integer(
        f"Preferred port of TensorBoard. If no agent offers the port, TensorBoard uses another one. {NEXT_LAUNCH_ONLY}",
        6006,
        minimum=1,
        maximum=65_535,
        form_required=True,
    )
    cpus = Cores("CPUs of TensorBoard.", 1.0, update=OnUpdate.RESTART, form_required=True)
    mem = Memory("Memory of TensorBoard.", 4096, update=OnUpdate.RESTART, form_required=True)


class DataServiceSection(Section):
    """tf.data service: a dispatcher and workers that prepare data."""

    workers = Integer(
        "Number of workers that prepare data; 0: no data service. Tasks get the address in DATA_SERVICE_ADDRESS.",
        0,
        maximum=100_000,
        update=OnUpdate.SCALE,
        title="Number of workers",
    )
    cpus = Cores("CPUs of each worker.", 1.0, update=OnUpdate.RESTART)
    mem = Memory("Memory of each worker.", 2048, update=OnUpdate.RESTART)
    disk = Integer("Disk of each worker.", 0, maximum=1_000_000_000, unit="MB", update=OnUpdate.RESTART)
    dispatcher_cpus = Cores("CPUs of the dispatcher.", 0.5, update=OnUpdate.RESTART)
    dispatcher_mem = Memory("Memory of the dispatcher.", 1024, update=OnUpdate.RESTART)


# --- Volumes

#: Volume.Mode in mesos.proto.
READ_WRITE, READ_ONLY = "RW", "RO"


class VolumeRecord(Section):
    host_path = String(
        "Absolute path of an existing folder or file on the agents.",
        required=True,
        non_empty=True,
        examples=["/mnt/nfs/mnist"],
    )
    container_path = String(
        "Path in the task, absolute or relative to its working directory. Without an image, an absolute path must "
        "also exist on the agent.",
        required=True,
        non_empty=True,
        examples=["data", "/data"],
    )
    mode = String("Access to the volume: RW, or RO for read-only.", READ_WRITE, choices=(READ_WRITE, READ_ONLY))
    jobs = String(
        "Sections whose tasks get the volume, separated by commas; empty: all sections.",
        examples=["worker,gpu_worker", "evaluator"],
    )


# --- Plans

#: `dependency` follows from `after` and is not an option.
ORDERS = tuple(item.value for item in PlanStrategy if item is not PlanStrategy.DEPENDENCY)


class PhaseRecord(Section):
    """A phase of a plan, with one step per task of a section."""

    plan = String(
        "Plan of the phase: deploy, update or a custom plan.", required=True, non_empty=True, examples=["retune"]
    )
    phase = String("Name of the phase.", required=True, non_empty=True, examples=["workers"])
    job = String("Section of the options whose tasks the phase launches.", required=True, choices=tuple(JOBS))
    strategy = String("Order in which the steps start; empty: parallel.", choices=(*ORDERS, ""), examples=["canary"])
    tasks = String("Indexes of the phase's tasks in launch order, separated by commas; empty: all tasks.")
    after = String(
        "Phases of the plan that must complete before this phase, separated by commas; empty: none. If `after` is empty"
        " in all phases of a plan, plans.deploy or plans.update sets their order; a custom plan runs them one by one.",
        title="After phases",
    )


class PlansSection(Section):
    deploy = String(
        "Order in which the phases and tasks of the first deployment start.",
        PlanStrategy.PARALLEL.value,
        choices=ORDERS,
    )
    update = String(
        "Order in which the phases and tasks of an update start. canary: the first two tasks of each phase wait for "
        "an operator's command.",
        PlanStrategy.PARALLEL.value,
        choices=ORDERS,
    )
    gang = Boolean("If a plan can start several tasks at once, launch either all of them or none.", default=True)
    phases = RecordList(PhaseRecord, "Phases of deploy, update and custom plans; empty: one phase per section.")
