"""Schema of the jobs: training jobs, evaluator, TensorBoard and tf.data service."""

from __future__ import annotations

from collections.abc import Mapping

from tf_scheduler.model.spec import JobKind, RestartWhen

from .fields import (
    NEXT_LAUNCH_ONLY,
    Boolean,
    Environment,
    Integer,
    IntegerList,
    Number,
    OnUpdate,
    PlacementConstraint,
    Section,
    String,
    Ulimits,
    option_metadata,
)

#: A year.
_LONGEST = 31_536_000.0


class JobPolicySection(Section):
    """Restart policy of a job; defaults come from `restart` and `recovery`."""

    restart_policy = String(
        load_default=RestartWhen.ON_FAILURE.value,
        choices=[item.value for item in RestartWhen],
        metadata=option_metadata(
            "When to relaunch a task that has not finished. on_failure: after errors, up to max_failures; "
            "always: after any exit, without a limit; never: the job fails with the task; exit_code: exit "
            "codes from 1 to 127 fail the job, other failures are not counted."
        ),
    )
    max_failures = Integer(
        load_default=-1,
        minimum=-1,
        maximum=100_000,
        metadata=option_metadata(
            "Maximum failures of each task of this job within restart.window; -1: restart.max_failures."
        ),
    )
    uncounted_exit_codes = IntegerList(
        load_default=(),
        minimum=1,
        maximum=255,
        metadata=option_metadata(
            "Exit codes of this job that do not count as failures; empty: restart.uncounted_exit_codes."
        ),
    )
    unreachable_timeout = Number(
        load_default=-1.0,
        minimum=-1.0,
        maximum=_LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Timeout for this job's tasks on an unreachable agent; -1: recovery.unreachable_timeout.", "seconds"
        ),
    )


#: Section of options.json -> job of the ClusterSpec, in the order in which tasks are listed.
JOBS: Mapping[str, JobKind] = {
    "parameter_server": JobKind.PS,
    "worker": JobKind.WORKER,
    "gpu_worker": JobKind.WORKER,
    "chief": JobKind.CHIEF,
    "evaluator": JobKind.EVALUATOR,
}

_PORT = "ports come from offers, so that two services can share an agent"
_VOLUME = "tasks store files in their working directory; store permanent files in checkpoint_dir"


class JobSection(JobPolicySection):
    """Options of every training job."""

    count = Integer(
        load_default=0,
        maximum=100_000,
        metadata=option_metadata("Number of tasks.", on_update=OnUpdate.SCALE, required=True),
    )
    cpus = Number(
        load_default=1.0,
        minimum=0.01,
        maximum=4096.0,
        unit="cores",
        metadata=option_metadata("CPUs of each task.", "cores", on_update=OnUpdate.RESTART, required=True),
    )
    mem = Integer(
        load_default=4096,
        minimum=32,
        maximum=100_000_000,
        metadata=option_metadata("Memory of each task.", "MB", on_update=OnUpdate.RESTART, required=True),
    )
    disk = Integer(
        load_default=4096,
        maximum=1_000_000_000,
        metadata=option_metadata("Disk of each task.", "MB", on_update=OnUpdate.RESTART, required=True),
    )
    gpus = Integer(
        load_default=0, maximum=1024, metadata=option_metadata("Whole GPUs of each task.", on_update=OnUpdate.RESTART)
    )
    placement_constraint = PlacementConstraint(
        load_default="[]",
        metadata=option_metadata(
            "Marathon constraints, as JSON or as field:OPERATOR:value,...; [] or empty: none. Applies to "
            "tasks placed after the change.",
            media="application/x-zone-constraints+json",
            examples=['[["hostname", "UNIQUE"]]', "rack:MAX_PER:2"],
        ),
    )
    command = String(
        load_default="",
        metadata=option_metadata("Shell command line; empty: service.command.", on_update=OnUpdate.RESTART),
    )
    environment = Environment(
        load_default=dict,
        metadata=option_metadata("Environment variables, added to service.environment.", on_update=OnUpdate.RESTART),
    )
    python = String(
        load_default="",
        metadata=option_metadata("Python interpreter; empty: service.python.", on_update=OnUpdate.RESTART),
    )
    image = String(
        load_default="",
        metadata=option_metadata(
            "Docker image; empty: service.tf_image, or service.gpu_tf_image for tasks with GPUs.",
            on_update=OnUpdate.RESTART,
            examples=["tensorflow/tensorflow:2.15.0"],
        ),
    )
    kill_grace = Number(
        load_default=10.0,
        maximum=3600.0,
        unit="seconds",
        metadata=option_metadata(
            f"Time between SIGTERM and SIGKILL, for example to write a checkpoint. {NEXT_LAUNCH_ONLY}", "seconds"
        ),
    )
    cluster_flags = Boolean(
        load_default=False,
        metadata=option_metadata(
            "Append --ps_hosts, --worker_hosts, --job_name and --task_index to the command.", on_update=OnUpdate.RESTART
        ),
    )
    pre_command = String(
        load_default="",
        metadata=option_metadata(
            f"Command to run before the program, for example to fetch data; empty: none. {NEXT_LAUNCH_ONLY}"
        ),
    )
    post_command = String(
        load_default="",
        metadata=option_metadata(
            "Command to run after the program exits by itself, for example to upload the model; empty: "
            f"none. {NEXT_LAUNCH_ONLY}"
        ),
    )
    hook_timeout = Number(
        load_default=3600.0,
        minimum=1.0,
        maximum=31_536_000.0,
        unit="seconds",
        metadata=option_metadata(
            f"Timeout of pre_command, of post_command and of fetching. {NEXT_LAUNCH_ONLY}", "seconds"
        ),
    )
    max_completion_time = Number(
        load_default=0.0,
        maximum=31_536_000.0,
        unit="seconds",
        metadata=option_metadata(f"Maximum run time of each task; 0: unlimited. {NEXT_LAUNCH_ONLY}", "seconds"),
    )
    nice = Integer(
        load_default=0,
        minimum=-20,
        maximum=19,
        metadata=option_metadata(
            f"Value added to the niceness; negative values need an executor that runs as root. {NEXT_LAUNCH_ONLY}"
        ),
    )
    ulimits = Ulimits(
        load_default="",
        metadata=option_metadata(
            f"Resource limits as name=soft:hard, separated by commas; names as in setrlimit(2). {NEXT_LAUNCH_ONLY}",
            examples=["nofile=65536", "core=0:unlimited,nproc=4096"],
        ),
    )
    gpu_check = Boolean(
        load_default=True,
        metadata=option_metadata(f"Check that TensorFlow sees all GPUs before the program starts. {NEXT_LAUNCH_ONLY}"),
    )


class VolumeSection(JobSection):
    """A job with a persistent volume in the original package."""

    disk_type = String(
        load_default="ROOT",
        choices=("ROOT", "MOUNT"),
        metadata=option_metadata(
            "Disk type of the original package's persistent volumes.", required=True, obsolete=_VOLUME
        ),
    )


class ChiefSection(JobSection):
    count = Integer(
        load_default=0,
        maximum=1,
        metadata=option_metadata(
            "Number of chiefs, 0 or 1; without a chief, worker 0 leads.", on_update=OnUpdate.SCALE
        ),
    )


class EvaluatorSection(JobSection):
    count = Integer(
        load_default=0, maximum=1, metadata=option_metadata("Number of evaluators, 0 or 1.", on_update=OnUpdate.SCALE)
    )


class ParameterServerSection(VolumeSection):
    count = Integer(
        load_default=2,
        maximum=100_000,
        metadata=option_metadata("Number of parameter servers.", on_update=OnUpdate.SCALE, required=True),
    )
    port = Integer(
        load_default=2223,
        minimum=1,
        maximum=65_535,
        metadata=option_metadata("Port of each parameter server.", required=True, obsolete=_PORT),
    )


class WorkerSection(VolumeSection):
    count = Integer(
        load_default=3,
        maximum=100_000,
        metadata=option_metadata(
            "Number of workers, without those of gpu_worker.", on_update=OnUpdate.SCALE, required=True
        ),
    )
    min_count = Integer(
        load_default=0,
        maximum=100_000,
        metadata=option_metadata(
            "Minimum workers of a restart when recovery.shrink_after passes without a place for all; 0: "
            "all workers. Requires strategy multi_worker_mirrored without gpu_worker. The next restart "
            "requests all workers again."
        ),
    )
    port = Integer(
        load_default=2222, minimum=1, maximum=65_535, metadata=option_metadata("Port of each worker.", obsolete=_PORT)
    )


class GpuWorkerSection(VolumeSection):
    """Further tasks of the job `worker`, with GPUs; their indexes follow those of `worker`."""

    count = Integer(
        load_default=0,
        maximum=100_000,
        metadata=option_metadata("Number of workers with GPUs.", on_update=OnUpdate.SCALE, required=True),
    )
    gpus = Integer(
        load_default=1,
        minimum=1,
        maximum=1024,
        metadata=option_metadata("Whole GPUs of each task.", on_update=OnUpdate.RESTART, required=True),
    )


class TensorBoardSection(Section):
    port = Integer(
        load_default=6006,
        minimum=1,
        maximum=65_535,
        metadata=option_metadata(
            f"Preferred port of TensorBoard; another offered port if no agent offers it. {NEXT_LAUNCH_ONLY}",
            required=True,
        ),
    )
    cpus = Number(
        load_default=1.0,
        minimum=0.01,
        maximum=4096.0,
        unit="cores",
        metadata=option_metadata("CPUs of TensorBoard.", "cores", on_update=OnUpdate.RESTART, required=True),
    )
    mem = Integer(
        load_default=4096,
        minimum=32,
        maximum=100_000_000,
        metadata=option_metadata("Memory of TensorBoard.", "MB", on_update=OnUpdate.RESTART, required=True),
    )


class DataServiceSection(Section):
    """tf.data service: a dispatcher and workers that prepare data."""

    workers = Integer(
        load_default=0,
        maximum=100_000,
        metadata=option_metadata(
            "Number of workers that prepare data; 0: no data service. Tasks find the service at DATA_SERVICE_ADDRESS.",
            on_update=OnUpdate.SCALE,
        ),
    )
    cpus = Number(
        load_default=1.0,
        minimum=0.01,
        maximum=4096.0,
        unit="cores",
        metadata=option_metadata("CPUs of each worker.", "cores", on_update=OnUpdate.RESTART),
    )
    mem = Integer(
        load_default=2048,
        minimum=32,
        maximum=100_000_000,
        metadata=option_metadata("Memory of each worker.", "MB", on_update=OnUpdate.RESTART),
    )
    disk = Integer(
        load_default=0,
        maximum=1_000_000_000,
        metadata=option_metadata("Disk of each worker.", "MB", on_update=OnUpdate.RESTART),
    )
    dispatcher_cpus = Number(
        load_default=0.5,
        minimum=0.01,
        maximum=4096.0,
        unit="cores",
        metadata=option_metadata("CPUs of the dispatcher.", "cores", on_update=OnUpdate.RESTART),
    )
    dispatcher_mem = Integer(
        load_default=1024,
        minimum=32,
        maximum=100_000_000,
        metadata=option_metadata("Memory of the dispatcher.", "MB", on_update=OnUpdate.RESTART),
    )
