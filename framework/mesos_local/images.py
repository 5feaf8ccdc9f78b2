"""Make, list and remove image archives for the local cluster without Docker.

Agents find image `NAME` as `NAME.tar` in `image_folder()`. Mesos' local puller (docs/container-image.md) reads only the
format of `docker save` before Docker 1.10: `repositories`, and for each layer `ID/json`, `ID/VERSION`, `ID/layer.tar`.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tf_executor.user.archive import ArchiveError, extract

from .host import MesosLocalError, ProcessId, explain_os_errors
from .libmesos.download import digest_of
from .network import SYSTEM_PATH

#: Repository, with the port of a registry or without, and tag (docs of docker tag).
_NAME = re.compile(
    r"((?:[a-z0-9]+(?:[.-][a-z0-9]+)*:[0-9]+/)?[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*)"
    r"(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FORM = "neither an archive of `docker save` nor an OCI archive, or damaged"
#: What a malformed archive raises.
_MALFORMED = (ArchiveError, OSError, ValueError, LookupError, TypeError, AttributeError)


def image_folder() -> Path:
    """Return the folder of the image archives, in $XDG_DATA_HOME or ~/.local/share."""
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    home = data_home if data_home.is_absolute() else Path.home() / ".local" / "share"
    return home / "dcos-tensorflow" / "images"


def image_path(name: str) -> Path:
    """Return the archive of an image. Raises MesosLocalError for an invalid name."""
    _split(name)
    return image_folder() / f"{name}.tar"


def _split(name: str) -> Sequence[str]:
    """Return repository and tag. Raises MesosLocalError for an invalid name."""
    if match := _NAME.fullmatch(name):
        return match.groups("latest")
    raise MesosLocalError(f"image `{name}`: must be NAME, FOLDER/NAME or NAME:TAG, in lower-case letters")


def image_names(*, valid: bool = True) -> list[str]:
    """Return the names of all images; if not `valid`, of files that are not images."""
    folder = image_folder()
    names = (str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("[!.]*.tar"))
    return sorted(name for name in names if valid == bool(_NAME.fullmatch(name)) and not name.startswith("."))


def unknown_image(name: str) -> str:
    """Return an error text for an unknown image; empty if the image exists."""
    names = image_names()
    hint = f"valid names: {', '.join(names)}" if names else "make one: dcos-tensorflow local image build NAME"
    return "" if name in names else f"unknown image; {hint}"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder next to the images. Raises MesosLocalError."""
    folder, own = image_folder(), ProcessId.current()
    with explain_os_errors("folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned()
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{own.pid}-{own.start_time}-") as scratch:
            yield Path(scratch)


def remove_abandoned() -> None:
    """Remove the temporary folders of builds that were killed."""
    for folder in image_folder().glob(".*-*-*"):
        with suppress(ValueError):
            pid, start_time, _ = folder.name[1:].split("-")
            if not ProcessId(int(pid), int(start_time)).alive():
                shutil.rmtree(folder, ignore_errors=True)


def remove_image(name: str) -> None:
    """Remove an image, and the folders of its name that are then empty."""
    path = image_path(name)
    path.unlink()
    with suppress(OSError):  # not empty
        for folder in islice(path.parents, name.count("/")):
            folder.rmdir()


def forget_old_images(layers: Path) -> None:
    """Remove an agent's unpacked layers if an image has changed since the unpacking."""
    index = layers / "storedImages"
    with suppress(FileNotFoundError):
        unpacked = index.stat().st_mtime
        if any(image_path(name).stat().st_mtime > unpacked for name in image_names()):
            shutil.rmtree(layers)


@dataclass(frozen=True, slots=True)
class Layer:
    """A tar file, compressed or not, and its SHA-256."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Layer:
        return cls(path, digest_of(path))


@dataclass(frozen=True, slots=True)
class Image:
    """Layers, the lowest first; `config` has Env, WorkingDir, Entrypoint and Cmd."""

    layers: Sequence[Layer]
    config: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = _ARCHITECTURES.get(platform.machine(), platform.machine())


def write_image(name: str, image: Image) -> Path:
    """Write an image's archive atomically; return its path. Raises MesosLocalError."""
    path, own = image_path(name), Image(()).architecture
    if image.architecture != own:
        raise MesosLocalError(f"image `{name}` is for {image.architecture}; this machine is {own}")
    repository, tag = _split(name)
    with scratch_folder() as scratch:
        temporary = scratch / "image.tar"
        with tarfile.open(temporary, mode="w") as archive:
            top = _write_layers(archive, image)
            _add_text(archive, "repositories", json.dumps({repository: {tag: top}}))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.replace(path)
    return path


def _write_layers(archive: tarfile.TarFile, image: Image) -> str:
    """Write all layers; return the id of the last one."""
    parent, config = "", json.dumps(image.config, sort_keys=True)
    for layer in image.layers:
        own = hashlib.sha256(f"{parent} {layer.digest} {config}".encode()).hexdigest()
        manifest = {
            "id": own,
            **({"parent": parent} if parent else {}),
            "created": "1970-01-01T00:00:00Z",
            "architecture": image.architecture,
            "os": "linux",
            "config": image.config,
        }
        _add_text(archive, f"{own}/VERSION", "1.0")
        _add_text(archive, f"{own}/json", json.dumps(manifest))
        archive.add(layer.path, f"{own}/layer.tar")
        parent = own
    return parent


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    archive.addfile(member, io.BytesIO(text.encode()))


# --- from an archive


def read_archive(path: Path, scratch: Path) -> Image:
    """Read an archive of `docker save` or an OCI archive. Raises MesosLocalError."""
    content, link = scratch / "content", scratch / "image.tar"  # `extract` requires a suffix
    try:
        content.mkdir(parents=True)
        link.symlink_to(path.absolute())
        extract(link, content)
        image = _read_oci(content) if (content / "index.json").exists() else _read_docker(content)
    except _MALFORMED as error:
        cause = error.__cause__ if isinstance(error, ArchiveError) else error
        if isinstance(cause, OSError) and cause.errno not in (None, errno.ENOENT):  # such as a full disk
            raise cause from None
        reason = _FORM if cause else str(error).removeprefix(f"{link.name}: ")
        raise MesosLocalError(f"{path}: {reason}") from error
    for layer in image.layers:
        # Read the layer to its end.
        command = ["tar", "--list", "--file", str(layer.path)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            problem = done.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise MesosLocalError(f"{path}: layer {layer.digest[:12]} is damaged: {problem}")
    return image


def _read_docker(folder: Path) -> Image:
    (manifest,) = json.loads((folder / "manifest.json").read_text())
    config = json.loads(_file(folder, manifest["Config"]).read_text())
    layers = [Layer.of(_file(folder, name)) for name in manifest["Layers"]]
    return Image(layers, config.get("config") or {}, config["architecture"])


def _read_oci(folder: Path) -> Image:
    own, (manifest, *_) = Image(()).architecture, json.loads((folder / "index.json").read_text())["manifests"]
    content = json.loads(_blob(folder, manifest).path.read_text())
    if listed := content.get("manifests"):  # one for each architecture
        suitable = [one for one in listed if one.get("platform", {}).get("architecture") == own]
        content = json.loads(_blob(folder, (suitable or listed)[0]).path.read_text())
    config = json.loads(_blob(folder, content["config"]).path.read_text())
    layers = [_blob(folder, descriptor) for descriptor in content["layers"]]
    return Image(layers, config.get("config") or {}, config["architecture"])


def _blob(folder: Path, descriptor: Mapping[str, str]) -> Layer:
    digest = descriptor["digest"].removeprefix("sha256:")
    blob = Layer.of(_file(folder, f"blobs/sha256/{digest}"))
    if blob.digest != digest:
        raise MesosLocalError(f"{descriptor['digest']}: damaged")
    return blob


def _file(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if folder.resolve() not in path.parents:
        raise ValueError(name)
    return path


# --- from a folder, or from a Python of this machine


#: Debian packages with a shell, usual tools, and libraries that Python loads by name.
_PACKAGES = (
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "hostname"),
    *("libc-bin", "libc6", "libgcc-s1", "libstdc++6", "sed", "tar"),
)
_LINKS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")  # to folders in /usr
_FOLDERS = ("dev", "etc", "mnt/mesos/sandbox", "proc", "root", "run", "sys", "tmp", "var/tmp")
_FILES = {
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
}
_DOCUMENTS = re.compile(r"/(usr/share/(doc|info|lintian|locale|man|bash-completion)|etc)/")
_UNUSED = re.compile(r"/(idlelib|ensurepip|test)/|\.a$")  # in Python's own folder
#: Lets an agent with GPUs mount their driver (Mesos: docs/gpu-support.md).
_DRIVER = "NVIDIA_VISIBLE_DEVICES=all"
_ASK = "import sys, json, sysconfig; print(json.dumps([sys.prefix, sys.base_prefix, sysconfig.get_path('stdlib')]))"


def read_folder(folder: Path, scratch: Path) -> Image:
    """Return an image whose root file system is `folder`. Raises MesosLocalError."""
    if not os.path.lexists(folder / "bin" / "sh"):
        raise MesosLocalError(f"{folder}: bin/sh is missing; an image needs `sh`")
    layer = scratch / "layer.tar"
    with tarfile.open(layer, "w") as archive:
        archive.add(folder, ".")
    return Image([Layer.of(layer)], {"Env": [f"PATH={SYSTEM_PATH}", _DRIVER]})


def read_python(python: Path, scratch: Path) -> Image:
    """Return an image with this machine's interpreter, its packages, shell and tools.

    All files keep their paths. Requires Debian or a distribution based on it. Raises MesosLocalError.
    """
    prefix, base, library = map(Path, json.loads(_output([str(python), "-I", "-c", _ASK])))
    files = {path for package in _PACKAGES for path in _package_files(package)}
    files |= set(_python_files(prefix, base, library))
    files |= set(_libraries(path for path in files if _is_program(path)))
    layer = scratch / "layer.tar"
    with tarfile.open(layer, "w") as archive:
        _add_frame(archive)
        for path in sorted({Path(os.path.realpath(path.parent), path.name) for path in files}):
            archive.add(path, str(path)[1:], recursive=False)
    return Image([Layer.of(layer)], {"Env": [f"PATH={python.parent}:{SYSTEM_PATH}", _DRIVER]})


def _add_frame(archive: tarfile.TarFile) -> None:
    for name in _FOLDERS:
        member = tarfile.TarInfo(name)
        member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
        archive.addfile(member)
    for name, text in _FILES.items():
        _add_text(archive, name, text)
    for name in _LINKS:
        if Path("/", name).is_symlink():
            archive.add(f"/{name}", name)


def _python_files(prefix: Path, base: Path, library: Path) -> Iterator[Path]:
    packages = library / "site-packages"
    for path in _below(library):
        if prefix == base if packages in path.parents else not _UNUSED.search(str(path)):
            yield path
    yield from (base / "bin").glob("python*")
    yield from (base / "lib").glob("libpython*.so*")
    if prefix != base:
        yield from _below(prefix)


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.parent.name != "__pycache__" and (path.is_symlink() or path.is_file()):
            yield path


def _package_files(package: str) -> Iterator[Path]:
    for name in _output(["dpkg-query", "--listfiles", package]).splitlines():
        path = Path(name)
        if not _DOCUMENTS.match(name) and path.is_file():
            yield from {path, path.resolve()}


def _is_program(path: Path) -> bool:
    if not path.is_file():  # a link to a folder
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """Yield the shared libraries that programs load, and the targets of their links."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    for name in set(re.findall(r"(/\S+) \(0x", done.stdout)):
        yield from {Path(name), Path(name).resolve()}


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise MesosLocalError(f"`{command[0]}` is missing; this needs Debian or a relative of it") from error
    except subprocess.CalledProcessError as error:
        raise MesosLocalError(f"{command[0]}: {error.stderr.strip()}") from error
