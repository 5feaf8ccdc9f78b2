"""Fetches what the agent's fetcher cannot (s3, gs, hdfs ...) in the task's Python. Python 3.6; fsspec if it is there.

`python -m tf_executor.fetch URL...` puts each file into the current folder and extracts archives, as Mesos does.
"""

import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, List

_TAR = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")


class FetchError(Exception):
    """The text says what to do."""


def main(urls: List[str]) -> int:
    """Return the exit code; the reason is on stderr."""
    for url in urls:
        try:
            extract(fetch(url))
        except Exception as error:  # of any file system's library
            sys.stderr.write(f"cannot fetch {url}: {type(error).__name__}: {error}\n")
            return 1
    return 0


def fetch(url: str) -> str:
    """Copy `url` to the current folder; return the file's name."""
    name = url.partition("://")[2].rstrip("/").rpartition("/")[2]
    if not name:
        raise FetchError("the URL names no file")
    part = Path(name + ".part")
    with _open(url) as source, part.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    part.rename(name)
    return name


def _open(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        scheme = url.partition(":")[0]
        packages = {"s3": "fsspec s3fs", "gs": "fsspec gcsfs", "hdfs": "fsspec pyarrow"}
        wanted = packages.get(scheme, "fsspec")
        raise FetchError(f"{sys.executable} needs `pip install {wanted}`") from None
    return fsspec.open(url, "rb")


def extract(name: str) -> None:
    """Extract an archive into the current folder; leave any other file as it is. Raise FetchError if it is unsafe."""
    lower = name.lower()
    if lower.endswith(".zip"):
        with zipfile.ZipFile(name) as archive:
            archive.extractall()  # noqa: S202 - zipfile itself keeps names inside the folder
    elif lower.endswith(_TAR):
        with tarfile.open(name) as tar:
            for member in tar.getmembers():
                _check(member)
            if hasattr(tarfile, "data_filter"):
                tar.extractall(filter="data")
            else:
                tar.extractall()  # noqa: S202 - checked


def _check(member: tarfile.TarInfo) -> None:
    """Only what stays inside the folder."""
    names = [PurePosixPath(member.name)]
    if member.islnk():
        names.append(PurePosixPath(member.linkname))
    elif member.issym():
        names.append(names[0].parent / member.linkname)
    elif not (member.isfile() or member.isdir()):
        raise FetchError(f"{member.name} is no file and no folder")
    if any(path.is_absolute() or os.path.normpath(str(path)).startswith("..") for path in names):
        raise FetchError(f"{member.name} would be written outside the working directory")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
