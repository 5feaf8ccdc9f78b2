"""Resolved options -> the spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.model.network import VirtualNetwork
from tf_scheduler.model.placement import GangMode, GangSpec, GpuScheduling, PlacementSpec, PlacementStrategy
from tf_scheduler.model.policy import (
    CleanUp,
    FinishPolicy,
    RecoveryPolicy,
    RestartPolicy,
    RestartWhen,
    SuccessPolicy,
    Then,
)
from tf_scheduler.model.program import Hooks, Limits, Liveness, LivenessKind, Output, Program
from tf_scheduler.model.resources import UNIT, Needs, thousandths
from tf_scheduler.model.spec import ExecutorSpec, JobKind, JobSpec, ServiceSpec, Strategy, Uri

from .constraints import parse_constraints
from .plans import to_plans
from .secrets import access_of, delivery_of, secrets_of
from .sections.jobs import JOBS
from .side_jobs import after, before, image_of, ports_of
from .ulimits import parse_ulimits
from .volumes import volumes_of
from .words import words

Document = Mapping[str, Any]

#: Where Hadoop's clients look for their two files: the task's working directory.
_HADOOP = {"HADOOP_CONF_DIR": "."}
#: Mesos documentation, fetcher: the others go through Hadoop's client.
_FETCHER = ("http", "https", "ftp", "ftps", "file")


def to_spec(options: Document) -> ServiceSpec:
    """Everything that the scheduler needs to know of the service."""
    service = options["service"]
    return ServiceSpec(
        name=service["name"].strip("/"),
        user=service["user"],
        role=service["role"] or f"{service['name'].strip('/').replace('/', '__')}-role",
        strategy=Strategy(service["strategy"]),
        jobs=(*before(options), *(_job(options, name) for name in JOBS if options[name]["count"]), *after(options)),
        executor=_executor(options["executor"]),
        uris=tuple(_uris(service)),
        fetch=() if _agents_fetch(service["job_url"]) else (service["job_url"],),
        program=_program(service),
        output=Output(options["executor"]["output_bytes"], options["executor"]["output_backups"]),
        principal=service["principal"] or service["service_account"],
        checkpoint_dir=service["checkpoint_dir"] or service["shared_filesystem"],
        failover_timeout=service["failover_timeout"],
        gang=_gang(options["gang"]),
        placement=_placement(options["placement"], service["region"]),
        restart=_restart(options["restart"]),
        recovery=_recovery(options["recovery"]),
        finish=_finish(options["finish"]),
        secrets=secrets_of(options),
        delivery=delivery_of(options),
        access=access_of(options),
        network=_network(service),
        plans=to_plans(options["plans"]),
    )


def _job(options: Document, section: str) -> JobSpec:
    service, job = options["service"], options[section]
    hadoop = _HADOOP if service["hdfs"]["config_uri"] else {}
    return JobSpec(
        kind=JOBS[section],
        count=job["count"],
        needs=Needs(
            cpus=thousandths(job["cpus"]),
            mem=job["mem"] * UNIT,
            disk=job["disk"] * UNIT,
            gpus=job["gpus"] * UNIT,
            ports=ports_of(service),
        ),
        command=job["command"] or service["command"],
        environment={**hadoop, **service["environment"], **job["environment"]},
        python=job["python"] or service["python"],
        kill_grace=job["kill_grace"],
        min_count=job.get("min_count", 0),
        section=section,
        first_index=options["worker"]["count"] if section == "gpu_worker" else 0,
        constraints=parse_constraints(job["placement_constraint"]),
        image=image_of(service, job["image"], job["gpus"] > 0),
        volumes=volumes_of(options, section),
        cluster_flags=job["cluster_flags"],
        hooks=Hooks(job["pre_command"], job["post_command"], job["hook_timeout"]),
        limits=Limits(job["nice"], parse_ulimits(job["ulimits"])),
        gpu_check=job["gpu_check"],
        max_completion_time=job["max_completion_time"] or None,
        liveness=_liveness(options["health"], section),
        stalled_after=_stalled_after(options, section),
        restart=_own_restart(options["restart"], job),
        unreachable_timeout=None if job["unreachable_timeout"] < 0 else job["unreachable_timeout"],
    )


def _network(service: Document) -> VirtualNetwork | None:
    if not service["virtual_network_enabled"]:
        return None
    pairs = (pair.split(":", 1) for pair in words(service["virtual_network_plugin_labels"]))
    return VirtualNetwork(service["virtual_network_name"], {name.strip(): value.strip() for name, value in pairs})


def _program(service: Document) -> Program | None:
    name = service["job_name"]
    return Program(name, service["job_path"], service["job_context"] or "{}") if name else None


def _liveness(health: Document, section: str) -> Liveness | None:
    jobs = words(health["jobs"])
    if health["liveness"] == "none" or (jobs and section not in jobs):
        return None
    names = ("target", "interval", "timeout", "grace", "failures")
    return Liveness(LivenessKind(health["liveness"]), **{name: health[name] for name in names})


def _stalled_after(options: Document, section: str) -> float | None:
    """Parameter servers are silent, and so are workers that a chief tells what to do."""
    health, led = options["health"], options["service"]["strategy"] == Strategy.PARAMETER_SERVER.value
    silent = JOBS[section] is JobKind.PS or (led and JOBS[section] is JobKind.WORKER)
    watched = words(health["jobs"]) or tuple(JOBS)
    return health["stalled_after"] or None if section in watched and not silent else None


def _agents_fetch(url: str) -> bool:
    """Whether it is of a kind that every agent's fetcher knows; for others it needs a Hadoop client."""
    scheme, mark, _ = url.partition("://")
    return not mark or scheme in _FETCHER


def _uris(service: Document) -> Iterator[Uri]:
    if service["job_url"] and _agents_fetch(service["job_url"]):
        yield Uri(service["job_url"])
    yield from (Uri(url, cache=service["data_cache"]) for url in words(service["data"]))
    if folder := service["hdfs"]["config_uri"].rstrip("/"):
        yield Uri(f"{folder}/core-site.xml", extract=False)
        yield Uri(f"{folder}/hdfs-site.xml", extract=False)


def _executor(executor: Document) -> ExecutorSpec:
    return ExecutorSpec(
        uri=executor["url"],
        python=executor["python"],
        needs=Needs(cpus=thousandths(executor["cpus"]), mem=executor["mem"] * UNIT),
    )


def _gang(gang: Document) -> GangSpec:
    return GangSpec(gang["hold_seconds"], GangMode(gang["mode"]), gang["reserve_timeout"])


def _placement(placement: Document, region: str) -> PlacementSpec:
    return PlacementSpec(
        strategy=PlacementStrategy(placement["strategy"]),
        gpu_scheduling_behavior=GpuScheduling(placement["gpu_scheduling_behavior"]),
        region=region,
        near=words(placement["near"]),
        draining_seconds=placement["draining_seconds"],
    )


def _own_restart(restart: Document, job: Document) -> RestartPolicy | None:
    """None: it is the service's."""
    service = _restart(restart)
    own = replace(
        service,
        max_failures=service.max_failures if job["max_failures"] < 0 else job["max_failures"],
        uncounted_exit_codes=frozenset(job["uncounted_exit_codes"]) or service.uncounted_exit_codes,
        when=RestartWhen(job["restart_policy"]),
    )
    return None if own == service else own


def _restart(restart: Document) -> RestartPolicy:
    return RestartPolicy(
        max_failures=restart["max_failures"],
        window=restart["window"],
        backoff=restart["backoff"],
        max_backoff=restart["max_backoff"],
        uncounted_exit_codes=frozenset(restart["uncounted_exit_codes"]),
    )


def _recovery(recovery: Document) -> RecoveryPolicy:
    return RecoveryPolicy(
        unreachable_timeout=recovery["unreachable_timeout"],
        start_timeout=recovery["start_timeout"] or None,
        shrink_after=recovery["shrink_after"],
        avoid_after=recovery["avoid_after"],
        avoid_for=recovery["avoid_for"],
    )


def _finish(finish: Document) -> FinishPolicy:
    return FinishPolicy(
        success=SuccessPolicy(finish["success"]),
        clean_up=CleanUp(finish["clean_up"]),
        deadline=finish["deadline"] or None,
        then=Then(finish["then"]),
        keep_seconds=finish["keep_seconds"] or None,
        evaluator_seconds=finish["evaluator_seconds"],
    )
