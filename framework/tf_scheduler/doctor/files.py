"""Gather facts locally: request the URLs that options name; examine this machine."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ctypes.util import find_library
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tf_scheduler.model.digests import split_data

from .facts import ArtefactFacts, LaptopFacts

Document = Mapping[str, Any]
#: Seconds for each wait for a server.
TIMEOUT = 5.0
#: Requests at the same time.
PARALLEL = 16

# --- Artefacts


def gather_artefacts(options: Document, *, is_local: bool) -> tuple[ArtefactFacts, ...]:
    """Request every file that options name. `is_local`: tasks run on this machine."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return tuple(pool.map(lambda item: _artefact(*item, is_local=is_local), list(_urls(options))))


def _urls(options: Document) -> Iterator[tuple[str, str, str]]:
    """Yield option, URL and SHA-256 digest (empty: none) of each file to fetch."""
    service, executor = options["service"], options["executor"]
    named = [
        ("service.job_url", service["job_url"], service.get("job_sha256", "")),
        ("executor.url", executor["url"], executor.get("sha256", "")),
    ]
    named += [("service.data", file.url, file.digest) for file in split_data(service["data"])]
    if folder := service["hdfs"]["config_uri"].rstrip("/"):
        named += [("service.hdfs.config_uri", f"{folder}/{name}", "") for name in ("core-site.xml", "hdfs-site.xml")]
    yield from (item for item in named if item[1])


def _artefact(option: str, url: str, digest: str, *, is_local: bool) -> ArtefactFacts:
    scheme = urlsplit(url).scheme
    is_file = scheme in ("", "file")
    if scheme not in ("", "file", "http", "https", "ftp") or (is_file and not is_local):
        return ArtefactFacts(option, url, is_checked=False)
    address = Path(url).absolute().as_uri() if scheme == "" else url
    try:
        actual = _digest(address) if digest else _probe(address)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.gaierror):  # agents may know names that this machine does not
            return ArtefactFacts(option, url, is_checked=False)
        if isinstance(error, urllib.error.HTTPError):
            return ArtefactFacts(option, url, f"HTTP {error.code}")
        return ArtefactFacts(option, url, f"cannot be fetched: {getattr(reason, 'strerror', None) or reason}")
    if digest and actual != digest.lower():
        return ArtefactFacts(option, url, f"has the digest {actual}, not {digest.lower()}")
    return ArtefactFacts(option, url)


def _probe(url: str) -> str:
    """Request a file and read its first byte. Raises OSError."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:  # noqa: S310 - schemes: see _artefact
        response.read(1)
    return ""


def _digest(url: str) -> str:
    """Fetch a file and return its SHA-256. Raises OSError."""
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:  # noqa: S310 - schemes: see _artefact
        while part := response.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


# --- This machine


#: Libraries of the system that libmesos needs (mesos_local/libmesos/native.py).
_SYSTEM_LIBRARIES = ("svn_delta-1", "apr-1", "sasl2", "curl", "ssl")
_DISTRIBUTION = "dcos-tensorflow"


def gather_laptop(
    options: Document | None,
    folders: Iterable[Path],
    local_mesos_problem: str,
    trainings: Mapping[str, Mapping[str, str]],
    taken_ports: tuple[str, ...] = (),
) -> LaptopFacts:
    """Examine this machine.

    Args:
        options: Options of the tasks that run on this machine; None: no tasks run here.
        folders: Folders in which commands store files, in addition to the folder of temporary files.
        local_mesos_problem: Why no local cluster can run; empty if that is unknown.
        trainings: Versions of TensorFlow and Keras, see LaptopFacts.
        taken_ports: See LaptopFacts.
    """
    programs = () if options is None else _programs(options)
    return LaptopFacts(
        python=(sys.version_info[0], sys.version_info[1]),
        missing_programs=tuple(name for name in programs if shutil.which(name) is None),
        missing_libraries=tuple(_missing_libraries()),
        no_local_mesos=local_mesos_problem or _missing_system_libraries(),
        free={
            str(folder): shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
            for folder in (Path(tempfile.gettempdir()), *folders)
        },
        memory=_available_memory(),
        trainings=trainings,
        gpus=tuple(_gpus()),
        taken_ports=taken_ports,
    )


def _gpus() -> Iterator[str]:
    """Yield the GPUs, such as `GPU 0: NVIDIA H100 (UUID: ...)`."""
    with suppress(OSError, subprocess.SubprocessError):  # no nvidia-smi, or no driver
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=TIMEOUT, check=True)
        yield from done.stdout.splitlines()


def _available_memory() -> int | None:
    """Return the bytes that programs can use without swapping; None if not on Linux."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def _programs(options: Document) -> list[str]:
    sections = (section for section in options.values() if isinstance(section, Mapping))
    return list(dict.fromkeys(section["python"] for section in sections if section.get("python")))


def _missing_libraries() -> Iterator[str]:
    """Yield the required Python packages that are not installed."""
    try:
        required = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from the source tree, or from one file that contains all
        return
    for requirement in required:
        name = re.match(r"[\w.-]+", requirement)
        if name is not None and "extra" not in requirement.partition(";")[2]:
            try:
                metadata.version(name[0])
            except metadata.PackageNotFoundError:
                yield name[0]


def _missing_system_libraries() -> str:
    missing = [name for name in _SYSTEM_LIBRARIES if find_library(name) is None]
    return f"missing libraries: {', '.join(f'lib{name}' for name in missing)}" if missing else ""
