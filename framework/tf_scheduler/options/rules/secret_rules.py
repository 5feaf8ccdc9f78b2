"""Check options of secrets, their sources, and volumes against each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import product
from urllib.parse import urlsplit

from tf_scheduler.errors import Problem
from tf_scheduler.model.digests import split_data
from tf_scheduler.model.secrets import parse_source
from tf_scheduler.options.schema.fields import json_excerpt
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.schema.scheduler_options import LINK
from tf_scheduler.options.schema.values import Document, split_names

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Sections and options with the source of a credential of the scheduler.
_CREDENTIALS = {"vault": ("token", "secret_id"), "mesos": ("secret",), "api": ("read_token", "write_token")}
#: Names in the working directory that agent and executor use; also for `service.data`.
RESERVED_NAME = re.compile(r"(stdout|stderr|executor\.log)(\..*)?|\.tf_executor|\.python|.*\.pyz", re.DOTALL)
#: Folders without which no task can start, relative to the root.
_SYSTEM_FOLDERS = frozenset({"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"})
#: Sections whose tasks may have volumes.
_SECTIONS = (*JOBS, "tensorboard", "data_service")
#: Folder for the output of programs.
_LOGS = "logs"


def secret_destinations_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        env, file = record["env"], record["file"]
        if not env and not file:
            yield Problem(f"secrets.{index}", "must have env, file or both")
        if env and not _VARIABLE.fullmatch(env):
            yield Problem(f"secrets.{index}.env", f"must match {_VARIABLE.pattern}, not {json_excerpt(env)}")
        if file and {"", ".", ".."} & set(file.split("/")):
            expected = "a file name, or a path below the working directory"
            yield Problem(f"secrets.{index}.file", f"must be {expected}, not {json_excerpt(file)}")


def jobs_of_secrets_and_volumes_exist(options: Document) -> Iterator[Problem]:
    for option, allowed in (("secrets", tuple(JOBS)), ("volumes", _SECTIONS)):
        for index, record in enumerate(options[option]):
            wrong = [name for name in split_names(record["jobs"]) if name not in allowed]
            if wrong:
                message = f"unknown section {', '.join(wrong)}; expected some of {', '.join(allowed)}"
                yield Problem(f"{option}.{index}.jobs", message)


def destinations_are_unique(options: Document) -> Iterator[Problem]:
    for option, sections in (("secrets", tuple(JOBS)), ("volumes", _SECTIONS)):
        seen: dict[tuple[str, str, str], int] = {}
        for index, record in enumerate(options[option]):
            kinds = [kind for kind in ("env", "file", "container_path") if record.get(kind)]
            for job, kind in product(split_names(record["jobs"]) or sections, kinds):
                value = record[kind].rstrip("/")
                first = seen.setdefault((job, kind, value), index)
                if first != index:
                    yield Problem(f"{option}.{index}", f"duplicate {value} of {job}: already set by {option}.{first}")
                    break


def secret_sources_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        try:
            parse_source(record["source"])
        except ValueError as error:
            yield Problem(f"secrets.{index}.source", f"{error}, not {json_excerpt(record['source'])}")


def secret_files_are_unused(options: Document) -> Iterator[Problem]:
    """Reject names of the sandbox and of the job's files, which would be overwritten."""
    service = options["service"]
    files = [(service["job_url"], ""), *((file.url, file.path) for file in split_data(service["data"]))]
    job_files = {path or urlsplit(url).path.rstrip("/").rpartition("/")[2] for url, path in files} - {""}
    for index, record in enumerate(options["secrets"]):
        file, first = record["file"], record["file"].partition("/")[0]
        if RESERVED_NAME.fullmatch(first) or file == _LOGS:
            why = "the sandbox uses this name for content that is readable in Mesos and in the API"
            yield Problem(f"secrets.{index}.file", f"must not be {json_excerpt(file)}: {why}")
        elif file and (_collides(file, job_files) or file == service["job_path"]):
            yield Problem(f"secrets.{index}.file", f"must not be {json_excerpt(file)}: the job has a file of this name")


def _collides(file: str, others: Collection[str]) -> bool:
    """Return whether a path is that, a folder of, or below the path of another file."""
    return any(f"{file}/".startswith(f"{other}/") or other.startswith(f"{file}/") for other in others)


def secret_sources_fit_destinations(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        scheme = _scheme(record["source"])
        if scheme == "reference" and (record["file"] or not record["env"]):
            yield Problem(f"secrets.{index}", "Mesos passes a reference only as a variable: set env, not file")
        if record["reload"] and not record["file"]:
            yield Problem(f"secrets.{index}.reload", "set file, because variables of a running program cannot change")
        elif record["reload"] and scheme == "env":
            yield Problem(f"secrets.{index}.reload", "must be empty, because the value of an env source never changes")


def vault_sources_need_vault(options: Document) -> Iterator[Problem]:
    schemes = {_scheme(record["source"]) for record in options["secrets"]}
    if "vault" in schemes and not options["vault"]["address"]:
        yield Problem("vault.address", "required by secrets whose source begins with `vault:`")


def secret_urls_are_http(options: Document) -> Iterator[Problem]:
    for section, name in (("vault", "address"), ("dcos", "url"), ("secret_delivery", "url")):
        text = options[section][name]
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
            yield Problem(
                f"{section}.{name}", f"must be http://host:port or https://host:port, not {json_excerpt(text)}"
            )


def scheduler_secrets_are_local(options: Document) -> Iterator[Problem]:
    """Reject credentials in the options: the scheduler reads a variable or file."""
    for section, name in ((section, name) for section, names in _CREDENTIALS.items() for name in names):
        text = options[section][name]
        if text and _scheme(text) not in ("env", "file"):
            forms = f"env:NAME (a variable) or file:NAME (a file in {options['secret_delivery']['directory']})"
            # Do not repeat the value: it may be the secret itself.
            yield Problem(f"{section}.{name}", f"must name a source: {forms}")


def mesos_secret_needs_principal(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if not options["mesos"]["secret"]:
        return
    if service["service_account_secret"]:
        yield Problem("mesos.secret", "cannot be combined with service.service_account_secret")
    elif not service["principal"]:
        yield Problem("service.principal", "required with mesos.secret")
    elif ":" in service["principal"]:
        yield Problem("service.principal", "must not contain ':' with mesos.secret, because HTTP Basic forbids it")


def _scheme(text: str) -> str:
    """Return the scheme of a source; empty if the source is invalid."""
    try:
        return parse_source(text).scheme
    except ValueError:
        return ""


def volume_paths_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["volumes"]):
        path = record["host_path"]
        if not path.startswith("/") or ".." in path.split("/"):
            message = f"must be an absolute path without '..', not {json_excerpt(path)}"
            yield Problem(f"volumes.{index}.host_path", message)
        path = record["container_path"]
        if {".", ".."} & set(path.split("/")) or not path.strip("/"):
            expected = "a path without '.' and '..', either absolute or below the working directory"
            yield Problem(f"volumes.{index}.container_path", f"must be {expected}, not {json_excerpt(path)}")
        elif path.startswith("/") and path.strip("/") in _SYSTEM_FOLDERS:
            message = f"must not be {json_excerpt(path)}: the task would lose the programs or users of its system"
            yield Problem(f"volumes.{index}.container_path", message)


def linked_volumes_are_valid(options: Document) -> Iterator[Problem]:
    """The executor, which may not be root, can link only below the working directory."""
    links = options["volumes"] if options["executor"]["volumes"] == LINK else []
    for index, record in enumerate(links):
        path, host = record["container_path"], record["host_path"]
        expected = ""
        if path.startswith("/") and path.rstrip("/") != host.rstrip("/"):
            expected = f"a path below the working directory, such as data, or the host_path {json_excerpt(host)}"
        elif any(path.startswith(f"{other['container_path'].rstrip('/')}/") for other in links if other is not record):
            expected = "a path outside of the other volumes"
        if expected:
            why = "volumes are linked, not mounted (executor.volumes)"
            yield Problem(f"volumes.{index}.container_path", f"must be {expected}, not {json_excerpt(path)}: {why}")
