"""A match -> records to store and launches to send: addresses, generation, payloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from tf_scheduler.model.effects import Accept, Launch
from tf_scheduler.model.ids import OfferId, task_id
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from . import handover, plans
from .addresses import host_and_port
from .cluster_spec import Cluster, cluster_of, generation_of, tf_config
from .matching import Placement
from .overdue import begun
from .payload import at_rest, payload_of
from .recovery import pausing
from .surroundings import surroundings


def plan_launches(
    state: SchedulerState, placements: Sequence[Placement], now: float, new_id: Callable[[], str]
) -> tuple[Launch, ...]:
    """One launch per placement; all of them see the same ClusterSpec.

    It is a new generation, unless every one of them has the address that it had before.
    """
    serial, purposes = plans.next_serial(state), plans.purposes(state)
    records = [
        replace(
            _record(state.spec, placement, now, new_id()),
            idle=placement.task.name in pausing.asleep(state.spec, state.paused),
            serial=serial,
            config=plans.config_of(state.spec, placement.task.name),
            plan=purposes.get(placement.task.name, plans.DEPLOY),
            begun=begun(state.tasks) or now,
        )
        for placement in placements
    ]
    tokens = handover.tokens(state.spec, (record for record in records if not record.idle), new_id)
    records = generation_of(state.tasks, [handover.with_digest(record, tokens) for record in records])
    cluster = cluster_of(plans.in_cluster(state, records))
    return tuple(
        _launch(state, placement, record, cluster, tokens.get(record.name, ""))
        for placement, record in zip(placements, records, strict=True)
    )


def accepts(placements: Sequence[Placement], launches: Sequence[Launch], refuse_seconds: float) -> tuple[Accept, ...]:
    """One ACCEPT per agent, with all offers of that agent merged (Mesos allows no other merging)."""
    pairs = sorted(zip(placements, launches, strict=True), key=lambda pair: pair[0].agent.offer_ids)
    return tuple(
        _accept(offer_ids, list(group), refuse_seconds)
        for offer_ids, group in groupby(pairs, key=lambda pair: pair[0].agent.offer_ids)
    )


def _accept(offer_ids: tuple[OfferId, ...], pairs: Sequence[tuple[Placement, Launch]], refuse_seconds: float) -> Accept:
    unreserve = tuple(entry for placement, _ in pairs for entry in placement.unreserve)
    return Accept(offer_ids, tuple(launch for _, launch in pairs), refuse_seconds, unreserve)


def _record(spec: ServiceSpec, placement: Placement, now: float, unique: str) -> TaskRecord:
    task, agent = placement.task, placement.agent
    host, port = host_and_port(spec, placement)
    return TaskRecord(
        name=task.name,
        id=task_id(task.name, unique),
        job=task.job.kind,
        index=task.index,
        agent_id=agent.id,
        hostname=agent.hostname,
        address=f"{host}:{port}",
        generation=0,
        resources=placement.task_resources + placement.executor_resources,
        launched_at=now,
        group=task.job.group,
        place=agent.place,
        agent_address="" if host == agent.address else agent.address,
    )


def _launch(state: SchedulerState, placement: Placement, record: TaskRecord, cluster: Cluster, token: str) -> Launch:
    spec, job = state.spec, placement.task.job
    _, port = host_and_port(spec, placement)
    config = tf_config(cluster if spec.strategy.has_servers else {}, record.job, record.index)
    payload = payload_of(spec, job, record, config, port, surroundings(spec, cluster, record))
    payload = handover.with_secrets(payload, spec, job, token)
    parameters = plans.parameters_of(state, record.plan)
    payload = replace(payload, environment={**payload.environment, **parameters})
    if record.idle:
        payload = at_rest(payload, pausing.command(state, record))
    return Launch(
        record=record,
        task_resources=placement.task_resources,
        executor_resources=placement.executor_resources,
        executor=spec.executor,
        uris=spec.uris,
        port=port,
        kill_grace=job.kill_grace,
        payload=payload.encode(),
        image=job.image,
        volumes=job.volumes,
        network=spec.network,
        max_completion_time=None if record.idle else job.max_completion_time,
        references={} if record.idle else handover.references(spec, job),
    )
