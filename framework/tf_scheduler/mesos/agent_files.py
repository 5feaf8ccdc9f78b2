"""Files of tasks, read from the agents that run them (Mesos documentation, endpoints /files/read and /slaves).

Only agents that our records name are asked, at the address that the master has for them. The agent keeps to the
executor's working directory: it knows it by ids of ours, no path of its machine is ever sent.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from mesos_client import Credentials, Tls
from mesos_client.transport import SocketHandle
from tf_scheduler.interfaces import FileError, Piece
from tf_scheduler.model.ids import AgentId, executor_of
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

_TIMEOUT = 10.0  # seconds for each wait
_LONGEST = 30.0  # seconds for an answer
_FRESH = 60.0  # seconds that an agent's address is remembered
#: Bytes of an answer at most: JSON may write a byte as \\u00XX, six times as long.
_MOST = 8 * 1024 * 1024
#: The same of a folder's list: some 100,000 files.
_MOST_LIST = 32 * 1024 * 1024
_MISSING = "there is no file {} in the task's working directory, or not any more"


class AgentFiles:
    """Safe for all threads. `master`: base URL of the master now, None when there is none."""

    def __init__(
        self, master: Callable[[], str | None], credentials: Credentials | None = None, tls: Tls | None = None
    ) -> None:
        self._master = master
        self._credentials, self._tls = credentials or Credentials(), tls
        self._addresses: dict[AgentId, tuple[float, str]] = {}

    def read(self, state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> Piece:
        """`offset` None: the last `length` bytes. Raise FileError."""
        try:
            return self._read(state, record, name, offset, length)
        except FileError as error:
            if error.silent:
                self._addresses.pop(record.agent_id, None)
            raise

    def _read(self, state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> Piece:
        agent = self._address(record)
        path = f"/frameworks/{state.framework_id}/executors/{executor_of(record.id)}/runs/latest/{name}"
        self._check(agent, path, name)
        size = self._piece(agent, path, name, -1, 0).offset
        start = max(0, size - length) if offset is None else min(offset, size)
        if start >= size:
            return Piece(start, b"", size)
        piece = self._piece(agent, path, name, start, length)
        return Piece(start, piece.data, max(size, start + len(piece.data)))

    def _check(self, agent: str, path: str, name: str) -> None:
        """An agent that reads a named pipe waits for its other end, for ever, and answers for no file any more."""
        folder = quote(path.rpartition("/")[0], safe="")
        status, content = self._get(agent, f"/files/browse?path={folder}", f"agent {agent}", _MOST_LIST)
        if status == http.client.NOT_FOUND:
            raise FileError(404, _MISSING.format(name))
        if status != http.client.OK:
            # Its words name places on its machine, as where a link leads out of the working directory.
            raise FileError(502, f"agent {agent} answers {status}: it does not show the folder of {name}")
        modes = {entry["path"]: entry["mode"] for entry in _json(status, content, f"agent {agent}")}
        if path not in modes:
            raise FileError(404, _MISSING.format(name))
        if not modes[path].startswith("-"):
            raise FileError(400, f"{name} is no file, but a folder, a pipe or a device")

    def _piece(self, agent: str, path: str, name: str, offset: int, length: int) -> Piece:
        """At offset -1 Mesos tells the size, as the offset."""
        query = f"path={quote(path, safe='')}&offset={offset}&length={length}"
        status, content = self._get(agent, f"/files/read?{query}", f"agent {agent}")
        if status == http.client.NOT_FOUND:
            raise FileError(404, _MISSING.format(name))
        if status != http.client.OK:
            raise FileError(502, f"agent {agent} answers {status}: it does not give {name}")
        answer = _json(status, content, f"agent {agent}")
        return Piece(int(answer["offset"]), answer["data"].encode(errors="surrogateescape"), 0)

    def _address(self, record: TaskRecord) -> str:
        """`http://10.0.0.1:5051`, from the master; the agent may have come back at another port."""
        known = self._addresses.get(record.agent_id)
        if known is not None and time.monotonic() < known[0] + _FRESH:
            return known[1]
        master = self._master()
        if master is None:
            raise FileError(503, "there is no Mesos master that knows where the agent is")
        status, content = self._get(master, f"/slaves?slave_id={quote(record.agent_id, safe='')}", "the Mesos master")
        agents = _json(status, content, "the Mesos master").get("slaves", ())
        found = next((agent for agent in agents if agent["id"] == record.agent_id), None)
        if found is None:
            raise FileError(502, f"agent {record.hostname} ({record.agent_id}) is not registered: it has gone")
        address = f"{urlsplit(master).scheme}://{found['pid'].rpartition('@')[2]}"
        self._addresses[record.agent_id] = (time.monotonic(), address)
        return address

    def _get(self, base: str, path: str, who: str, most: int = _MOST) -> tuple[int, bytes]:
        parts = urlsplit(base)
        connection = self._connection(parts.scheme, parts.netloc)
        try:
            header = self._credentials.header()
            connection.request("GET", path, headers={"Authorization": header} if header else {})
            answer = connection.getresponse()
            return answer.status, _content(answer, most)
        except (OSError, http.client.HTTPException) as error:
            raise FileError(502, f"{who} does not answer: {error or type(error).__name__}", silent=True) from error
        finally:
            connection.close()

    def _connection(self, scheme: str, netloc: str) -> http.client.HTTPConnection:
        if scheme != "https":
            return http.client.HTTPConnection(netloc, timeout=_TIMEOUT)
        return http.client.HTTPSConnection(
            netloc, timeout=_TIMEOUT, context=(self._tls or Tls()).context(SocketHandle())
        )


def _content(answer: http.client.HTTPResponse, most: int) -> bytes:
    """Not more than that, and not for longer than it may take. Raise OSError."""
    end, found = time.monotonic() + _LONGEST, b""
    while len(found) < most and (part := answer.read1(most - len(found))):
        found += part
        if time.monotonic() > end:
            raise TimeoutError(f"its answer has not come within {_LONGEST:g} s")
    return found


def _json(status: int, content: bytes, who: str) -> Any:
    if status != http.client.OK:
        raise FileError(502, f"{who} answers {status}: {content[:200].decode(errors='replace')}")
    try:
        # Mesos writes the bytes of a file as they are, also those that are no UTF-8.
        return json.loads(content.decode(errors="surrogateescape"))
    except ValueError as error:
        raise FileError(502, f"{who} gives no JSON") from error
