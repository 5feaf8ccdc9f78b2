"""What becomes of each property of a tony.xml. Names: TonY, TonyConfigurationKeys and tony-default.xml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .amounts import hadoop_megabytes, number, seconds_of_milliseconds, truth, whole
from .mapping import Deed, Put, Row, Say, Spot, nothing, to
from .shape import take_name
from .tony_rest import OF_HADOOP, PLANS

SECTIONS = {"chief": "chief", "worker": "worker", "ps": "parameter_server", "evaluator": "evaluator"}
INSTANCES = re.compile(r"tony\.([a-z]+)\.instances")
IMAGE = re.compile(r"tony\.docker\.([a-z]+)\.image")
#: What executors replace in commands, in braces.
PLACEHOLDERS = ("ps_hosts", "worker_hosts", "job_name", "task_index", "task_name", "port", "log_dir")
COMMAND = "tony.containers.command"
#: Frameworks -> strategies of that kind.
_STRATEGIES = {"pytorch": "pytorch_ddp", "horovod": "horovod"}
_FILES = "pack the files in the archive of service.job_url"


def _take_framework(value: Any, spot: Spot) -> Iterator[Deed]:
    if value in _STRATEGIES:
        yield Put(("service", "strategy"), _STRATEGIES[value])
    elif value not in ("tensorflow", "standalone"):
        yield Say(spot.path, f"{value}: the variables that it needs are not made here; see docs/tasks.md")


def _take_mode(value: Any, spot: Spot) -> Iterator[Deed]:
    if value != "GANG":
        yield Say(spot.path, f"{value}: all tasks are launched together here, which ends what FCFS was made for")


def _take_untracked(value: Any, spot: Spot) -> Iterator[Deed]:
    others = [name for name in _words(value) if name not in ("ps", "tensorboard", "evaluator")]
    if others:
        yield Say(spot.path, f"{', '.join(others)}: whose end counts is said with finish.success here")


def _take_fail_on_worker(value: Any, spot: Spot) -> Iterator[Deed]:
    if truth(value):
        yield Say(spot.path, "is so here: a task that fails more often than restart.max_failures ends the job")
    else:
        yield Say(spot.path, "is true here: a task that fails more often than restart.max_failures ends the job")


def _take_variables(value: Any, _spot: Spot) -> Iterator[Deed]:
    for pair in _words(value):
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"{name} has no value")
        yield Put(("service", "environment"), {name: text})


def _take_resources(value: Any, spot: Spot) -> Iterator[Deed]:
    first, *others = _words(value) or [""]
    if not first:
        raise ValueError("it is the address of a file")
    place, _, alias = first.partition("::")
    yield Put(("service", "job_url"), place.removesuffix("#archive"))
    left = [*others, *([f"the name {alias.removesuffix('#archive')}"] if alias.removesuffix("#archive") else [])]
    if left:
        yield Say(spot.path, f"one file is fetched here; was left out: {', '.join(left)}; {_FILES}")


def _take_board(value: Any, _spot: Spot) -> Iterator[Deed]:
    yield Put(("service", "use_tensorboard"), True)
    yield Put(("service", "checkpoint_dir"), str(value))


def _take_image(value: Any, spot: Spot) -> Iterator[Deed]:
    if not truth(spot.siblings.get("tony.docker.enabled")):
        yield Say(spot.path, "was left out: tony.docker.enabled is not true")
        return
    if spot.section:
        yield Put((spot.section, "image"), str(value))
        return
    for name in ("tf_image", "gpu_tf_image"):
        yield Put(("service", name), str(value))


def _take_mounts(value: Any, spot: Spot) -> Iterator[Deed]:
    """`/folder:/place:ro` or `rw`, as YARN has it for containers of Docker."""
    if not truth(spot.siblings.get("tony.docker.enabled")):
        yield Say(spot.path, "was left out: tony.docker.enabled is not true")
        return
    for mount in _words(value):
        if not 2 <= len(mount.split(":")) <= 3:
            raise ValueError("it is /folder:/place:ro or rw, with commas between")
        host, container, mode = (*mount.split(":"), "rw")[:3]
        read_only = mode.partition("+")[0] == "ro"
        yield Put(
            ("volumes",),
            [{"host_path": host, "container_path": container, "mode": "RO" if read_only else "RW"}],
        )


def _take_command(value: Any, spot: Spot) -> Iterator[Deed]:
    yield Put((spot.section or "service", "command"), str(value))
    replaced = [name for name in PLACEHOLDERS if f"{{{name}}}" in value.replace(f"${{{name}}}", "")]
    if replaced:
        names = ", ".join(f"{{{name}}}" for name in replaced)
        yield Say(spot.path, f"{names} gets replaced here (docs/tasks.md); to keep it write '{{''{replaced[0]}}}'")


def _take_label(value: Any, spot: Spot) -> Iterator[Deed]:
    sections = [spot.section] if spot.section else [SECTIONS[role] for role in roles(spot.siblings)]
    for section in sections:
        yield Put((section, "placement_constraint"), [["node-label", "IS", str(value)]])
    yield Say(spot.path, "give agents the attribute node-label: it stands for YARN's label")


def roles(properties: Mapping[str, str]) -> list[str]:
    """The jobs that the file has, and we too."""
    found = (INSTANCES.fullmatch(name) for name in properties)
    return [match[1] for match in found if match and match[1] in SECTIONS]


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def _gpus(value: Any, spot: Spot) -> Iterator[Deed]:
    if whole(value):
        yield Put((spot.section, "gpus"), whole(value))


_JOB = (
    ("instances", ("{job}.count",), "", to("{job}", "count", as_=whole)),
    ("memory", ("{job}.mem",), "2g and 2048m; 2048 MB where it is missing", to("{job}", "mem", as_=hadoop_megabytes)),
    ("vcores", ("{job}.cpus",), "1 where it is missing", to("{job}", "cpus", as_=number)),
    ("gpus", ("{job}.gpus",), "GPUs make workers gpu_worker", _gpus),
    ("command", ("{job}.command",), "", _take_command),
    (
        "timeout",
        ("{job}.max_completion_time",),
        "milliseconds there, seconds here",
        to("{job}", "max_completion_time", as_=seconds_of_milliseconds),
    ),
    ("node-label", ("{job}.placement_constraint",), "an attribute of agents of that name", _take_label),
    ("depends-on", (), PLANS, None),
    ("max-instances", (), "change the count in an update", None),
    ("resources", (), _FILES, None),
)
JOB_ROWS = tuple(Row(name, options, note, take) for name, options, note, take in _JOB)

#: `JOB` stands for the job.
JOB_IMAGE = Row("tony.docker.JOB.image", ("{job}.image",), "", _take_image)
ROWS = (
    Row("tony.application.name", ("service.name",), "lower case, dashes", take_name),
    Row("tony.application.framework", ("service.strategy",), "pytorch, horovod; tensorflow: guessed", _take_framework),
    Row(
        "tony.application.timeout",
        ("finish.deadline",),
        "milliseconds there, seconds here",
        to("finish", "deadline", as_=seconds_of_milliseconds),
    ),
    Row("tony.application.distributed-mode", (), "GANG is what happens here", _take_mode),
    Row("tony.application.untracked.jobtypes", (), "ps never counts here", _take_untracked),
    Row("tony.application.sidecar.jobtypes", (), "tensorboard never counts here", _take_untracked),
    Row(
        "tony.application.stop-on-failure-jobtypes",
        (),
        "each task may fail restart.max_failures times; then the job has failed",
    ),
    Row("tony.application.fail-on-worker-failure-enabled", (), "true is what happens here", _take_fail_on_worker),
    Row(
        "tony.application.tensorboard-log-dir",
        ("service.use_tensorboard", "service.checkpoint_dir"),
        "TensorBoard reads the folder that all tasks share",
        _take_board,
    ),
    Row("tony.application.node-label", ("worker.placement_constraint",), "of every job", _take_label),
    Row("tony.application.enable-preprocess", (), "use chief.pre_command"),
    Row("tony.application.prepare-stage", (), PLANS),
    Row("tony.application.training-stage", (), PLANS),
    Row("tony.application.security.enabled", (), OF_HADOOP, nothing),
    Row("tony.application.hdfs-conf-path", (), "serve the folder over HTTP and name it in service.hdfs.config_uri"),
    Row(
        "tony.am.retry-count",
        ("restart.max_failures",),
        "tasks are restarted, not all of the job",
        to("restart", "max_failures", as_=whole, say="counts for each task here, within restart.window"),
    ),
    Row(COMMAND, ("service.command",), "", _take_command),
    Row("tony.containers.envs", ("service.environment",), "NAME=value, with commas between", _take_variables),
    Row("tony.execution.envs", ("service.environment",), "the same", _take_variables),
    Row("tony.containers.resources", ("service.job_url",), "the first; one archive is fetched", _take_resources),
    Row("tony.container.allocation.timeout", (), "a job waits until it fits, and says what is missing"),
    Row("tony.docker.enabled", (), "read with the image", nothing),
    JOB_IMAGE,
    Row("tony.task.params", (), "write them into service.command"),
    Row("tony.docker.containers.image", ("service.tf_image", "service.gpu_tf_image"), "", _take_image),
    Row(
        "tony.docker.containers.mount",
        ("volumes",),
        "of all tasks; agents need the isolator filesystem/linux",
        _take_mounts,
    ),
    Row("tony.python-exec-path", ("service.python",), "", to("service", "python", as_=str)),
    Row(
        "tony.yarn.queue",
        ("service.role",),
        "queues are Mesos roles; quota is set there. default: the service's own",
        lambda value, _: [Put(("service", "role"), str(value))] if value != "default" else (),
    ),
    Row("tony.tensorboard.vcores", ("tensorboard.cpus",), "", to("tensorboard", "cpus", as_=number)),
    Row("tony.tensorboard.memory", ("tensorboard.mem",), "", to("tensorboard", "mem", as_=hadoop_megabytes)),
    Row(
        "tony.tensorboard.instances",
        ("service.use_tensorboard",),
        "",
        to("service", "use_tensorboard", as_=lambda value: whole(value) > 0),
    ),
)
