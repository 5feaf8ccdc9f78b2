"""The whole of options.json: its sections, in the order of the documents made from them.

Every option of the DC/OS package beta-tensorflow 0.2.0-1.5.0 is here, with its name, type and default, so that its
users' files work unchanged. The fields, with their metadata, are in `sections/`.
"""

from __future__ import annotations

from .lists import Records
from .sections.api import ApiSection
from .sections.base import Change, Section, about, section
from .sections.connections import MesosSection, MetricsSection, TlsSection
from .sections.executor import ExecutorSection
from .sections.gang import GangSection
from .sections.jobs import (
    ChiefSection,
    EvaluatorSection,
    GpuWorkerSection,
    ParameterServerSection,
    WorkerSection,
)
from .sections.placement import PlacementSection
from .sections.plans import PlansSection
from .sections.policies import FinishSection, HealthSection, RecoverySection, RestartSection
from .sections.scheduler import SchedulerSection
from .sections.secrets import DcosSection, SecretDeliverySection, SecretRecord, VaultSection
from .sections.service import ServiceSection
from .sections.side_jobs import DataServiceSection, TensorBoardSection
from .sections.volumes import VolumeRecord


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
    data_service = section(
        DataServiceSection, "tf.data service: tasks that read and prepare the data for those that train."
    )
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
        metadata=about("Values that tasks need and nobody else may see."),
    )
    secret_delivery = section(SecretDeliverySection, "How secrets get from the scheduler to the tasks.")
    vault = section(VaultSection, "HashiCorp Vault, where secrets may be.")
    dcos = section(DcosSection, "DC/OS Enterprise, where secrets may be.")
    volumes = Records(
        VolumeRecord,
        load_default=(),
        metadata=about(
            "Folders of the agents that tasks see. Agents need the Mesos isolator filesystem/linux for them, as those "
            "of DC/OS have it; the local cluster has not.",
            change=Change.RESTART,
        ),
    )
    executor = section(
        ExecutorSection, "Our program that carries each task on an agent. Changes hold for tasks launched from then on."
    )
    scheduler = section(SchedulerSection, "The scheduler's own process, which Marathon runs.")
    api = section(ApiSection, "Who may use the scheduler's HTTP API, and how it is encrypted.")
    mesos = section(MesosSection, "Where Mesos is.")
    tls = section(TlsSection, "Encryption. The files are on the machine where the scheduler runs.")
    metrics = section(MetricsSection, "Where measurements go.")
