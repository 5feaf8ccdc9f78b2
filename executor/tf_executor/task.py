"""Start and stop a task's commands, checks, GPUs, secrets and files for `runner`."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping

from tf_executor.contract.advice import PORT_HINT
from tf_executor.contract.payload import CHECKPOINT_DIR, USAGE_EVERY, Payload, PayloadError, WantedMembers
from tf_executor.contract.reports import EVENT_FILES, OUTPUT, TaskEnd
from tf_executor.contract.settings import COMMAND, HTTP, Liveness
from tf_executor.contract.strategies import Strategy
from tf_executor.contract.text import format_duration
from tf_executor.launch import environment as around_environment
from tf_executor.launch.environment import (
    DEFAULT_PATH,
    TMPDIR,
    InterpreterError,
    TaskPaths,
    find_interpreter,
    program_environment,
)
from tf_executor.launch.fencing import fence_of
from tf_executor.launch.gpus import TaskGpus
from tf_executor.lifecycle import events
from tf_executor.lifecycle.events import Stage, describe_end
from tf_executor.process import memory, supervisor
from tf_executor.process.freezing import ProcessSample, sample_processes
from tf_executor.process.health import HealthChecks, http_problem
from tf_executor.process.last_output import ProgramError, crash_hint, output_excerpt, program_error, storage_reason
from tf_executor.process.output import TAIL_BYTES, Output
from tf_executor.process.ports import is_connected, is_served_by_others, stranger_at
from tf_executor.process.supervisor import CommandContext, LimitsError, SpawnError, Supervisor
from tf_executor.process.temporary import TemporaryFolder, replace_file
from tf_executor.process.tree import descendants, read_proc, written_file
from tf_executor.process.user_commands import UserCommands, make_folder
from tf_executor.process.watchdog import WatchedProcesses
from tf_executor.process.watchdog_process import session_entry
from tf_executor.progress.tracking import ProgressReader
from tf_executor.secrets.task_secrets import TaskSecrets
from tf_executor.user import keep, storage
from tf_executor.user.fetch import redacted

#: Maximum seconds to wait for commands, uploads and progress after all processes have exited.
SETTLE_TIMEOUT = 2.0
#: Seconds to write the last output; a busy disk may need many of them.
OUTPUT_TIMEOUT = 30.0
#: Maximum seconds to wait until the largest used memory is sent, which no decision needs.
PEAK_TIMEOUT = 0.5
#: Maximum seconds to keep the files of a program that was stopped; the agent kills the executor 5 s after kill_grace.
KEEP_TIMEOUT = 4.0

log = logging.getLogger(__name__)


#: Seconds of CPU time that no program uses before its training.
WORK_SECONDS = 60.0
#: Seconds until a carrier that has failed is started again.
_CARRIER_PAUSE = 5.0


class _CheckpointCarrier:
    """Runs the process that stores the program's checkpoints (`user.storage`)."""

    def __init__(
        self,
        run: Callable[[int], TaskEnd | None],
        put: Callable[[events.Event], None],
        report: Callable[[str], None],
        settings: Mapping[str, Any],
    ) -> None:
        """`run`: runs the process with a descriptor as stdin; returns how it ended.

        `report`: shows a problem to operators. `settings`: the payload's `storage`.
        """
        self._reader, self._writer = os.pipe()
        self._run, self._put, self._report = run, put, report
        self._url, self._is_writer = redacted(settings["url"]), settings["role"] == storage.WRITER
        #: Whether a newer launch uses the URL.
        self.is_superseded = False
        #: Whether the task is stopped, so that the program may still save after its shell has exited.
        self.is_stopping = False
        #: What the carrier reads about the program's end.
        self._end = b""
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="carrier", daemon=True)
        self._thread.start()

    def note_end(self, session: int, ending: TaskEnd) -> None:
        """Remember how the program ended; the ends of later stages do not count."""
        code = -(ending.signal or 0) if ending.exit_code is None else ending.exit_code
        self._end = self._end or f"{session} {code} {'stopped' if self.is_stopping else ''}\n".encode()

    def stop(self) -> None:
        """Report the program's end to the carrier, which then stores what is left."""
        if self._has_ended.is_set():
            return
        self._has_ended.set()
        with suppress(OSError):
            os.write(self._writer, self._end)
        os.close(self._writer)

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _carry(self) -> None:
        ending, is_last = None, False
        with suppress(SpawnError):  # the task is stopping
            ending = self._run(self._reader)
            while ending is not None and ending.exit_code not in (0, storage.SUPERSEDED):
                what = "checkpoints are not stored" if self._is_writer else "new files do not arrive"
                problem = f"{what}: the carrier ended: {describe_end(ending)}"
                log.warning(problem)
                if self._is_writer or not self.is_stopping:  # a stop kills it after the grace period
                    self._report(problem)
                if is_last:
                    break
                is_last = self._has_ended.wait(_CARRIER_PAUSE)
                if is_last:
                    os.close(self._reader)
                    self._reader, writer = os.pipe()  # the carrier that has failed may have read the end
                    os.write(writer, self._end)
                    os.close(writer)
                ending = self._run(self._reader)
        os.close(self._reader)
        if ending is not None and ending.exit_code == storage.SUPERSEDED:
            self.is_superseded = True
            text = f"CHECKPOINT_DIR {self._url} is used by a newer launch of the task or by another service"
            self._put(events.Superseded(f"{text}; each service needs its own checkpoint_dir", is_final=False))


class TaskProcess:
    """Processes and resources of the task; several threads call `put` with events."""

    def __init__(
        self,
        payload: Payload,
        task_id: str,
        environ: Mapping[str, str],
        sandbox: str,
        temporary: TemporaryFolder,
        put: Callable[[Any], None],
        send: Callable[[bytes], bool],
        watch: Callable[[str], None],
    ) -> None:
        self._payload, self._task_id = payload, task_id
        self._environ, self._sandbox = environ, sandbox
        self._temporary = temporary
        self._put, self._send, self._watch_entry = put, send, watch
        self._supervisor = Supervisor(put)
        self._checks = HealthChecks(put)
        size, backups = payload.settings.output_bytes, payload.settings.output_backups
        self._out = Output(Path(sandbox) / "stdout", 1, size, backups)
        self._err = Output(Path(sandbox) / "stderr", 2, size, backups)
        self._paths: TaskPaths | None = None
        #: Descriptor of the folder of `members` in the paths.
        self._members_folder = -1
        self._limits = supervisor.ProcessLimits()
        self._gpus = TaskGpus(payload, environ, sandbox, self._supervisor)
        self._progress: ProgressReader | None = None
        self._usage: memory.UsageReporter | None = None
        self._carrier: _CheckpointCarrier | None = None
        self.secrets = TaskSecrets(payload, task_id, environ, sandbox, watch)
        self.commands = UserCommands(payload.exec_key, task_id, sandbox, self._run_command, self.secrets.values)
        self._rendezvous = ExitStack()
        self._fence = fence_of(payload, task_id, environ, put)
        #: The stage, which leads a session, and processes of other sessions.
        self._session, self._watched = 0, WatchedProcesses(watch)
        self._memory_before = memory.read_oom_kills()
        #: Time of the program's start, see `keep.next_file_time`.
        self._started = 0.0
        #: Whether files wait to be kept, and need no upload.
        self._keeps = payload.keep_files > 0 and not payload.storage

    def spawn(self, stage: Stage, ending: TaskEnd) -> events.Event:
        """Start a stage; `ending`: how the program ended, for stages after the program."""
        if (self._paths is None or stage is Stage.PROGRAM) and (problem := self._port_problem()):
            return events.SpawnFailed(problem, TaskEnd(port_taken=True))
        try:
            if self._paths is None:
                self._paths = self._prepare()
            if stage in (Stage.FENCE, Stage.DEVICES, Stage.SECRETS, Stage.SAVE):
                threading.Thread(target=self._prepare_stage, args=(stage,), name=stage.value, daemon=True).start()
                return events.Spawned()
            self._session = 0
            # Background processes of earlier stages, whose session the watchdog forgets.
            self._sample(is_stage_over=True)
            line = self._command(stage)
            if stage is Stage.PROGRAM:
                self._started = keep.next_file_time(self._sandbox)
            self._keeps = self._keeps and stage is not Stage.KEEP
            pid = self._supervisor.spawn(line, self._context(ending, stage))
            self._session = pid
            with suppress(OSError):  # without the watchdog
                self._watch_entry(session_entry(pid))
        except InterpreterError as error:
            return events.SpawnFailed(str(error), TaskEnd(127, error="no interpreter", cannot_start=True))
        except LimitsError as error:
            return events.SpawnFailed(str(error), TaskEnd(127, error="no such user or limit", cannot_start=True))
        except (OSError, ValueError, SpawnError) as error:
            what = "prepare the task" if self._paths is None else f"start the {stage.value}"
            return events.SpawnFailed(f"cannot {what}: {error}")
        log.info("%s: process %s, interpreter %s", stage.value, pid, self._paths.interpreter.executable)
        if stage is Stage.PROGRAM:
            if self._is_carried:
                settings = self._payload.storage
                self._carrier = _CheckpointCarrier(self._run_carrier, self._put, self._report_storage, settings)
            self._watch()
        return events.Spawned()

    def terminate(self) -> None:
        self._checks.stop()
        if self._carrier is not None:
            self._carrier.is_stopping = True
        self._supervisor.terminate()

    def kill(self) -> None:
        self._checks.stop()
        self._supervisor.kill()

    def with_evidence(self, event: events.Exited) -> events.Exited:
        """Return `event`; if the program failed, add evidence for the cause."""
        if self._carrier is not None:
            self._carrier.note_end(self._session, event.ending)
            if self._carrier.is_stopping:  # else only the stage SAVE, after files were copied into its folder
                self._carrier.stop()
        is_alone = self._checks.is_alone and (event.ending.exit_code == 0 or self._has_worked())
        event = replace(event, ending=replace(event.ending, alone=is_alone))
        if event.ending.exit_code == 0:
            return event
        oom, message = memory.read_oom_kills().since(
            self._memory_before, killed="(SIGKILL)" in describe_end(event.ending)
        )
        messages = [message] if message else []
        stopped = [item.pid for item in sample_processes(os.getpid()) if item.is_stopped]
        messages += [f"process {pid} is stopped by a signal (SIGSTOP)" for pid in stopped[:1]]
        ending = replace(event.ending, out_of_memory=oom, was_frozen=bool(stopped))
        return events.Exited(ending, "; ".join(messages))

    def written_file(self) -> str:
        """Return the file that the program is writing, relative to its folders, or ""."""
        folder = self._payload.environment.get(CHECKPOINT_DIR) or self._sandbox
        path = written_file(descendants(os.getpid()), folder)
        return path.replace(f"{folder}/", "", 1).replace(f"{self._sandbox}/", "", 1)

    def _has_worked(self) -> bool:
        """Return whether the program has trained instead of waiting for its peers."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        has_reports = self._progress is not None and self._progress.has_reports
        return has_reports or used.ru_utime + used.ru_stime > WORK_SECONDS

    def settle(self, ending: TaskEnd) -> tuple[str, ProgramError]:
        """Release all resources after the last process exits.

        Return the last output for messages, and the error with which the program ended.
        """
        self._checks.stop()
        self._rendezvous.close()
        if self._fence is not None:
            self._fence.stop()
        self._gpus.release()
        if self._keeps and self._started:  # no stage follows a program that was stopped
            with suppress(SpawnError):
                command, context = self._command(Stage.KEEP), self._context(ending, Stage.KEEP)
                Supervisor(lambda _event: None).run(command, context, KEEP_TIMEOUT)
        for stream in (self._err, self._out):
            stream.finish(OUTPUT_TIMEOUT)
        self.commands.settle(SETTLE_TIMEOUT)
        if self._usage is not None:
            self._usage.stop(PEAK_TIMEOUT)
        if self._carrier is not None:
            self._carrier.join(SETTLE_TIMEOUT)  # it may have been killed with the program, and report that now
        if self._progress is not None:
            self._progress.stop(SETTLE_TIMEOUT)  # after the output, whose last lines may be progress
        self.secrets.forget()
        self._temporary.remove()
        secrets = self.secrets.values()
        err, out = self._err.tail, self._out.tail
        is_superseded = self._carrier is not None and self._carrier.is_superseded
        if (is_superseded or ending.failed_stage == Stage.STORAGE.value) and (reason := storage_reason(err)):
            err, out = reason, b""
        excerpt = output_excerpt(err, out, secrets, TAIL_BYTES, self._sandbox)
        if not ending.exit_code:
            return excerpt, ProgramError(hint=crash_hint(ending.crash))
        variables = {} if self._paths is None else program_environment(self._payload, self._environ, self._paths)
        last = self._err if self._err.tail.strip() else self._out
        error = program_error(ending.exit_code, last.tail, secrets, self._sandbox, variables, last.traceback)
        error = replace(error, hint=error.hint or crash_hint(ending.crash or error.signal))
        problem = self._port_problem() if error.hint == PORT_HINT else ""
        return excerpt, replace(error, hint=problem, port_taken=True) if problem else error

    def _port_problem(self) -> str:
        """Return who uses a port of this task; empty if no process outside of it does."""
        own = os.getpid()
        for port in filter(None, (self._payload.port, *self._payload.more_ports)):
            if stranger := stranger_at(port, lambda: [own, *descendants(own)]):
                return f"port {port} of the task is in use by {stranger}"
        return ""

    def _prepare(self) -> TaskPaths:
        path = self._environ.get("PATH") or DEFAULT_PATH
        interpreter = find_interpreter(self._payload.settings.python, path, self._sandbox)
        payload = self._payload
        self._limits = supervisor.resolve_limits(payload.user, payload.settings)
        if payload.rendezvous:
            from tf_executor.launch.rendezvous import RendezvousServer  # a web server, which few tasks need

            self._rendezvous.enter_context(RendezvousServer(payload.port, payload.rendezvous_hosts))
        user_package = around_environment.write_user_package(self._sandbox)
        owner = self._limits.owner
        paths = TaskPaths(self._sandbox, interpreter, str(user_package), self._open_progress(user_package))
        if payload.members_key and paths.progress:
            members = around_environment.make_hook(user_package)
            # Opened while the sandbox is the executor's: the program's user may replace the folder by a link.
            self._members_folder = os.open(members.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            paths = replace(paths, members=str(members))
        if owner is not None:
            supervisor.chown_sandbox(Path(self._sandbox), *owner)
        if payload.exec_key:
            make_folder(self._sandbox)
        if TMPDIR in self._payload.environment:
            return paths
        return replace(paths, temporary=self._temporary.make(self._environ, owner))

    def change_members(self, message: bytes) -> None:
        """Write the list of wanted workers for the chief's program (`user.members`)."""
        try:
            wanted = WantedMembers.decode(message, self._payload.members_key, self._task_id)
        except PayloadError as error:
            log.error("list of workers ignored: %s", error)
            return
        if self._paths is not None and self._paths.members:
            text = json.dumps({"version": wanted.version, "workers": wanted.workers})
            try:
                name = Path(self._paths.members).name
                replace_file(name, text.encode(), self._limits.owner, self._members_folder)
            except OSError as error:  # the list is sent again until the chief confirms it
                log.error("list of workers not written: %s", error)

    def _open_progress(self, folder: Path) -> str:
        """Open the progress pipe; return its path, or empty if progress is disabled."""
        try:
            pipe = around_environment.make_pipe(folder)
            self._progress = ProgressReader(pipe, self._task_id, self._send, self._payload.message_interval)
        except OSError as error:
            log.warning("progress reports disabled: %s", error)
            return ""
        return str(pipe)

    def _context(self, ending: TaskEnd = TaskEnd(), stage: Stage | None = None) -> CommandContext:  # noqa: B008 - frozen
        assert self._paths is not None
        environment = program_environment(self._payload, self._environ, self._paths, self._gpus.uuids)
        environment.update(self.secrets.environment(stage))
        if stage is Stage.STORAGE:
            environment.update(around_environment.storage_variables(self._payload, self._task_id))
        if ending.exit_code is not None:
            environment["TASK_EXIT_CODE"] = str(ending.exit_code)
        if ending.signal is not None:
            environment["TASK_SIGNAL"] = str(ending.signal)
        return CommandContext(environment, self._sandbox, self._out.writer, self._err.writer, self._limits)

    def _prepare_stage(self, stage: Stage) -> None:
        error = ""
        if stage is Stage.DEVICES:
            error = self._gpus.choose()
        elif stage is Stage.SECRETS:
            error = self.secrets.fetch(self._limits.owner)
        elif stage is Stage.SAVE:
            if self._carrier is not None:
                self._carrier.stop()
                self._carrier.join(self._payload.settings.hook_timeout)
        elif self._fence is not None:
            self._fence.start(self._limits.identity)
        self._put(events.Prepared(error))

    @property
    def _is_carried(self) -> bool:
        """Whether the stage STORAGE has decided to carry checkpoints."""
        return bool(self._payload.storage) and (Path(self._sandbox) / storage.WORK).is_dir()

    def _command(self, stage: Stage) -> str:
        if stage is Stage.STORAGE:
            return around_environment.storage_command("bring")
        if self._is_carried:
            self._payload = around_environment.with_local_folder(self._payload, self._sandbox)
        return around_environment.stage_command(stage, self._payload, self._sandbox, self._task_id, self._started)

    def _run_carrier(self, stdin: int) -> TaskEnd | None:
        context = replace(self._context(stage=Stage.STORAGE), stdin=stdin)
        return self._supervisor.run(around_environment.storage_command("carry"), context, None, has_grace=True)

    def _report_storage(self, problem: str) -> None:
        if self._progress is not None:
            self._progress.note_storage(problem)

    def _watch(self) -> None:
        started = time.monotonic()
        self._usage = memory.UsageReporter(
            self._task_id,
            self._send,
            USAGE_EVERY * self._payload.message_interval,
            self._payload.memory_limit,
            lambda reason: self._put(events.MemoryExceeded(reason)),
        )
        if self._payload.readiness:
            self._checks.await_server(self._payload.readiness, self._is_own_port)
        strategy, variables = self._payload.strategy, self._payload.environment
        peers = self._payload.peer_ports
        # A chief that only coordinates has no rank.
        is_coordinator = strategy and self._payload.job == "chief" and len(peers) > 1
        is_one_of_many = variables.get("NUM_SHARDS", "1") != "1" or is_coordinator
        # Tasks of Horovod meet at ports that only they know.
        if is_one_of_many and (traits := Strategy(strategy).traits).has_peers and not traits.has_rendezvous:
            own, mapped = partial(descendants, os.getpid()), f"/{traits.library}/"
            self._checks.watch_meeting(
                # Also the executor, which connects to its program.
                lambda: is_connected(self._payload.port, peers, [os.getpid(), *own()]),
                lambda: any(mapped in read_proc(Path(f"/proc/{pid}/maps")) for pid in own()),
            )
        settings, liveness = self._payload.settings, self._payload.settings.liveness
        if liveness is not None:
            self._checks.watch(liveness, lambda: self._problem(liveness, started))
        self._checks.watch_freezing(settings.frozen_after, self._sample, lambda: self._silence(started))
        if settings.stalled_after:
            # TensorFlow prints messages before its import is over.
            counts_from = started + settings.stall_grace
            self._checks.watch_silence(settings.stalled_after, lambda: self._silence(counts_from))
        if self._progress is not None:
            self._detect_progress(self._progress)
            folder = Path(self._payload.environment.get(CHECKPOINT_DIR, ""))
            # Else a URL, or unset. If checkpoints are carried, only a stored one counts, which the carrier reports.
            if folder.is_absolute() and not self._is_carried:
                self._progress.watch_checkpoints(folder)

    def _detect_progress(self, reader: ProgressReader) -> None:
        """Search event files and output for progress that the program does not report."""
        from tf_executor.progress import event_files, output_lines  # the program has started already

        payload, settings, me, own = self._payload, self._payload.settings, os.getpid(), Path(self._sandbox)
        folders = [own / folder for folder in payload.event_folders]
        if folders:
            detector = event_files.ProgressDetector(
                folders, time.time(), lambda: descendants(me), own, is_mirrored=payload.is_mirrored
            )
            reader.detect(EVENT_FILES, detector.scan, event_files.SCAN_INTERVAL)
        if settings.progress_from_output:
            streams = [lambda: self._out.recent, lambda: self._err.recent]
            try:
                lines = output_lines.OutputProgress(streams, settings.progress_pattern, is_mirrored=payload.is_mirrored)
            except re.error as error:
                log.warning("progress.pattern is invalid on this Python: %s", error)
                return
            reader.detect(OUTPUT, lines.scan, output_lines.SCAN_INTERVAL)

    def _sample(self, is_stage_over: bool = False) -> list[ProcessSample]:
        samples = sample_processes(os.getpid())
        self._watched.add(samples, self._session, with_new=is_stage_over)
        return samples

    def _is_own_port(self) -> bool:
        """Return False if a process outside of the task listens on the task's port."""
        port = int(self._payload.readiness.rpartition(":")[2])
        if not is_served_by_others(port, descendants(os.getpid())):
            return True
        log.warning("another process listens on port %s of the task", port)
        return False

    def _problem(self, liveness: Liveness, started: float) -> str:
        """Return why the program is not alive, or an empty string."""
        if liveness.kind == COMMAND:
            return self._command_problem(liveness)
        if liveness.kind == HTTP:
            url = around_environment.fill_placeholders(liveness.target, self._payload, self._sandbox)
            return http_problem(url, liveness.timeout)
        silent = 0.0 if self._progress is None else self._progress.silent_for(started)
        return f"no progress for {format_duration(round(silent))}" if silent > liveness.timeout else ""

    def _silence(self, counts_from: float) -> float:
        """Return the seconds since the last output or progress, whichever is newer.

        Before the first progress, `counts_from` counts as the time of the last progress.
        """
        quiet = time.monotonic() - max(self._out.last, self._err.last)
        waited = time.monotonic() - counts_from if self._progress is None else self._progress.silent_for(counts_from)
        return min(quiet, waited)

    def _run_command(self, line: str, stdout: int, stderr: int, timeout: float) -> TaskEnd | None:
        """Run a user's command in the program's environment. Raises SpawnError."""
        if self._paths is None:
            raise SpawnError("the task is starting")
        context = replace(self._context(stage=Stage.PROGRAM), stdout=stdout, stderr=stderr)
        return self._supervisor.run(line, context, timeout)

    def _command_problem(self, liveness: Liveness) -> str:
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            line = around_environment.fill_placeholders(liveness.target, self._payload, self._sandbox)
            context = replace(self._context(), stdout=null, stderr=null)
            ending = self._supervisor.run(line, context, liveness.timeout)
        except SpawnError:
            return ""
        finally:
            os.close(null)
        if ending is None:
            return f"the liveness command took longer than {liveness.timeout:g} s"
        return "" if ending.exit_code == 0 else f"the liveness command failed: {describe_end(ending)}"
