"""The agents of Mesos behind Admin Router, with their state and files.

`dcos task ls` reads them, and `dcos task log` of older versions.

Marathon's tasks run on this machine, not on an agent of Mesos. `marathon-agent` stands for it.
"""

from __future__ import annotations

import grp
import http.client
import json
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .marathon_api import AGENT
from .mesos import MARATHON, Answer, Mesos, forward

Json = Any
#: The longest part of a file in one answer (mesos, FilesProcess: 16 pages).
_LONGEST = 16 * 4096


class Agents:
    """GET /slave/<id>/<path>: `state`, `files/browse` and `files/read`.

    Also with `.json`, which Mesos dropped.
    """

    def __init__(self, mesos: Mesos) -> None:
        self._mesos = mesos

    def answer(self, agent: str, path: str, query: Mapping[str, str], asked: str) -> Answer:
        """`asked`: the same query, encoded."""
        name = path.removesuffix(".json")
        if name not in ("state", "files/browse", "files/read"):
            return _text(501, f"the local DC/OS does not have GET /slave/<id>/{path}")
        if agent != AGENT:
            address = self._mesos.agents().get(agent)
            return _text(404, f"no agent {agent}") if address is None else forward(address, "GET", f"/{name}?{asked}")
        if name == "state":
            return _json(200, self._state())
        return self._file(name, query)

    def _state(self) -> Json:
        executors = [
            {"id": task["id"], "directory": str(sandbox), "tasks": [task], "completed_tasks": [], "queued_tasks": []}
            for task, sandbox in self._mesos.marathon_tasks()
        ]
        framework = {"id": MARATHON, "name": MARATHON, "executors": executors, "completed_executors": []}
        return {"id": AGENT, "frameworks": [framework], "completed_frameworks": []}

    def _file(self, name: str, query: Mapping[str, str]) -> Answer:
        if "path" not in query:
            return _text(400, "Expecting 'path=value' in query.\n")
        try:
            path = self._inside(Path(query["path"]))
            if name == "files/browse":
                return _json(200, [_entry(found) for found in sorted(path.iterdir())])
            return _json(200, _part(path, int(query.get("offset", "-1")), int(query.get("length", "-1"))))
        except OSError:
            return _text(404, "")
        except ValueError as error:
            return _text(400, f"Failed to parse a number: {error}")

    def _inside(self, path: Path) -> Path:
        """The path, resolved. Raise FileNotFoundError outside of the sandboxes."""
        found = path.resolve()
        if not any(found.is_relative_to(sandbox.resolve()) for _, sandbox in self._mesos.marathon_tasks()):
            raise FileNotFoundError(path)
        return found


def _entry(path: Path) -> Json:
    about = path.lstat()
    return {
        "path": str(path),
        "mode": stat.filemode(about.st_mode),
        "nlink": about.st_nlink,
        "uid": next(_names(pwd.getpwuid, about.st_uid)),
        "gid": next(_names(grp.getgrgid, about.st_gid)),
        "size": about.st_size,
        "mtime": about.st_mtime,
    }


def _names(find: Any, number: int) -> Iterator[str]:
    with suppress(KeyError):
        yield find(number)[0]
    yield str(number)


def _part(path: Path, offset: int, length: int) -> Json:
    """A part of a file. `offset` -1: only its size; `length` -1: as much as fits."""
    with path.open("rb") as file:
        if offset == -1:
            return {"data": "", "offset": path.stat().st_size}
        file.seek(offset)
        text = file.read(_LONGEST if length == -1 else min(length, _LONGEST))
    return {"data": text.decode(errors="replace"), "offset": offset}


def _json(status: int, document: Json) -> Answer:
    return Answer(status, {"content-type": "application/json"}, json.dumps(document).encode())


def _text(status: int, text: str) -> Answer:
    return Answer(status, {"content-type": "text/plain"}, (text or http.client.responses[status]).encode())
