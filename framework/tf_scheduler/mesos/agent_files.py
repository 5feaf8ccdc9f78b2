"""Read files in a task's working directory through its agent's HTTP API.

Mesos documentation: endpoints /files/browse, /files/read and /slaves. Only agents in task records are asked, at the
address that the master reports. Requests name the executor's virtual path, never a path of the agent's machine.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

from mesos_client.credentials import Credentials, Tls
from mesos_client.http import MALFORMED
from tf_executor.contract.http import HttpClient, NoReplyError, SocketHandle
from tf_scheduler.errors import FileError
from tf_scheduler.interfaces import FileChunk, FileEntry
from tf_scheduler.model.ids import AgentId, executor_of
from tf_scheduler.model.secrets import SecretAccess
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

_SOCKET_TIMEOUT = 10.0  # seconds
_RESPONSE_TIMEOUT = 30.0  # seconds for a whole response
_ADDRESS_TTL = 60.0  # seconds that an agent's address is cached
#: Maximum size of a response in bytes: JSON may write a byte as \\u00XX, six times as long.
_MAX_RESPONSE = 8 * 1024 * 1024
#: Maximum size of a folder listing in bytes, about 100,000 files.
_MAX_LISTING = 32 * 1024 * 1024
#: Maximum requests for one read: an agent returns 64 KiB at most (16 pages, mesos/files/files.cpp).
_MAX_PIECES = 32
#: Maximum characters of an answer in a message.
_MAX_TEXT = 200
_MISSING = "{}: file does not exist in the task's working directory"


class AgentFiles:
    """Thread-safe reader of task files. `master` returns the master's URL, or None.

    Agents get the credentials over http only if `access` allows it: any program may answer at an agent's address.
    """

    def __init__(
        self,
        master: Callable[[], str | None],
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        access: SecretAccess | None = None,
    ) -> None:
        self._master, self._access = master, access or SecretAccess()
        self._credentials, self._tls = credentials or Credentials(), tls
        self._addresses: dict[AgentId, tuple[float, str]] = {}

    def read(self, state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> FileChunk:
        """Return bytes from `offset` (None: the last `length` bytes). Raises FileError."""
        with self._errors_in_words(record):
            return self._read(state, record, name, offset, length)

    def list(self, state: SchedulerState, record: TaskRecord, folder: str) -> Sequence[FileEntry]:
        """Return the entries of `folder` ("": the working directory). Raises FileError."""
        with self._errors_in_words(record):
            path = _sandbox(state, record) + (f"/{folder}" if folder else "")
            listing = self._browse(self._address(record), path, folder or "the working directory")
            names = ((entry["path"].rpartition("/")[2], entry) for entry in listing)
            return [FileEntry(name, entry["mode"], entry["size"]) for name, entry in names]

    @contextmanager
    def _errors_in_words(self, record: TaskRecord) -> Iterator[None]:
        try:
            yield
        except FileError as error:
            if error.silent:
                self._addresses.pop(record.agent_id, None)
            raise
        except (*MALFORMED, http.client.HTTPException) as error:
            raise FileError(502, f"the master or the agent of {record.name} returned an invalid answer") from error

    def _read(self, state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> FileChunk:
        agent = self._address(record)
        path = f"{_sandbox(state, record)}/{name}"
        # Only regular files: opening a named pipe blocks the agent forever.
        listing = self._browse(agent, path.rpartition("/")[0], name)
        modes = {entry["path"]: entry["mode"] for entry in listing}
        if path not in modes:
            raise FileError(404, _MISSING.format(name))
        if not modes[path].startswith("-"):
            raise FileError(400, f"{name}: not a regular file, but a folder, pipe or device")
        size = self._piece(agent, path, name, -1, 0).offset
        start = max(0, size - length) if offset is None else min(offset, size)
        if start >= size:
            return FileChunk(start, b"", size)
        data = b""
        for _ in range(_MAX_PIECES):
            part = self._piece(agent, path, name, start + len(data), length - len(data)).data
            data += part
            if not part or len(data) >= length:
                break
        return FileChunk(start, data, max(size, start + len(data)))

    def _browse(self, agent: str, folder: str, name: str) -> Any:
        return self._ask(agent, f"/files/browse?path={quote(folder, safe='')}", name, _MAX_LISTING)

    def _piece(self, agent: str, path: str, name: str, offset: int, length: int) -> FileChunk:
        """Read one piece; at offset -1 Mesos returns the file's size as the offset."""
        query = f"path={quote(path, safe='')}&offset={offset}&length={length}"
        answer = self._ask(agent, f"/files/read?{query}", name)
        return FileChunk(int(answer["offset"]), answer["data"].encode(errors="surrogateescape"), 0)

    def _ask(self, agent: str, request: str, name: str, max_size: int = _MAX_RESPONSE) -> Any:
        """Return the agent's answer. Errors do not quote it, as it may contain paths."""
        trusted = self._access.agent_credentials_over_http or agent.startswith("https:")
        credentials = self._credentials if trusted else Credentials()
        status, content = self._get(agent, request, f"agent {agent}", credentials, max_size)
        if status == http.client.UNAUTHORIZED and not trusted:
            hint = "enable TLS, or set mesos.agent_credentials_over_http"
            raise FileError(502, f"agent {agent} requires a login, but has no TLS; {hint}")
        if status == http.client.BAD_REQUEST:
            raise FileError(400, f"{name}: a link that leads out of the task's working directory")
        if status == http.client.NOT_FOUND:
            raise FileError(404, _MISSING.format(name))
        if status != http.client.OK:
            raise FileError(502, f"agent {agent} returned HTTP {status} for {name}")
        return _json(status, content, f"agent {agent}")

    def _address(self, record: TaskRecord) -> str:
        """Return the agent's URL, `http://IP:PORT`; a restart may change the port."""
        cached = self._addresses.get(record.agent_id)
        if cached is not None and time.monotonic() < cached[0] + _ADDRESS_TTL:
            return cached[1]
        master = self._master()
        if master is None:
            raise FileError(503, "agent address unknown: no Mesos master is connected")
        request = f"/slaves?slave_id={quote(record.agent_id, safe='')}"
        status, content = self._get(master, request, "the Mesos master", self._credentials)
        agents = _json(status, content, "the Mesos master").get("slaves", ())
        agent = next((agent for agent in agents if agent["id"] == record.agent_id), None)
        if agent is None:
            raise FileError(502, f"agent {record.hostname} ({record.agent_id}) is not registered")
        address = f"{urlsplit(master).scheme}://{agent['pid'].rpartition('@')[2]}"
        self._addresses[record.agent_id] = (time.monotonic(), address)
        return address

    def _get(
        self, base: str, path: str, server: str, credentials: Credentials, max_size: int = _MAX_RESPONSE
    ) -> tuple[int, bytes]:
        header = credentials.header()
        context = (self._tls or Tls()).context(SocketHandle()) if base.startswith("https:") else None
        client = HttpClient(_RESPONSE_TIMEOUT, _SOCKET_TIMEOUT, context, max_bytes=max_size)
        try:
            reply = client.fetch(base + path, {"Authorization": header} if header else {})
        except NoReplyError as error:
            raise FileError(502, f"{server} does not answer: {str(error)[:_MAX_TEXT]}", silent=True) from error
        return reply.status, reply.body


def _sandbox(state: SchedulerState, record: TaskRecord) -> str:
    return f"/frameworks/{state.stored.framework_id}/executors/{executor_of(record.id)}/runs/latest"


def _json(status: int, content: bytes, server: str) -> Any:
    if status != http.client.OK:
        raise FileError(502, f"{server} returned HTTP {status}: {content[:_MAX_TEXT].decode(errors='replace')}")
    try:
        # Mesos copies a file's bytes unchanged, including invalid UTF-8.
        return json.loads(content.decode(errors="surrogateescape"))
    except ValueError as error:
        raise FileError(502, f"{server} did not return JSON") from error
