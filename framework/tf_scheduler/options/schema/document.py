"""Root of the options schema, and functions to list and mask options.

All options of the DC/OS package beta-tensorflow 0.2.0-1.5.0 keep their name, type and default, so that options files
for that package work unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import Schema, fields

from tf_scheduler.model.redaction import MASK, redact_text, redact_variables

from . import jobs
from .fields import Environment, OnUpdate, RecordList, Section, section
from .policies import (
    FinishSection,
    GangSection,
    HealthSection,
    PlacementSection,
    ProgressSection,
    RecoverySection,
    RestartSection,
    StorageSection,
)
from .queue import QueueSection
from .scheduler_options import (
    ApiSection,
    DcosSection,
    ExecutorSection,
    HistorySection,
    MesosSection,
    MetricsSection,
    SchedulerSection,
    SecretDeliverySection,
    SecretRecord,
    TlsSection,
    VaultSection,
)
from .service import ServiceSection


class Options(Section):
    """Root of an options document; the DC/OS form has the same order."""

    service = section(ServiceSection, "Settings of the service, and default values for its jobs.")
    worker = section(jobs.WorkerSection, "Tasks that train.", "Workers")
    gpu_worker = section(
        jobs.GpuWorkerSection,
        "Additional workers with GPUs. Their indexes follow the indexes of worker.",
        "GPU workers",
    )
    parameter_server = section(
        jobs.ParameterServerSection, "Tasks that store the variables of the model.", "Parameter servers"
    )
    chief = section(jobs.ChiefSection, "The task that leads the training.")
    evaluator = section(jobs.EvaluatorSection, "The task that evaluates checkpoints, outside the training cluster.")
    tensorboard = section(jobs.TensorBoardSection, "TensorBoard, enabled by service.use_tensorboard.")
    data_service = section(jobs.DataServiceSection, "tf.data service: tasks that prepare data for the training tasks.")
    secrets = RecordList(SecretRecord, "Confidential values for tasks.")
    volumes = RecordList(
        jobs.VolumeRecord,
        "Folders and files on agents, mounted into tasks. The agents need the Mesos isolator filesystem/linux, which "
        "DC/OS and `local up --containers` enable.",
        update=OnUpdate.RESTART,
    )
    storage = section(
        StorageSection, "Checkpoints in object storage (docs/how-to/recipes.md).", "Storage of checkpoints"
    )
    finish = section(FinishSection, "End of the job, and actions after it.", "End of the job")
    restart = section(RestartSection, "Restarts of failed tasks.")
    recovery = section(RecoverySection, "Detection and replacement of lost tasks.")
    health = section(HealthSection, "Health checks of running tasks.", "Health checks")
    progress = section(ProgressSection, "Training progress of programs that do not report it.")
    plans = section(jobs.PlansSection, "Order in which tasks are launched and updated (docs/reference/plans.md).")
    gang = section(GangSection, "All-or-nothing launches of tasks that need each other.", "Gang scheduling")
    placement = section(PlacementSection, "Selection of agents for tasks.")
    scheduler = section(SchedulerSection, "The scheduler's process, run by Marathon.")
    executor = section(
        ExecutorSection, "The program that runs a task on an agent. New values apply to tasks launched afterwards."
    )
    queue = section(QueueSection, "Order of the jobs of a queue service.", "Queue of jobs")
    api = section(ApiSection, "Access control and encryption of the scheduler's HTTP API.")
    mesos = section(MesosSection, "Connection to Mesos.")
    tls = section(
        TlsSection, "TLS of the connection to Mesos. The files are on the scheduler's machine.", "TLS to Mesos"
    )
    secret_delivery = section(SecretDeliverySection, "Delivery of secrets from the scheduler to the tasks.")
    vault = section(VaultSection, "HashiCorp Vault as a source of secrets.")
    dcos = section(DcosSection, "DC/OS Enterprise as a source of secrets.", "DC/OS Enterprise")
    metrics = section(MetricsSection, "Export of metrics.")
    history = section(HistorySection, "Records of past runs (docs/how-to/history.md).")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its path, and its field with type, bounds, default and metadata."""

    #: Names from the outermost section to the option.
    path: tuple[str, ...]
    field: fields.Field[Any]

    def __str__(self) -> str:
        return ".".join(self.path)

    @property
    def default(self) -> Any:
        """Default value; None for an option without one."""
        default = self.field.load_default
        return default() if callable(default) else default

    @property
    def description(self) -> str:
        """Description, with the reason if the option has no effect."""
        metadata = self.field.metadata
        obsolete = f" Has no effect: {metadata['obsolete']}." if "obsolete" in metadata else ""
        return f"{metadata['description']}{obsolete}"

    @property
    def on_update(self) -> OnUpdate:
        """Effect of a new value on a running service."""
        value: OnUpdate = self.field.metadata["on_update"]
        return value

    def metadata(self, name: str) -> Any:
        """Return the metadata entry of this name, or None."""
        return self.field.metadata.get(name)

    def value(self, document: Mapping[str, Any]) -> Any:
        """Return the value in resolved options."""
        value: Any = document
        for name in self.path:
            value = value[name]
        return value

    def put(self, document: dict[str, Any], value: Any) -> None:
        """Set the value in a document, and create its sections."""
        for name in self.path[:-1]:
            document = document.setdefault(name, {})
        document[self.path[-1]] = value


def options_of(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Return all options of a schema, section by section."""
    for name, field in schema.fields.items():
        if isinstance(field, fields.Nested):
            yield from options_of(field.schema, (*path, name))
        else:
            yield Option((*path, name), field)


#: All options in the order of the schema.
OPTIONS = tuple(options_of(Options()))


_DEFAULTS = {str(option): option.default for option in OPTIONS}


def is_default(path: str, value: Any) -> bool:
    """Whether the value is the default of the option at `path`."""
    default = _DEFAULTS.get(path)
    # In Python, True is 1.
    return value is not None and isinstance(value, bool) is isinstance(default, bool) and bool(value == default)


def is_set(path: str, value: Any) -> bool:
    """Whether an option counts as set; an empty value that is the default does not."""
    return bool(value) or not is_default(path, value)


def mask_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Mask secret options, variables with names of secrets, and passwords in URLs."""
    masked: dict[str, Any] = {}
    for option in OPTIONS:
        option.put(masked, mask_value(option, option.value(options)))
    return masked


def changed_options(masked: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults.

    `options` decides which; the values come from `masked`, the same document with secrets hidden.
    """
    changed: dict[str, Any] = {}
    for option in OPTIONS:
        if option.value(options) != option.default:
            section = changed
            for name in option.path[:-1]:
                section = section.setdefault(name, {})
            section[option.path[-1]] = option.value(masked)
    return changed


def mask_value(option: Option, value: Any) -> Any:
    """Mask the secrets in a value of the option."""
    if option.metadata("secret"):
        return MASK if value else value
    if isinstance(option.field, Environment):
        return redact_variables(value)
    return redact_text(value) if isinstance(value, str) else value
