"""Unpacks archives that nobody vouches for: nothing is written outside of the folder, and no device is made."""

from __future__ import annotations

import gzip
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .errors import MesosLocalError

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


def extract(archive: Path, folder: Path) -> bool:
    """Unpack a .zip, .tar, .tar.gz, .tgz, .tar.bz2, .tbz2, .tar.xz, .txz or .gz file into `folder`.

    Judged by its name, as Mesos does; returns False if it is none of these. Raises MesosLocalError if it is damaged
    or has a member that would leave `folder`; then nothing of it is written.
    """
    name = archive.name.lower()
    try:
        if name.endswith(TAR_SUFFIXES):
            _extract_tar(archive, folder)
        elif name.endswith(".zip"):
            _extract_zip(archive, folder)
        elif name.endswith(".gz"):
            with gzip.open(archive) as source, (folder / archive.name[:-3]).open("wb") as target:
                shutil.copyfileobj(source, target)
        else:
            return False
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError) as error:
        raise MesosLocalError(f"{archive.name} cannot be extracted: {error}") from error
    return True


def _extract_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            tarfile.data_filter(member, str(folder))  # raises for a member that would leave the folder, or a device
        tar.extractall(folder, members, filter="data")


def _extract_zip(archive: Path, folder: Path) -> None:
    root = folder.resolve()
    with zipfile.ZipFile(archive) as content:
        for name in _outside(content, root):
            raise MesosLocalError(f"{archive.name} cannot be extracted: {name!r} would be outside of the folder.")
        for member in content.infolist():
            path = Path(content.extract(member, root))
            permissions = stat.S_IMODE(member.external_attr >> 16) & 0o755  # the high half is the Unix mode, if any
            if permissions and not member.is_dir():
                path.chmod(permissions | 0o600)


def _outside(content: zipfile.ZipFile, root: Path) -> Iterator[str]:
    return (name for name in content.namelist() if not (root / name).resolve().is_relative_to(root))
