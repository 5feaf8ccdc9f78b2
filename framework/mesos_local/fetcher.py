"""`mesos-fetcher`: brings the URIs of a command into the sandbox before its container starts.

The agent gives a FetcherInfo (Mesos: include/mesos/fetcher/fetcher.proto) as JSON in MESOS_FETCHER_INFO. Supported:
file:, plain paths, http: and https:. As in Mesos, an archive is extracted where it was put and kept beside its content,
`executable` turns extraction off, and `output_file` renames.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .errors import MesosLocalError
from .output import redirect_output

#: Names of what may have to be extracted, as `extract` knows them.
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip", ".gz")
_STALL_TIMEOUT = 60.0  # seconds without a byte, as the agent's --fetcher_stall_timeout
_NANOSECONDS = 1e9


def run_fetcher(environment: Mapping[str, str] = os.environ) -> None:
    """Fetch everything. Raises MesosLocalError that names the URI and the reason."""
    try:
        info = json.loads(environment["MESOS_FETCHER_INFO"])
        sandbox, items = Path(info["sandbox_directory"]), info["items"]
    except (KeyError, ValueError, TypeError) as error:
        raise MesosLocalError(f"MESOS_FETCHER_INFO is not a FetcherInfo in JSON: {error!r}") from error
    redirect_output(str(sandbox))
    for item in items:
        try:
            _fetch_item(item, info, sandbox)
        except (OSError, ValueError, MesosLocalError) as error:
            raise MesosLocalError(f"Cannot fetch {item['uri']['value']}: {error}") from error
    if user := info.get("user"):
        _give_to(user, sandbox)


def _fetch_item(item: Mapping[str, Any], info: Mapping[str, Any], sandbox: Path) -> None:
    uri, action = item["uri"], item.get("action", "BYPASS_CACHE")
    target = _inside(sandbox, uri.get("output_file") or _base_name(uri["value"]))
    target.parent.mkdir(parents=True, exist_ok=True)
    timeout = info.get("stall_timeout", {}).get("nanoseconds", _STALL_TIMEOUT * _NANOSECONDS) / _NANOSECONDS
    if action == "BYPASS_CACHE":
        _get(uri["value"], target, info.get("frameworks_home"), timeout)
    else:
        cached = _inside(Path(info["cache_directory"]), item["cache_filename"])
        if action == "DOWNLOAD_AND_CACHE":
            cached.parent.mkdir(parents=True, exist_ok=True)
            _get(uri["value"], cached, info.get("frameworks_home"), timeout)
        shutil.copyfile(cached, target)
    if uri.get("executable"):
        target.chmod(0o755)
    elif uri.get("extract", True) and target.name.lower().endswith(ARCHIVES):
        from .extract import extract  # slow to import, and many containers fetch no archive

        extract(target, target.parent if uri.get("output_file") else sandbox)


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or path.resolve() == folder.resolve():
        raise MesosLocalError(f"{name!r} is not a file name inside {folder}.")
    return path


def _base_name(uri: str) -> str:
    return unquote(urlsplit(uri).path.rpartition("/")[2]) if "://" in uri else uri.rpartition("/")[2]


def _get(uri: str, target: Path, frameworks_home: str | None, timeout: float) -> None:
    scheme = urlsplit(uri).scheme.lower()
    if scheme in ("http", "https"):
        _download(uri, target, timeout)
    elif scheme in ("", "file"):
        shutil.copyfile(_local_path(uri, frameworks_home), target)
    else:
        raise MesosLocalError(f"{scheme}: is not supported here; file:, http: and https: are.")


def _local_path(uri: str, frameworks_home: str | None) -> Path:
    parts = urlsplit(uri)
    if parts.scheme and parts.netloc not in ("", "localhost"):
        raise MesosLocalError("a file: URI names a file of this machine, as in file:///folder/file.")
    path = Path(unquote(parts.path) if parts.scheme else uri)
    if not path.is_absolute():
        if not frameworks_home:
            raise MesosLocalError("a relative path needs the agent's flag frameworks_home.")
        path = Path(frameworks_home) / path
    return path


def _download(uri: str, target: Path, timeout: float) -> None:
    from urllib.request import Request, urlopen  # slow to import, and many containers fetch no URL

    request = Request(uri, headers={"User-Agent": "mesos-fetcher"})  # noqa: S310 - the scheme was checked
    with urlopen(request, timeout=timeout) as response, target.open("wb") as output:  # noqa: S310
        shutil.copyfileobj(response, output, 1 << 20)
        expected = response.headers.get("Content-Length")
        if expected is not None and output.tell() != int(expected):
            raise MesosLocalError(f"the connection broke after {output.tell()} of {expected} bytes.")


def _give_to(user: str, folder: Path) -> None:
    """To the task's user; only root can, and only root runs tasks as others."""
    if os.geteuid() == 0:
        for parent, folders, files in os.walk(folder):
            for name in (".", *folders, *files):
                shutil.chown(Path(parent) / name, user) if not (Path(parent) / name).is_symlink() else None
