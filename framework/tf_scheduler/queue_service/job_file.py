"""From a job file: the job of the queue, and the settings of its scheduler.

The options of the queue service are the defaults of its jobs. Some belong to the service alone.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tf_scheduler.core.placement.matching import first_gangs
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.logging_setup import redact_in_log
from tf_scheduler.mesos.registration import LostFrameworks
from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.resources import Needs
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.configurations import unmask
from tf_scheduler.options.job_file import SECTION, JobFields, split_job
from tf_scheduler.options.load import as_lists, load_fields, merge, resolve
from tf_scheduler.options.schema.document import OPTIONS, Option, mask_options
from tf_scheduler.options.schema.jobs import names_program
from tf_scheduler.queue.job import Job, JobId
from tf_scheduler.service.options import CLUSTER_RULES, OptionsHistory, ServiceSettings, package_defaults, spec_of
from tf_scheduler.service.secrets import CREDENTIAL, known_secrets

Document = Mapping[str, Any]

#: Sections that only the queue service has, and options of `service` that are the same for all its jobs.
SECTIONS = ("mesos", "tls", "scheduler", "executor", "api", "secret_delivery", "vault", "dcos", "metrics", "history")
SHARED = ("user", "role", "principal", "service_account", "service_account_secret", "log_level", "log_format")
#: Owner of jobs that are submitted with the token of the service itself.
OPERATOR = "operator"
#: Default job of the package, which is none of the user's.
_CHECK_JOB = "EXAMPLES_URI"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A valid job file: its section `job`, its options, and their spec."""

    fields: JobFields
    document: Document
    spec: ServiceSpec
    digest: str

    def job(self, name: JobId, owner: str, queue: str, now: UnixTime) -> Job:
        """Return the new job of the queue."""
        executor = self.spec.executor.needs
        gangs = [[task.job.needs + executor for task in gang] for gang in first_gangs(self.spec)]
        largest = max(gangs, key=lambda gang: sum(needs.cpus for needs in gang), default=[])
        return Job(
            name,
            queue,
            owner,
            now,
            sum((task.job.needs + executor for task in self.spec.tasks()), Needs()),
            tuple(sorted(largest, key=lambda needs: (needs.gpus, needs.cpus, needs.mem), reverse=True)),
            self.digest,
            _program(self.spec),
            self.fields.priority,
            tuple(map(JobId, self.fields.after)),
            self.fields.expected_seconds,
            since=now,
        )


def read_job_file(settings: ServiceSettings, file: Document, owner: str) -> CheckedFile:
    """Validate a user's job file. Raises OptionsError with all problems."""
    fields, document = split_job(file)
    name = JobId(fields.id or "job")
    options = _resolved(settings, document, _complete(settings, name, document))
    if problems := [*_secret_problems(settings, options, owner)]:
        raise OptionsError(problems)
    digest = hashlib.sha256(json.dumps(file, sort_keys=True).encode()).hexdigest()
    return CheckedFile(fields, document, _spec_of(settings, name, options), digest)


def job_settings(settings: ServiceSettings, job: Job, file: Document, folder: Path) -> ServiceSettings:
    """Return the settings of the job's scheduler, and redact its secrets in the log.

    Args:
        settings: Settings of the queue service.
        file: The job file, as stored.
        folder: Folder for the record of the run.

    Raises OptionsError if the options have become invalid, for example for a new version of the service.
    """
    own, environment = split_job(file)[1], _environment(settings)
    document = _complete(settings, job.id, own)
    options = _resolved(settings, own, document)
    redact_in_log(job.id, known_secrets(options, environment))
    own_spec = partial(_spec_of, settings, job.id)
    policy = replace(settings.access.policy, owner=job.owner)

    def completed(new: Document) -> Document:
        """Return the options of an update, which begins with the masked job file."""
        read_job_file(settings, new, job.owner)  # raises OptionsError
        return _complete(settings, job.id, split_job(unmasked(new, file))[1])

    return replace(
        settings,
        spec=own_spec(options),
        access=replace(settings.access, policy=policy),
        environment=environment,
        recording=folder / job.id / "recording.jsonl",
        lost=LostFrameworks(),
        options=OptionsHistory(options, environment, own_spec, document=document, complete=completed),
    )


def _complete(settings: ServiceSettings, name: JobId, document: Document) -> dict[str, Any]:
    """Return the job's options over those of the service."""
    assert settings.options is not None
    base = {section: value for section, value in (settings.options.document or {}).items() if section != "queue"}
    whole, service = merge(base, document), settings.options.options["service"]
    own = {"name": f"{settings.spec.name}/{name}", "kind": "job", "role": settings.spec.role}
    if service["checkpoint_dir"] and "checkpoint_dir" not in document.get("service", {}):
        own["checkpoint_dir"] = f"{service['checkpoint_dir'].rstrip('/')}/{name}"
    return {**whole, "service": {**whole.get("service", {}), **own}}


def _resolved(settings: ServiceSettings, document: Document, whole: Document) -> Document:
    """Resolve a job's options `document`, completed to `whole`. Raises OptionsError."""
    assert settings.options is not None
    problems = [*_foreign(settings.options.options, document)]
    if not names_program(document):
        problems.append(Problem("service.command", "required, because no option names a program"))
    try:
        options = resolve(whole, package_defaults(whole, _environment(settings)), CLUSTER_RULES)
    except OptionsError as error:
        raise OptionsError([*dict.fromkeys((*problems, *error.problems))]) from error
    if problems:
        raise OptionsError(problems)
    return options


def _foreign(service: Document, document: Document) -> Iterator[Problem]:
    """Yield options of a job file that belong to the service and differ from its own."""
    why = "belongs to the queue service, which has another value; remove it from the job file"
    given = {f"{part}.{name}": (part, name) for part in SECTIONS for name in _section(document, part)}
    given |= {f"service.{name}": ("service", name) for name in SHARED if name in _section(document, "service")}
    for path, (part, name) in given.items():
        if name in service[part] and document[part][name] != service[part][name]:
            yield Problem(path, why)
    yield from (Problem("queue", why) for _ in ("queue",) if "queue" in document)


def _section(document: Document, name: str) -> Document:
    content = document.get(name, {})
    return content if isinstance(content, Mapping) else {}


def _environment(settings: ServiceSettings) -> dict[str, str]:
    return {name: value for name, value in settings.environment.items() if name != _CHECK_JOB}


def _spec_of(settings: ServiceSettings, name: JobId, options: Document) -> ServiceSpec:
    """Return the spec; its address is that of the job below the API of the service."""
    scheme = "http" if settings.access.tls is None else "https"
    spec = spec_of(settings.environment, settings.port, scheme, settings.uninstalling, options)
    url = f"{spec.secret_delivery.url}{job_path(name)}"
    return replace(spec, secret_delivery=replace(spec.secret_delivery, url=url))


def job_path(name: str) -> str:
    """Return the path of a job's API and page."""
    return f"/v1/jobs/{name}"


def _program(spec: ServiceSpec) -> str:
    commands = [job.command for job in spec.jobs if job.command]
    parts = [*commands[:1], *(str(spec.program) for _ in ("program",) if spec.program is not None)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def _secret_problems(settings: ServiceSettings, options: Document, owner: str) -> Iterator[Problem]:
    """Yield secrets that are the service's own or, with users, not the owner's."""
    assert settings.options is not None
    service, policy = settings.options.options, settings.access.policy
    named = (service["mesos"]["secret"], service["vault"]["token"], service["vault"]["secret_id"])
    tokens = (service["api"]["read_token"], service["api"]["write_token"])
    own = {_normal(source) for source in (*named, *tokens, *(each["token"] for each in service["api"]["users"]))}
    for index, record in enumerate(options["secrets"]):
        source = _normal(record["source"])
        path = source.rpartition(":")[2]
        if source in own or source == f"env:{CREDENTIAL}":
            yield Problem(f"secrets.{index}.source", "is a secret of the queue service itself")
        elif policy.users and owner != OPERATOR and owner not in path.split("/")[:-1]:
            yield Problem(f"secrets.{index}.source", f"is not permitted to {owner}: the path must have a part {owner}/")


def _normal(source: str) -> str:
    kind, separator, path = source.partition(":")
    return f"{kind}{separator}{posixpath.normpath(path)}" if path else source


def masked(file: Document) -> dict[str, Any]:
    """Return a valid job file without secrets."""
    return _with_job(file, mask_options(load_fields(split_job(file)[1])[0]))


def unmasked(file: Document, stored: Document) -> dict[str, Any]:
    """Return a valid job file whose masked secrets are those of the stored one.

    A missing section `job` is also that of the stored one.
    """
    options, present = (load_fields(split_job(each)[1])[0] for each in (file, stored))
    unmask(options, present)
    return _with_job({**{name: part for name, part in stored.items() if name == SECTION}, **file}, options)


def _with_job(file: Document, options: Document) -> dict[str, Any]:
    job = {SECTION: file[SECTION]} if SECTION in file else {}
    named: dict[str, Any] = {}  # also defaults of the package: the service may have others
    for option in OPTIONS:
        if _has_option(file, option):
            option.put(named, option.value(options))
    return {**as_lists(json.loads(json.dumps(named))), **job}


def _has_option(file: Document, option: Option) -> bool:
    level: Any = file
    for part in option.path:
        if not isinstance(level, Mapping) or part not in level:
            return False
        level = level[part]
    return True
