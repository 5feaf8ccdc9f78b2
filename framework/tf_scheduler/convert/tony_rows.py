"""Rows for the properties of a tony.xml (TonyConfigurationKeys and tony-default.xml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .tables import Action, Location, Note, Row, SetOption, ignore, set_option
from .values import convert_name, hadoop_megabytes, integer, is_true, number, seconds_of_milliseconds

OF_HADOOP = "it is about YARN and Hadoop"
_OF_PORTAL = "past runs are in `dcos-tensorflow history`"
PLANS = "say the order with a plan of your own (docs/plans.md)"
#: Prefix of omitted properties -> reason.
PREFIXES = {
    "tony.docker.": "there is no job like it",
    "tony.am.": "the scheduler is started by Marathon with the resources of its app",
    "tony.task.": "executors here have no heartbeats of their own: Mesos watches them",
    "tony.history.": _OF_PORTAL,
    "tony.portal.": _OF_PORTAL,
    "tony.https.": _OF_PORTAL,
    "tony.http.": _OF_PORTAL,
    "tony.keytab.": _OF_PORTAL,
    "tony.secret.": _OF_PORTAL,
    "tony.horovod.": "there is no Horovod driver to test",
    "tony.other.": OF_HADOOP,
    "tony.application.mxnet.": "the variables that MXNet needs are not made here; see docs/tasks.md",
    "tony.application.dependency.": PLANS,
    "tony.application.": OF_HADOOP,
    "tony.gpu-exec-path": "GPUs are those of the offer",
    "tony.version-info.": "it is about TonY itself",
    "yarn.": OF_HADOOP,
    "hadoop.": OF_HADOOP,
    "dfs.": OF_HADOOP,
}
#: Arguments of TonY's command line, for docs/migrate only.
ARGUMENTS = (
    Row("--executes, --task_params", ("service.command",), "`convert --command 'python train.py --steps 1000'`"),
    Row("--src_dir", ("service.job_url",), "pack the folder as a zip or tgz and say where it is"),
    Row(
        "--python_venv, --python_binary_path",
        ("service.python",),
        "a path on the agents, or runtime:NAME",
    ),
    Row("--container_env, --shell_env", ("service.environment",), ""),
    Row("--hdfs_classpath", (), OF_HADOOP),
)


SECTIONS = {"chief": "chief", "worker": "worker", "ps": "parameter_server", "evaluator": "evaluator"}
INSTANCES = re.compile(r"tony\.([a-z]+)\.instances")
IMAGE = re.compile(r"tony\.docker\.([a-z]+)\.image")
#: Names that executors replace in commands, in braces.
PLACEHOLDERS = ("ps_hosts", "worker_hosts", "job_name", "task_index", "task_name", "port", "log_dir")
COMMAND = "tony.containers.command"
#: Framework -> strategy.
_STRATEGIES = {"pytorch": "pytorch_ddp", "horovod": "horovod"}
_FILES = "pack the files in the archive of service.job_url"


def _convert_framework(value: Any, location: Location) -> Iterator[Action]:
    if value in _STRATEGIES:
        yield SetOption(("service", "strategy"), _STRATEGIES[value])
    elif value not in ("tensorflow", "standalone"):
        yield Note(location.path, f"{value}: the variables that it needs are not made here; see docs/tasks.md")


def _convert_mode(value: Any, location: Location) -> Iterator[Action]:
    if value != "GANG":
        yield Note(location.path, f"{value}: all tasks are launched together here, which ends what FCFS was made for")


def _convert_untracked(value: Any, location: Location) -> Iterator[Action]:
    others = [name for name in _words(value) if name not in ("ps", "tensorboard", "evaluator")]
    if others:
        yield Note(location.path, f"{', '.join(others)}: whose end counts is said with finish.success here")


def _convert_fail_on_worker(value: Any, location: Location) -> Iterator[Action]:
    if is_true(value):
        yield Note(location.path, "is so here: a task that fails more often than restart.max_failures ends the job")
    else:
        yield Note(location.path, "is true here: a task that fails more often than restart.max_failures ends the job")


def _convert_variables(value: Any, _spot: Location) -> Iterator[Action]:
    for pair in _words(value):
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"{name} has no value")
        yield SetOption(("service", "environment"), {name: text})


def _convert_resources(value: Any, location: Location) -> Iterator[Action]:
    first, *others = _words(value) or [""]
    if not first:
        raise ValueError("it is the address of a file")
    place, _, alias = first.partition("::")
    yield SetOption(("service", "job_url"), place.removesuffix("#archive"))
    left = [*others, *([f"the name {alias.removesuffix('#archive')}"] if alias.removesuffix("#archive") else [])]
    if left:
        yield Note(location.path, f"one file is fetched here; was left out: {', '.join(left)}; {_FILES}")


def _convert_board(value: Any, _spot: Location) -> Iterator[Action]:
    yield SetOption(("service", "use_tensorboard"), True)
    yield SetOption(("service", "checkpoint_dir"), str(value))


def _convert_image(value: Any, location: Location) -> Iterator[Action]:
    if not is_true(location.siblings.get("tony.docker.enabled")):
        yield Note(location.path, "was left out: tony.docker.enabled is not true")
        return
    if location.section:
        yield SetOption((location.section, "image"), str(value))
        return
    for name in ("tf_image", "gpu_tf_image"):
        yield SetOption(("service", name), str(value))


def _convert_mounts(value: Any, location: Location) -> Iterator[Action]:
    """Convert `/folder:/path:ro` or `rw`, YARN's syntax for Docker containers."""
    if not is_true(location.siblings.get("tony.docker.enabled")):
        yield Note(location.path, "was left out: tony.docker.enabled is not true")
        return
    for mount in _words(value):
        if not 2 <= len(mount.split(":")) <= 3:
            raise ValueError("it is /folder:/place:ro or rw, with commas between")
        host, container, mode = (*mount.split(":"), "rw")[:3]
        read_only = mode.partition("+")[0] == "ro"
        yield SetOption(
            ("volumes",),
            [{"host_path": host, "container_path": container, "mode": "RO" if read_only else "RW"}],
        )


def _convert_command(value: Any, location: Location) -> Iterator[Action]:
    yield SetOption((location.section or "service", "command"), str(value))
    replaced = [name for name in PLACEHOLDERS if f"{{{name}}}" in value.replace(f"${{{name}}}", "")]
    if replaced:
        names = ", ".join(f"{{{name}}}" for name in replaced)
        yield Note(location.path, f"{names} gets replaced here (docs/tasks.md); to keep it write '{{''{replaced[0]}}}'")


def _convert_label(value: Any, location: Location) -> Iterator[Action]:
    sections = [location.section] if location.section else [SECTIONS[role] for role in roles(location.siblings)]
    for section in sections:
        yield SetOption((section, "placement_constraint"), [["node-label", "IS", str(value)]])
    yield Note(location.path, "give agents the attribute node-label: it stands for YARN's label")


def roles(properties: Mapping[str, str]) -> list[str]:
    """Return the supported jobs in the file."""
    found = (INSTANCES.fullmatch(name) for name in properties)
    return [match[1] for match in found if match and match[1] in SECTIONS]


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def _gpus(value: Any, location: Location) -> Iterator[Action]:
    if integer(value):
        yield SetOption((location.section, "gpus"), integer(value))


_JOB = (
    ("instances", ("{job}.count",), "", set_option("{job}", "count", as_=integer)),
    (
        "memory",
        ("{job}.mem",),
        "2g and 2048m; 2048 MB where it is missing",
        set_option("{job}", "mem", as_=hadoop_megabytes),
    ),
    ("vcores", ("{job}.cpus",), "1 where it is missing", set_option("{job}", "cpus", as_=number)),
    ("gpus", ("{job}.gpus",), "GPUs make workers gpu_worker", _gpus),
    ("command", ("{job}.command",), "", _convert_command),
    (
        "timeout",
        ("{job}.max_completion_time",),
        "milliseconds there, seconds here",
        set_option("{job}", "max_completion_time", as_=seconds_of_milliseconds),
    ),
    ("node-label", ("{job}.placement_constraint",), "an attribute of agents of that name", _convert_label),
    ("depends-on", (), PLANS, None),
    ("max-instances", (), "change the count in an update", None),
    ("resources", (), _FILES, None),
)
JOB_ROWS = tuple(Row(name, options, note, converter) for name, options, note, converter in _JOB)

#: `JOB` is a placeholder for the job.
JOB_IMAGE = Row("tony.docker.JOB.image", ("{job}.image",), "", _convert_image)
ROWS = (
    Row("tony.application.name", ("service.name",), "lower case, dashes", convert_name),
    Row(
        "tony.application.framework", ("service.strategy",), "pytorch, horovod; tensorflow: guessed", _convert_framework
    ),
    Row(
        "tony.application.timeout",
        ("finish.deadline",),
        "milliseconds there, seconds here",
        set_option("finish", "deadline", as_=seconds_of_milliseconds),
    ),
    Row("tony.application.distributed-mode", (), "GANG is what happens here", _convert_mode),
    Row("tony.application.untracked.jobtypes", (), "ps never counts here", _convert_untracked),
    Row("tony.application.sidecar.jobtypes", (), "tensorboard never counts here", _convert_untracked),
    Row(
        "tony.application.stop-on-failure-jobtypes",
        (),
        "each task may fail restart.max_failures times; then the job has failed",
    ),
    Row("tony.application.fail-on-worker-failure-enabled", (), "true is what happens here", _convert_fail_on_worker),
    Row(
        "tony.application.tensorboard-log-dir",
        ("service.use_tensorboard", "service.checkpoint_dir"),
        "TensorBoard reads the folder that all tasks share",
        _convert_board,
    ),
    Row("tony.application.node-label", ("worker.placement_constraint",), "of every job", _convert_label),
    Row("tony.application.enable-preprocess", (), "use chief.pre_command"),
    Row("tony.application.prepare-stage", (), PLANS),
    Row("tony.application.training-stage", (), PLANS),
    Row("tony.application.security.enabled", (), OF_HADOOP, ignore),
    Row("tony.application.hdfs-conf-path", (), "serve the folder over HTTP and name it in service.hdfs.config_uri"),
    Row(
        "tony.am.retry-count",
        ("restart.max_failures",),
        "tasks are restarted, not all of the job",
        set_option("restart", "max_failures", as_=integer, say="counts for each task here, within restart.window"),
    ),
    Row(COMMAND, ("service.command",), "", _convert_command),
    Row("tony.containers.envs", ("service.environment",), "NAME=value, with commas between", _convert_variables),
    Row("tony.execution.envs", ("service.environment",), "the same", _convert_variables),
    Row("tony.containers.resources", ("service.job_url",), "the first; one archive is fetched", _convert_resources),
    Row("tony.container.allocation.timeout", (), "a job waits until it fits, and says what is missing"),
    Row("tony.docker.enabled", (), "read with the image", ignore),
    JOB_IMAGE,
    Row("tony.task.params", (), "write them into service.command"),
    Row("tony.docker.containers.image", ("service.tf_image", "service.gpu_tf_image"), "", _convert_image),
    Row(
        "tony.docker.containers.mount",
        ("volumes",),
        "of all tasks; agents need the isolator filesystem/linux",
        _convert_mounts,
    ),
    Row("tony.python-exec-path", ("service.python",), "", set_option("service", "python", as_=str)),
    Row(
        "tony.yarn.queue",
        ("service.role",),
        "queues are Mesos roles; quota is set there. default: the service's own",
        lambda value, _: [SetOption(("service", "role"), str(value))] if value != "default" else (),
    ),
    Row("tony.tensorboard.vcores", ("tensorboard.cpus",), "", set_option("tensorboard", "cpus", as_=number)),
    Row("tony.tensorboard.memory", ("tensorboard.mem",), "", set_option("tensorboard", "mem", as_=hadoop_megabytes)),
    Row(
        "tony.tensorboard.instances",
        ("service.use_tensorboard",),
        "",
        set_option("service", "use_tensorboard", as_=lambda value: integer(value) > 0),
    ),
)
