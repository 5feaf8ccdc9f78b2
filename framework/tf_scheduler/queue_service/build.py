"""Build the process of a queue service."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.service.build import credentials_for, lead
from tf_scheduler.service.options import ServiceSettings

from .api import QueueApi
from .job_file import OPERATOR
from .job_store import QueueStore
from .loop import QueueService

#: Folder of the records of runs, in the working directory of the scheduler.
_RUNS = "jobs"


class QueueProcess:
    """Scheduler process of a queue service. `run` returns after `stop`."""

    def __init__(self, queue: QueueService, server: ApiServer) -> None:
        self.queue, self.server = queue, server

    def run(self) -> None:
        """Run until `stop`; jobs keep running for the next process. Raises store errors."""
        self.queue.run(self.server)

    def stop(self) -> None:
        """Make `run` return, from any thread."""
        self.queue.stop()


def build_queue(settings: ServiceSettings) -> QueueProcess:
    """Construct the process without starting it; raises as `build_scheduler` does."""
    if OPERATOR in settings.access.policy.users:
        raise OptionsError([Problem("api.users", f"{OPERATOR}: owns the service's own jobs; use another name")])
    credentials_for(settings, settings.spec)
    with ExitStack() as undo:
        settings, store, leadership = lead(settings, undo)
        folder = Path(settings.environment.get("MESOS_SANDBOX") or ".", _RUNS)
        queue = QueueService(settings, QueueStore(store), leadership, folder)
        server = ApiServer(QueueApi(queue), settings.host, settings.port, settings.access.tls)
        undo.pop_all()
        return QueueProcess(queue, server)
