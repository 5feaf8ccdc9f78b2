"""Build reproducible one-file programs for `python3 FILE`, such as the executor.

Every Python builds the same file. The zip contains no byte code, which other versions of Python ignore. It is not
compressed, because compressed bytes depend on the installed zlib. Only the copy for this machine has byte code.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from .errors import SchedulerError

#: Earliest time of the zip format: a real time would make each build different.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"

Files = Mapping[str, bytes]


class BundleError(SchedulerError):
    """The file cannot be built on this machine."""


def package_files(package: str, what: str, kinds: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, bytes]]:
    """Yield name in the zip and content of a package's files. Raises BundleError."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BundleError(f"{what} needs the Python package {package}, which is not installed")
    origin = Path(spec.origin)
    # submodule_search_locations does not decide: six, once imported, claims to be a package.
    if origin.name != "__init__.py":
        yield origin.name, origin.read_bytes()
        return
    for path in sorted(path for path in origin.parent.rglob("*") if path.suffix in kinds):
        yield f"{package.replace('.', '/')}/{path.relative_to(origin.parent).as_posix()}", path.read_bytes()


def distribution(name: str) -> importlib.metadata.Distribution:
    """Return an installed distribution; for pymesos, the copy in mesos_client."""
    spec = importlib.util.find_spec("mesos_client") if name == VENDORED else None
    if spec is None or spec.origin is None:
        return importlib.metadata.distribution(name)
    return importlib.metadata.PathDistribution(Path(spec.origin).parent / "_vendor" / name)


def licences(name: str) -> dict[str, bytes]:
    """Return licence texts, and the metadata file, which names author and licence."""
    about = distribution(name)
    names = ("LICENSE", "LICENCE", "COPYING")
    paths = [Path(str(path.locate())) for path in about.files or () if path.name.upper().startswith(names)]
    # The file list of an installation by pip before 23.1 without wheel is that of the sources.
    texts = {path.name: path.read_bytes() for path in paths if path.is_file()}
    texts["METADATA"] = (about.read_text("METADATA") or about.read_text("PKG-INFO") or "").encode()
    if about.files is None and (text := about.read_text("LICENSE")):
        texts["LICENSE"] = text.encode()
    return {f"licenses/{name}/{file}": content for file, content in texts.items()}


def pack(files: Files, *, runnable: bool = True) -> bytes:
    """Return the zip: entries in order, with a fixed time and mode."""
    buffer = io.BytesIO()
    buffer.write(_SHEBANG if runnable else b"")
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def write_changed(content: bytes, target: Path, what: str, mode: int = 0o644) -> bool:
    """Write a file unless it has this content; return whether it changed."""
    changed = not target.is_file() or target.read_bytes() != content
    if changed:
        write(content, target, what, mode)
    return changed


def write(content: bytes, target: Path, what: str, mode: int = 0o755) -> None:
    """Replace `target` atomically. Raises BundleError if it cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as file:
            file.write(content)
        draft = Path(file.name)
        draft.chmod(mode)
        draft.replace(target)
    except OSError as error:
        raise BundleError(f"cannot write {what} {target}: {error.strerror}") from error


#: The one distribution inside a package of this project.
VENDORED = "pymesos"
_PACKAGES = ("tf_executor", "mesos_client")
_NAME = "the executor's bundle"
_MAIN = b"""\
import sys

if sys.version_info < (3, 8):
    sys.exit("tf_executor needs Python 3.8 or later, this agent's python3 is " + sys.version.split()[0])
from tf_executor.main import main

sys.exit(main())
"""


def build_bundle(output: Path | None = None) -> Path:
    """Build the executor's bundle (Python 3.8+), unless current; return its path.

    Default: `dcos-tensorflow/executor/tf_executor-<digest>.<python>.pyz` in the user's cache folder (XDG_CACHE_HOME),
    with byte code for this version of Python. Agents may cache the bundle by name. Safe for concurrent processes.
    Raises BundleError.
    """
    files = dict(entry for package in _PACKAGES for entry in package_files(package, _NAME))
    files.update(licences(VENDORED), **{"__main__.py": _MAIN})
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dcos-tensorflow", "executor")
    content = pack(files)
    if output is not None:
        write_changed(content, output, _NAME, 0o755)
        return output
    digest = hashlib.sha256(content).hexdigest()[:16]
    target = cache / f"tf_executor-{digest}.{sys.implementation.cache_tag}.pyz"
    if not zipfile.is_zipfile(target):
        compiled = {f"{name}c": _byte_code(files[name], name) for name in files if name.endswith(".py")}
        write(pack({**files, **compiled}), target, _NAME)
    return target


def _byte_code(source: bytes, name: str) -> bytes:
    """Return a `.pyc` that Python uses without a check of its source (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + b"\1" + bytes(11) + marshal.dumps(code)
