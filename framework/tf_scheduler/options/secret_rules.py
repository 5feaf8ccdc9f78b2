"""Rules over secrets and over how the scheduler gets at them. Each is named as the sentence that it enforces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from tf_scheduler.errors import Problem
from tf_scheduler.model.secrets import FORMS, Source, parse_source

from .fields import shown
from .sections.jobs import JOBS
from .words import words

Document = Mapping[str, Any]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What the scheduler itself needs to get at others cannot lie with those.
_OWN = ("env", "file")
#: What agent and executor keep in the working directory; its first part. A log that is full is copied to a disk.
_TAKEN = re.compile(r"(stdout|stderr|executor\.log)(\..*)?|\.tf_executor|\.python|.*\.pyz", re.DOTALL)
#: Where programs write that have no other place: a folder.
_LOGS = "logs"


def each_secret_has_a_destination(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        if not record["env"] and not record["file"]:
            yield Problem(f"secrets.{place}", "must have env, file or both")


def secrets_are_for_jobs_that_there_are(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        wrong = [name for name in words(record["jobs"]) if name not in JOBS]
        if wrong:
            yield Problem(f"secrets.{place}.jobs", f"must be some of {', '.join(JOBS)}, not {', '.join(wrong)}")


def secrets_do_not_overwrite_each_other(options: Document) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], int] = {}
    for place, record in enumerate(options["secrets"]):
        for job, kind in ((job, kind) for job in words(record["jobs"]) or JOBS for kind in ("env", "file")):
            first = seen.setdefault((job, kind, record[kind]), place) if record[kind] else place
            if first != place:
                yield Problem(f"secrets.{place}", f"gives {job} {record[kind]} again, as secrets.{first} does")
                break


def secrets_have_sources_that_can_be_read(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        try:
            parse_source(record["source"])
        except ValueError as error:
            yield Problem(f"secrets.{place}.source", f"{error}, not {shown(record['source'])}")


def secrets_get_variables_with_names(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        if record["env"] and not _VARIABLE.fullmatch(record["env"]):
            yield Problem(f"secrets.{place}.env", f"must be letters, digits and '_', not {shown(record['env'])}")


def secrets_get_files_in_the_working_directory(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        parts = record["file"].split("/")
        if record["file"] and {"", ".", ".."} & set(parts):
            wanted = "a name, or a path below the working directory"
            yield Problem(f"secrets.{place}.file", f"must be {wanted}, not {shown(record['file'])}")


def secrets_get_files_that_are_nothing_else(options: Document) -> Iterator[Problem]:
    """Nor what the job brings along: it would be lost, or written over."""
    service = options["service"]
    addresses = (service["job_url"], *words(service["data"]))
    brought = {urlsplit(address).path.rstrip("/").rpartition("/")[2] for address in addresses} - {""}
    for place, record in enumerate(options["secrets"]):
        file, first = record["file"], record["file"].partition("/")[0]
        if _TAKEN.fullmatch(first) or file == _LOGS:
            why = "the sandbox has it for itself, and what is in it can be read in Mesos and over the API"
            yield Problem(f"secrets.{place}.file", f"must be another name than {shown(file)}: {why}")
        elif file and (first in brought or file == service["job_path"]):
            yield Problem(f"secrets.{place}.file", f"must be another name than {shown(file)}: the job brings that file")


def references_are_for_variables(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        source = _source(record["source"])
        if source is not None and source.scheme == "reference" and (record["file"] or not record["env"]):
            yield Problem(f"secrets.{place}", "a reference is resolved by Mesos into a variable: use env, without file")


def secrets_that_reload_are_files_that_change(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["secrets"]):
        source = _source(record["source"])
        if record["reload"] and not record["file"]:
            yield Problem(f"secrets.{place}.reload", "needs file: the variables of a program that runs do not change")
        elif record["reload"] and source is not None and source.scheme == "env":
            yield Problem(f"secrets.{place}.reload", "needs another source: variables of the scheduler do not change")


def vault_sources_need_a_vault(options: Document) -> Iterator[Problem]:
    sources = [_source(record["source"]) for record in options["secrets"]]
    if not options["vault"]["address"] and any(source is not None and source.scheme == "vault" for source in sources):
        yield Problem("vault.address", "is needed: there are secrets with vault: sources")


def addresses_of_secrets_are_web_addresses(options: Document) -> Iterator[Problem]:
    for section, name in (("vault", "address"), ("dcos", "url"), ("secret_delivery", "url")):
        text = options[section][name]
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
            yield Problem(f"{section}.{name}", f"must be http://host:port or https://host:port, not {shown(text)}")


def the_schedulers_own_secrets_are_near(options: Document) -> Iterator[Problem]:
    """Each is where it can be read without another one."""
    for section, name in (("vault", "token"), ("vault", "secret_id"), ("mesos", "secret")):
        text = options[section][name]
        source = _source(text)
        if text and (source is None or source.scheme not in _OWN):
            forms = " or ".join(FORMS[scheme] for scheme in _OWN)
            # A user may have written the secret itself.
            yield Problem(f"{section}.{name}", f"must say where it is, as {forms}")


def a_principals_secret_needs_the_principal(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if not options["mesos"]["secret"]:
        return
    if service["service_account_secret"]:
        yield Problem("mesos.secret", "cannot be used with service.service_account_secret: one login is enough")
    elif not service["principal"]:
        yield Problem("service.principal", "is needed with mesos.secret")
    elif ":" in service["principal"]:
        yield Problem("service.principal", "cannot have a colon with mesos.secret: HTTP Basic allows none")


def _source(text: str) -> Source | None:
    try:
        return parse_source(text)
    except ValueError:
        return None
