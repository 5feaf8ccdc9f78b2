"""The whole of options.json: its sections, in the order of the documents made from them.

Every option of the DC/OS package beta-tensorflow 0.2.0-1.5.0 is here, with its name, type and default, so that its
users' files work unchanged. The fields, with their metadata, are in `sections/`.
"""

from __future__ import annotations

from .lists import Records
from .sections.base import Section, about, section
from .sections.connections import MesosSection, MetricsSection, TlsSection
from .sections.executor import ExecutorSection
from .sections.gang import GangSection
from .sections.jobs import (
    ChiefSection,
    EvaluatorSection,
    GpuWorkerSection,
    ParameterServerSection,
    TensorBoardSection,
    WorkerSection,
)
from .sections.placement import PlacementSection
from .sections.plans import PlansSection
from .sections.policies import FinishSection, HealthSection, RecoverySection, RestartSection
from .sections.scheduler import SchedulerSection
from .sections.secrets import SecretRecord
from .sections.service import ServiceSection


class Options(Section):
    """The whole document."""

    service = section(ServiceSection, "What concerns the service as a whole, and what its jobs share.")
    chief = section(ChiefSection, "The task that leads the training.")
    parameter_server = section(ParameterServerSection, "Tasks that keep the variables.")
    worker = section(WorkerSection, "Tasks that train.")
    gpu_worker = section(
        GpuWorkerSection,
        "Further workers, with GPUs. They belong to the same job; their indexes follow those of worker.",
    )
    evaluator = section(
        EvaluatorSection, "A task that evaluates checkpoints beside the training, outside the cluster of the others."
    )
    tensorboard = section(TensorBoardSection, "TensorBoard; it runs with service.use_tensorboard.")
    gang = section(GangSection, "How tasks that are launched all or none wait for each other.")
    placement = section(PlacementSection, "Where tasks had better run.")
    plans = section(PlansSection, "In which order tasks are launched and updated. docs/plans.md tells the rest.")
    restart = section(RestartSection, "How often tasks that failed by themselves are started again.")
    recovery = section(RecoverySection, "When a task counts as lost.")
    health = section(HealthSection, "When a task that runs counts as failed.")
    finish = section(FinishSection, "When the job is done, and what becomes of the rest.")
    secrets = Records(
        SecretRecord,
        load_default=(),
        metadata=about("Values that tasks need and nobody else may see.", not_yet="no secret reaches the tasks"),
    )
    executor = section(
        ExecutorSection, "Our program that carries each task on an agent. Changes hold for tasks launched from then on."
    )
    scheduler = section(SchedulerSection, "The scheduler's own process, which Marathon runs.")
    mesos = section(MesosSection, "Where Mesos is.")
    tls = section(TlsSection, "Encryption. The files are on the machine where the scheduler runs.")
    metrics = section(MetricsSection, "Where measurements go.")
