"""How many workers a cluster may do with: of collective training, when no more find a place."""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.spec import JobKind, JobSpec, ServiceSpec, Strategy


def elastic(spec: ServiceSpec) -> JobSpec | None:
    """The part of the service that may be smaller: the only workers of collective training, if they may."""
    workers = [job for job in spec.jobs if job.kind is JobKind.WORKER]
    if spec.strategy is not Strategy.MULTI_WORKER_MIRRORED or len(workers) != 1:
        return None
    (job,) = workers
    return job if 0 < job.min_count < job.count else None


def smaller(spec: ServiceSpec, count: int) -> ServiceSpec:
    """With so many workers, those of the lowest indexes; the same spec where it may not be, or is no larger."""
    job = elastic(spec)
    if job is None or not job.min_count <= count < job.count:
        return spec
    return replace(spec, jobs=tuple(replace(item, count=count) if item is job else item for item in spec.jobs))
