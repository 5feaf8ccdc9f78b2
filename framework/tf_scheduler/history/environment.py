"""What a result may depend on besides its options: versions, the machine, the job's files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

#: Distributions that decide how a training goes.
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "tf_keras", "numpy", "protobuf", "horovod", "torch")
_ASK = (
    "import importlib.metadata as m, json, platform, sys\n"
    "found = {'python': platform.python_version()}\n"
    "for name in sys.argv[1:]:\n"
    "    try:\n"
    "        found[name] = m.version(name)\n"
    "    except m.PackageNotFoundError:\n"
    "        pass\n"
    "print(json.dumps(found))\n"
)
_TIMEOUT = 20.0  # seconds that the interpreter may take


def environment(ours: str, mesos: str, pythons: Iterable[str], files: Iterable[Path]) -> dict[str, str]:
    """Name -> version, size or digest.

    `ours`, `mesos`: their versions; `pythons`: the interpreters of the tasks; `files`: what they fetch from here.
    """
    found = {
        "dcos-tensorflow": ours,
        "mesos": mesos,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count() or 0),
    }
    for place, python in enumerate(dict.fromkeys(pythons)):
        prefix = "" if place == 0 else f"{python}: "
        found |= {f"{prefix}{name}": version for name, version in versions(python).items()}
    for path in files:
        found[f"sha256 of {path}"] = digest(path)
    return found


def versions(python: str) -> dict[str, str]:
    """Of an interpreter and the packages in it; empty when it does not tell."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *_PACKAGES], capture_output=True, timeout=_TIMEOUT, check=True, cwd="/"
        )
        return {str(name): str(version) for name, version in json.loads(done.stdout).items()}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}


def digest(path: Path) -> str:
    """The first half of its SHA-256; empty when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    except OSError:
        return ""
