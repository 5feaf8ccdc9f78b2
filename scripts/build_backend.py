"""Build sdist and wheel with setuptools, after putting pymesos into framework/mesos_client/_vendor/pymesos.

    python scripts/build_backend.py     only put pymesos there

pymesos requires http-parser, which does not compile on Python 3.11 and newer, so that pip cannot install it. The
drivers of mesos_client need only modules of pymesos that import nothing of http-parser after the changes below.
docs/develop/dependencies.md compares this with other ways. pip downloads pymesos, so that its index, proxy and cache
apply.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

from setuptools import build_meta

HOME = Path(__file__).resolve().parent.parent
TARGET = HOME / "framework" / "mesos_client" / "_vendor" / "pymesos"
#: Version and sha256 of the sdist, where scripts/audit reads them, too.
PIN = HOME / "requirements" / "vendored.txt"
#: File -> sha256 in the sdist. Left out: subprocess/, which runs pickles from the network, zkpython.py, and the README.
FILES = {
    "PKG-INFO": "5ddf36b0163493e01cd0e8bf34c23ffcb2480234c1b803db6810eacec0e08574",
    "pymesos/__init__.py": "95b34a4ee6c9dfea82fad95d8f302e7d87b2a074a346920233f8ea3192fe1b5e",
    "pymesos/detector.py": "b5aff5d693ff7c80de4cd5723b7593277e066fd595ec177f98faee2ae7248c30",
    "pymesos/executor.py": "6f7aea7496a78ae5296f8983400119ad41cd00467936c41809576ebc5792d97b",
    "pymesos/interface.py": "ef928c452750d92d85a63ca01adaa03046d867306d13bbbc5ecf1458873bc9c7",
    "pymesos/operator_v1.py": "4595689284491e9b7cc2894b59049984f655fd13c9794e0ba7894c13b8e809ab",
    "pymesos/process.py": "e049d0b83fbd2c9b69c7476982f0ab42ea8d401e07f95c13f7bf66abf9544351",
    "pymesos/scheduler.py": "420265c1f3bef5702c4c762b133f04d79dace307bdf4c10ef64a3a3cd6e4f2d9",
    "pymesos/utils.py": "fa80f0f4c511a6bcfdd2cbdefadcb60993f1d03a5ddf8128fc7d383c49c97e89",
}
#: Replaced line -> replacement, in every file that has it. Each replacement occurs nowhere else, so it can be reversed.
CHANGES = {
    # The drivers of mesos_client never make a parser; tests that compare them with pymesos put one here.
    "from http_parser.http import HttpParser\n": "HttpParser = None\n",
    "from addict import Dict\n": "Dict = dict\n",
    "import six\n": "import builtins as six\n",
    "six.binary_type": "six.bytes",
    "from six import reraise\n": "def reraise(_, error, traceback): raise error.with_traceback(traceback)\n",
    "from six.moves import _thread as thread\n": "import _thread as thread\n",
    "from six.moves.http_client import ": "from http.client import ",
    "from six.moves.urllib.parse import ": "from urllib.parse import ",
}


def change(source: str) -> str:
    """Return a file of pymesos as mesos_client needs it."""
    for original, replacement in CHANGES.items():
        source = source.replace(original, replacement)
    return source


def restore(changed: str) -> str:
    """Return the file as pymesos has it."""
    for original, replacement in CHANGES.items():
        changed = changed.replace(replacement, original)
    return changed


def is_complete() -> bool:
    """Whether all files are there, with their original content but for the changes."""
    paths = {name: TARGET / Path(name).name for name in FILES}
    return all(path.is_file() and digest(restore(path.read_text())) == FILES[name] for name, path in paths.items())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def vendor() -> None:
    """Download pymesos and write its files, unless they are there."""
    if is_complete():
        return
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(download(folder)) as archive:
        for member in archive.getmembers():
            name = member.name.partition("/")[2]
            if name in FILES and (content := archive.extractfile(member)):
                (TARGET / Path(name).name).write_text(change(content.read().decode()))
    if not is_complete():
        sys.exit(f"the files in {TARGET} do not have the recorded digests")


def download(folder: str) -> Path:
    """Return the sdist of pymesos, whose sha256 pip has checked. Exits with pip's message."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", folder]
    # Without isolation, pip reads the metadata of pymesos with the setuptools that runs this.
    command += ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes", "-r", str(PIN)]
    # The variables that name this backend would name it for pymesos, too.
    environment = {name: value for name, value in os.environ.items() if "BACKEND" not in name}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"the build needs pymesos from the package index: {result.stderr.strip()}")
    return next(Path(folder).iterdir())


# --- hooks of PEP 517 and PEP 660. Without isolation, pip calls only those that build.

get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    vendor()
    return build_meta.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    vendor()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build without the warning that an editable installation imports from its folder: that is its purpose."""
    vendor()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Editable installation")
        return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)


if __name__ == "__main__":
    vendor()
