"""Endpoints `logs`, `files` and `exec`: read files of a task, run commands in it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from starlette.responses import Response

from tf_executor.contract.bodies import ExecutedBody, FileBody, FilesBody, LogBody, LogEventBody, StartedBody
from tf_executor.contract.payload import EXEC_FOLDER, MAX_EXEC_BYTES, MAX_EXEC_TIMEOUT
from tf_executor.contract.reports import MAX_EXEC_FILE, ExecReport
from tf_executor.contract.text import format_size
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.http.endpoint import ApiRequest, BadRequestError
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, View
from tf_scheduler.api.views.tasks import unknown_task
from tf_scheduler.errors import FileError
from tf_scheduler.interfaces import FileChunk, TaskFiles
from tf_scheduler.model.events import ExecRequested
from tf_scheduler.model.ids import AgentId, TaskName
from tf_scheduler.model.plan import SERVICE_ENDED, Reply
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .streams import KEEP_ALIVE, EventStreams, format_event

_T = TypeVar("_T")
#: Maximum number of concurrent reads, and of reads from one agent.
MAX_READS, MAX_READS_PER_AGENT = 16, 2


@dataclass(slots=True)
class _Agent:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_READS_PER_AGENT))
    #: Readers that are active or queued.
    users: int = 0
    #: Number of timeouts.
    silent: int = 0


class AgentFileReader:
    """Reads agent files in threads, limited in total and per agent. One event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MAX_READS)
        #: Agents with active or queued readers.
        self.agents: dict[AgentId, _Agent] = {}
        #: A separate pool, so that slow agents do not block other users of threads.
        self._threads = ThreadPoolExecutor(MAX_READS, "files of tasks")

    async def read(self, name: AgentId, read: Callable[[], _T]) -> _T:
        """Run `read` in a thread. Raises FileError, also if another reader timed out."""
        with self._agent(name) as agent:
            silent = agent.silent
            await agent.turns.acquire()
            # Shielded: the slot is released when the thread ends, not when the client disconnects.
            return await asyncio.shield(asyncio.ensure_future(self._read(name, silent, read)))

    async def _read(self, name: AgentId, silent: int, read: Callable[[], _T]) -> _T:
        with self._agent(name) as agent:
            try:
                if agent.silent != silent:
                    raise FileError(502, "the agent does not answer; try again later")
                async with self._turns:
                    return await asyncio.get_running_loop().run_in_executor(self._threads, read)
            except FileError as error:
                agent.silent += error.silent
                raise
            finally:
                agent.turns.release()

    @contextmanager
    def _agent(self, name: AgentId) -> Iterator[_Agent]:
        """Yield the agent's limits; they are removed after the last use."""
        agent = self.agents.setdefault(name, _Agent())
        agent.users += 1
        try:
            yield agent
        finally:
            agent.users -= 1
            if not agent.users:
                del self.agents[name]


#: Seconds between two reads of a followed file: agents send no notifications.
_POLL_INTERVAL = 1.0
#: Reads of a missing file until a stream ends.
_MAX_MISSING = 30
#: Maximum length of a path, and its regular expression (ECMA-262): names other than `.` and `..`, without control
#: characters and characters that hide or reorder text.
MAX_PATH = 1000
_NAME = r"(?!\.{1,2}(/|$))[^/\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+"
PATH_PATTERN = f"^{_NAME}(/{_NAME})*$"


#: Default timeout of a command in seconds, and maximum bytes of one read of its result.
_EXEC_TIMEOUT, _PART = 60, 1 << 20


async def execute(request: ApiRequest) -> ApiAnswer:
    """Send a command to a task."""
    name, (command, timeout) = TaskName(request.params["name"]), _command(request.body)
    if len(json.dumps(command)) > MAX_EXEC_BYTES:
        return ApiProblem(413, f"command too long: the limit is {MAX_EXEC_BYTES} bytes in JSON")
    event = ExecRequested(uuid.uuid4().hex, name, command, timeout)
    answer = await request.backend.ask(event) or SERVICE_ENDED
    if answer.reply is not Reply.OK:
        return ApiProblem(int(answer.reply.value), answer.message)
    record = request.backend.snapshot().state.stored.tasks[name]
    body: StartedBody = {"task": name, "launch": record.id, "id": event.id}
    return View(body)


def _command(body: Any) -> tuple[tuple[str, ...], float]:
    """Return command and timeout (seconds) of a body. Raises BadRequestError."""
    command = body.get("command") if isinstance(body, dict) else None
    if not isinstance(command, list) or not command or not set(body) <= {"command", "timeout"}:
        raise BadRequestError("invalid body: expected a JSON object with `command`, a list of texts, and `timeout`")
    if not all(isinstance(item, str) and "\0" not in item for item in command) or not command[0]:
        raise BadRequestError("command: expected a program and its arguments, texts without NUL")
    timeout = body.get("timeout", _EXEC_TIMEOUT)
    if type(timeout) not in (int, float) or not 1 <= timeout <= MAX_EXEC_TIMEOUT:
        raise BadRequestError(f"timeout: expected a number of seconds from 1 to {MAX_EXEC_TIMEOUT}")
    return tuple(command), float(timeout)


class TaskFileHandler:
    """Handlers of the endpoints of a task. The instance itself handles `logs`."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams, self._reader = streams, AgentFileReader()

    async def __call__(self, request: ApiRequest) -> ApiAnswer | Response:
        file, length, is_binary = (request.params[name] for name in ("file", "length", "binary"))
        _check_path(file, "file")
        record = _record(request)
        if not isinstance(record, TaskRecord):
            return record
        offset, last = request.params["offset"], request.headers.get("last-event-id", "")
        if last.isascii() and last.isdecimal() and len(last) < 17:
            offset = int(last)
        if request.wants_stream:
            return self._streams.open(self._follow(request.backend, record, file, offset, length))
        piece = await self._read(request.backend, record, file, offset, length)
        part = binary_body(piece) if is_binary else piece_body(piece)
        body: LogBody = {"task": record.name, "id": record.id, "file": file, **part}
        return View(body)

    async def files(self, request: ApiRequest) -> ApiAnswer:
        """Answer with the entries of a folder."""
        folder = request.params["folder"]
        if folder:
            _check_path(folder, "folder")
        record = _record(request)
        if not isinstance(record, TaskRecord):
            return record
        state, files = request.snapshot.state, _files(request.backend)
        entries = await self._reader.read(record.agent_id, lambda: files.list(state, record, folder))
        listed: list[FileBody] = [{"name": entry.name, "mode": entry.mode, "size": entry.size} for entry in entries]
        body: FilesBody = {"task": record.name, "id": record.id, "folder": folder, "files": listed}
        return View(body)

    async def executed(self, request: ApiRequest) -> ApiAnswer:
        """Answer with the state of a command; after its end, with output and exit status."""
        record, name = _record(request), request.params["id"]
        if not isinstance(record, TaskRecord):
            return record
        if not re.fullmatch("[0-9a-f]{32}", name):
            return ApiProblem(404, f"unknown command {name[:40]!r}")
        # Before the read, so that the read finds the result of an ended task.
        state = request.backend.snapshot().state
        current = state.stored.tasks.get(record.name)
        over = current is None or current.id != record.id or not state.is_live(record)
        try:
            report: ExecReport | None = await self._result(request.backend, record, f"{EXEC_FOLDER}/{name}")
        except FileError as error:
            if error.http_status != 404:
                raise
            if (problem := await self._no_result(request, record, over)) is not None:
                return problem
            return View(_executed(record, name, "running", ExecReport()))
        if report is None:
            return ApiProblem(502, f"the result of the command in {record.name} was overwritten")
        return View(_executed(record, name, "ended", report))

    async def _result(self, backend: Backend, record: TaskRecord, file: str) -> ExecReport | None:
        data, size = b"", 1
        while len(data) < min(size, MAX_EXEC_FILE):
            piece = await self._read(backend, record, file, len(data), _PART)
            data, size = data + piece.data, piece.size if piece.data else 0
        return ExecReport.decode(data)

    async def _no_result(self, request: ApiRequest, record: TaskRecord, over: bool) -> ApiProblem | None:
        """Return why no result will come; None if the command may still run."""
        files, state = _files(request.backend), request.snapshot.state
        try:
            await self._reader.read(record.agent_id, lambda: files.list(state, record, EXEC_FOLDER))
        except FileError as error:
            if error.http_status != 404:
                raise
            why = "it is of an older release (option executor.url)"
            return ApiProblem(501, f"the executor of {record.name} does not run commands: {why}")
        return ApiProblem(409, f"{record.name} has ended, and its commands with it") if over else None

    async def _read(
        self, backend: Backend, record: TaskRecord, file: str, offset: int | None, length: int
    ) -> FileChunk:
        files, state = _files(backend), backend.snapshot().state
        return await self._reader.read(record.agent_id, lambda: files.read(state, record, file, offset, length))

    async def _follow(
        self, backend: Backend, record: TaskRecord, file: str, offset: int | None, length: int
    ) -> AsyncIterator[str]:
        """Stream a growing file; continue with the file of the task's next launch."""
        silent, missing = 0.0, 0
        while True:
            # Checked before the read, so that the read returns all output of an ended task.
            over = _is_over(backend.snapshot().state, record)
            try:
                piece = await self._read(backend, record, file, offset, length)
            except FileError as error:
                missing += 1
                if error.http_status != 404 or over or missing > _MAX_MISSING:
                    yield format_event("error", ApiProblem(error.http_status, str(error)).body)
                    return
                piece = FileChunk(offset or 0, b"", 0)
            body = piece_body(piece, waits=not over)
            if body["data"]:
                offset, silent = body["next"], 0.0
                yield format_event("log", body, offset)
                continue
            offset = body["next"] if offset is None else offset
            stored = backend.snapshot().state.stored
            newer, status = stored.tasks.get(record.name), stored.statuses.get(record.id)
            if newer is not None and newer.id != record.id:
                record, offset, missing = newer, 0, 0
                yield format_event("launch", {"id": record.id})
            elif over:
                yield format_event("end", {"state": None if status is None else status.state.value})
                return
            silent += _POLL_INTERVAL
            if silent >= KEEP_ALIVE:
                silent = 0.0
                yield ": nothing new\n\n"
            await asyncio.sleep(_POLL_INTERVAL)


def _executed(record: TaskRecord, name: str, state: str, report: ExecReport) -> ExecutedBody:
    return {
        "task": record.name,
        "launch": record.id,
        "id": name,
        "state": state,
        "exit_code": report.exit_code,
        "signal": report.signal,
        "timed_out": bool(report.timed_out),
        "cut": bool(report.cut),
        "error": report.error or "",
        "stdout": report.stdout or "",
        "stderr": report.stderr or "",
    }


def _earlier(record: TaskRecord, launch: str) -> TaskRecord | None:
    """Return the record of an earlier launch; None if this launch is unknown."""
    for item in record.earlier:
        if item.id == launch:
            return replace(record, id=item.id, agent_id=item.agent_id, hostname=item.hostname)
    return None


def _record(request: ApiRequest) -> TaskRecord | ApiProblem:
    """Return the record of the requested launch (default: the last), or a problem."""
    name, state = TaskName(request.params["name"]), request.snapshot.state
    record = state.stored.tasks.get(name)
    if record is None and any(task.name == name for task in state.spec.tasks()):
        return ApiProblem(404, f"task {name} has never been launched and has no files")
    if record is None:
        return unknown_task(state, name)
    launch = request.params.get("launch", "")
    asked = record if launch in ("", record.id) else _earlier(record, launch)
    return asked or ApiProblem(404, f"unknown launch {launch} of {name}; known: `earlier` of /v1/tasks/{name}")


def _files(backend: Backend) -> TaskFiles:
    if backend.files is None:
        raise FileError(503, "this scheduler cannot read the files of its tasks")
    return backend.files


def _is_over(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether the launch has ended and the task will not be launched again."""
    current, recovery = state.stored.tasks.get(record.name), state.stored.recoveries.get(record.name)
    if current is None:
        return True
    if current.id != record.id or state.is_live(record):
        return False
    return state.stored.result is not None or recovery is None or recovery.launch != record.id


def _check_path(file: str, parameter: str) -> None:
    """Raise BadRequestError if the path is invalid. The agent confines paths as well."""
    # Without `$`, which also matches before a line end.
    if len(file) > MAX_PATH or not re.fullmatch(PATH_PATTERN.removesuffix("$"), file):
        raise BadRequestError(
            f"{parameter}: {file[:80]!r}: expected a path below the working directory, such as stdout"
        )


def piece_body(piece: FileChunk, *, waits: bool = False) -> LogEventBody:
    """Return the text up to the last complete character.

    An incomplete character at the end is left for the next read. Data without a complete character is decoded with
    replacement characters, unless the reader `waits` for the rest.
    """
    data = piece.data
    cut = data[: len(data) - _incomplete(data)]
    data = cut if cut or waits else data
    return _log_body(piece, data.decode("utf-8", "replace"), len(data))


def binary_body(piece: FileChunk) -> LogEventBody:
    """Return the bytes in base64."""
    return _log_body(piece, base64.b64encode(piece.data).decode(), len(piece.data))


def _log_body(piece: FileChunk, data: str, length: int) -> LogEventBody:
    return {
        "offset": piece.offset,
        "data": data,
        "size": piece.size,
        "size_text": format_size(piece.size),
        "next": piece.offset + length,
    }


def _incomplete(data: bytes) -> int:
    """Return the number of bytes of an incomplete UTF-8 character at the end."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < wanted else 0
        if byte < 0x80:
            return 0
    return 0
