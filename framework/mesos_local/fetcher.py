"""`mesos-fetcher`: fetch the URIs of a command into the sandbox before its container starts.

The agent passes a FetcherInfo (Mesos: include/mesos/fetcher/fetcher.proto) as JSON in MESOS_FETCHER_INFO. Supported:
file:, plain paths, http: and https:. As in Mesos, an archive is kept next to its extracted content, `executable`
disables extraction, and `output_file` renames.

It runs for every container, so slow imports (pathlib, shutil, urllib) are inside functions.
"""

from __future__ import annotations

import json
import os
import pwd

from .host.errors import MesosLocalError, redirect_output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: Suffixes of archives that `tf_executor.user.archive` can extract.
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip", ".gz")
_STALL_TIMEOUT = 60.0  # seconds without a byte, as the agent's --fetcher_stall_timeout
_NANOSECONDS = 1e9
_CHUNK = 1 << 20


def run_fetcher(environment: Mapping[str, str] = os.environ) -> None:
    """Fetch all URIs. Raises MesosLocalError naming the URI and the cause."""
    try:
        info = json.loads(environment["MESOS_FETCHER_INFO"])
        sandbox, items = os.fspath(info["sandbox_directory"]), info["items"]
    except (KeyError, ValueError, TypeError) as error:
        raise MesosLocalError(f"MESOS_FETCHER_INFO is not a FetcherInfo in JSON: {error!r}") from error
    redirect_output(sandbox)
    for item in items:
        try:
            _fetch_item(item, info, sandbox)
        except (OSError, ValueError, MesosLocalError) as error:
            raise MesosLocalError(f"cannot fetch {item['uri']['value']}: {error}") from error
    if user := info.get("user"):
        _change_owner(user, sandbox)


def _fetch_item(item: Mapping[str, Any], info: Mapping[str, Any], sandbox: str) -> None:
    uri, action = item["uri"], item.get("action", "BYPASS_CACHE")
    target = _inside(sandbox, uri.get("output_file") or _base_name(uri["value"]))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    timeout = info.get("stall_timeout", {}).get("nanoseconds", _STALL_TIMEOUT * _NANOSECONDS) / _NANOSECONDS
    if action == "BYPASS_CACHE":
        _get(uri["value"], target, info.get("frameworks_home"), timeout)
    else:
        cached = _inside(info["cache_directory"], item["cache_filename"])
        if action == "DOWNLOAD_AND_CACHE":
            os.makedirs(os.path.dirname(cached), exist_ok=True)
            _get(uri["value"], cached, info.get("frameworks_home"), timeout)
        _copy(cached, target)
    if uri.get("executable"):
        os.chmod(target, 0o755)  # noqa: S103 - as Mesos does
    elif uri.get("extract", True) and target.lower().endswith(ARCHIVES):
        _extract(target, os.path.dirname(target) if uri.get("output_file") else sandbox)


def _extract(fetched: str, folder: str) -> None:
    """Extract as the executor does. Most URIs are not archives, so the module is loaded here."""
    from pathlib import Path

    from tf_executor.user import archive

    try:
        archive.extract(Path(fetched), Path(folder))
    except archive.ArchiveError as error:
        raise MesosLocalError(str(error)) from error


def _inside(folder: str, name: str) -> str:
    path, home = os.path.join(folder, name), os.path.realpath(folder)
    if not os.path.realpath(path).startswith(home.rstrip("/") + "/"):
        raise MesosLocalError(f"{name!r} is not a file name inside {folder}")
    return path


def _base_name(uri: str) -> str:
    scheme, _, path = _parts(uri)
    return (_decoded(path) if scheme else path).rpartition("/")[2]


def _parts(uri: str) -> tuple[str, str, str]:
    """Return lower-case scheme, host and encoded path; a plain path has an empty scheme and host."""
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return "", "", uri
    rest = rest.partition("#")[0].partition("?")[0]
    if not rest.startswith("//"):
        return scheme.lower(), "", rest
    host, slash, path = rest[2:].partition("/")
    return scheme.lower(), host, slash + path


def _decoded(path: str) -> str:
    if "%" not in path:
        return path
    from urllib.parse import unquote  # slow import, which few names need

    return unquote(path)


def _get(uri: str, target: str, frameworks_home: str | None, timeout: float) -> None:
    scheme = _parts(uri)[0]
    if scheme in ("http", "https"):
        _download(uri, target, timeout)
    elif scheme in ("", "file"):
        _copy(_local_path(uri, frameworks_home), target)
    else:
        raise MesosLocalError(f"unsupported scheme {scheme}:; use file:, http: or https:")


def _local_path(uri: str, frameworks_home: str | None) -> str:
    scheme, host, path = _parts(uri)
    if scheme and host not in ("", "localhost"):
        raise MesosLocalError("a file: URI must name a local file, such as file:///folder/file")
    path = _decoded(path) if scheme else path
    if path.startswith("/"):
        return path
    if not frameworks_home:
        raise MesosLocalError("a relative path requires the agent's flag frameworks_home")
    return os.path.join(frameworks_home, path)


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as content, open(target, "wb") as copy:
        while chunk := content.read(_CHUNK):
            copy.write(chunk)


def _download(uri: str, target: str, timeout: float) -> None:
    import shutil  # slow imports, which many containers do not need
    from urllib.request import Request, urlopen

    request = Request(uri, headers={"User-Agent": "mesos-fetcher"})  # noqa: S310 - the scheme was checked
    with urlopen(request, timeout=timeout) as response, open(target, "wb") as output:  # noqa: S310
        shutil.copyfileobj(response, output, _CHUNK)
        expected = response.headers.get("Content-Length")
        if expected is not None and output.tell() != int(expected):
            raise MesosLocalError(f"connection closed after {output.tell()} of {expected} bytes")


def _change_owner(user: str, folder: str) -> None:
    """Make the task's user own the sandbox; only root can, and only root runs tasks as another user."""
    if os.geteuid() == 0:
        owner = pwd.getpwnam(user).pw_uid
        for parent, folders, files in os.walk(folder):
            for name in (".", *folders, *files):
                os.chown(os.path.join(parent, name), owner, -1, follow_symlinks=False)
