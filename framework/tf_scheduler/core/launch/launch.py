"""Make the launch records, payloads and ACCEPT calls for placed tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any
from urllib.parse import unquote

from tf_executor.contract import payload
from tf_scheduler.core.placement.matching import Placement
from tf_scheduler.core.plans.rollout import latest_launch_number
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.spec_index import config_digest, trains_together
from tf_scheduler.model import plan
from tf_scheduler.model.effects import Accept, Launch
from tf_scheduler.model.ids import NewId, TaskName, task_id
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind, JobSpec, Program, ServiceSpec, StorageMode
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import EarlierLaunch, TaskRecord, is_own_cause

from . import cluster_spec, secret_tokens

# --- Payload


#: Jobs of the tf.data service, which also run gRPC servers.
_DATA_SERVICE = (JobKind.DISPATCHER, JobKind.DATA_WORKER)
#: Jobs that read carried checkpoints or event files.
_STORAGE_ROLES = {JobKind.EVALUATOR: "evaluator", JobKind.TENSORBOARD: "tensorboard"}


def payload_of(
    spec: ServiceSpec, job: JobSpec, record: TaskRecord, cluster: cluster_spec.Cluster, writer: str = ""
) -> payload.Payload:
    """Return the executor's payload for a task, without secrets and plan parameters.

    `writer`: launch of the task that stores checkpoints.
    """
    config = cluster_spec.tf_config(cluster if spec.strategy.traits.has_servers else {}, record.job, record.index)
    storage = _storage(spec, record, writer)
    folder = {payload.CHECKPOINT_DIR: spec.checkpoint_dir} if spec.checkpoint_dir else {}
    folder |= {payload.JOURNAL: record.journal} if record.journal else {}
    return payload.Payload(
        task=record.name,
        job=record.job.value,
        index=record.index,
        command=job.command,
        tf_config=config,
        generation=record.generation,
        service=spec.name,
        serial=record.serial,
        launched_at=record.launched_at,
        environment={**cluster_spec.rank_environment(spec, cluster, record), **folder, **job.environment},
        settings=job.settings,
        port=int(record.address.rpartition(":")[2]),
        more_ports=record.more_ports,
        **_program(spec.program),
        log_dir=spec.checkpoint_dir,
        storage=storage,
        keep_files=_keep_files(spec, record, storage),
        is_leader=spec.is_leader(record.job, record.index),
        strategy=spec.strategy.value,
        members_key=record.exec_key if spec.live and record.job is JobKind.CHIEF else "",
        **_files(spec, job),
        user=spec.user,
        memory_limit=job.needs.mem // UNIT if spec.executor.enforces_memory else 0,
        gpus=job.needs.gpus // UNIT,
        exec_key=record.exec_key if spec.executor.allows_exec else "",
        **_servers(spec, record, config, cluster),
        message_interval=_message_interval(spec, record),
        event_folders=_event_folders(spec, job),
    )


#: Jobs whose programs end by themselves with results.
_WITH_FILES = (JobKind.CHIEF, JobKind.WORKER, JobKind.EVALUATOR)


def _keep_files(spec: ServiceSpec, record: TaskRecord, stored: Mapping[str, Any]) -> int:
    """Return how many bytes the task may keep: only where its CHECKPOINT_DIR stays."""
    stays = stored["role"] == "writer" if stored else spec.checkpoint_dir.startswith("/")
    return spec.keep_files if stays and record.job in _WITH_FILES else 0


#: Maximum of messages per second from all tasks but the leader.
MAX_MESSAGES = 150


def _message_interval(spec: ServiceSpec, record: TaskRecord) -> float:
    """Return the seconds between two progress messages; more in a large service."""
    if spec.is_leader(record.job, record.index):
        return payload.MESSAGE_INTERVAL
    return max(payload.MESSAGE_INTERVAL, (1 + 1 / payload.USAGE_EVERY) * spec.task_count / MAX_MESSAGES)


def placeholder_payload(original: payload.Payload, command: str) -> payload.Payload:
    """Return a placeholder's payload: it runs only `command`, without hooks or checks.

    Resources, limits and environment stay, so that an operator can inspect them.
    """
    quiet = replace(
        original.settings,
        python="",
        cluster_flags=False,
        pre_command="",
        post_command="",
        liveness=None,
        stalled_after=0.0,
        progress_from_output=False,
    )
    return replace(
        original,
        command=command,
        settings=quiet,
        storage={},
        keep_files=0,
        members_key="",
        fetch=(),
        links={},
        unpack=(),
        digests={},
        gpus=0,
        readiness="",
        rendezvous=False,
        event_folders=(),
    )


def _servers(
    spec: ServiceSpec, record: TaskRecord, config: Mapping[str, Any], cluster: cluster_spec.Cluster
) -> dict[str, Any]:
    """Return the payload's fields about the task's servers, and hosts that use them."""
    answers = record.job.value in config["cluster"] or record.job in _DATA_SERVICE
    meets = cluster_spec.hosts_rendezvous(spec, record.job, record.index)
    hosts = cluster_spec.training_hosts(spec, cluster) if meets else ()
    return {"readiness": record.address if answers else "", "rendezvous": meets, "rendezvous_hosts": hosts}


def _files(spec: ServiceSpec, job: JobSpec) -> dict[str, Any]:
    """Return the files to fetch, to link, to check and to extract."""
    own = (uri for uri in spec.uris if uri.extract and (uri.link or not spec.executor.agents_extract))
    files = {uri.file_name: unquote(uri.value.removeprefix("file://")) for uri in spec.uris if uri.link}
    # A volume at an absolute path needs no link.
    linked = job.volumes if spec.executor.links_volumes else ()
    links = {item.container_path: item.host_path for item in linked if not item.container_path.startswith("/")}
    links = {**files, **links}
    names = tuple(uri.file_name for uri in own)
    return {"fetch": spec.fetch, "links": links, "unpack": names, "digests": spec.digests}


def _storage(spec: ServiceSpec, record: TaskRecord, writer: str) -> dict[str, Any]:
    """Return how the task carries checkpoints; empty if it does not."""
    url, policy = spec.checkpoint_dir, spec.storage
    if "://" not in url or policy.mode is StorageMode.DIRECT:
        return {}
    role = _STORAGE_ROLES.get(record.job, "scratch")
    if not spec.strategy.traits.has_peers and record.job in (JobKind.CHIEF, JobKind.WORKER):
        role, url = "writer", f"{url.rstrip('/')}/{record.name}"
    elif spec.is_leader(record.job, record.index):
        role = "writer"
    elif trains_together(spec.strategy, record.job):
        role = "peer"
    # PyTorch does not use the file systems of TensorFlow.
    is_carried = policy.mode is StorageMode.CARRIED or spec.strategy.traits.library == "torch"
    mode = StorageMode.CARRIED if is_carried else StorageMode.AUTO
    return {
        "url": url,
        "mode": mode.value,
        "role": role,
        "every": policy.every,
        "keep": policy.keep,
        "options": dict(policy.options),
        **({"writer": writer} if role == "peer" else {}),
    }


def _program(program: Program | None) -> dict[str, Any]:
    if program is None:
        return {}
    return {"job_name": program.name, "job_path": program.path, "job_context": program.context}


def _event_folders(spec: ServiceSpec, job: JobSpec) -> tuple[str, ...]:
    """Return the directories with TensorBoard files of a training task."""
    if job.kind not in (JobKind.CHIEF, JobKind.WORKER, JobKind.EVALUATOR):
        return ()
    shared = spec.checkpoint_dir
    return (".", shared) if shared and "://" not in shared else (".",)


# --- Launches

#: Maximum number of earlier launches in a record.
_MAX_EARLIER = 3


def plan_launches(
    state: SchedulerState,
    placements: Sequence[Placement],
    now: float,
    new_id: NewId,
    launching_plans: Mapping[TaskName, str] | None = None,
) -> tuple[Launch, ...]:
    """Return one launch per placement, all with the same ClusterSpec.

    The plan of a task without an entry in `launching_plans` is deploy. The generation grows unless every task keeps its
    previous address.
    """
    launching_plans = launching_plans or {}
    serial = 1 + latest_launch_number(state.stored.tasks, state.stored.controls)
    records = [
        replace(
            _record(state.spec, placement, now, new_id()),
            is_placeholder=spec_index.is_sleeping(state.spec, state.stored.paused, placement.task.name),
            serial=serial,
            config=config_digest(placement.task.options or state.spec, placement.task.name),
            exec_key=new_id() if state.spec.executor.allows_exec or state.spec.live else "",
            plan=launching_plans.get(placement.task.name, plan.DEPLOY),
            job_started_at=state.derived.first_launch_at or now,
            **_earlier(state, placement.task.name),
        )
        for placement in placements
    ]
    folders = [(placement.task.options or state.spec).journals for placement in placements]
    pairs = zip(records, folders, strict=True)
    records = [replace(record, journal=_journal(state, record, folder)) for record, folder in pairs]
    tokens = secret_tokens.issue(state.spec, (record for record in records if not record.is_placeholder), new_id)
    records = cluster_spec.with_generation(
        state.stored.tasks, [secret_tokens.with_digest(record, tokens) for record in records]
    )
    current = tuple(cluster_spec.cluster_records(state, records))
    cluster = cluster_spec.cluster_of(current)
    text = json.dumps(cluster_spec.peers(cluster), sort_keys=True)
    writer = next((record.id for record in current if record.name == state.spec.leader), "")
    return tuple(
        _launch(state, placement, record, cluster, tokens.get(record.name, ""), writer, text)
        for placement, record in zip(placements, records, strict=True)
    )


def accepts(placements: Sequence[Placement], launches: Sequence[Launch], refuse_seconds: float) -> tuple[Accept, ...]:
    """Return one ACCEPT per agent for all of its offers, merged as Mesos requires."""
    pairs = sorted(zip(placements, launches, strict=True), key=lambda pair: pair[0].agent.offer_ids)
    return tuple(
        Accept(offer_ids, tuple(launch for _, launch in group), refuse_seconds)
        for offer_ids, group in groupby(pairs, key=lambda pair: pair[0].agent.offer_ids)
    )


def _record(spec: ServiceSpec, placement: Placement, now: float, unique: str) -> TaskRecord:
    task, agent = placement.task, placement.agent
    host, port = cluster_spec.host_and_port(spec, placement)
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
        location=agent.location,
        agent_address="" if host == agent.address else agent.address,
    )


def _earlier(state: SchedulerState, name: TaskName) -> dict[str, Any]:
    """Return the fields of a new record that describe earlier launches."""
    last, recovery = state.stored.tasks.get(name), state.stored.recoveries.get(name)
    if last is None or last.is_placeholder:
        return {} if last is None else {"restarts": last.restarts, "earlier": last.earlier}
    launch = EarlierLaunch(last.id, last.agent_id, last.hostname, last.launched_at)
    is_restart = recovery is not None and recovery.launch == last.id and is_own_cause(recovery.why)
    return {"restarts": last.restarts + is_restart, "earlier": (*last.earlier, launch)[-_MAX_EARLIER:]}


def _journal(state: SchedulerState, record: TaskRecord, folder: str) -> str:
    """Return a dispatcher's journal: the last one while a task that reads continues.

    Without such a task, tf.data would count a named job of the journal as read. A dispatcher at another address gets a
    new journal, because the previous dispatcher may still write to the last one.
    """
    last = state.stored.tasks.get(record.name)
    if record.job is not JobKind.DISPATCHER or not folder:
        return ""
    is_same = last is not None and last.address == record.address and last.journal.startswith(f"{folder}/")
    goes_on = any(
        state.is_live(other) and not state.is_replaced(other) and other.id not in state.stored.retired
        for other in state.stored.tasks.values()
        if other.job in (JobKind.CHIEF, JobKind.WORKER)
    )
    return last.journal if last is not None and is_same and goes_on else f"{folder}/{record.id}"


def _launch(
    state: SchedulerState,
    placement: Placement,
    record: TaskRecord,
    cluster: cluster_spec.Cluster,
    token: str,
    writer: str,
    cluster_text: str,
) -> Launch:
    spec, job = placement.task.options or state.spec, placement.task.job
    payload = secret_tokens.with_secrets(payload_of(spec, job, record, cluster, writer), spec, job, token)
    payload = replace(payload, environment={**payload.environment, **plan_parameters(state, record.plan)})
    if record.is_placeholder:
        payload = placeholder_payload(payload, spec_index.placeholder_command(state, record))
    return Launch(
        record=record,
        task_resources=placement.task_resources,
        executor_resources=placement.executor_resources,
        executor=spec.executor,
        uris=spec.uris,
        port=payload.port,
        kill_grace=job.settings.kill_grace,
        payload=payload.encode(cluster_text if spec.strategy.traits.has_servers else ""),
        image=job.image,
        volumes=() if spec.executor.links_volumes else job.volumes,
        network=spec.network,
        max_completion_time=None if record.is_placeholder else job.max_completion_time,
        references={} if record.is_placeholder else secret_tokens.references(spec, job),
    )


def plan_parameters(state: SchedulerState, plan_name: str) -> Mapping[str, str]:
    """Return the environment variables that a plan sets in the tasks it launches."""
    control = state.stored.controls.get(plan_name)
    return {} if control is None else control.parameters
