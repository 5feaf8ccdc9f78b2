"""The scheduler of a run, started while its options are still checked: it loads as long as that takes.

Then it waits for its turn with its store (`store.turn`), which is held here until the options are known to be right.
Before, it tells Mesos nothing, and when they are wrong nothing of it is left.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesos_local import LocalCluster
from tf_scheduler.errors import JobError
from tf_scheduler.store.turn import turn

from .document import load_document
from .folders import RunFolder
from .local_package import render_run, sources_of_secrets
from .run_app import RunApp, run_app
from .scheduler_log import SchedulerLog

#: The service's name where the options name none, as far as folders go.
_NAMELESS = "tensorflow"


@dataclass(frozen=True, slots=True)
class Started:
    """A run's scheduler and its folder. `notices`: what is to be told of its options."""

    folder: RunFolder
    app: RunApp
    notices: tuple[str, ...]
    _turn: ExitStack
    _right: threading.Event

    def let(self) -> None:
        """Let it work: the options are right."""
        self._right.set()
        self._turn.close()


@contextmanager
def started(
    document: Mapping[str, Any],
    cluster: LocalCluster,
    folder: RunFolder,
    *,
    console: bool,
    right: threading.Event | None = None,
) -> Iterator[Started]:
    """Inside, the scheduler of these options is there, and waits for `let`; afterwards it is not.

    `console`: what it logs is told on standard error, too. `right` is set by `let`; None: they are known to be right.
    Raise JobError when they are not, and it would not wait.
    """
    notices: list[str] = []
    definition = render_run(document, cluster, folder, tell=notices.append)
    log = SchedulerLog(folder.scheduler_log, console=console)
    given = sources_of_secrets(document)
    with ExitStack() as held:
        if not held.enter_context(turn(folder.path)) and right is not None:
            raise JobError(f"{folder.path} cannot be locked")
        with run_app(definition, folder.scheduler, cluster.master.address, log, given) as app:
            yield Started(folder, app, tuple(notices), held, right or threading.Event())


def start_early(options: Path, cluster: LocalCluster, stack: ExitStack, *, console: bool) -> Started | None:
    """The same with options that nobody has checked, until `stack` ends. None: something is wrong with them.

    Its folder goes with it unless it was let.
    """
    try:
        document = load_document(options)
        folder = RunFolder.create(str(document["service"].get("name", _NAMELESS)), uuid.uuid4().hex)
    except Exception:  # whatever it was, the checks tell it in the options' words
        return None
    right = threading.Event()
    with ExitStack() as own:
        own.callback(lambda: None if right.is_set() else shutil.rmtree(folder.path, ignore_errors=True))
        try:
            found = own.enter_context(started(document, cluster, folder, console=console, right=right))
        except Exception:  # likewise
            return None
        stack.push(own.pop_all())
    return found
