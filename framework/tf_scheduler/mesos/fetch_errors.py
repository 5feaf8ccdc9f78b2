"""Add to a status why the agent could not fetch files, from the stderr."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tf_scheduler.errors import FileError
from tf_scheduler.interfaces import TaskFiles
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.redaction import redact_text
from tf_scheduler.model.state import SchedulerState

from . import decode
from .outbox import DecodeEvent

#: Maximum number of statuses that wait; further ones pass without a cause.
_MAX_WAITING = 16
#: Maximum bytes to read from the end of stderr.
_MAX_BYTES = 4096
#: What the fetcher of Mesos (src/launcher/fetcher.cpp) or of the local cluster writes before it exits.
_CAUSE = re.compile(r"(?:Failed to|cannot) fetch (.+)")

log = logging.getLogger(__name__)


class FetchErrors:
    """Hold back statuses of failed fetches until the cause is read. Thread-safe.

    Mesos repeats a status until it is acknowledged, so none is lost if the scheduler dies meanwhile.
    """

    def __init__(
        self, put: Callable[[DecodeEvent], None], files: TaskFiles, state: Callable[[], SchedulerState]
    ) -> None:
        self._put, self._files, self._state = put, files, state
        self._free = threading.BoundedSemaphore(_MAX_WAITING)

    def take(self, raw: Mapping[str, Any]) -> bool:
        """Take a status of a failed fetch, to enqueue it later; return whether taken."""
        if not decode.is_failed_fetch(raw) or not self._free.acquire(blocking=False):
            return False
        threading.Thread(target=self._explain, args=(raw["update"]["status"],), daemon=True, name="fetch-error").start()
        return True

    def _explain(self, status: Mapping[str, Any]) -> None:
        try:
            if causes := _CAUSE.findall(self._stderr(TaskId(status["task_id"]["value"]))):
                status = {**status, "message": redact_text(f"the agent cannot fetch {causes[-1]}")}
        except (FileError, LookupError) as error:
            log.warning("the cause of a failed fetch is unknown: %s", error)
        finally:
            self._free.release()
            self._put(partial(decode.event, {"type": "UPDATE", "update": {"status": status}}))

    def _stderr(self, launch: TaskId) -> str:
        state = self._state()
        record = state.stored.tasks[name_of(launch)]
        if record.id != launch:
            raise LookupError(f"{launch} is not the task's last launch")
        return self._files.read(state, record, "stderr", None, _MAX_BYTES).data.decode(errors="replace")
