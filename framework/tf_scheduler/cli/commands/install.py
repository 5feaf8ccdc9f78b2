"""`submit`, `local install`, `local uninstall`: jobs and services in background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import click

from dcos_command.client import (
    DEFAULT_SERVICE,
    PACKAGE,
    URL_VARIABLE,
    ServiceClient,
    ServiceOptions,
    client_at,
    with_token,
)
from dcos_command.command import CommandCall, IntRange, common_options, echo, examples, program_of, service_options
from dcos_command.documents import with_settings
from dcos_command.errors import CommandError, report_as_json
from dcos_command.tasks import (
    JOB_OPTIONS,
    page_address,
    page_of,
    show_submitted,
    submit_document,
    submit_to,
    with_job_options,
)
from dcos_command.transport import attached_cluster
from dcos_command.update import TIMEOUT, uninstalled_message, wait_for_end
from tf_scheduler import __version__
from tf_scheduler.cli.common.folders import named_file_type, read_bytes, state_home
from tf_scheduler.cli.common.options_file import load_document, load_options
from tf_scheduler.cli.common.output import echo_json, screen
from tf_scheduler.cli.local_run.discovery import PROGRAM, background_run, check_name, keep_run, resolve_service
from tf_scheduler.cli.local_run.fitting import adapt_sizes, notice_of_checkpoints, notice_of_gpus
from tf_scheduler.cli.local_run.installed import InstalledService, LocalInstallation, localized_job, supervise_all
from tf_scheduler.errors import JobError, NotRunningError, OptionsError, Problem
from tf_scheduler.options.job_file import split_job
from tf_scheduler.options.load import as_lists, parse, program_is_named, resolve
from tf_scheduler.options.schema.service import is_queue

from .local import directory_option, find_cluster, prepare, settings_option
from .run import print_errors, run


@click.command()
@examples("local install --options options.json")
@click.option("--options", type=named_file_type, metavar="FILE", help="Options file. Default: a test job.")
@click.option("--app-id", metavar="ID", help="Id of the service. Default: the option service.name.")
@directory_option
@click.argument("misplaced", nargs=-1, metavar="")
def install(options: Path | None, app_id: str | None, directory: Path, misplaced: tuple[str, ...]) -> None:
    """Install a service on the running local cluster.

    The service's scheduler runs in the background until `local uninstall`; it is restarted if it exits. A file path
    in job_url is relative to the options file. A service without a checkpoint folder gets one.
    """
    if misplaced:
        raise click.UsageError(f"pass the options file with --options: local install --options {misplaced[0]}")
    cluster = find_cluster(directory)
    document: dict[str, Any] = {}
    if options is not None:
        spec = load_options(options, containers=cluster.has_containers)  # raises OptionsError
        document = dict(load_document(options))
        if not is_queue(document):  # its options are the defaults of its jobs
            notice_of_gpus(spec, cluster.specs)
            document = dict(adapt_sizes(document, spec, cluster.specs)[0])
    name = (app_id or document.get("service", {}).get("name", DEFAULT_SERVICE)).strip("/")
    service = InstalledService(cluster.directory, name)
    is_gone = service.supervisor is None
    for problem in supervise_all(cluster.directory):
        echo(problem, err=True)
    if not (service.options() and is_gone):
        document = service.with_checkpoints(document)
        if not service.options():
            check_name(name, "--app-id")
            notice_of_checkpoints(document.get("service", {}).get("checkpoint_dir", ""))
        service.install(document)
        echo(f"installed {DEFAULT_SERVICE} {__version__} as /{name}")
    echo(f"page: {page_address(service.url, service.token)}")


@click.command()
@examples("local uninstall mnist", "local uninstall --all")
@click.argument("app_id", default="")
@click.option("--all", "everything", is_flag=True, help="Uninstall all services.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the service is removed.")
@click.option(
    "--timeout",
    type=IntRange(min=1),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to wait.",
)
@directory_option
def uninstall(app_id: str, everything: bool, no_wait: bool, timeout: int, directory: Path) -> None:
    """Uninstall a service from the local cluster.

    APP_ID is the name of the service; omit it if only one is installed. The scheduler is restarted to stop the tasks,
    leave Mesos and delete its state.

    Exit code: 0 removed, 1 still there after --timeout, 3 not installed.
    """
    cluster = find_cluster(directory)
    for service in _selected(InstalledService.all(cluster.directory), app_id.strip("/"), everything):
        installation = LocalInstallation(service)
        installation.uninstall()
        if no_wait:
            echo(f"/{service.id} is being uninstalled")
        else:
            client = client_at(service.url, "", os.environ, PROGRAM)
            client = replace(client, name=service.id, installation=installation, token=service.token)
            echo(uninstalled_message(f"/{service.id}", wait_for_end(client, timeout)))


def _selected(services: list[InstalledService], name: str, everything: bool) -> list[InstalledService]:
    selected = [service for service in services if name in ("", service.id)]
    if not selected:
        raise NotRunningError(f"service {name}: not installed" if name else "no service is installed")
    if len(selected) > 1 and not everything:
        names = ", ".join(f"/{service.id}" for service in selected)
        raise JobError(f"several services are installed: {names}; name one of them, or use --all")
    return selected


# --- submit

_POLL_SECONDS = 0.1


@click.command()
@examples("submit options.json", "submit options.json --detach --set worker.count=4", "submit options.json --local")
@click.argument("options", type=named_file_type, metavar="FILE")
@click.option("--detach", is_flag=True, help="Return when the job is submitted.")
@settings_option
@click.option("--local", "here", is_flag=True, help="Run on this machine, even if a DC/OS is attached.")
@directory_option
@click.pass_context
def submit(
    context: click.Context,
    /,
    options: Path,
    detach: bool,
    settings: tuple[str, ...],
    here: bool,
    directory: Path,
    **params: Any,
) -> None:
    """Submit a job, and follow it to its end.

    FILE is an options file. The job runs on the DC/OS of --url or of `dcos cluster setup`, else on this machine, as by
    `local run`. With --detach, the command prints name and page of the job, which continues without this command.

    Exit code: 0 succeeded, or submitted with --detach; 1 failed or refused, 4 stopped.
    """
    prepare(context)
    selected = service_options(context.ensure_object(dict), params)
    settings = (*settings, *([f"service.name={json.dumps(selected.name)}"] if selected.name else []))
    as_json = params["as_json"] or bool(context.ensure_object(dict).get("as_json"))
    job = {name: params.pop(name) for name in ("to", "queue", "priority", "after", "id")}
    with print_errors(as_json), report_as_json(as_json, sys.stdout):
        with_job_options({}, job)
        if job["to"]:
            service = resolve_service(selected.of_queue(job["to"], os.environ), os.environ)
            document, wrong = with_settings(parse(read_bytes(options), str(options)), settings)
            document = dict(with_job_options(document, job))
            if wrong:
                raise OptionsError([Problem(*each) for each in wrong])
            if service.installation is not None:  # of this machine
                document = localized_job(document, options.absolute().parent)
            call = CommandCall(program_of(context), selected, as_json, service)
            sys.exit(submit_to(call, service, document, str(options), detach=detach))
    dcos = None if here else _find_dcos(selected)
    if dcos is not None:
        with print_errors(as_json), report_as_json(as_json, sys.stdout):
            document, wrong = with_settings(parse(read_bytes(options), str(options)), settings)
            resolve(split_job(document)[1], more_rules=[lambda _: (Problem(*each) for each in wrong), program_is_named])
            call = CommandCall(program_of(context), selected, as_json, dcos)
            sys.exit(submit_document(call, as_lists(document), str(options), detach=detach))
    elif detach:
        with print_errors(as_json), suppress(OptionsError):  # wrong options, reported by the run
            document = with_settings(parse(read_bytes(options), str(options)), settings)[0]
            check_name(resolve(split_job(document)[1])["service"]["name"], "--name")
        paths = [str(options.absolute()), "--dir", str(directory.absolute())]
        changes = (part for setting in settings for part in ("--set", setting))
        _run_in_background(["local", "run", *paths, *changes], as_json=as_json)
    else:
        context.invoke(run, options=options, settings=settings, directory=directory, as_json=as_json)


submit.params += [*JOB_OPTIONS, *common_options()]


def _find_dcos(selected: ServiceOptions) -> ServiceClient | None:
    """Return a client of the DC/OS of --url, else of the attached DC/OS, else None."""
    if url := selected.url or os.environ.get(URL_VARIABLE, ""):
        service = client_at(url, PACKAGE, os.environ, PROGRAM)
    else:
        try:
            service = ServiceClient(attached_cluster(os.environ), PACKAGE, program=PROGRAM)
        except CommandError:
            return None
    return replace(with_token(service, selected.token, os.environ), keep=keep_run)


def _run_in_background(arguments: Sequence[str], *, as_json: bool) -> None:
    """Start a `local run` that outlives this process; return when its page answers.

    Until then, this process prints the run's notices and errors. If the run ends before, exit with its exit code.
    """
    folder = state_home() / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".submitted-", dir=folder)
    with Path(name).open(errors="replace") as output:
        # Not in the user's folder, whose modules Python would prefer to its own.
        process = subprocess.Popen(
            [sys.executable, "-m", "tf_scheduler", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
        try:
            while (started := background_run(process.pid, os.environ)) is None and process.poll() is None:
                _relay(output)
                time.sleep(_POLL_SECONDS)  # the standard library cannot await a file
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        finally:
            os.close(descriptor)
            _relay(output)
    if started is None:
        if as_json:
            echo_json({"error": {"code": "failed", "message": Path(name).read_text(errors="replace").strip()}})
        Path(name).unlink()
        sys.exit(process.returncode)
    client, run_folder = started
    Path(name).rename(run_folder.logs / "run.log")
    answer = {"service": client.name, "page": page_of(client)}
    screen().show((json.dumps(answer, indent=2),) if as_json else show_submitted(answer))


def _relay(output: TextIO) -> None:
    """Print new output lines of a run, except the address of its page."""
    for line in output.readlines():
        if not line.startswith("page: "):
            echo(line, nl=False, err=True)
