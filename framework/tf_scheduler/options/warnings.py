"""Warnings about valid options: ineffective values and likely mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_executor.contract.payload import setter_of
from tf_executor.contract.strategies import Strategy
from tf_scheduler.errors import Problem
from tf_scheduler.model.spec import AfterFinish, StorageMode

from .job_file import SECTION
from .load import data_has_addresses, job_url_has_address
from .schema.document import OPTIONS
from .schema.fields import Environment
from .schema.jobs import JOBS, READ_ONLY, default_strategy, names_program
from .schema.scheduler_options import LINK
from .schema.service import ORIGINAL_IMAGES, RUNTIME_PREFIX, is_queue, runs_check_job
from .schema.values import Document, split_names
from .shell import changed_variables
from .spec import image_of, secrets_of

_FOLDER = "CHECKPOINT_DIR"
#: PyTorch's launcher, and its arguments for a single node.
TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(run|launch)\b")
_ALONE = re.compile(r"--standalone\b|--nnodes[= ]1(:1)?(?=\s|$)")
#: URL schemes that TensorFlow 2.18 and newer can read: tf.io.gfile.get_registered_schemes() of 2.21.
_TENSORFLOW_SCHEMES = ("file", "gs", "ram")
#: Packages that read and write other schemes.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "fsspec and s3fs"),
    "hdfs": "fsspec and pyarrow, and a Hadoop client",
    **dict.fromkeys(("gs", "gcs"), "fsspec and gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "fsspec and adlfs"),
}


def find_warnings(document: Document, options: Document) -> list[Problem]:
    """Return the warnings about `document`, whose resolved form is `options`."""
    notices = (notice for rule in _RULES for notice in rule(document, options))
    return [*ineffective_options(options), *security_is_weakened(options), *notices]


def find_local_warnings(document: Document, options: Document) -> list[Problem]:
    """Return the warnings that also apply to the local cluster."""
    notices = (notice for rule in _LOCAL_RULES for notice in rule(document, options))
    return [*ineffective_options(options), *notices]


def ineffective_options(options: Document) -> Iterator[Problem]:
    """Return each option that is set but has no effect, with the reason."""
    for option in OPTIONS:
        reason = option.metadata("obsolete")
        if reason and option.value(options) != option.default:
            yield Problem(str(option), f"has no effect: {reason}")


def job_section_is_unused(document: Document, _: Document) -> Iterator[Problem]:
    if SECTION in document:
        yield Problem(SECTION, "has no effect: only a queue service uses it")


def no_program_is_named(document: Document, _: Document) -> Iterator[Problem]:
    if runs_check_job(document):
        yield Problem("service.command", "no program is named: the package's check job runs")


def strategy_is_guessed(document: Document, options: Document) -> Iterator[Problem]:
    omitted = _value_at(document, ("service", "strategy")) is None and not is_queue(document)
    if omitted and names_program(document) and not options["service"]["job_name"]:
        strategy, why = default_strategy(options)
        others = ", ".join(each.value for each in Strategy if each is not strategy)
        message = f"missing: using {strategy.value}, because {why}; others: {others}. A running service keeps its own"
        yield Problem("service.strategy", message)


def environment_is_object(document: Document, _: Document) -> Iterator[Problem]:
    for option in OPTIONS:
        variables = _value_at(document, option.path)
        if isinstance(option.field, Environment) and isinstance(variables, Mapping):
            entries = ", ".join(f'{{"name": {json.dumps(name)}, "value": ...}}' for name in variables)
            yield Problem(str(option), f"`dcos package install` refuses an object; write a list: [{entries}]")


def data_is_list(document: Document, _: Document) -> Iterator[Problem]:
    data = _value_at(document, ("service", "data"))
    if isinstance(data, list):
        text = json.dumps(json.dumps(data))
        yield Problem("service.data", f"`dcos package install` refuses a list; write it as text: {text}")


def default_image_means_none(document: Document, options: Document) -> Iterator[Problem]:
    """Warn that an original default image means no image: agents need the packages.

    No warning if `python` is set, because the user then knows, or for the check job, which does not need TensorFlow.
    """
    service = options["service"]
    for option, has_gpus in (("tf_image", False), ("gpu_tf_image", True)):
        sections = [
            section
            for section in JOBS
            if options[section]["count"]
            and (options[section]["gpus"] > 0) is has_gpus
            and not (options[section]["image"] or options[section]["python"] or service["python"])
        ]
        if sections and service[option] in ORIGINAL_IMAGES and names_program(document):
            yield Problem(
                f"service.{option}",
                f"`{service[option]}` means no image: tasks of {', '.join(sections)} run on the agents' own Python, "
                "which must have the program's packages, such as TensorFlow; set an image that has them and Python 3.8 "
                'or newer, or "" to run without an image',
            )


def gcs_key_is_readable(_: Document, options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["gcs_key"] and service["use_gcs_key_secret"]:
        yield Problem("service.use_gcs_key_secret", "has no effect: service.gcs_key is set")
    if service["gcs_key"]:
        yield Problem("service.gcs_key", "is visible to users with access to the Marathon app; use a secret")


def runtime_is_local(_: Document, options: Document) -> Iterator[Problem]:
    for option in OPTIONS:
        if option.path[-1] == "python" and str(option.value(options)).startswith(RUNTIME_PREFIX):
            value = option.value(options)
            yield Problem(str(option), f"{value}: only the local cluster has it; on DC/OS, use a path on the agents")


def kept_tensorboard_is_disabled(_: Document, options: Document) -> Iterator[Problem]:
    if options["finish"]["then"] == AfterFinish.KEEP_TENSORBOARD.value and not options["service"]["use_tensorboard"]:
        yield Problem("finish.then", "has no effect: service.use_tensorboard is false")


def tensorboard_has_no_folder(_: Document, options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["use_tensorboard"] and not (service["checkpoint_dir"] or service["shared_filesystem"]):
        yield Problem("service.use_tensorboard", "has no effect: service.checkpoint_dir is missing")


def files_are_not_kept(document: Document, options: Document) -> Iterator[Problem]:
    """Say that files are lost; direct URLs are written by programs alone."""
    service = options["service"]
    folder = service["checkpoint_dir"] or service["shared_filesystem"]
    is_direct = "://" in folder and options["storage"]["mode"] == StorageMode.DIRECT.value
    is_local = options["mesos"]["master"].startswith("127.")
    if service["keep_files"] and (is_direct or not folder) and names_program(document) and not is_local:
        why = "storage.mode is direct" if is_direct else "service.checkpoint_dir is missing"
        message = f"no effect: {why}; files that programs write into their working directories are removed"
        yield Problem("service.keep_files", message)


def checkpoint_dir_is_not_shared(_: Document, options: Document) -> Iterator[Problem]:
    """Warn if a task that is relaunched on another agent may not find its checkpoint."""
    service = options["service"]
    folder = service["checkpoint_dir"] or service["shared_filesystem"]
    tasks = sum(options[section]["count"] for section in JOBS)
    if "://" in folder or tasks < 2 or options["mesos"]["master"].startswith("127."):
        return
    message = f"all agents must share {folder}, such as an NFS mount; otherwise moved tasks restart at step 0"
    if folder and not folder.startswith("/"):
        message = f"{folder} is relative to each task's own working directory; use a shared absolute path"
    if not folder:
        message = f"missing: a command uses {_FOLDER}, which only the local cluster sets by default"
    if folder or any(_FOLDER in options[section]["command"] for section in ("service", *JOBS)):
        yield Problem("service.checkpoint_dir", message)


def storage_mode_applies(_: Document, options: Document) -> Iterator[Problem]:
    """Explain which storage mode applies and why, as far as the options determine it."""
    service, mode = options["service"], StorageMode(options["storage"]["mode"])
    name = next((name for name in ("checkpoint_dir", "shared_filesystem") if service[name]), "")
    scheme, separator, _rest = service.get(name, "").partition("://")
    if options["storage"]["options"] and (mode is StorageMode.DIRECT or not separator):
        yield Problem("storage.options", "has no effect: the executor does not carry checkpoints")
    if not separator:
        if name:
            yield Problem(f"service.{name}", f"mounted: {service[name]} is a path, which the program itself uses")
        return
    traits = Strategy(service["strategy"]).traits
    is_native, is_torch = scheme in _TENSORFLOW_SCHEMES, traits.library == "torch"
    if mode is StorageMode.DIRECT:
        refused = f"TensorFlow 2.18 and newer cannot write to {scheme}://; set storage.mode to auto or carried"
        why = "the program itself reads and writes it" if is_native or is_torch else refused
        yield Problem(f"service.{name}", f"direct: {why}")
        return
    if traits.chief_coordinates:
        yield Problem(
            f"service.{name}",
            "the chief must write all variables: see experimental_io_device in docs/reference/jobs.md",
        )
    packages = f"the task's Python needs {_PACKAGES.get(scheme, f'fsspec and its file system for {scheme}://')}"
    if mode is StorageMode.CARRIED or is_torch:
        yield Problem(f"service.{name}", f"carried by the executor; {packages}")
    elif is_native:
        yield Problem(f"service.{name}", f"direct if the task's TensorFlow has {scheme}://, otherwise carried")
    else:
        why = f"TensorFlow 2.6 and newer cannot write to {scheme}://"
        yield Problem(f"service.{name}", f"carried by the executor, because {why}; {packages}")


def idle_agents_are_not_used(_: Document, options: Document) -> Iterator[Problem]:
    worker = options["worker"]
    if worker["elastic"]["grow"] == "when_idle" and worker["elastic"]["max"] == worker["count"]:
        yield Problem("worker.elastic.grow", "has no effect: worker.count is worker.elastic.max")


def torchrun_trains_separate_models(_: Document, options: Document) -> Iterator[Problem]:
    """Warn if each task's `torchrun` would train alone: it needs strategy pytorch_ddp."""
    service = options["service"]
    commands = {f"{name}.command": options[name]["command"] for name in ("service", *JOBS)}
    if sum(options[section]["count"] for section in ("chief", "worker", "gpu_worker")) < 2:
        return
    for path, command in commands.items():
        alone = _ALONE.search(command)
        if TORCHRUN.search(command) is None:
            continue
        if Strategy(service["strategy"]).traits.launcher != "torchrun":
            message = f"with strategy {service['strategy']}, torchrun trains a model of its own in each task"
            yield Problem(path, f"{message}; set service.strategy to {Strategy.PYTORCH_DDP.value}")
        elif alone is not None:
            yield Problem(path, f"torchrun {alone[0].strip()} does not wait for the other tasks; omit this argument")


def commands_change_variables(_: Document, options: Document) -> Iterator[Problem]:
    """Warn of variables that a command takes from the program or replaces."""
    strategy = Strategy(options["service"]["strategy"])
    for section in ("service", *JOBS):
        for verb, name in changed_variables(options[section]["command"]):
            if setter := setter_of(name, strategy):
                yield Problem(f"{section}.command", f"{verb} {name}, which {setter} sets for each task; remove this")


def linked_volumes_are_writable(_: Document, options: Document) -> Iterator[Problem]:
    if options["executor"]["volumes"] == LINK:
        for index, record in enumerate(options["volumes"]):
            if record["mode"] == READ_ONLY:
                message = "RO is not enforced: the volume is a link, and tasks may write to"
                yield Problem(f"volumes.{index}.mode", f"{message} {record['host_path']}")


def agents_without_executor_login(_: Document, options: Document) -> Iterator[Problem]:
    delivered = any(secret.reference is None for secret in secrets_of(options))
    if delivered and options["secret_delivery"]["executor_authentication"] == "optional":
        message = "on agents without --authenticate_http_executors, any process can take the secrets of a task"
        yield Problem("secret_delivery.executor_authentication", message)


def _with_secrets(options: Document) -> list[str]:
    """Return the sections of tasks that get secrets."""
    secrets = [split_names(item["jobs"]) or JOBS for item in options["secrets"]]
    return [section for section in JOBS if options[section]["count"] and any(section in jobs for jobs in secrets)]


def servers_give_secrets(_: Document, options: Document) -> Iterator[Problem]:
    """Warn that TensorFlow's servers read and write files for every client."""
    sections = _with_secrets(options) if Strategy(options["service"]["strategy"]).traits.has_servers else []
    if sections and not options["service"]["virtual_network_enabled"]:
        yield Problem(
            "secrets",
            f"every client that reaches the port of a TensorFlow server of {', '.join(sections)} can read its secrets "
            "and files; use a network that only the job reaches (docs/how-to/secrets.md)",
        )


def secrets_have_default_user(_: Document, options: Document) -> Iterator[Problem]:
    """Warn if tasks with secrets run as the default user, as do other services' tasks."""
    service = options["service"]
    default = next(option.default for option in OPTIONS if str(option) == "service.user")
    sections = [
        section
        for section in _with_secrets(options)
        if not image_of(service, options[section]["image"], options[section]["gpus"] > 0)
    ]
    if sections and service["user"] == default:
        yield Problem(
            "service.user",
            f"{default} is the default user of all services, so that tasks of other services on an agent can read "
            f"the secrets of {', '.join(sections)}; set a user of its own, or an image",
        )


def security_is_weakened(options: Document) -> Iterator[Problem]:
    """Yield the options that weaken the default security; health lists them, too."""
    if options["api"]["authentication"] == "none":
        user = options["service"]["user"]
        message = f"none: every client that can connect to the API may run any program as user {user}, with all secrets"
        yield Problem("api.authentication", message)
    if options["mesos"]["agent_credentials_over_http"]:
        yield Problem("mesos.agent_credentials_over_http", "agents without TLS get the credentials for Mesos")


_Rule = Callable[[Document, Document], Iterator[Problem]]
_LOCAL_RULES: tuple[_Rule, ...] = (
    job_section_is_unused,
    no_program_is_named,
    strategy_is_guessed,
    storage_mode_applies,
    torchrun_trains_separate_models,
    commands_change_variables,
    linked_volumes_are_writable,
)
_RULES: tuple[_Rule, ...] = (
    *_LOCAL_RULES,
    environment_is_object,
    data_is_list,
    lambda _, options: data_has_addresses(options),
    default_image_means_none,
    gcs_key_is_readable,
    lambda _, options: job_url_has_address(options),
    runtime_is_local,
    tensorboard_has_no_folder,
    idle_agents_are_not_used,
    kept_tensorboard_is_disabled,
    files_are_not_kept,
    checkpoint_dir_is_not_shared,
    agents_without_executor_login,
    secrets_have_default_user,
    servers_give_secrets,
)


def _value_at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
