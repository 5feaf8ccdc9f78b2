"""Jobs whose program is ours: TensorBoard, and tf.data service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.model.resources import UNIT, Needs, thousandths
from tf_scheduler.model.spec import JobKind, JobSpec

from .sections.program import ORIGINAL_GPU_IMAGE, ORIGINAL_IMAGE
from .volumes import volumes_of

Document = Mapping[str, Any]

#: The address is shown; whoever reaches the agent reaches it, as with the original package.
TENSORBOARD = 'exec python -m tensorboard.main --logdir "$LOG_DIR" --host 0.0.0.0 --port "$TASK_PORT"'
DATA_SERVICE = "exec python -m tf_executor.data_service"


def before(options: Document) -> Iterator[JobSpec]:
    """What others need the address of."""
    section = options["data_service"]
    if section["workers"]:
        needs = Needs(thousandths(section["dispatcher_cpus"]), section["dispatcher_mem"] * UNIT)
        yield _job(options, JobKind.DISPATCHER, "data_dispatcher", DATA_SERVICE, needs)


def after(options: Document) -> Iterator[JobSpec]:
    """What needs the others' addresses, and what nobody waits for."""
    section = options["data_service"]
    if section["workers"]:
        yield _job(options, JobKind.DATA_WORKER, "data_service", DATA_SERVICE, _needs(section), section["workers"])
    if options["service"]["use_tensorboard"]:
        section = options["tensorboard"]
        yield _job(options, JobKind.TENSORBOARD, "tensorboard", TENSORBOARD, _needs(section), port=section["port"])


def ports_of(service: Document) -> int:
    """How many ports a task takes of its agent's: none where it has all of its own address."""
    return 0 if service["virtual_network_enabled"] else 1


def image_of(service: Document, own: str, has_gpus: bool) -> str:
    """Docker image of a job. Empty for the original package's own images: our executor does not run in them."""
    image: str = own or (service["gpu_tf_image"] if has_gpus else service["tf_image"])
    return "" if image in (ORIGINAL_IMAGE, ORIGINAL_GPU_IMAGE) else image


def _needs(section: Document) -> Needs:
    return Needs(thousandths(section["cpus"]), section["mem"] * UNIT, section.get("disk", 0) * UNIT)


def _job(
    options: Document, kind: JobKind, section: str, command: str, needs: Needs, count: int = 1, port: int = 0
) -> JobSpec:
    service = options["service"]
    hadoop = {"HADOOP_CONF_DIR": "."} if service["hdfs"]["config_uri"] else {}
    return JobSpec(
        kind=kind,
        count=count,
        needs=replace(needs, ports=ports_of(service)),
        command=command,
        environment={**hadoop, **service["environment"]},
        python=service["python"],
        section=section,
        image=image_of(service, "", has_gpus=False),
        # The dispatcher has no section of its own.
        volumes=volumes_of(options, "data_service" if section == "data_dispatcher" else section),
        port=port,
    )
