"""The server of the local DC/OS.

FOLDER/serve.json says who serves and where, so that other commands find it; it is gone when nobody does.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from mesos_local.cluster import LocalCluster
from mesos_local.host import ProcessId, free_ports
from tf_executor.process.ports import is_free
from tf_scheduler.api.http.server import ApiServer

from .cosmos import Cosmos
from .folder import Folder
from .marathon import Marathon
from .mesos import Mesos
from .record import Record
from .repositories import Repositories, Repository
from .routes import create_app
from .task import HOST
from .uninstall import Uninstaller
from .visitors import refuse_pages


def choose_port(folder: Folder, wanted: int = 0) -> int:
    """The port to serve at; 0: the previous one, or any free port."""
    if wanted:
        return wanted
    before = _kept(folder.path / "port", lambda: str(free_ports(1)[0]))
    return int(before) if is_free(int(before)) else free_ports(1)[0]


def url_of(port: int) -> str:
    """URL for the dcos command."""
    return f"http://{HOST}:{port}"


@contextmanager
def serving(cluster: LocalCluster, port: int) -> Iterator[Record]:
    """Serve on loopback inside the block. Raise ApiError if the port is in use.

    The package's repository lies in `Folder.universe`. Apps of an earlier time run again; afterwards none does.
    """
    folder, own = Folder(cluster.directory), ProcessId.of(os.getpid())
    assert own is not None, "we exist"
    cluster_id = _kept(folder.path / "cluster-id", lambda: str(uuid.uuid4()))
    with Marathon(folder.marathon, cluster.directory) as marathon:
        uninstaller = Uninstaller(marathon, folder.uninstalled)
        first = [Repository("Universe", f"{url_of(port)}/universe/universe-v4.json")]
        cosmos = Cosmos(Repositories(folder.path, first), marathon, uninstaller)
        app = create_app(cosmos, marathon, Mesos(cluster, marathon), folder, uuid.UUID(cluster_id))
        with ApiServer(refuse_pages(app), HOST, port):
            record = Record(url_of(port), cluster_id, own)
            try:
                folder.record.write_text(json.dumps(asdict(record)))
                uninstaller.resume()
                yield record
            finally:
                folder.record.unlink(missing_ok=True)
                uninstaller.stop()


def _kept(path: Path, make: Callable[[], str]) -> str:
    """Read the file, or create it."""
    try:
        return path.read_text()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make())
        return path.read_text()
