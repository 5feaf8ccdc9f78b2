"""Programs in one file: a zip of sources that `python3 FILE` runs, the same bytes from the same input.

Beside each source may lie the byte code of the Python that built the file: where that is the Python that runs it too,
nothing is compiled at the start.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tf_scheduler.errors import SchedulerError

#: Entry that says which content the file was built from.
DIGEST_ENTRY = "digest.txt"
#: Start of the time that a zip file can express: a real one would make each build different.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"

Files = Mapping[str, bytes]


class BundleError(SchedulerError):
    """The file cannot be built here; the text says why."""


def cache_folder(name: str) -> Path:
    """`dcos-tensorflow/NAME` in the user's cache folder (XDG_CACHE_HOME)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "dcos-tensorflow" / name


def sources(package: str, what: str, kinds: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, bytes]]:
    """Name in the zip and content of all such files of an installed package. Raise BundleError if there is none."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BundleError(f"{what} needs the Python package {package}, which is not installed")
    origin = Path(spec.origin)
    # Not by submodule_search_locations: six, once imported, claims to be a package.
    if origin.name != "__init__.py":
        yield origin.name, origin.read_bytes()
        return
    for path in sorted(path for path in origin.parent.rglob("*") if path.suffix in kinds):
        yield f"{package}/{path.relative_to(origin.parent).as_posix()}", path.read_bytes()


def licences(distribution: str) -> dict[str, bytes]:
    """The texts that must travel with a distribution's code."""
    files: dict[str, bytes] = {}
    for path in importlib.metadata.files(distribution) or ():
        # METADATA names author and licence where the distribution has no text of it, as pymesos.
        if path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "METADATA")):
            files[f"licenses/{distribution}/{path.name}"] = path.read_binary()
    return files


def digest(files: Files) -> str:
    """Of all content, and of the Python whose byte code is added."""
    total = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0".encode())
        total.update(files[name])
    return total.hexdigest()


def build(files: Files, target: Path, what: str) -> Path:
    """Write sources and their byte code to `target`, unless it is current. Raise BundleError that names `what`."""
    expected = digest(files)
    if _digest_of(target) != expected:
        write(pack({**files, **_compiled(files, what), DIGEST_ENTRY: expected.encode()}), target, what)
    return target


def pack(files: Files, compression: int = zipfile.ZIP_DEFLATED, *, runnable: bool = True) -> bytes:
    """The zip. ZIP_STORED gives the same bytes whatever zlib is installed."""
    buffer = io.BytesIO()
    buffer.write(_SHEBANG if runnable else b"")
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            # Byte code is read at every start, sources hardly ever.
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".pyc") else compression
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def write(content: bytes, target: Path, what: str, mode: int = 0o755) -> None:
    """Under a name of our own first: nobody ever sees half a file."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as file:
            file.write(content)
        draft = Path(file.name)
        draft.chmod(mode)
        draft.replace(target)
    except OSError as error:
        raise BundleError(f"cannot write {what} {target}: {error.strerror}") from error


def _digest_of(bundle: Path) -> str | None:
    """What an existing file was built from; None: there is none, or it is something else."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            return archive.read(DIGEST_ENTRY).decode()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def _compiled(files: Files, what: str) -> dict[str, bytes]:
    """Byte code beside each source, where zipimport looks for it; it is used as it is, never compared with the source.

    A fresh interpreter with a fixed hash seed compiles: byte code depends on which strings a process has in memory.
    """
    names = sorted(name for name in files if name.endswith(".py"))
    with tempfile.TemporaryDirectory(prefix="tf-pyz-") as folder:
        for name in names:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        _compile_all(folder, what)
        return {f"{name}c": Path(folder, f"{name}c").read_bytes() for name in names}


def _compile_all(folder: str, what: str) -> None:
    command = [sys.executable, "-S", "-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash"]
    environment = {"PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run([*command, "-s", folder, folder], env=environment, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BundleError(f"the sources of {what} do not compile: {run.stdout}{run.stderr}")
