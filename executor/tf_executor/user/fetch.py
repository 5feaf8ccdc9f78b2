"""Fetch URLs that the agent does not support (s3, gs, hdfs ...), with fsspec.

Python 3.6.
`python -m tf_executor.fetch URL...` writes the files to the current folder and extracts archives, as Mesos does.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any, List

from .archive import extract


class FetchError(Exception):
    """A URL cannot be fetched; the message says what to do."""


def main(urls: List[str]) -> int:
    """Fetch `urls`; return the exit code and write errors to stderr."""
    for url in urls:
        try:
            extract(Path(fetch(url)), Path())
        except Exception as error:  # file system libraries raise any exception
            sys.stderr.write(f"cannot fetch {url}: {type(error).__name__}: {error}\n")
            return 1
    return 0


def fetch(url: str) -> str:
    """Copy `url` to the current folder; return the file's name."""
    name = url.partition("://")[2].rstrip("/").rpartition("/")[2]
    if not name:
        raise FetchError("the URL has no file name")
    part = Path(name + ".part")
    with _open(url) as source, _create(part) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    part.rename(name)
    return name


def _create(path: Path) -> Any:
    """Create a new file: an extracted archive may have left a link with that name."""
    if path.is_symlink() or path.exists():
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(str(path), flags, 0o666), "wb")


def _open(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        scheme = url.partition(":")[0]
        packages = {"s3": "fsspec s3fs", "gs": "fsspec gcsfs", "hdfs": "fsspec pyarrow"}
        wanted = packages.get(scheme, "fsspec")
        raise FetchError(f"missing Python package; run: {sys.executable} -m pip install {wanted}") from None
    return fsspec.open(url, "rb")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
