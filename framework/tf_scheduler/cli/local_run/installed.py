"""Services of `local install`: each has a folder and a supervisor process.

CLUSTER/services/ID/, which the next cluster in the folder removes:
  options.json       options of the user
  scheduler.json     options of the scheduler: with defaults of this machine
  api-token          token of the API, for the commands of this user
  supervisor.json    process and URL of the service; valid while that process runs
  failure            why the scheduler last failed
  uninstall          exists while the service is being removed
  reload             exists until the supervisor has restarted the scheduler with new options
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from secrets import token_urlsafe as new_secret
from types import FrameType
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from dcos_command.client import PACKAGE, QueuedJob
from dcos_command.documents import merge_options
from dcos_command.errors import CommandError
from dcos_command.update import last_uninstall_step
from mesos_local.cluster import LocalCluster
from mesos_local.host import MARK, ProcessId
from tf_scheduler import __version__
from tf_scheduler.cli.common.folders import has_containers, write_private
from tf_scheduler.cli.common.options_file import check_options, localized, scheduler_defaults
from tf_scheduler.cli.common.output import last_lines
from tf_scheduler.errors import JobError, OptionsError
from tf_scheduler.options.job_file import SECTION
from tf_scheduler.options.load import as_lists, resolve
from tf_scheduler.service.api import api_settings

from .advertisements import advertise
from .process import (
    API_TOKEN,
    HOST,
    SchedulerLaunch,
    SupervisedScheduler,
    get_json,
    guarded,
    secret_variables,
    with_checkpoint_volume,
    with_values,
)

_INTERVAL = 0.5  # seconds between two checks of a supervisor
_START_TIMEOUT = 60.0  # seconds until a supervisor must have started its scheduler, and that its API
_CONNECT_INTERVAL = 0.1  # seconds between two connections to the API of a starting scheduler
_STOP_TIMEOUT = 10.0  # seconds until a supervisor is killed
#: Consecutive reports that the removal is complete, so that commands can read the last report.
_CONFIRMATIONS = 3
_LOG_LINES = 5
_PLAN = "/v1/plans/deploy"
#: Tasks and schedulers of other users may enter, but not list, the folder.
_FOLDER_MODE = 0o711


@dataclass(frozen=True, slots=True)
class InstalledService:
    """Service on the local cluster in a folder. `id`: unique, by default the name."""

    cluster: Path
    id: str

    @classmethod
    def all(cls, cluster: Path) -> list[InstalledService]:
        """Return the installed services of the cluster, sorted by id."""
        return [cls.at(path.parent) for path in sorted((cluster / "services").glob("*/options.json"))]

    @classmethod
    def at(cls, folder: Path) -> InstalledService:
        """Return the service of a folder."""
        return cls(folder.parent.parent, unquote(folder.name))

    @property
    def folder(self) -> Path:
        return self.cluster / "services" / quote(self.id, safe="")

    @property
    def log(self) -> Path:
        """Output of the scheduler."""
        return self.folder / "scheduler.log"

    @property
    def is_uninstalling(self) -> bool:
        return (self.folder / "uninstall").exists()

    @property
    def supervisor(self) -> ProcessId | None:
        """Process of the supervisor; None if it is not running."""
        try:
            process = ProcessId(**json.loads((self.folder / "supervisor.json").read_text())["process"])
        except (FileNotFoundError, ValueError):
            return None
        return process if process.alive() else None

    @property
    def url(self) -> str:
        """Last URL of the scheduler's API."""
        return str(json.loads((self.folder / "supervisor.json").read_text())["url"])

    @property
    def token_file(self) -> Path:
        return self.folder / "api-token"

    @property
    def token(self) -> str:
        """Token of the API; empty if it needs none, or before its first start."""
        return self.token_file.read_text() if self.token_file.exists() else ""

    @property
    def failure(self) -> str:
        """Why the scheduler last failed; empty if it did not."""
        try:
            return (self.folder / "failure").read_text()
        except FileNotFoundError:
            is_full = self.folder.exists() and not shutil.disk_usage(self.folder).free
            return f"the disk of {self.folder} is full" if is_full else ""

    def options(self) -> dict[str, Any]:
        """Return the options of the user; empty if the service does not exist."""
        try:
            return dict(json.loads((self.folder / "options.json").read_text()))
        except FileNotFoundError:
            return {}

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the scheduler, with the defaults of this machine."""
        cluster = LocalCluster.running(self.cluster)
        containers = cluster is not None and cluster.has_containers
        defaults = scheduler_defaults(options, containers=containers)
        del defaults["service.failover_timeout"]  # a service outlives its scheduler, unlike a run
        own = {"scheduler.state": (self.folder / "state.db").as_uri(), "scheduler.containerized": False}
        if options.get("api", {}).get("authentication") != "none":
            own["api.write_token"] = f"env:{API_TOKEN}"
        completed = with_values(options, {**defaults, **own})
        if cluster is not None:  # also in place of the master of an ended cluster, from the output of `describe`
            completed["mesos"] = {**completed.get("mesos", {}), "master": cluster.scheduler_master}
        return with_checkpoint_volume(completed, cluster, self._checkpoints)

    @property
    def _checkpoints(self) -> Path:
        return self.cluster / "checkpoints" / self.id.replace("/", "__")

    def with_checkpoints(self, options: dict[str, Any]) -> dict[str, Any]:
        """Add a checkpoint folder, private to the tasks' user, unless options name one."""
        service = options.get("service", {})
        if service.get("checkpoint_dir") or service.get("shared_filesystem"):
            return options
        self._checkpoints.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == 0 and (user := service.get("user")):
            shutil.chown(self._checkpoints, user)  # the tasks run as this user
        return {**options, "service": {**service, "checkpoint_dir": str(self._checkpoints)}}

    def install(self, options: Mapping[str, Any]) -> None:
        """Install the service; return when its API accepts connections.

        Raises JobError if the service is already installed, or if its scheduler exits; then only the log remains.
        """
        if self.options():
            raise JobError(f"{self.id}: already installed; update it, or uninstall it first")
        for folder in (self.folder.parent, self.folder, self.folder / "scheduler"):
            folder.mkdir(exist_ok=True)
            folder.chmod(_FOLDER_MODE)
        self.write(options)
        try:
            self.ensure_supervised()
            self.await_api()
        except JobError:
            self._discard()
            raise

    def await_api(self) -> None:
        """Wait until the API accepts connections. Raises JobError if it never does."""
        deadline = time.monotonic() + _START_TIMEOUT
        while not _accepts_connections(self.url):
            failure, supervisor = self.failure, self.supervisor
            # The supervisor's exit can be awaited, the port cannot.
            waiting = not failure and supervisor is not None and not supervisor.wait(_CONNECT_INTERVAL)
            if not waiting or time.monotonic() > deadline:
                reason = failure or "\n".join(["no answer", *last_lines(self.log, _LOG_LINES)])
                raise JobError(f"{self.id}: install failed: the scheduler does not start: {reason}\nlog: {self.log}")

    def _discard(self) -> None:
        """Stop the supervisor with its scheduler; delete all but the log."""
        if supervisor := self.supervisor:
            supervisor.end(_STOP_TIMEOUT)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != self.log:
                path.unlink()

    def write(self, options: Mapping[str, Any]) -> None:
        """Replace the options. The scheduler reads them when it starts."""
        write_private(self.folder / "scheduler.json", json.dumps(self.completed(options), indent=2))
        write_private(self.folder / "options.json", json.dumps(options, indent=2))

    def ensure_supervised(self) -> None:
        """Ensure that a supervisor runs. Raises JobError if it does not start."""
        if self.supervisor is not None:
            return
        # The mark lets `local down` find all processes of the cluster.
        with self.log.open("ab") as log:
            self.log.chmod(0o600)
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.cluster), self.id],
                env={**os.environ, MARK: str(self.cluster)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_TIMEOUT
        while self.supervisor is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise JobError(f"{self.id}: the scheduler does not start; see {self.log}")
            time.sleep(0.05)  # the standard library cannot await a file

    def reload(self) -> None:
        """Restart the scheduler with its current options."""
        supervisor = self.supervisor
        if supervisor is None:
            self.ensure_supervised()
        else:
            (self.folder / "reload").touch()
            supervisor.signal(signal.SIGHUP)

    def await_reload(self) -> None:
        """Wait until the restarted scheduler answers, or has failed."""
        while (self.folder / "reload").exists() and self.supervisor is not None:
            time.sleep(0.05)  # the standard library cannot await a file
        with suppress(JobError):  # the service reports its failure
            self.await_api()


def _accepts_connections(url: str) -> bool:
    address = urlsplit(url)
    with suppress(OSError), socket.create_connection((address.hostname, address.port)):
        return True
    return False


@dataclass(frozen=True, slots=True)
class LocalInstallation:
    """Installation of a local service; implements `dcos_command.client.Installation`."""

    service: InstalledService

    def describe(self) -> Any:
        options = self._options()
        return {
            "package": {"name": PACKAGE, "version": __version__},
            "upgradesTo": [],
            "downgradesTo": [],
            "resolvedOptions": self._resolved(options),
            "userProvidedOptions": options,
        }

    def localize(self, options: Mapping[str, Any], folder: Path, *, replace_all: bool) -> Mapping[str, Any]:
        try:
            new = options if replace_all else merge_options(self._options(), options)
            check_options(new, folder, containers=has_containers(self.service.cluster))
            local = localized(options, folder)
        except OptionsError as error:
            raise CommandError(str(error)) from error
        return self.service.with_checkpoints(local) if replace_all else local

    def preview(self, options: Mapping[str, Any], version: str | None) -> Mapping[str, Any]:
        _check_version(version)
        return {"options": self.service.completed(options)}

    def update(self, options: Mapping[str, Any], version: str | None, *, replace_all: bool) -> Any:
        _check_version(version)
        present = self._options()
        if self.service.is_uninstalling:
            raise CommandError(f"{self.service.id}: is being uninstalled; install it again once it is gone")
        new = dict(options) if replace_all else merge_options(present, options)
        resolved = self._resolved(new)
        if resolved["service"]["name"] != self._resolved(present)["service"]["name"]:
            raise CommandError("service.name: cannot change; uninstall the service first")
        self.service.write(new)
        self.service.reload()
        self.service.await_reload()
        return {"resolvedOptions": resolved}

    def uninstall(self) -> Any:
        self._options()
        (self.service.folder / "uninstall").touch()
        self.service.reload()
        named = {"packageName": PACKAGE, "packageVersion": __version__}
        return {"results": [{**named, "appId": f"/{self.service.id}"}]}

    def last_failure(self, *, finished: bool) -> str | None:
        del finished  # the service has a folder until the removal ends
        return self.service.failure if self.service.options() else None

    def _options(self) -> dict[str, Any]:
        options = self.service.options()
        if not options:
            raise CommandError(f"{self.service.id}: is not installed")
        return options

    def _resolved(self, options: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return as_lists(resolve(self.service.completed(options)))
        except OptionsError as error:
            raise CommandError(str(error)) from error


class LocalJob(QueuedJob):
    """A job of a queue service on this machine."""

    def localize(self, options: Mapping[str, Any], folder: Path, *, replace_all: bool) -> Mapping[str, Any]:
        del replace_all
        try:
            return localized_job(options, folder)
        except OptionsError as error:
            raise CommandError(str(error)) from error


def localized_job(file: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a job file with the files of this machine that it names, `localized`."""
    job = {name: section for name, section in file.items() if name == SECTION}
    return {**localized({name: section for name, section in file.items() if name != SECTION}, folder), **job}


def _check_version(version: str | None) -> None:
    if version not in (None, __version__):
        raise CommandError(f"package version {version}: unknown; the local cluster has {__version__} only")


class _Supervisor:
    """Runs until SIGTERM, or until service or cluster are gone. SIGHUP: new options."""

    def __init__(self, service: InstalledService, cluster: LocalCluster) -> None:
        self._service, self._cluster = service, cluster
        self._wake = threading.Event()
        self._reload = self._leave = False
        self._uninstalling = service.is_uninstalling
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._reload |= number == signal.SIGHUP
        self._leave |= number != signal.SIGHUP
        self._wake.set()

    def run(self) -> None:
        folder, confirmations = self._service.folder, 0
        name = str(self._service.options().get("service", {}).get("name", PACKAGE)).strip("/")
        token_file = str(self._service.token_file)
        with guarded(folder / "scheduler"), advertise(name, str(folder), token_file) as publish:
            scheduler = SupervisedScheduler(self._launch(), self._variables())
            try:
                while confirmations < _CONFIRMATIONS and not self._leave and self._has_cluster():
                    if self._reload or self._service.is_uninstalling is not self._uninstalling:
                        self._reload, self._uninstalling = False, self._service.is_uninstalling
                        (folder / "failure").unlink(missing_ok=True)
                        scheduler.restart(self._launch(), **self._variables())
                        (folder / "reload").unlink(missing_ok=True)
                    with suppress(OSError):  # the disk is full or read-only: the next round tries again
                        scheduler.poll()
                        encrypted = self._service.options().get("api", {}).get("certificate_file")
                        url = f"{'https' if encrypted else 'http'}://{scheduler.address}"
                        publish(url)
                        record = {"url": url, "process": asdict(ProcessId.current())}
                        write_private(folder / "supervisor.json", json.dumps(record))
                        self._note_failure(scheduler)
                    confirmations = confirmations + 1 if self._removed(scheduler) else 0
                    self._wake.wait(_INTERVAL)
                    self._wake.clear()
            finally:
                scheduler.stop()
            if confirmations:
                self._forget()

    def _has_cluster(self) -> bool:
        """Whether the cluster still runs, and no later one in its folder."""
        cluster = LocalCluster.running(self._service.cluster)
        return cluster is not None and cluster.identity == self._cluster.identity

    def _launch(self) -> SchedulerLaunch:
        folder = self._service.folder
        options = folder / "scheduler.json"
        document = json.loads(options.read_text())
        secrets = {} if self._uninstalling else secret_variables(document)
        secrets[API_TOKEN] = self._service.token or new_secret()
        with suppress(OptionsError):  # reported by the scheduler
            variables = {**os.environ, **secrets, "HOST": HOST}
            write_private(self._service.token_file, api_settings(resolve(document), variables).policy.write_token)
        working = folder / "scheduler"
        recording, network = working / "recording.jsonl", self._cluster.network_process
        return SchedulerLaunch(options, working, self._service.log, recording, secrets, network=network)

    def _variables(self) -> dict[str, str]:
        return {"SDK_UNINSTALL": "true"} if self._uninstalling else {}

    def _note_failure(self, scheduler: SupervisedScheduler) -> None:
        if scheduler.process is None and scheduler.last_exit:
            lines = last_lines(self._service.log, _LOG_LINES)
            (self._service.folder / "failure").write_text("\n".join([f"exit code {scheduler.last_exit}", *lines]))

    def _removed(self, scheduler: SupervisedScheduler) -> bool:
        """Whether the scheduler reports that its removal is complete."""
        if not self._uninstalling:
            return False
        # An uninstalling scheduler whose certificate is missing responds unencrypted.
        responses = (get_json(scheduler.address, _PLAN, encrypted=encrypted) for encrypted in (False, True))
        status, plan = next(filter(None, responses), (0, {}))
        self._last = last_uninstall_step(plan).message if status == 200 else ""
        return status == 200

    def _forget(self) -> None:
        # Imported late, because few commands need them.
        from tf_scheduler.cli.common.past_runs import run_database
        from tf_scheduler.service.options import recorded_run

        with suppress(JobError, OptionsError, OSError):  # nothing was launched, or the history cannot be written
            options = resolve(json.loads((self._service.folder / "scheduler.json").read_text()))
            run_database().save(recorded_run(self._launch().recording, options))
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        with (self._service.cluster / "logs" / "uninstalled.log").open("a") as log:
            log.write(f"{now} /{self._service.id}: {self._last or 'the uninstall plan is complete'}\n")
        (self._service.folder / "options.json").unlink()  # the service no longer exists
        shutil.rmtree(self._service.folder, ignore_errors=True)


def supervise_all(cluster: Path) -> Iterator[str]:
    """Start missing supervisors again; yield a message for each."""
    for service in (each for each in InstalledService.all(cluster) if each.supervisor is None):
        try:
            service.ensure_supervised()
            service.await_api()
            yield f"notice: {service.id}: its supervisor was gone; it runs again"
        except JobError as error:
            yield str(error)


def main() -> None:
    """Supervise one service; the program's arguments are CLUSTER and ID."""
    os.umask(0o077)
    service = InstalledService(Path(sys.argv[1]), sys.argv[2])
    # Another user's master may listen at the address of an ended one.
    if cluster := LocalCluster.running(service.cluster):
        _Supervisor(service, cluster).run()


if __name__ == "__main__":
    main()
