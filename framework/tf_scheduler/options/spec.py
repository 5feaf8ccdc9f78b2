"""Convert resolved options to a ServiceSpec, plans, volumes and secret settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from tf_executor.contract.settings import Liveness, RunSettings
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model import secrets
from tf_scheduler.model import spec as model
from tf_scheduler.model.digests import split_data
from tf_scheduler.model.placement import GpuScheduling, PlacementSpec, PlacementStrategy
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy
from tf_scheduler.model.resources import UNIT, Needs, VirtualNetwork, Volume, thousandths

from .schema.fields import parse_ulimits
from .schema.jobs import JOBS, READ_ONLY
from .schema.scheduler_options import LINK
from .schema.service import ORIGINAL_IMAGES
from .schema.values import Document, parse_constraints, parse_storage_options, split_names

#: Plans of every service.
_BUILT_IN = ("deploy", "update")


def to_plans(options: Document) -> Mapping[str, PlanSpec]:
    """Return all plans, deploy and update first."""
    phases: dict[str, list[Mapping[str, str]]] = {name: [] for name in _BUILT_IN}
    for phase in options["phases"]:
        phases.setdefault(phase["plan"], []).append(phase)
    if not phases["update"]:
        phases["update"] = phases["deploy"]
    return {name: _plan(name, options, own) for name, own in phases.items()}


def _plan(name: str, options: Document, phases: Sequence[Mapping[str, str]]) -> PlanSpec:
    after = {phase["phase"]: split_names(phase["after"]) for phase in phases}
    chosen = PlanStrategy(options[name]) if name in _BUILT_IN else PlanStrategy.SERIAL
    strategy = PlanStrategy.DEPENDENCY if any(after.values()) else chosen
    return PlanSpec(name, strategy, tuple(map(_phase, phases)), after, options["gang"])


def _phase(phase: Mapping[str, str]) -> PhaseSpec:
    indexes = tuple(int(index) for index in split_names(phase["tasks"]))
    strategy = PlanStrategy(phase["strategy"] or PlanStrategy.PARALLEL)
    return PhaseSpec(phase["phase"], phase["job"], strategy, indexes)


def volumes_of(options: Document, section: str) -> tuple[Volume, ...]:
    """Return the volumes of a section's tasks, in the order of the options."""
    return tuple(
        Volume(record["host_path"], record["container_path"], record["mode"] == READ_ONLY)
        for record in options["volumes"]
        if not record["jobs"].strip() or section in split_names(record["jobs"])
    )


#: TensorBoard has no access control, as in the original package: any host that reaches the agent can use it.
TENSORBOARD = 'exec python -m tensorboard.main --logdir "$LOG_DIR" --host 0.0.0.0 --port "$TASK_PORT"'
DATA_SERVICE = "exec python -m tf_executor.data_service"


def upstream_side_jobs(options: Document) -> Iterator[model.JobSpec]:
    """Yield the job whose address other jobs need: the tf.data dispatcher."""
    section = options["data_service"]
    if section["workers"]:
        needs = Needs(thousandths(section["dispatcher_cpus"]), section["dispatcher_mem"] * UNIT)
        yield _side_job(options, model.JobKind.DISPATCHER, "data_dispatcher", DATA_SERVICE, needs)


def downstream_side_jobs(options: Document) -> Iterator[model.JobSpec]:
    """Yield the tf.data workers, which need the dispatcher's address, and TensorBoard."""
    section = options["data_service"]
    if section["workers"]:
        yield _side_job(
            options, model.JobKind.DATA_WORKER, "data_service", DATA_SERVICE, _needs(section), section["workers"]
        )
    if options["service"]["use_tensorboard"]:
        section = options["tensorboard"]
        yield _side_job(
            options, model.JobKind.TENSORBOARD, "tensorboard", TENSORBOARD, _needs(section), port=section["port"]
        )


def ports_of(service: Document) -> int:
    """Return the number of agent ports per task: 0 on a virtual network."""
    return 0 if service["virtual_network_enabled"] else 1


def image_of(service: Document, own: str, has_gpus: bool) -> str:
    """Return a job's Docker image; empty if none is set or it cannot run the executor."""
    image: str = own or (service["gpu_tf_image"] if has_gpus else service["tf_image"])
    return "" if image in ORIGINAL_IMAGES else image


def jobs_with_image(document: Document) -> list[str]:
    """Return the sections whose tasks run in an image; the options may be invalid."""
    sections = {name: part if isinstance(part := document.get(name), Mapping) else {} for name in ("service", *JOBS)}
    default = sections["service"].get("tf_image") or sections["service"].get("gpu_tf_image")
    return [name for name in JOBS if (sections[name].get("image") or default or "") not in ("", *ORIGINAL_IMAGES)]


def _needs(section: Document, ports: int = 0) -> Needs:
    disk, gpus = section.get("disk", 0) * UNIT, section.get("gpus", 0) * UNIT
    return Needs(thousandths(section["cpus"]), section["mem"] * UNIT, disk, gpus, ports)


def _environment(service: Document, own: Mapping[str, str]) -> Mapping[str, str]:
    """Return a job's environment; Hadoop's fetched configuration is in the sandbox."""
    hadoop = {"HADOOP_CONF_DIR": "."} if service["hdfs"]["config_uri"] else {}
    return {**hadoop, **service["environment"], **own}


def _side_job(
    options: Document, kind: model.JobKind, section: str, command: str, needs: Needs, count: int = 1, port: int = 0
) -> model.JobSpec:
    service = options["service"]
    return model.JobSpec(
        kind=kind,
        count=count,
        needs=replace(needs, ports=ports_of(service)),
        command=command,
        environment=_environment(service, {}),
        settings=_settings(options, section),
        section=section,
        image=image_of(service, "", has_gpus=False),
        # The dispatcher shares the section data_service.
        volumes=volumes_of(options, "data_service" if section == "data_dispatcher" else section),
        port=port,
    )


#: Environment variables of the Google Cloud client and of MIT Kerberos.
_GCS, _KEYTAB, _KERBEROS = "GOOGLE_APPLICATION_CREDENTIALS", "KRB5_CLIENT_KTNAME", "KRB5_CONFIG"
#: Name of the original package's secret with the key.
_GCS_SECRET = "gcs_key"  # noqa: S105 - a name
_GCS_OPTION, _KRB5 = "service.gcs_key", "krb5.conf"
#: Principal for commands such as kinit, and log file of MIT Kerberos.
_PRINCIPAL, _TRACE = "KERBEROS_PRINCIPAL", "KRB5_TRACE"


def secrets_of(options: Document) -> tuple[secrets.SecretSpec, ...]:
    """Return the secrets of `secrets` and of the original package's options."""
    own = (
        secrets.SecretSpec(
            record["source"],
            record["env"],
            record["file"],
            frozenset(split_names(record["jobs"])),
            reloads=bool(record["reload"]),
        )
        for record in options["secrets"]
    )
    return (*own, *_gcs(options["service"]), *_kerberos(options["service"]["security"]["kerberos"]))


def delivery_of(options: Document) -> secrets.SecretDelivery:
    """Return the settings for the delivery of secrets to executors."""
    delivery = options["secret_delivery"]
    return secrets.SecretDelivery(
        url=delivery["url"].rstrip("/"),
        expires=delivery["expires_seconds"],
        from_agent_only=delivery["from_agent_only"],
        requires_executor_login=delivery["executor_authentication"] == "required",
        reload_every=delivery["reload_seconds"],
        ca_file=delivery["ca_file"],
    )


def access_of(options: Document) -> secrets.SecretAccess:
    """Return the settings for the scheduler's access to sources of secrets."""
    vault, dcos = options["vault"], options["dcos"]
    return secrets.SecretAccess(
        directory=options["secret_delivery"]["directory"],
        vault=secrets.VaultAccess(**vault),
        dcos_url=dcos["url"].rstrip("/"),
        dcos_ca_file=dcos["ca_file"] or options["tls"]["ca_file"],
        mesos_secret=options["mesos"]["secret"],
        agent_credentials_over_http=options["mesos"]["agent_credentials_over_http"],
        inline={_GCS_OPTION: secrets.HiddenText(options["service"]["gcs_key"]), **_kerberos_values(options)},
    )


def _gcs(service: Document) -> Iterator[secrets.SecretSpec]:
    if service["gcs_key"]:
        yield secrets.SecretSpec(f"{secrets.INLINE_SCHEME}:{_GCS_OPTION}", _GCS, f"{_GCS_SECRET}.json")
    elif service["use_gcs_key_secret"]:
        yield secrets.SecretSpec(f"{secrets.DEFAULT_SCHEME}:{_GCS_SECRET}", _GCS, f"{_GCS_SECRET}.json")


def _kerberos(kerberos: Document) -> Iterator[secrets.SecretSpec]:
    if kerberos["enabled"]:
        yield secrets.SecretSpec(kerberos["keytab_secret"], _KEYTAB, "client.keytab")
        # Not confidential; delivered as secrets, so that a change restarts no task.
        yield secrets.SecretSpec(f"{secrets.INLINE_SCHEME}:{_KRB5}", _KERBEROS, _KRB5)
        yield secrets.SecretSpec(f"{secrets.INLINE_SCHEME}:{_PRINCIPAL}", _PRINCIPAL)
        if kerberos["debug"]:
            yield secrets.SecretSpec(f"{secrets.INLINE_SCHEME}:{_TRACE}", _TRACE)


def _kerberos_values(options: Document) -> Mapping[str, secrets.HiddenText]:
    kerberos = options["service"]["security"]["kerberos"]
    if not kerberos["enabled"]:
        return {}
    principal = f"{kerberos['primary']}@{kerberos['realm']}"
    values = {_KRB5: _krb5_conf(kerberos), _PRINCIPAL: principal, _TRACE: "/dev/stderr"}
    return {name: secrets.HiddenText(value) for name, value in values.items()}


def _krb5_conf(kerberos: Document) -> str:
    realm, kdc = kerberos["realm"], kerberos["kdc"]
    where = f"{realm} = {{\n    kdc = {kdc['hostname']}:{kdc['port']}\n  }}"
    return f"[libdefaults]\n  default_realm = {realm}\n[realms]\n  {where}\n"


#: URL schemes of the Mesos fetcher that need no Hadoop client (Mesos documentation, fetcher).
_FETCHER = ("http", "https", "ftp", "ftps", "file")


def to_spec(options: Document) -> model.ServiceSpec:
    """Return the spec of the service."""
    service, recovery, gang = (options[name] for name in ("service", "recovery", "gang"))
    return model.ServiceSpec(
        name=service["name"].strip("/"),
        user=service["user"],
        role=service["role"] or f"{service['name'].strip('/').replace('/', '__')}-role",
        strategy=Strategy(service["strategy"]),
        jobs=(
            *upstream_side_jobs(options),
            *(_job(options, name) for name in JOBS if options[name]["count"]),
            *downstream_side_jobs(options),
        ),
        executor=_executor(options["executor"]),
        uris=tuple(_uris(service)),
        fetch=() if _agents_fetch(service["job_url"]) else (service["job_url"],),
        digests=dict(_digests(service)),
        program=_program(service),
        principal=service["principal"] or service["service_account"],
        checkpoint_dir=service["checkpoint_dir"] or service["shared_filesystem"],
        keep_files=service["keep_files"] << 20,
        storage=_storage(options["storage"]),
        failover_timeout=service["failover_timeout"],
        hold_seconds=gang["hold_seconds"],
        placement=_placement(options["placement"], service["region"]),
        restart=_restart(options["restart"]),
        recovery=model.RecoveryPolicy(**{**recovery, "start_timeout": recovery["start_timeout"] or None}),
        finish=_finish(options["finish"]),
        secrets=secrets_of(options),
        secret_delivery=delivery_of(options),
        secret_access=access_of(options),
        network=_network(service),
        live=options["worker"]["elastic"]["mode"] == "live",
        max_workers=options["worker"]["elastic"]["max"],
        min_workers=options["worker"]["elastic"]["min"],
        grows=options["worker"]["elastic"]["grow"] == "when_idle",
        resize_wait=options["worker"]["elastic"]["checkpoint_wait"],
        plans=to_plans(options["plans"]),
    )


def _storage(storage: Document) -> model.StoragePolicy:
    mode, file_system = model.StorageMode(storage["mode"]), parse_storage_options(storage["options"])
    return model.StoragePolicy(mode, storage["every"], storage["keep"], file_system)


def _executor(executor: Document) -> model.ExecutorSpec:
    return model.ExecutorSpec(
        executor["url"],
        executor["python"],
        _needs(executor),
        allows_exec=executor["exec"],
        sha256=executor["sha256"].lower(),
        agents_extract=executor["extract"] == "mesos",
        links_volumes=executor["volumes"] == LINK,
        enforces_memory=executor["enforce_memory"],
    )


def _job(options: Document, section: str) -> model.JobSpec:
    service, job, elastic = options["service"], options[section], options[section].get("elastic", {})
    return model.JobSpec(
        kind=JOBS[section],
        count=job["count"],
        needs=_needs(job, job["ports"] * ports_of(service)),
        command=job["command"] or service["command"],
        environment=_environment(service, job["environment"]),
        settings=_settings(options, section),
        min_count=job.get("min_count", 0) or (max(1, elastic["min"]) if elastic.get("max") else 0),
        section=section,
        first_index=options["worker"]["count"] if section == "gpu_worker" else 0,
        constraints=parse_constraints(job["placement_constraint"]),
        image=image_of(service, job["image"], job["gpus"] > 0),
        volumes=volumes_of(options, section),
        max_completion_time=job["max_completion_time"] or None,
        restart=_own_restart(options["restart"], job),
        unreachable_timeout=None if job["unreachable_timeout"] < 0 else job["unreachable_timeout"],
    )


def _network(service: Document) -> VirtualNetwork | None:
    if not service["virtual_network_enabled"]:
        return None
    pairs = (pair.split(":", 1) for pair in split_names(service["virtual_network_plugin_labels"]))
    return VirtualNetwork(service["virtual_network_name"], {name.strip(): value.strip() for name, value in pairs})


def _program(service: Document) -> model.Program | None:
    name = service["job_name"]
    return model.Program(name, service["job_path"], service["job_context"] or "{}") if name else None


#: Fields of RunSettings, and the sections with options of their names: the job's own, then those of all jobs.
_SETTINGS, _SHARED_SECTIONS = frozenset(item.name for item in fields(RunSettings)), ("executor", "health")


def _settings(options: Document, section: str) -> RunSettings:
    """Return a job's settings for the executor; side jobs have the default settings."""
    own = options[section] if section in JOBS else {"python": ""}
    values = {key: value for name in _SHARED_SECTIONS for key, value in options[name].items()} | own
    is_trained = JOBS.get(section) in (model.JobKind.CHIEF, model.JobKind.WORKER)
    values |= {
        "python": own["python"] or options["service"]["python"],
        "ulimits": parse_ulimits(own.get("ulimits", "")),
        "liveness": _liveness(options["health"], section),
        "stalled_after": _stalled_after(options, section),
        "stall_grace": options["health"]["grace"],
        "progress_from_output": options["progress"]["from_output"] and is_trained,
        "progress_pattern": options["progress"]["pattern"],
    }
    return RunSettings(**{name: value for name, value in values.items() if name in _SETTINGS})


def _liveness(health: Document, section: str) -> Liveness | None:
    jobs = split_names(health["jobs"])
    if health["liveness"] == "none" or section not in JOBS or (jobs and section not in jobs):
        return None
    names = ("target", "interval", "timeout", "grace", "failures")
    return Liveness(health["liveness"], **{name: health[name] for name in names})


def _stalled_after(options: Document, section: str) -> float:
    """Return the stall timeout in seconds; 0: none, or the job reports no progress."""
    health, job = options["health"], JOBS.get(section)
    is_led = Strategy(options["service"]["strategy"]).traits.chief_coordinates
    silent = job in (None, model.JobKind.PS) or (is_led and job is model.JobKind.WORKER)
    watched = split_names(health["jobs"]) or tuple(JOBS)
    return health["stalled_after"] if section in watched and not silent else 0.0


def _agents_fetch(url: str) -> bool:
    """Whether all agents can fetch the URL without a Hadoop client."""
    scheme, mark, _ = url.partition("://")
    return not mark or scheme in _FETCHER


def _uris(service: Document) -> Iterator[model.Uri]:
    if service["job_url"] and _agents_fetch(service["job_url"]):
        yield model.Uri(service["job_url"])
    for file in split_data(service["data"]):
        yield model.Uri(file.url, file.extract, cache=service["data_cache"], output_file=file.path, link=file.link)
    if folder := service["hdfs"]["config_uri"].rstrip("/"):
        yield model.Uri(f"{folder}/core-site.xml", extract=False)
        yield model.Uri(f"{folder}/hdfs-site.xml", extract=False)


def _digests(service: Document) -> Iterator[tuple[str, str]]:
    """Yield the name of each fetched file that has a digest, with its digest."""
    if service["job_sha256"]:
        yield model.Uri(service["job_url"]).file_name, service["job_sha256"].lower()
    files = (file for file in split_data(service["data"]) if file.digest)
    yield from ((model.Uri(file.url, output_file=file.path).file_name, file.digest) for file in files)


def _placement(placement: Document, region: str) -> PlacementSpec:
    return PlacementSpec(
        strategy=PlacementStrategy(placement["strategy"]),
        gpu_scheduling_behavior=GpuScheduling(placement["gpu_scheduling_behavior"]),
        region=region,
        near=split_names(placement["near"]),
        draining_seconds=placement["draining_seconds"],
    )


def _own_restart(restart: Document, job: Document) -> model.RestartPolicy | None:
    """Return the restart policy of a job; None if it equals the service's policy."""
    service = _restart(restart)
    own = replace(
        service,
        max_failures=service.max_failures if job["max_failures"] < 0 else job["max_failures"],
        uncounted_exit_codes=frozenset(job["uncounted_exit_codes"]) or service.uncounted_exit_codes,
        when=model.RestartWhen(job["restart_policy"]),
    )
    return None if own == service else own


def _restart(restart: Document) -> model.RestartPolicy:
    return model.RestartPolicy(**{**restart, "uncounted_exit_codes": frozenset(restart["uncounted_exit_codes"])})


def _finish(finish: Document) -> model.FinishPolicy:
    return model.FinishPolicy(
        success=model.SuccessPolicy(finish["success"]),
        cleanup=model.CleanupPolicy(finish["clean_up"]),
        deadline=finish["deadline"] or None,
        after_finish=model.AfterFinish(finish["then"]),
        keep_seconds=finish["keep_seconds"] or None,
        evaluator_seconds=finish["evaluator_seconds"],
    )
