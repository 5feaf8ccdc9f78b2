"""Find a command's service: by URL, on this machine, or on the attached DC/OS."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dcos_command.client import (
    DEFAULT_SERVICE,
    URL_VARIABLE,
    ServiceClient,
    ServiceOptions,
    api_path,
    client_at,
    find_job,
    find_services,
    with_token,
)
from dcos_command.command import print_error
from dcos_command.errors import CommandError, RefusedError, UnreachableError, UsageError
from dcos_command.output import Screen
from dcos_command.transport import ClusterConnection, attached_cluster
from mesos_local.host import MesosLocalError, ProcessId
from tf_executor.contract.states import Verdict
from tf_scheduler.cli.common.folders import LOST_REASON, RESULT, RunFolder, open_regular, state_home
from tf_scheduler.errors import JobError, SchedulerError

from .advertisements import advertisements

if TYPE_CHECKING:
    from tf_scheduler.history.model import Run

PROGRAM = "dcos-tensorflow"
_ENDED = "\nThe last run has ended: dcos-tensorflow logs --run last, or: open, or: result, or: history show last"
_NO_SERVICE = """\
no service is known: none runs on this machine, and no DC/OS cluster is attached.
Start one:             dcos-tensorflow try PROGRAM, or: local run OPTIONS.json, or: local install --options OPTIONS.json
Or give its address:   dcos-tensorflow --url URL ..., or DCOS_TENSORFLOW_URL
On a DC/OS cluster:    dcos cluster setup URL"""


def resolve_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """Return the service. Raises UsageError if ambiguous, UnreachableError if none."""
    if options.run:
        return RunLogs.of(options.run)
    name = options.name or environment.get("DCOS_TENSORFLOW_SERVICE_NAME", "")
    service = with_token(_find(options, name.strip("/"), environment), options.token, environment)
    is_kept = service.run or service.installation or service.direct or service.job
    return service if is_kept else replace(service, keep=keep_run)


def fetch_run(service: ServiceClient) -> Run:
    """Return a service's run; it names no file of this machine. Raises CommandError."""
    from tf_scheduler.history.model import read_foreign  # most commands need no history

    try:
        run = read_foreign(service.get(api_path("tf", "run")))
    except ValueError as error:
        raise UnreachableError(f"{service.url} does not answer as a scheduler: {error}") from error
    return replace(run, folder="", process="", environment={})


def keep_run(service: ServiceClient) -> None:
    """Add the run of a service on DC/OS to the history; print errors, never raise."""
    from tf_scheduler.cli.common.past_runs import run_database  # most commands need no history

    try:
        run = fetch_run(service)
        run_database().save(run)
    except (CommandError, SchedulerError) as error:
        print_error(f"warning: the history lacks the run of {service.name}: {error}")
    else:
        Screen(sys.stderr).show((f"the history keeps the run: {PROGRAM} history show {run.id}",))


def _find(options: ServiceOptions, name: str, environment: Mapping[str, str]) -> ServiceClient:
    url = options.url or environment.get(URL_VARIABLE, "")
    if url:
        service = client_at(url, options.name.strip("/"), environment, PROGRAM)
        urls = (service.queue.url, service.cluster.url)
        same = [each for each in _local_services(environment) if each.url in urls]
        if service.job and service.direct:
            return next((_local_job(each, service.job) for each in same), service)
        named = next(iter(_named(same, service.name)), None)
        return named or find_job(with_token(service, options.token, environment))
    if environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL"):
        return _on_dcos(name, attached_cluster(environment))
    local = list(_local_services(environment))
    matches = _named(local, name) or _named(_unadvertised(local, environment), name)
    if len(matches) > 1:
        lines = "".join(f"\n  --url {service.url}  {service.name}" for service in matches)
        raise UsageError(f"several services run on this machine; nothing was done; choose one of:{lines}")
    return matches[0] if matches else _attached(name, local, environment)


def _named(services: Iterable[ServiceClient], name: str) -> list[ServiceClient]:
    """Return the services with this name, else the job of a queue service; empty: all."""
    known = list(services)
    queue, _, job = name.rpartition("/")
    exact = [service for service in known if name in ("", service.name)]
    return exact or [_local_job(service, job) for service in known if queue and service.name == queue]


def _local_job(queue: ServiceClient, job: str) -> ServiceClient:
    """Return the client of a job of a queue service on this machine."""
    from .installed import LocalJob  # most services have no jobs

    client = queue.of_job(job)
    return replace(client, installation=LocalJob(client)) if queue.installation else client


def all_services(options: ServiceOptions, environment: Mapping[str, str]) -> Iterator[ServiceClient]:
    """Yield the services of this machine, then of DC/OS. Raises CommandError."""
    name = options.name.strip("/")
    if options.url or environment.get(URL_VARIABLE):
        yield resolve_service(options, environment)
        return
    local = list(_local_services(environment))
    local += _unadvertised(local, environment)
    yield from (service for service in local if name in ("", service.name))
    try:
        attached_cluster(environment)
    except CommandError:
        return
    yield from find_services(options, environment)


def _on_dcos(name: str, cluster: ClusterConnection) -> ServiceClient:
    return find_job(ServiceClient(cluster, name or cluster.service or DEFAULT_SERVICE, program=PROGRAM))


def _attached(name: str, local: list[ServiceClient], environment: Mapping[str, str]) -> ServiceClient:
    try:
        return _on_dcos(name, attached_cluster(environment))
    except CommandError:
        if not local:
            raise UnreachableError(_NO_SERVICE + (_ENDED if last_result(name) else "")) from None
    names = ", ".join(service.name for service in local)
    raise UnreachableError(f"no service {name} runs on this machine; running: {names}")


def _local_services(environment: Mapping[str, str]) -> Iterator[ServiceClient]:
    for note in advertisements():
        home = Path(note.run or note.folder, "scheduler") if note.token else None
        service = replace(client_at(note.url, "", environment, PROGRAM), name=note.name, token=note.token, home=home)
        if note.run:
            pid, _, start_time = note.process.partition(":")
            service = replace(service, run=LocalRun(Path(note.run), ProcessId(int(pid), int(start_time))))
        if note.folder:
            from .installed import InstalledService, LocalInstallation  # most services are not installed

            service = replace(service, installation=LocalInstallation(InstalledService.at(Path(note.folder))))
        yield service


def _unadvertised(local: Collection[ServiceClient], environment: Mapping[str, str]) -> Iterator[ServiceClient]:
    """Yield schedulers of `scheduler run`, and of services without supervisor."""
    from mesos_local.master_api import read_status  # most services are advertised
    from mesos_local.record import read_record

    names = {service.name for service in local}
    try:
        record = read_record(state_home() / "local")
        master = record.nodes["master"] if record else None
        frameworks = read_status(master.address).frameworks if master and master.alive() else ()
    except MesosLocalError:  # a damaged record, or no answer
        return
    if frameworks and any((state_home() / "local" / "services").glob("*/options.json")):
        from .installed import supervise_all  # most services are not installed

        Screen(sys.stderr).show(supervise_all(state_home() / "local"))
        yield from (service for service in _local_services(environment) if service.name not in names)
    for framework in frameworks:
        # The framework of a job belongs to its queue service.
        is_known = names.intersection((framework.name, framework.name.rpartition("/")[0]))
        if framework.connected and framework.webui_url and not is_known:
            with suppress(CommandError):  # another program
                service = replace(client_at(framework.webui_url, "", environment, PROGRAM), name=framework.name)
                yield from [service] if _is_scheduler(service) else ()


def _is_scheduler(service: ServiceClient) -> bool:
    """Whether a scheduler answers, or rejects a request without a token."""
    try:
        return "tasks" in service.get(api_path("tf", "overview"))
    except RefusedError as error:
        return error.kind == "unauthorized"


def check_name(name: str, option: str) -> None:
    """Raise JobError if a service on this machine already has the name."""
    for service in _local_services(os.environ):
        if service.name.strip("/") == name.strip("/"):
            stop = f"{'cancel' if service.run else 'local uninstall'} {service.name}"
            remedy = f"choose another with {option}, or stop the service: `{PROGRAM} {stop}`"
            raise JobError(f"service.name: `{service.name}`: already in use by {service.url}; {remedy}")


def background_run(pid: int, environment: Mapping[str, str]) -> tuple[ServiceClient, RunFolder] | None:
    """Return the local run of a process; None until its API responds."""
    for service in _local_services(environment):
        if isinstance(service.run, LocalRun) and service.run.process.pid == pid:
            return service, RunFolder(service.run.folder)
    return None


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A `local run` of this user: its folder, and its process."""

    folder: Path
    process: ProcessId

    def result(self) -> Mapping[str, Any] | None:
        """Return `verdict` and `reason` of the ended run; None while it continues."""
        if self.process.alive():
            return stored_result(self.folder)
        # It may have ended since the first look.
        return stored_result(self.folder) or {"verdict": Verdict.FAILED.value, "reason": LOST_REASON}

    def cancel(self) -> None:
        """Stop the job as Ctrl-C does; return without waiting for its end."""
        self.process.signal(signal.SIGINT)


def stored_result(folder: Path) -> Mapping[str, Any] | None:
    """Return service, verdict and reason of an ended run; None without a result."""
    try:
        report = json.loads((folder / RESULT).read_text())
        verdict = report["state"] if report["state"] in list(Verdict) else Verdict.FAILED.value
        return {"service": str(report["service"]), "verdict": verdict, "reason": str(report["reason"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def last_result(name: str) -> Mapping[str, Any] | None:
    """Return the result of the newest run of a service; None without a result.

    Empty name: of any service. A run whose process was killed has failed. A run that is starting has no result.
    """
    try:
        runs = sorted((state_home() / "runs").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return None
    results = (stored_result(path) or _missing_result(path.name) for path in runs)
    newest: Mapping[str, Any] = next(
        (each for each in results if each["service"] is not None and name.strip("/") in ("", each["service"])), {}
    )
    return newest if newest.get("verdict") else None


def _missing_result(run_id: str) -> Mapping[str, Any]:
    """Return the result of a run that stored none; a starting run has no verdict."""
    from tf_scheduler.cli.common.past_runs import LOST, run_database  # most commands need no history

    try:
        run = run_database().find(run_id)
    except JobError:  # it ended before it was recorded
        return {"service": None}
    verdict = Verdict.FAILED.value if run.state == LOST else ""
    return {"service": run.service, "verdict": verdict, "reason": run.reason}


@dataclass(frozen=True)
class RunLogs(ServiceClient):
    """Answers requests for logs from the folder of a past run."""

    folder: Path = Path()

    @classmethod
    def of(cls, name: str) -> RunLogs:
        """Return the logs of the run that `history` finds by `name`. Raises CommandError."""
        from tf_scheduler.cli.common.past_runs import run_database  # most commands need no history

        try:
            run = run_database().find(name)
        except JobError as error:
            raise CommandError(str(error)) from error
        folder = RunFolder(Path(run.folder)).logs
        if not any(folder.glob("*/*")):
            hint = f"it is running; see: {PROGRAM} logs" if run.process else "only local runs that ended keep it"
            raise CommandError(f"no output of run {run.id} is stored: {hint}")
        return cls(ClusterConnection(folder.as_uri()), run.service, direct=True, program=PROGRAM, folder=folder)

    def get_with_status(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> tuple[int, Any]:
        """Answer with the tasks, or with a part of a file, in the form of the API."""
        del codes
        _, _, task, *rest = *map(unquote, path.split("/")), ""
        names = sorted(each.name for each in self.folder.iterdir() if each.is_dir())
        if not rest:
            return HTTPStatus.OK, {"tasks": [{"name": name} for name in names]}
        if task not in names:
            raise CommandError(f"unknown task `{task}` in this run; its tasks are {', '.join(names)}")
        name, length = query.get("file") or "", int(query.get("length") or 0)
        if name not in (each.name for each in (self.folder / task).iterdir()):
            raise RefusedError(f"no file {name} of {task} is stored", HTTPStatus.NOT_FOUND)
        with open_regular(self.folder / task / name) as file:
            size = file.seek(0, os.SEEK_END)
            offset = file.seek(min(size, int(query.get("offset") or max(0, size - length))))
            data = file.read(length)
        cut = data if offset + len(data) == size else data[: data.rfind(b"\n") + 1] or data
        text = cut.decode(errors="replace")
        return HTTPStatus.OK, {
            "task": task,
            "file": name,
            "offset": offset,
            "data": text,
            "size": size,
            "next": offset + len(cut),
        }
