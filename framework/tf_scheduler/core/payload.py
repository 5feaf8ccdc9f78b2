"""A job of the spec and a place -> what the executor is told about the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tf_executor import payload
from tf_scheduler.model.program import Liveness, Program
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind, JobSpec, ServiceSpec
from tf_scheduler.model.task import TaskRecord

from .surroundings import gives_rendezvous

#: Theirs are gRPC servers, too.
_DATA_SERVICE = (JobKind.DISPATCHER, JobKind.DATA_WORKER)
#: Variable of the user's program that comes from the service.
CHECKPOINT_DIR = "CHECKPOINT_DIR"


def payload_of(
    spec: ServiceSpec,
    job: JobSpec,
    record: TaskRecord,
    config: Mapping[str, Any],
    port: int,
    around: Mapping[str, str] | None = None,
) -> payload.Payload:
    """`config`: the task's TF_CONFIG; `port`: that of its address; `around`: what else it learns of its place."""
    folder = {CHECKPOINT_DIR: spec.checkpoint_dir} if spec.checkpoint_dir else {}
    return payload.Payload(
        task=record.name,
        job=record.job.value,
        index=record.index,
        command=job.command,
        tf_config=config,
        generation=record.generation,
        environment={**(around or {}), **folder, **job.environment},
        python=job.python,
        kill_grace=job.kill_grace,
        port=port,
        **_program(spec.program),
        log_dir=spec.checkpoint_dir,
        strategy=spec.strategy.value,
        cluster_flags=job.cluster_flags,
        fetch=spec.fetch,
        pre=job.hooks.pre,
        post=job.hooks.post,
        hook_timeout=job.hooks.timeout,
        user=spec.user,
        nice=job.limits.nice,
        ulimits=job.limits.ulimits,
        gpus=job.needs.gpus // UNIT,
        gpu_check=job.gpu_check,
        **_servers(spec, record, config),
        event_folders=_event_folders(spec, job),
        liveness=None if job.liveness is None else _liveness(job.liveness),
        stalled_after=job.stalled_after or 0.0,
        output_bytes=spec.output.size,
        output_backups=spec.output.backups,
    )


def at_rest(told: payload.Payload, command: str) -> payload.Payload:
    """For a task that is paused: only this command, and nothing is done around it.

    What the task has of the agent, its limits and its environment stay, for somebody who looks around there.
    """
    return replace(
        told,
        command=command,
        cluster_flags=False,
        python="",
        fetch=(),
        pre="",
        post="",
        gpus=0,
        readiness="",
        rendezvous=False,
        event_folders=(),
        liveness=None,
        stalled_after=0.0,
    )


def _servers(spec: ServiceSpec, record: TaskRecord, config: Mapping[str, Any]) -> dict[str, Any]:
    """What is to answer at the address of the task."""
    answers = record.job.value in config["cluster"] or record.job in _DATA_SERVICE
    meets = gives_rendezvous(spec, record.job, record.index)
    return {"readiness": record.address if answers else "", "rendezvous": meets}


def _program(program: Program | None) -> dict[str, Any]:
    if program is None:
        return {}
    return {"job_name": program.name, "job_path": program.path, "job_context": program.context}


def _event_folders(spec: ServiceSpec, job: JobSpec) -> tuple[str, ...]:
    """Where a task that trains may write TensorBoard's files; what only serves writes none."""
    if job.kind not in (JobKind.CHIEF, JobKind.WORKER, JobKind.EVALUATOR):
        return ()
    shared = spec.checkpoint_dir
    return (".", shared) if shared and "://" not in shared else (".",)


def _liveness(liveness: Liveness) -> payload.Liveness:
    return payload.Liveness(**{**asdict(liveness), "kind": liveness.kind.value})
