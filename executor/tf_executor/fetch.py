"""Fetches what the agent's fetcher cannot (s3, gs, hdfs ...) in the task's Python. Python 3.6; fsspec if it is there.

`python -m tf_executor.fetch URL...` puts each file into the current folder and extracts archives, as Mesos does.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any, List

from tf_executor.archive import extract


class FetchError(Exception):
    """The text says what to do."""


def main(urls: List[str]) -> int:
    """Return the exit code; the reason is on stderr."""
    for url in urls:
        try:
            extract(Path(fetch(url)), Path())
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
    with _open(url) as source, _create(part) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    part.rename(name)
    return name


def _create(path: Path) -> Any:
    """A new file: by that name an archive before may have brought a link, which leads where it is not seen."""
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
        raise FetchError(f"{sys.executable} needs `pip install {wanted}`") from None
    return fsspec.open(url, "rb")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
