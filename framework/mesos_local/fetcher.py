"""Fetch a command's URIs into its sandbox, like Mesos' program `mesos-fetcher`.

The agent passes a FetcherInfo (Mesos: include/mesos/fetcher/fetcher.proto) as JSON in MESOS_FETCHER_INFO. Supported:
file:, plain paths, http: and https:. As in Mesos, an archive is kept next to its extracted content, `executable`
disables extraction, and `output_file` renames.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tf_executor.user import archive

from .host import MesosLocalError, redirect_output

_STALL_TIMEOUT = 60.0  # seconds without a byte, as the agent's --fetcher_stall_timeout
_NANOSECONDS = 1e9
_CHUNK = 1 << 20


def run_fetcher(environment: Mapping[str, str] = os.environ) -> None:
    """Fetch all URIs. Raises MesosLocalError naming the URI and the cause."""
    try:
        info = json.loads(environment["MESOS_FETCHER_INFO"])
        sandbox, items = Path(info["sandbox_directory"]), info["items"]
    except (KeyError, ValueError, TypeError) as error:
        raise MesosLocalError(f"MESOS_FETCHER_INFO is not a FetcherInfo in JSON: {error!r}") from error
    redirect_output(str(sandbox))
    for item in items:
        try:
            _fetch_item(item, info, sandbox)
        except (OSError, ValueError, MesosLocalError, archive.ArchiveError) as error:
            raise MesosLocalError(f"cannot fetch {item['uri']['value']}: {error}") from error
    if (user := info.get("user")) and os.geteuid() == 0:
        owner = pwd.getpwnam(user).pw_uid
        for path in (sandbox, *sandbox.rglob("*")):
            os.chown(path, owner, -1, follow_symlinks=False)


def _fetch_item(item: Mapping[str, Any], info: Mapping[str, Any], sandbox: Path) -> None:
    uri, action = item["uri"], item.get("action", "BYPASS_CACHE")
    target = _inside(sandbox, uri.get("output_file") or _local_path(uri["value"]).name)
    if action == "BYPASS_CACHE":
        _get(uri["value"], target, info)
    else:
        cached = _inside(Path(info["cache_directory"]), item["cache_filename"])
        if action == "DOWNLOAD_AND_CACHE":
            _get(uri["value"], cached, info)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cached, target)
    if uri.get("executable"):
        target.chmod(0o755)
    elif uri.get("extract", True):
        archive.extract(target, sandbox)


def _inside(folder: Path, name: str) -> Path:
    if folder.resolve() not in (folder / name).resolve().parents:
        raise MesosLocalError(f"{name!r} is not a file name inside {folder}")
    return folder / name


def _local_path(uri: str) -> Path:
    """Return the decoded path of a URI; a plain path stays unchanged."""
    return Path(unquote(urlsplit(uri).path) if urlsplit(uri).scheme else uri)


def _get(uri: str, target: Path, info: Mapping[str, Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    url = urlsplit(uri)
    if url.scheme in ("http", "https"):
        _download(uri, target, info.get("stall_timeout", {}).get("nanoseconds", _STALL_TIMEOUT * _NANOSECONDS))
    elif url.scheme not in ("", "file"):
        raise MesosLocalError(f"unsupported URI scheme `{url.scheme}`; use `file`, `http` or `https`")
    elif url.scheme and url.netloc not in ("", "localhost"):
        raise MesosLocalError("a file: URI must name a local file, such as file:///folder/file")
    elif not _local_path(uri).is_absolute() and not info.get("frameworks_home"):
        raise MesosLocalError("a relative path requires the agent's flag frameworks_home")
    else:
        shutil.copyfile(Path(info.get("frameworks_home") or "/", _local_path(uri)), target)


def _download(uri: str, target: Path, stall_nanoseconds: float) -> None:
    from urllib.request import Request, urlopen  # loads ssl, which few containers need

    request = Request(uri, headers={"User-Agent": "mesos-fetcher"})  # noqa: S310 - the scheme was checked
    timeout = stall_nanoseconds / _NANOSECONDS
    with urlopen(request, timeout=timeout) as response, target.open("wb") as output:  # noqa: S310
        shutil.copyfileobj(response, output, _CHUNK)
        expected = response.headers.get("Content-Length")
        if expected is not None and output.tell() != int(expected):
            raise MesosLocalError(f"connection closed after {output.tell()} of {expected} bytes")
