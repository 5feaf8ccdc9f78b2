"""Rules over secrets, their sources, and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from tf_scheduler.errors import Problem
from tf_scheduler.model.secrets import SOURCE_FORMATS, SecretSource, parse_source
from tf_scheduler.options.schema.fields import json_excerpt
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.schema.values import split_names

Document = Mapping[str, Any]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Sources of the scheduler's own credentials, which need no other credentials.
_LOCAL = ("env", "file")
#: Names in the working directory that agent and executor use.
_RESERVED = re.compile(r"(stdout|stderr|executor\.log)(\..*)?|\.tf_executor|\.python|.*\.pyz", re.DOTALL)
#: Sections whose tasks may have volumes.
_SECTIONS = (*JOBS, "tensorboard", "data_service")
#: Folder for the output of programs.
_LOGS = "logs"


def secret_has_destination(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        if not record["env"] and not record["file"]:
            yield Problem(f"secrets.{index}", "must have env, file or both")


def jobs_of_secrets_and_volumes_exist(options: Document) -> Iterator[Problem]:
    for option, allowed in (("secrets", tuple(JOBS)), ("volumes", _SECTIONS)):
        for index, record in enumerate(options[option]):
            wrong = [name for name in split_names(record["jobs"]) if name not in allowed]
            if wrong:
                message = f"must be some of {', '.join(allowed)}, not {', '.join(wrong)}"
                yield Problem(f"{option}.{index}.jobs", message)


def secret_destinations_are_unique(options: Document) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], int] = {}
    for index, record in enumerate(options["secrets"]):
        for job, kind in ((job, kind) for job in split_names(record["jobs"]) or JOBS for kind in ("env", "file")):
            first = seen.setdefault((job, kind, record[kind]), index) if record[kind] else index
            if first != index:
                yield Problem(f"secrets.{index}", f"duplicate {record[kind]} of {job}: already set by secrets.{first}")
                break


def secret_sources_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        try:
            parse_source(record["source"])
        except ValueError as error:
            yield Problem(f"secrets.{index}.source", f"{error}, not {json_excerpt(record['source'])}")


def secret_variables_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        if record["env"] and not _VARIABLE.fullmatch(record["env"]):
            yield Problem(f"secrets.{index}.env", f"use letters, digits and '_', not {json_excerpt(record['env'])}")


def secret_files_are_relative(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        parts = record["file"].split("/")
        if record["file"] and {"", ".", ".."} & set(parts):
            expected = "a name, or a path below the working directory"
            yield Problem(f"secrets.{index}.file", f"must be {expected}, not {json_excerpt(record['file'])}")


def secret_files_are_unused(options: Document) -> Iterator[Problem]:
    """Reject names of the sandbox and of the job's files, which would be overwritten."""
    service = options["service"]
    addresses = (service["job_url"], *split_names(service["data"]))
    job_files = {urlsplit(address).path.rstrip("/").rpartition("/")[2] for address in addresses} - {""}
    for index, record in enumerate(options["secrets"]):
        file, first = record["file"], record["file"].partition("/")[0]
        if _RESERVED.fullmatch(first) or file == _LOGS:
            why = "the sandbox uses this name, and its content is readable in Mesos and in the API"
            yield Problem(f"secrets.{index}.file", f"must not be {json_excerpt(file)}: {why}")
        elif file and (first in job_files or file == service["job_path"]):
            yield Problem(f"secrets.{index}.file", f"must not be {json_excerpt(file)}: the job has a file of this name")


def references_need_variables(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        source = _source(record["source"])
        if source is not None and source.scheme == "reference" and (record["file"] or not record["env"]):
            yield Problem(f"secrets.{index}", "Mesos resolves a reference into a variable; use env without file")


def reloadable_secrets_are_files(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        source = _source(record["source"])
        if record["reload"] and not record["file"]:
            yield Problem(f"secrets.{index}.reload", "requires file: variables of a running program cannot change")
        elif record["reload"] and source is not None and source.scheme == "env":
            yield Problem(f"secrets.{index}.reload", "requires another source: the scheduler's variables are fixed")


def vault_sources_need_vault(options: Document) -> Iterator[Problem]:
    sources = [_source(record["source"]) for record in options["secrets"]]
    if not options["vault"]["address"] and any(source is not None and source.scheme == "vault" for source in sources):
        yield Problem("vault.address", "required by secrets with vault: sources")


def secret_urls_are_http(options: Document) -> Iterator[Problem]:
    for section, name in (("vault", "address"), ("dcos", "url"), ("secret_delivery", "url")):
        text = options[section][name]
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
            yield Problem(
                f"{section}.{name}", f"must be http://host:port or https://host:port, not {json_excerpt(text)}"
            )


def scheduler_secrets_are_local(options: Document) -> Iterator[Problem]:
    """The scheduler must be able to read its own credentials without others."""
    for section, name in (("vault", "token"), ("vault", "secret_id"), ("mesos", "secret")):
        text = options[section][name]
        source = _source(text)
        if text and (source is None or source.scheme not in _LOCAL):
            forms = " or ".join(SOURCE_FORMATS[scheme] for scheme in _LOCAL)
            # Do not repeat the value: it may be the secret itself.
            yield Problem(f"{section}.{name}", f"must name a source, as {forms}")


def mesos_secret_needs_principal(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if not options["mesos"]["secret"]:
        return
    if service["service_account_secret"]:
        yield Problem("mesos.secret", "cannot be combined with service.service_account_secret")
    elif not service["principal"]:
        yield Problem("service.principal", "required with mesos.secret")
    elif ":" in service["principal"]:
        yield Problem("service.principal", "must not contain a colon with mesos.secret: invalid in HTTP Basic")


def _source(text: str) -> SecretSource | None:
    try:
        return parse_source(text)
    except ValueError:
        return None


def volume_host_paths_are_absolute(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["volumes"]):
        path = record["host_path"]
        if not path.startswith("/") or ".." in path.split("/"):
            yield Problem(
                f"volumes.{index}.host_path", f"must be an absolute path without '..', not {json_excerpt(path)}"
            )


def volume_container_paths_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["volumes"]):
        path = record["container_path"]
        if {".", ".."} & set(path.split("/")) or not path.strip("/"):
            expected = "an absolute path, or a path below the working directory, without '.' and '..'"
            yield Problem(f"volumes.{index}.container_path", f"must be {expected}, not {json_excerpt(path)}")


def volume_paths_are_unique(options: Document) -> Iterator[Problem]:
    seen: dict[tuple[str, str], int] = {}
    for index, record in enumerate(options["volumes"]):
        path = record["container_path"].rstrip("/")
        for job in split_names(record["jobs"]) or _SECTIONS:
            first = seen.setdefault((job, path), index)
            if first != index:
                yield Problem(f"volumes.{index}", f"duplicate {path} of {job}: already set by volumes.{first}")
                break
