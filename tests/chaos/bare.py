"""Start-up time of a worker's program alone: the lower bound of healing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from mesos_local.host import free_ports
from mesos_local.node import is_listening
from tf_scheduler.errors import JobError

_LOOK = 0.02  # a port that opens announces itself to nobody
_PATIENCE = 300.0


def bare_start(document: Mapping[str, Any]) -> float:
    """Measure the start-up in seconds. Raises JobError if it does not start.

    `document`: the options, checked; their job is a file.
    """
    service = document["service"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(unquote(urlsplit(service["job_url"]).path), folder)
        ports = free_ports(3)
        return _until_it_answers(service["command"], folder, _variables(service, folder, ports), ports[0])


def _variables(service: Mapping[str, Any], folder: Path, ports: list[int]) -> dict[str, str]:
    worker, ps, chief = (f"127.0.0.1:{port}" for port in ports)
    cluster = {"worker": [worker], "ps": [ps], "chief": [chief]}
    tf_config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    given = {entry["name"]: entry["value"] for entry in service.get("environment", ())}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"TF_CONFIG": json.dumps(tf_config), "CHECKPOINT_DIR": str(folder), "PATH": path}
    return {**os.environ, **given, **own}


def _until_it_answers(command: str, folder: Path, variables: Mapping[str, str], port: int) -> float:
    began = time.monotonic()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not is_listening(f"127.0.0.1:{port}"):
            if process.poll() is not None or time.monotonic() > began + _PATIENCE:
                raise JobError("a worker's program that was started by hand does not answer")
            time.sleep(_LOOK)
        return time.monotonic() - began
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
