"""Converter for TonY's tony.xml (TonyConfigurationKeys and tony-default.xml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_executor.contract.strategies import Strategy

from .tables import (
    UNKNOWN,
    Action,
    Location,
    Note,
    Row,
    SetOption,
    apply_row,
    convert_name,
    hadoop_megabytes,
    ignore,
    integer,
    is_true,
    number,
    option_row,
    seconds_of_milliseconds,
    suggestion,
)

OF_HADOOP = "concerns YARN and Hadoop"
_OF_PORTAL = "the command `dcos-tensorflow history` replaces TonY's portal"
_MILLISECONDS = "milliseconds become seconds"
PLANS = "define the order by a custom plan (docs/reference/plans.md)"
#: Prefix of omitted properties -> reason.
PREFIXES = {
    "tony.docker.": "unknown job",
    "tony.am.": "Marathon starts the scheduler with the resources of its app",
    "tony.task.": "Mesos monitors executors, which have no heartbeats of their own",
    "tony.history.": _OF_PORTAL,
    "tony.portal.": _OF_PORTAL,
    "tony.https.": _OF_PORTAL,
    "tony.http.": _OF_PORTAL,
    "tony.keytab.": _OF_PORTAL,
    "tony.secret.": _OF_PORTAL,
    "tony.horovod.": "Horovod runs without a driver",
    "tony.other.": OF_HADOOP,
    "tony.application.mxnet.": "environment variables of MXNet are not set; see docs/reference/tasks.md",
    "tony.application.dependency.": PLANS,
    "tony.application.": OF_HADOOP,
    "tony.gpu-exec-path": "Mesos offers list the GPUs",
    "tony.version-info.": "concerns TonY itself",
    "yarn.": OF_HADOOP,
    "hadoop.": OF_HADOOP,
    "dfs.": OF_HADOOP,
}


SECTIONS = {"chief": "chief", "worker": "worker", "ps": "parameter_server", "evaluator": "evaluator"}
INSTANCES = re.compile(r"tony\.([a-z]+)\.instances")
_OF_JOB = re.compile(r"tony\.([a-z]+)\.(memory|vcores|gpus|command)")
IMAGE = re.compile(r"tony\.docker\.([a-z]+)\.image")
#: Names that executors replace in commands, in braces.
PLACEHOLDERS = ("ps_hosts", "worker_hosts", "job_name", "task_index", "task_name", "port", "log_dir")
COMMAND = "tony.containers.command"
#: Framework -> strategy.
_STRATEGIES = {name: strategy.value for strategy in Strategy if (name := strategy.traits.tony_framework)}
_FILES = "pack all files into the archive of service.job_url"


def _convert_framework(value: Any, location: Location) -> Iterator[Action]:
    if value in _STRATEGIES:
        yield SetOption(("service", "strategy"), _STRATEGIES[value])
    elif value not in ("tensorflow", "standalone"):
        yield Note(location.path, f"environment variables of {value} are not set; see docs/reference/tasks.md")


def _convert_mode(value: Any, location: Location) -> Iterator[Action]:
    if value != "GANG":
        yield Note(location.path, f"{value}: all tasks are launched together")


def _convert_untracked(value: Any, location: Location) -> Iterator[Action]:
    others = [name for name in _words(value) if name not in ("ps", "tensorboard", "evaluator")]
    if others:
        yield Note(location.path, f"{', '.join(others)}: use finish.success to choose the tasks that end the job")


def _convert_fail_on_worker(value: Any, location: Location) -> Iterator[Action]:
    always = "" if is_true(value) else "false is not supported: "
    yield Note(location.path, f"{always}a task that fails more often than restart.max_failures ends the job")


def _convert_variables(value: Any, _location: Location) -> Iterator[Action]:
    for pair in _words(value):
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"{name}=value")
        yield SetOption(("service", "environment"), {name: text})


def _convert_resources(value: Any, location: Location) -> Iterator[Action]:
    first, *others = _words(value) or [""]
    if not first:
        raise ValueError("the address of a file")
    place, _, alias = first.partition("::")
    yield SetOption(("service", "job_url"), place.removesuffix("#archive"))
    left = [*others, *([f"the local name {alias.removesuffix('#archive')}"] if alias.removesuffix("#archive") else [])]
    if left:
        yield Note(location.path, f"omitted: {', '.join(left)}; only one file is fetched; {_FILES}")


def _convert_board(value: Any, _location: Location) -> Iterator[Action]:
    yield SetOption(("service", "use_tensorboard"), True)
    yield SetOption(("service", "checkpoint_dir"), str(value))


def _convert_image(value: Any, location: Location) -> Iterator[Action]:
    if not is_true(location.siblings.get("tony.docker.enabled")):
        yield Note(location.path, "omitted: tony.docker.enabled is not true")
        return
    if location.section:
        yield SetOption((location.section, "image"), str(value))
        return
    for name in ("tf_image", "gpu_tf_image"):
        yield SetOption(("service", name), str(value))


def _convert_mounts(value: Any, location: Location) -> Iterator[Action]:
    """Convert mounts in YARN's syntax for Docker: `/folder:/path:ro` or `:rw`."""
    if not is_true(location.siblings.get("tony.docker.enabled")):
        yield Note(location.path, "omitted: tony.docker.enabled is not true")
        return
    for mount in _words(value):
        if not 2 <= len(mount.split(":")) <= 3:
            raise ValueError("mounts such as /folder:/path:ro or /folder:/path:rw, separated by commas")
        host, container, mode = (*mount.split(":"), "rw")[:3]
        read_only = mode.partition("+")[0] == "ro"
        yield SetOption(
            ("volumes",), [{"host_path": host, "container_path": container, "mode": "RO" if read_only else "RW"}]
        )


def _convert_command(value: Any, location: Location) -> Iterator[Action]:
    yield SetOption((location.section or "service", "command"), str(value))
    replaced = [name for name in PLACEHOLDERS if f"{{{name}}}" in value.replace(f"${{{name}}}", "")]
    if replaced:
        names = ", ".join(f"{{{name}}}" for name in replaced)
        yield Note(
            location.path, f"tasks replace {names} (docs/reference/tasks.md); to keep it, write '{{''{replaced[0]}}}'"
        )


def _convert_label(value: Any, location: Location) -> Iterator[Action]:
    sections = [location.section] if location.section else [SECTIONS[role] for role in roles(location.siblings)]
    for section in sections:
        yield SetOption((section, "placement_constraint"), [["node-label", "IS", str(value)]])
    yield Note(location.path, "give agents the attribute node-label in place of the label of YARN")


def roles(properties: Mapping[str, str]) -> list[str]:
    """Return the roles of the jobs in the file, such as `worker`, that are supported."""
    matches = (INSTANCES.fullmatch(name) for name in properties)
    return [match[1] for match in matches if match and match[1] in SECTIONS]


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def _gpus(value: Any, location: Location) -> Iterator[Action]:
    if integer(value):
        yield SetOption((location.section, "gpus"), integer(value))


JOB_ROWS = (
    option_row("instances", "{job}.count", "", integer),
    option_row("memory", "{job}.mem", "2g or 2048m is converted to MB; default: 2048 MB", hadoop_megabytes),
    option_row("vcores", "{job}.cpus", "default: 1", number),
    Row("gpus", ("{job}.gpus",), "workers with GPUs become gpu_worker", _gpus),
    Row("command", ("{job}.command",), "", _convert_command),
    option_row("timeout", "{job}.max_completion_time", _MILLISECONDS, seconds_of_milliseconds),
    Row("node-label", ("{job}.placement_constraint",), "matched with the agent attribute node-label", _convert_label),
    Row("depends-on", (), PLANS),
    Row("max-instances", (), "change the count in an update"),
    Row("resources", (), _FILES),
)

#: `JOB` is a placeholder for the job.
JOB_IMAGE = Row("tony.docker.JOB.image", ("{job}.image",), "", _convert_image)
ROWS = (
    Row("tony.application.name", ("service.name",), "lower case, dashes", convert_name),
    Row(
        "tony.application.framework",
        ("service.strategy",),
        f"{', '.join(_STRATEGIES)}; tensorflow: guessed",
        _convert_framework,
    ),
    option_row("tony.application.timeout", "finish.deadline", _MILLISECONDS, seconds_of_milliseconds),
    Row("tony.application.distributed-mode", (), "always GANG", _convert_mode),
    Row("tony.application.untracked.jobtypes", (), "ps never ends the job", _convert_untracked),
    Row("tony.application.sidecar.jobtypes", (), "tensorboard never ends the job", _convert_untracked),
    Row(
        "tony.application.stop-on-failure-jobtypes",
        (),
        "each task may fail restart.max_failures times before the job fails",
    ),
    Row("tony.application.fail-on-worker-failure-enabled", (), "always true", _convert_fail_on_worker),
    Row(
        "tony.application.tensorboard-log-dir",
        ("service.use_tensorboard", "service.checkpoint_dir"),
        "TensorBoard reads the folder that all tasks share",
        _convert_board,
    ),
    Row("tony.application.node-label", ("worker.placement_constraint",), "set for every job", _convert_label),
    Row("tony.application.enable-preprocess", (), "use chief.pre_command"),
    Row("tony.application.prepare-stage", (), PLANS),
    Row("tony.application.training-stage", (), PLANS),
    Row("tony.application.security.enabled", (), OF_HADOOP, ignore),
    Row("tony.application.hdfs-conf-path", (), "serve the folder over HTTP and set service.hdfs.config_uri to its URL"),
    option_row(
        "tony.am.retry-count",
        "restart.max_failures",
        "single tasks are restarted, not the whole job",
        integer,
        warning="failures are counted for each task, within restart.window",
    ),
    Row(COMMAND, ("service.command",), "", _convert_command),
    Row("tony.containers.envs", ("service.environment",), "NAME=value, separated by commas", _convert_variables),
    Row("tony.execution.envs", ("service.environment",), "NAME=value, separated by commas", _convert_variables),
    Row("tony.containers.resources", ("service.job_url",), "only the first file is fetched", _convert_resources),
    Row("tony.container.allocation.timeout", (), "a job waits until its tasks fit; the service reports why"),
    Row("tony.docker.enabled", (), "images and mounts are converted only if this is true", ignore),
    JOB_IMAGE,
    Row("tony.task.params", (), "add them to service.command"),
    Row("tony.docker.containers.image", ("service.tf_image", "service.gpu_tf_image"), "", _convert_image),
    Row(
        "tony.docker.containers.mount",
        ("volumes",),
        "mounted in all tasks; agents need the isolator filesystem/linux",
        _convert_mounts,
    ),
    option_row("tony.python-exec-path", "service.python", "", str),
    Row(
        "tony.yarn.queue",
        ("service.role",),
        "queues are Mesos roles, which have quotas; the queue `default` stands for the default role",
        lambda value, _: [SetOption(("service", "role"), str(value))] if value != "default" else (),
    ),
    option_row("tony.tensorboard.vcores", "tensorboard.cpus", "", number),
    option_row("tony.tensorboard.memory", "tensorboard.mem", "", hadoop_megabytes),
    option_row("tony.tensorboard.instances", "service.use_tensorboard", "", lambda value: integer(value) > 0),
)


# --- conversion

#: TonY's defaults (tony-default.xml): property, option, value.
_DEFAULTS = (("memory", "mem", 2048), ("vcores", "cpus", 1.0))


def convert(properties: Mapping[str, str], program: str) -> Iterator[Action]:
    """Convert the properties of a tony.xml; `program`: command if the file has none."""
    jobs = roles(properties)
    for role in jobs:
        yield from _job(role, properties)
    for name, value in properties.items():
        location = Location(name, siblings=properties)
        if not any(name.startswith(f"tony.{role}.") for role in jobs):
            yield from _other(name, value, location)
    if program and COMMAND not in properties:  # a job's own command takes precedence
        yield SetOption(("service", "command"), program)
    elif program:
        yield Note(COMMAND, "--command ignored: the file already has a command")


def _job(role: str, properties: Mapping[str, str]) -> Iterator[Action]:
    section, prefix = _section(role, properties), f"tony.{role}."
    own = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    yield from (SetOption((section, option), value) for name, option, value in _DEFAULTS if name not in own)
    rows = {row.source: row for row in JOB_ROWS}
    for name, value in own.items():
        location = Location(prefix + name, section, properties)
        if name in rows:
            yield from apply_row(rows[name], value, location)
        else:
            yield Note(location.path, UNKNOWN + suggestion(name, rows))


def _section(role: str, properties: Mapping[str, str]) -> str:
    """Return the section of a role; workers with GPUs belong to gpu_worker."""
    gpus = properties.get(f"tony.{role}.gpus", "")
    return "gpu_worker" if role == "worker" and gpus.isdecimal() and float(gpus) else SECTIONS[role]


def _other(name: str, value: str, location: Location) -> Iterator[Action]:
    exact = next((row for row in ROWS if row.source == name), None)
    if exact is not None:
        yield from apply_row(exact, value, location)
        return
    image = IMAGE.fullmatch(name)
    if image and image[1] in SECTIONS:
        yield from apply_row(JOB_IMAGE, value, replace(location, section=_section(image[1], location.siblings)))
        return
    role = INSTANCES.fullmatch(name)
    if role:
        yield Note(name, f"omitted: unknown job {role[1]}; expected one of {', '.join(sorted(SECTIONS))}")
        return
    reason = next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
    job = _OF_JOB.fullmatch(name)
    if job and not reason and f"tony.{job[1]}.instances" not in location.siblings:
        reason = f"without tony.{job[1]}.instances, TonY starts no {job[1]}"
    hint = suggestion(name, [row.source for row in ROWS])
    yield Note(name, f"omitted: {reason}" if reason and not hint else UNKNOWN + hint)
