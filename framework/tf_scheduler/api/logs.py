"""A task's files over the API: `GET /v1/tasks/{name}/logs`. They are read from the agent, off the API's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.task import TaskRecord

from .backend import Backend, FileError, Piece
from .endpoint import Call
from .reading import Reading
from .shapes import LogBody
from .streams import SIGN_OF_LIFE, Streams, message, start_of
from .views.base import Answer, Problem, View
from .views.tasks import no_such_task

#: Seconds between two looks at a file that is followed and does not grow: the agent cannot tell us.
_AGAIN = 1.0
#: Looks at a file that is not there (yet), and at the file of an ended task that has been sent: then it is the end.
_PATIENCE = 30
#: A path below the working directory: for the document, `_wrong_file` is what decides.
PATH = r"^(?!\.{1,2}(/|$))[^/]+(/(?!\.{1,2}(/|$))[^/]+)*$"


class Logs:
    """The handler."""

    def __init__(self, backend: Backend, streams: Streams) -> None:
        self._backend, self._streams = backend, streams
        self._reading = Reading()

    async def __call__(self, call: Call) -> Answer | Response:
        name, file = TaskName(call.given["name"]), call.given["file"]
        record = call.snapshot.state.tasks.get(name)
        wrong = _wrong_file(file)
        if wrong:
            return Problem(400, wrong)
        if record is None:
            return self._no_launch(call, name)
        offset = start_of(call.headers, call.given["offset"])
        if call.follows:
            return self._streams.open(self._follow(record, file, offset, call.given["length"]), call.client)
        try:
            piece = await self._read(record, file, offset, call.given["length"])
        except FileError as error:
            return Problem(error.code, str(error))
        body: LogBody = {"task": name, "id": record.id, "file": file, **_shown(piece)}  # type: ignore[typeddict-item]
        return View(body)

    def _no_launch(self, call: Call, name: str) -> Problem:
        state = call.snapshot.state
        if any(task.name == name for task in state.spec.tasks()):
            return Problem(404, f"{name} was never launched: there are no files of it")
        return no_such_task(state, name)

    async def _read(self, record: TaskRecord, file: str, offset: int | None, length: int) -> Piece:
        files = self._backend.files
        if files is None:
            raise FileError(503, "this scheduler does not reach the files of its tasks")
        state = self._backend.look().state
        return await self._reading.of(record.agent_id, lambda: files.read(state, record, file, offset, length))

    async def _follow(self, record: TaskRecord, file: str, offset: int | None, length: int) -> AsyncIterator[str]:
        """Goes on with the next launch when the task is launched again."""
        silent, missing = 0.0, 0
        while True:
            # Before the read: what an ended task wrote is there by then.
            over = self._is_over(record)
            try:
                piece = await self._read(record, file, offset, length)
            except FileError as error:
                missing += 1
                if error.code != 404 or over or missing > _PATIENCE:
                    yield message("error", Problem(error.code, str(error)).body)
                    return
                piece = Piece(offset or 0, b"", 0)
            shown = _shown(piece, waits=not over)
            if shown["data"]:
                offset, silent = shown["next"], 0.0
                yield message("log", shown, offset)
                continue
            offset = shown["next"] if offset is None else offset
            newer = self._backend.look().state.tasks.get(record.name)
            if newer is not None and newer.id != record.id:
                record, offset, missing = newer, 0, 0
                yield message("launch", {"id": record.id})
            elif over:
                yield message("end", {"state": self._word(record)})
                return
            silent += _AGAIN
            if silent >= SIGN_OF_LIFE:
                silent = 0.0
                yield ": nothing new\n\n"
            await asyncio.sleep(_AGAIN)

    def _is_over(self, record: TaskRecord) -> bool:
        """Whether nothing more will come: it has ended, and is not to be launched again."""
        state = self._backend.look().state
        known = state.tasks.get(record.name)
        if known is None:
            return True
        if known.id != record.id:
            return False
        return not state.is_live(record) and (state.result is not None or not self._comes_again(record))

    def _comes_again(self, record: TaskRecord) -> bool:
        recovery = self._backend.look().state.recoveries.get(record.name)
        return recovery is not None and recovery.launch == record.id

    def _word(self, record: TaskRecord) -> str | None:
        status = self._backend.look().state.statuses.get(record.id)
        return None if status is None else status.state.value


def _wrong_file(file: str) -> str:
    """The agent keeps to the working directory itself; nothing else than a plain path is sent to it at all."""
    if not file or len(file) > 1000 or not file.isprintable():
        return "file must be a path below the working directory, such as stdout"
    if file.startswith("/") or any(part in ("", ".", "..") for part in file.split("/")):
        return f"file must be a path below the working directory, such as stdout, not {file[:80]!r}"
    return ""


def _shown(piece: Piece, *, waits: bool = False) -> dict[str, Any]:
    """Whole characters: one that is cut at the end is left for the next look.

    When it is all that there is, it is shown as it is, unless somebody `waits` for the rest of it.
    """
    data = piece.data
    cut = data[: len(data) - _incomplete(data)]
    data = cut if cut or waits else data
    text = data.decode("utf-8", "replace")
    return {"offset": piece.offset, "data": text, "size": piece.size, "next": piece.offset + len(data)}


def _incomplete(data: bytes) -> int:
    """How many bytes at the end begin a character in UTF-8 that is not finished."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < wanted else 0
        if byte < 0x80:
            return 0
    return 0
