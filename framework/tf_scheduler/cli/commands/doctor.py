"""Command `doctor`: examine a cluster, a service and this machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dcos_command.client import ServiceClient, ServiceOptions
from dcos_command.command import common_options, examples, service_options
from dcos_command.errors import CommandError, UsageError
from dcos_command.output import Table, Word
from mesos_client.masters import ZooKeeperUrl, parse_masters
from mesos_local.agents import FIRST_PORT
from mesos_local.host import MesosLocalError
from mesos_local.libmesos.download import check_platform, default_cache
from mesos_local.record import read_record
from tf_executor.process.ports import is_free, owner_of
from tf_scheduler.cli.common.folders import named_file_type, state_home
from tf_scheduler.cli.common.options_file import keras_versions, load_document
from tf_scheduler.cli.common.output import echo_json, screen
from tf_scheduler.cli.local_run.discovery import resolve_service
from tf_scheduler.doctor.checks import Check, Finding, Level, judge
from tf_scheduler.doctor.facts import LaptopFacts, Unknown
from tf_scheduler.doctor.files import TIMEOUT, gather_laptop
from tf_scheduler.doctor.gather import Document, Subject, attempt, gather
from tf_scheduler.options.load import resolve

from .local import MASTER_PORT

_MEANINGS = {Level.RED: "bad", Level.YELLOW: "wait", Level.GREEN: "good", Level.NOT_CHECKED: "dim"}
_UNREACHABLE = 3


def _valid_master(_context: click.Context, _parameter: click.Parameter, address: str | None) -> str:
    """Return the valid address; empty if none is given. Raises UsageError."""
    if address is None:
        return ""
    try:
        if not (address.isascii() and address.isprintable()) or " " in address.replace(", ", ","):
            raise ValueError
        if ZooKeeperUrl.is_zookeeper(address):
            ZooKeeperUrl.parse(address)
        else:
            parse_masters(address)
    except ValueError as error:
        without_password = ascii(address.rpartition("@")[2])[1:-1]
        expected = "host:port, several with commas, or zk://host:port/path"
        raise UsageError(f"--master: `{without_password}`: invalid address; expected {expected}") from error
    return address


@click.command()
@examples(
    "doctor",
    "doctor --options options.json --master 10.0.0.1:5050",
    "doctor --url http://10.0.0.5:8080 --security",
)
@click.option("--options", "file", type=named_file_type, metavar="FILE", help="Options file of the service.")
@click.option(
    "--master",
    callback=_valid_master,
    metavar="ADDRESS",
    help="Mesos master. Default: mesos.master, else local up.",
)
@click.option("--security", is_flag=True, help="Run only the security checks.")
@click.pass_context
def doctor(context: click.Context, /, file: Path | None, master: str, security: bool, **params: Any) -> None:
    """Check the cluster, the service and this machine.

    Run this command with --options before an installation, and again after the installation. Without options and
    service, it checks this machine. Each line is red, yellow, green or not checked, with the reason and what to do.

    Exit code: 0 nothing is red, 1 a line is red, 3 a server of --master, --url or --name does not answer as expected.
    """
    # Without a handler, Python prints the warnings of kazoo; the findings have the reasons.
    logging.getLogger().addHandler(logging.NullHandler())
    selected = service_options(context.ensure_object(dict), params)
    document = None if file is None else resolve(load_document(file))
    service = _service(selected, document)
    subject = Subject(
        options=attempt(lambda: _installed_options(service)) if document is None else document,
        master=master or (_local_master() if document is None and isinstance(service, Unknown) else ""),
        service=service,
        laptop=None if security else _laptop,
    )
    facts = gather(subject)
    results = judge(facts, security=security)
    if params["as_json"] or context.ensure_object(dict).get("as_json"):
        echo_json(_as_json(results))
    else:
        is_named = bool(file or master or selected.url or selected.name)
        nothing_to_ask = isinstance(facts.master, Unknown) and isinstance(facts.service, Unknown)
        _show(results, fold=nothing_to_ask and not is_named)
    if any(finding.level is Level.RED for _, finding in results):
        sys.exit(1)
    is_lost = (bool(master) and isinstance(facts.master, Unknown)) or (
        bool(selected.url or selected.name) and isinstance(facts.service, Unknown)
    )
    sys.exit(_UNREACHABLE if is_lost else 0)


doctor.params += common_options()


def _laptop(options: Document | None) -> LaptopFacts:
    folders, ports = (state_home(), default_cache()), () if _local_master() else tuple(_taken_ports())
    return gather_laptop(options, folders, _local_mesos_problem(), _trainings(), ports)


def _service(selected: ServiceOptions, document: Document | None) -> ServiceClient | Unknown:
    """Return the selected service, by default the service that the options name."""
    if document is not None and not selected.name and not selected.url:
        selected = ServiceOptions(str(document["service"]["name"]), "", selected.token)
    try:
        return replace(resolve_service(selected, os.environ), timeout=TIMEOUT)
    except UsageError:
        raise
    except CommandError as error:
        return Unknown(str(error).partition("\n")[0].rstrip("."))


def _local_master() -> str:
    """Return the address of the master of `local up`; empty if it is not running."""
    with suppress(MesosLocalError):  # a damaged record
        record = read_record(state_home() / "local")
        if record and record.nodes["master"].alive():
            return record.nodes["master"].address
    return ""


def _installed_options(service: ServiceClient | Unknown) -> Document:
    """Return the options of the running service, secrets masked."""
    if isinstance(service, Unknown):
        raise CommandError("no options: pass --options, or --url of a service")
    name = service.get("v1/configurations/targetId")[0]
    return resolve(service.get(f"v1/configurations/{name}")["options"])


def _trainings() -> Document:
    """Return the versions of TensorFlow and Keras of this Python and of the runtimes."""
    from tf_scheduler.runtimes.runtimes import list_runtimes  # slow import, rarely needed

    pythons = {"this Python": sys.executable, **{f"runtime:{each.name}": each.python for each in list_runtimes()}}
    return {name: keras_versions(python) for name, python in pythons.items()}


def _local_mesos_problem() -> str:
    try:
        check_platform()
    except MesosLocalError as error:
        return str(error)
    return ""


def _taken_ports() -> Iterator[str]:
    """Yield used default ports of `local up`, such as `5050 by a process of user www`."""
    for port in (MASTER_PORT, *range(FIRST_PORT, FIRST_PORT + 300)):
        if not is_free(port):
            yield f"{port} by {owner_of(port)}"


def _as_json(results: Iterable[tuple[Check, Finding]]) -> Document:
    results = list(results)
    counts = {level.value: sum(finding.level is level for _, finding in results) for level in Level}
    checks = [
        {
            "check": check.name,
            "title": check.title,
            "status": finding.level.value,
            "message": finding.message,
            "remedy": finding.remedy,
        }
        for check, finding in results
    ]
    return {"checks": checks, "counts": counts}


def _show(results: Iterable[tuple[Check, Finding]], *, fold: bool) -> None:
    """Print a table. `fold`: one line stands for all checks that were not possible."""
    results = list(results)
    rows = [
        (Word(finding.level.value, _MEANINGS[finding.level]), check.title, finding.message, finding.remedy or "-")
        for check, finding in results
        if not fold or finding.level is not Level.NOT_CHECKED
    ]
    if fold and len(rows) < len(results):
        message = f"{len(results) - len(rows)} checks: no cluster and no service runs here"
        word = Word(Level.NOT_CHECKED.value, _MEANINGS[Level.NOT_CHECKED])
        rows.append((word, "cluster, service", message, "pass --options, --master or --url"))
    counts = ", ".join(
        f"{count} {level.value}" for level in Level if (count := sum(item.level is level for _, item in results))
    )
    screen().show([Table(("", "check", "finding", "what to do"), rows), counts])
