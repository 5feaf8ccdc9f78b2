"""`chief`, `parameter_server`, `worker`, `gpu_worker`, `evaluator`: the jobs."""

from __future__ import annotations

from collections.abc import Mapping

from tf_scheduler.model.spec import JobKind
from tf_scheduler.options.fields import Environment, Flag, Number, PlacementConstraint, Text, Whole
from tf_scheduler.options.ulimits import Ulimits

from .base import FROM_NOW_ON, Change, about
from .job_policies import JobPolicySection

#: Section of options.json -> job of the ClusterSpec, in the order in which tasks are listed.
JOBS: Mapping[str, JobKind] = {
    "parameter_server": JobKind.PS,
    "worker": JobKind.WORKER,
    "gpu_worker": JobKind.WORKER,
    "chief": JobKind.CHIEF,
    "evaluator": JobKind.EVALUATOR,
}

_PORT = "ports come from the offers, so that two services can share an agent"
_VOLUME = "tasks keep their files in their working directory; put what must outlive them in checkpoint_dir"


class JobSection(JobPolicySection):
    """What every job kind has."""

    count = Whole(load_default=0, most=100_000, metadata=about("How many tasks.", change=Change.SCALE, required=True))
    cpus = Number(
        load_default=1.0,
        least=0.01,
        most=4096.0,
        unit="cores",
        metadata=about("CPUs of each.", "cores", change=Change.RESTART, required=True),
    )
    mem = Whole(
        load_default=4096,
        least=32,
        most=100_000_000,
        metadata=about("Memory of each.", "MB", change=Change.RESTART, required=True),
    )
    disk = Whole(
        load_default=4096,
        most=1_000_000_000,
        metadata=about("Disk of each.", "MB", change=Change.RESTART, required=True),
    )
    gpus = Whole(load_default=0, most=1024, metadata=about("Whole GPUs of each.", change=Change.RESTART))
    placement_constraint = PlacementConstraint(
        load_default="[]",
        metadata=about(
            "Marathon constraints, as JSON or as field:OPERATOR:value,...; none: [] or empty. They hold for tasks that "
            "are placed from then on.",
            media="application/x-zone-constraints+json",
            examples=['[["hostname", "UNIQUE"]]', "rack:MAX_PER:2"],
        ),
    )
    command = Text(load_default="", metadata=about("Command line; empty: the service's.", change=Change.RESTART))
    environment = Environment(
        load_default=dict, metadata=about("Added to the service's environment.", change=Change.RESTART)
    )
    python = Text(load_default="", metadata=about("Interpreter; empty: the service's.", change=Change.RESTART))
    image = Text(
        load_default="",
        metadata=about(
            "Docker image; empty: service.tf_image, or service.gpu_tf_image where the tasks have GPUs.",
            change=Change.RESTART,
            examples=["tensorflow/tensorflow:2.15.0"],
        ),
    )
    kill_grace = Number(
        load_default=10.0,
        most=3600.0,
        unit="seconds",
        metadata=about(f"Time to write a checkpoint between SIGTERM and SIGKILL. {FROM_NOW_ON}", "seconds"),
    )
    cluster_flags = Flag(
        load_default=False,
        metadata=about(
            "Append --ps_hosts, --worker_hosts, --job_name and --task_index to the command.", change=Change.RESTART
        ),
    )
    pre_command = Text(
        load_default="",
        metadata=about(f"Run before the program, such as to fetch data; empty: nothing. {FROM_NOW_ON}"),
    )
    post_command = Text(
        load_default="",
        metadata=about(
            f"Run after the program, when it has ended by itself, such as to upload the model; empty: nothing. "
            f"{FROM_NOW_ON}"
        ),
    )
    hook_timeout = Number(
        load_default=3600.0,
        least=1.0,
        most=31_536_000.0,
        unit="seconds",
        metadata=about(f"How long each of these, and fetching, may take. {FROM_NOW_ON}", "seconds"),
    )
    max_completion_time = Number(
        load_default=0.0,
        most=31_536_000.0,
        unit="seconds",
        metadata=about(f"How long each task may run; 0: for ever. {FROM_NOW_ON}", "seconds"),
    )
    nice = Whole(
        load_default=0,
        least=-20,
        most=19,
        metadata=about(f"Added to the niceness; below 0 only an executor that runs as root can do. {FROM_NOW_ON}"),
    )
    ulimits = Ulimits(
        load_default="",
        metadata=about(
            f"Resource limits: name=soft:hard, with commas between; names as in setrlimit(2). {FROM_NOW_ON}",
            examples=["nofile=65536", "core=0:unlimited,nproc=4096"],
        ),
    )
    gpu_check = Flag(
        load_default=True,
        metadata=about(f"Make sure that TensorFlow sees all GPUs before the program starts. {FROM_NOW_ON}"),
    )


class VolumeSection(JobSection):
    """A job that had a persistent volume in the original package."""

    disk_type = Text(
        load_default="ROOT",
        choices=("ROOT", "MOUNT"),
        metadata=about("Where the original package made a volume.", required=True, obsolete=_VOLUME),
    )


class ChiefSection(JobSection):
    count = Whole(
        load_default=0, most=1, metadata=about("0 or 1; without a chief, worker 0 leads.", change=Change.SCALE)
    )


class EvaluatorSection(JobSection):
    """Runs beside the training, outside the others' cluster."""

    count = Whole(load_default=0, most=1, metadata=about("0 or 1.", change=Change.SCALE))


class ParameterServerSection(VolumeSection):
    count = Whole(
        load_default=2, most=100_000, metadata=about("How many parameter servers.", change=Change.SCALE, required=True)
    )
    port = Whole(
        load_default=2223, least=1, most=65_535, metadata=about("Port of each.", required=True, obsolete=_PORT)
    )


class WorkerSection(VolumeSection):
    count = Whole(
        load_default=3,
        most=100_000,
        metadata=about("How many workers, besides those of gpu_worker.", change=Change.SCALE, required=True),
    )
    min_count = Whole(
        load_default=0,
        most=100_000,
        metadata=about(
            "With how many a restart does when all find no place for recovery.shrink_after; 0: with all. For strategy "
            "multi_worker_mirrored without gpu_worker. They are all wanted again at the next restart."
        ),
    )
    port = Whole(load_default=2222, least=1, most=65_535, metadata=about("Port of each.", obsolete=_PORT))


class GpuWorkerSection(VolumeSection):
    """Further tasks of the job `worker`, with GPUs; their indexes follow those of `worker`."""

    count = Whole(
        load_default=0, most=100_000, metadata=about("How many workers with GPUs.", change=Change.SCALE, required=True)
    )
    gpus = Whole(
        load_default=1,
        least=1,
        most=1024,
        metadata=about("Whole GPUs of each.", change=Change.RESTART, required=True),
    )
