"""The one task on this machine: its commands and what is around them. Decides nothing, `lifecycle` does."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Mapping

from tf_executor import commands, events, limits, memory, user_package
from tf_executor.checks import Checks, http_problem
from tf_executor.environment import DEFAULT_PATH, TEMPORARY, Place, program_environment
from tf_executor.events import Stage
from tf_executor.interpreter import find_interpreter
from tf_executor.messages import describe
from tf_executor.output import TAIL_BYTES, Output
from tf_executor.payload import Liveness, Payload
from tf_executor.ports import held_by_others
from tf_executor.processes import descendants
from tf_executor.progress import ProgressReader
from tf_executor.reports import Ending
from tf_executor.supervisor import SpawnError, Supervisor, Surroundings
from tf_executor.tail import last_words
from tf_executor.task_gpus import TaskGpus
from tf_executor.task_secrets import TaskSecrets
from tf_executor.temporary import TemporaryFolder

#: Seconds that the last output and the last progress may take when all processes are gone.
SETTLE_TIMEOUT = 2.0

log = logging.getLogger(__name__)


class Task:
    """Made when the task comes. `put` gets what happens to it, from several threads; `tell` sends progress."""

    def __init__(
        self,
        payload: Payload,
        task_id: str,
        environ: Mapping[str, str],
        sandbox: str,
        temporary: TemporaryFolder,
        put: Callable[[Any], None],
        tell: Callable[[bytes], bool],
    ) -> None:
        self._payload, self._task_id = payload, task_id
        self._environ, self._sandbox = environ, sandbox
        self._temporary = temporary
        self._put, self._tell = put, tell
        self._supervisor = Supervisor(put)
        self._checks = Checks(put)
        size, backups = payload.output_bytes, payload.output_backups
        self._out = Output(Path(sandbox) / "stdout", 1, size, backups)
        self._err = Output(Path(sandbox) / "stderr", 2, size, backups)
        self._place: Place | None = None
        self._limits = limits.Limits()
        self._gpus = TaskGpus(payload, environ, sandbox, self._supervisor)
        self._progress: ProgressReader | None = None
        self.secrets = TaskSecrets(payload, task_id, environ, sandbox)
        self._rendezvous = ExitStack()
        self._memory_before = memory.read()

    def spawn(self, stage: Stage, ending: Ending) -> events.Event:
        """Start a stage; `ending` is how the program ended, for what runs after it."""
        try:
            if self._place is None:
                self._place = self._prepare()
            if stage is Stage.DEVICES:
                threading.Thread(target=self._get_gpus, name="devices", daemon=True).start()
                return events.Spawned()
            if stage is Stage.SECRETS:
                threading.Thread(target=self._get_secrets, name="secrets", daemon=True).start()
                return events.Spawned()
            line = commands.command(stage, self._payload, self._sandbox)
            pid = self._supervisor.spawn(line, self._around(ending, stage))
        except (OSError, ValueError, SpawnError) as error:
            return events.SpawnFailed(f"the {stage.value} could not be started: {error}")
        log.info("%s: process %s under %s", stage.value, pid, self._place.interpreter.executable)
        if stage is Stage.PROGRAM:
            self._watch()
        return events.Spawned()

    def terminate(self) -> None:
        """SIGTERM to all processes."""
        self._checks.stop()
        self._supervisor.terminate()

    def kill(self) -> None:
        """SIGKILL to all processes."""
        self._checks.stop()
        self._supervisor.kill()

    def judged(self, event: events.Exited) -> events.Exited:
        """With what the kernel did to the task meanwhile, where it ended badly."""
        if event.ending.exit_code == 0:
            return event
        oom, text = memory.read().since(self._memory_before)
        return events.Exited(replace(event.ending, oom=oom or None), text)

    def settle(self) -> str:
        """All processes are gone: end what we do for them. Return the last words of the program, for a message."""
        self._checks.stop()
        self._rendezvous.close()
        if self._progress is not None:
            self._progress.stop(SETTLE_TIMEOUT)
        self._gpus.release()
        for stream in (self._err, self._out):
            stream.finish(SETTLE_TIMEOUT)
        self.secrets.forget()
        self._temporary.remove()
        return last_words(self._err.tail(), self._out.tail(), self.secrets.values(), TAIL_BYTES)

    # Preparation.

    def _prepare(self) -> Place:
        path = self._environ.get("PATH") or DEFAULT_PATH
        interpreter = find_interpreter(self._payload.python, path, self._sandbox)
        self._limits = limits.resolve(self._payload.user, self._payload.nice, self._payload.ulimits)
        if self._payload.rendezvous:
            from tf_executor.rendezvous import Rendezvous  # a web server, which few tasks need

            self._rendezvous.enter_context(Rendezvous(self._payload.port))
        library = user_package.write(self._sandbox)
        owner = None if self._limits.identity is None else self._limits.identity[:2]
        place = Place(self._sandbox, interpreter, str(library), self._open_progress(library))
        if owner is not None:
            limits.hand_over(Path(self._sandbox), *owner)
        if TEMPORARY in self._payload.environment:
            return place
        return replace(place, temporary=self._temporary.make(self._environ, owner))

    def _open_progress(self, folder: Path) -> str:
        """Without progress the task runs as well."""
        try:
            pipe = user_package.make_pipe(folder)
            self._progress = ProgressReader(pipe, self._task_id, self._tell)
        except OSError as error:
            log.warning("there will be no progress: %s", error)
            return ""
        return str(pipe)

    def _around(self, ending: Ending = Ending(), stage: Stage | None = None) -> Surroundings:  # noqa: B008 - frozen
        assert self._place is not None
        environment = program_environment(self._payload, self._environ, self._place, self._gpus.uuids)
        environment.update(self.secrets.environment(stage))
        if ending.exit_code is not None:
            environment["TASK_EXIT_CODE"] = str(ending.exit_code)
        if ending.signal is not None:
            environment["TASK_SIGNAL"] = str(ending.signal)
        return Surroundings(environment, self._sandbox, self._out.writer, self._err.writer, self._limits)

    def _get_secrets(self) -> None:
        identity = self._limits.identity
        self._put(events.Prepared(self.secrets.fetch(None if identity is None else identity[:2])))

    def _get_gpus(self) -> None:
        self._put(events.Prepared(self._gpus.choose()))

    # Watching.

    def _watch(self) -> None:
        started = time.monotonic()
        if self._payload.readiness:
            self._checks.await_server(self._payload.readiness, self._has_the_port)
        liveness = self._payload.liveness
        if liveness is not None:
            self._checks.watch(liveness, lambda: self._problem(liveness, started))
        if self._payload.stalled_after:
            self._checks.watch_silence(self._payload.stalled_after, lambda: self._silence(started))
        folders = [Path(self._sandbox, folder) for folder in self._payload.event_folders]
        if self._progress is not None and folders:
            from tf_executor.detection import Detector  # the program has started already

            me = os.getpid()
            own = Path(self._sandbox)
            self._progress.detect(Detector(folders, time.time(), lambda: descendants(me), own).look)

    def _has_the_port(self) -> bool:
        """Another process of the host may have taken it; its answer is none of our program's."""
        port = int(self._payload.readiness.rpartition(":")[2])
        if not held_by_others(port, descendants(os.getpid())):
            return True
        log.warning("port %s is held by a process that is not the task's", port)
        return False

    def _problem(self, liveness: Liveness, started: float) -> str:
        """Empty: the program is alive."""
        if liveness.kind == "command":
            return self._command_problem(liveness)
        if liveness.kind == "http":
            return http_problem(liveness.target.replace("{port}", str(self._payload.port)), liveness.timeout)
        silent = 0.0 if self._progress is None else self._progress.silent_for(started)
        return f"no progress for {silent:.0f} s" if silent > liveness.timeout else ""

    def _silence(self, started: float) -> float:
        quiet = time.monotonic() - max(started, self._out.last, self._err.last)
        return quiet if self._progress is None else min(quiet, self._progress.silent_for(started))

    def _command_problem(self, liveness: Liveness) -> str:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            line = commands.filled_in(liveness.target, self._payload, self._sandbox)
            around = replace(self._around(), stdout=nowhere, stderr=nowhere)
            ending = self._supervisor.run(line, around, liveness.timeout)
        except SpawnError:
            return ""
        finally:
            os.close(nowhere)
        if ending is None:
            return f"the liveness command took longer than {liveness.timeout:g} s"
        return "" if ending.exit_code == 0 else f"the liveness command failed: {describe(ending)}"
