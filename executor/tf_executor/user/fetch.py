"""Fetch URLs that agents do not support (s3, gs, ...); check and extract files.

Python 3.6.
`python -m tf_executor.fetch URL...` writes the files to the current folder, with fsspec. `finish` checks digests and
extracts archives, with the standard library only.
"""

import errno
import json
import os
import re
import shutil
import ssl
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

#: Exit code if a file does not have its digest (EX_DATAERR of sysexits.h): another launch would fail in the same way.
WRONG_DIGEST = 65
#: Exit code if Python lacks the packages for a URL (EX_CONFIG): only another machine may have them.
NO_PACKAGE = 78
_S3, _GCS, _AZURE = "fsspec s3fs", "fsspec gcsfs", "fsspec adlfs"
#: Packages by scheme; fsspec itself does not know `abfss`, which adlfs adds.
PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "az"), _AZURE),
    "hdfs": "fsspec pyarrow",
}


class FetchError(Exception):
    """A URL cannot be fetched; the message says what to do."""


class NoPackageError(FetchError):
    """Python lacks a package for the URL."""


def main(urls: List[str]) -> int:
    """Fetch `urls`; return the exit code and write errors to stderr."""
    for url in urls:
        try:
            fetch(url)
        except Exception as error:  # file system libraries raise any exception
            sys.stderr.write(f"cannot fetch {redacted(url)}: {describe(error)}\n")
            return NO_PACKAGE if isinstance(error, NoPackageError) else 1
    return 0


def fetch(url: str) -> str:
    """Copy `url` to the current folder; return the file's name."""
    name = file_name(url)
    if not name:
        raise FetchError("the URL has no file name")
    part = Path(name + ".part")
    files, path = file_system(url, {})
    with files.open(path, "rb") as source, _create(part) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    part.rename(name)
    return name


def file_name(url: str) -> str:
    """Return the name of the file that `fetch` writes; empty if the URL has none."""
    return url.partition("://")[2].rstrip("/").rpartition("/")[2]


def finish(files: str) -> int:
    """Link files, check all digests, then extract archives; return the exit code.

    `files`: a JSON object with `links` (path by name), `digests` (SHA-256 by name) and `unpack` (names, in order).
    Names are relative to the current folder. An archive is extracted into the folder that contains it.
    """
    # The executor imports this module, and itself neither extracts nor reads files.
    from .archive import ArchiveError, extract
    from .checkpoints import digest_of

    wanted = json.loads(files)
    try:
        for name, target in wanted["links"].items():
            _link(Path(name), target)
        for name, digest in wanted["digests"].items():
            actual = digest_of(Path(name))
            if actual != digest:
                sys.stderr.write(f"{name}: wrong SHA-256 digest {actual}; expected {digest}\n")
                return WRONG_DIGEST
        for name in wanted["unpack"]:
            extract(Path(name), Path(name).parent)
    except (ArchiveError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _link(path: Path, target: str) -> None:
    """Link a file or folder, unless the earlier check of digests has linked it.

    Raises OSError, also for a path below another link, because the new link would change that link's target.
    """
    if not Path(target).exists():
        raise OSError(f"cannot fetch {target}: does not exist on this agent")
    if path.is_symlink() and os.readlink(path) == target:
        return
    if path.parent.resolve() != Path.cwd() / path.parent:
        raise OSError(f"cannot link {path}: lies below another link")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    except (FileExistsError, NotADirectoryError) as error:
        raise OSError(f"cannot link {path}: {error.filename2 or error.filename} already exists") from error


def _create(path: Path) -> Any:
    """Create a new file; remove a link of this name, which an archive may have left."""
    if path.is_symlink() or path.exists():
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(str(path), flags, 0o666), "wb")


def file_system(url: str, options: Dict[str, Any]) -> Tuple[Any, str]:
    """Return the file system of a URL and the path there.

    Raises NoPackageError, and errors of fsspec.
    """
    try:
        import fsspec

        files, path = fsspec.core.url_to_fs(url, **options)
    except ImportError:
        raise NoPackageError(missing_package(url)) from None
    except ValueError as error:
        scheme = url.partition("://")[0]
        if scheme in fsspec.available_protocols():
            raise  # an option is missing or wrong
        if scheme in PACKAGES:
            raise NoPackageError(missing_package(url)) from None
        raise NoPackageError(f"unknown scheme `{scheme}`: {error}") from None
    return files, path


def missing_package(url: str) -> str:
    """Return the message that names the missing packages for a URL."""
    wanted = PACKAGES.get(url.partition(":")[0], "fsspec")
    return f"missing Python package; run: {sys.executable} -m pip install {wanted}"


#: Names of variables and options whose values are not shown, and passwords in URLs.
_SECRET_NAME = re.compile("KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|CONNECTION", re.IGNORECASE)
_USER_INFO = re.compile(r"://[^/@\s]+@")
#: Minimum characters of a secret, and maximum of a message.
_MIN_SECRET, _MAX_ERROR = 4, 300


def describe(error: BaseException) -> str:
    """Return one line about an error, without credentials."""
    text = redacted(" ".join(str(error).split()))[:_MAX_ERROR]
    is_own = type(error).__module__.partition(".")[0] in ("tf_executor", "__main__")
    return text if is_own else f"{type(error).__name__}: {text}"


def is_refused(error: BaseException) -> bool:
    """Return whether retries are useless: the key is refused, or no bucket exists."""
    # s3fs raises PermissionError; errors of adlfs have the HTTP status (azure.core.exceptions.HttpResponseError).
    return isinstance(error, PermissionError) or getattr(error, "status_code", 0) in (401, 403, 404)


#: Errors of Python, botocore, aiohttp, requests, azure.core and google.auth if no server answers.
_NO_ANSWER = re.compile(
    "ConnectionError|TimeoutError|gaierror|HTTPClientError|ClientConnectionError|ClientPayloadError|Timeout"
    "|ServiceRequestError|ServiceResponseError|TransportError"
)
#: System errors without a class of their own, and HTTP statuses that ask for a later retry: 501 never changes.
_NETWORK = (errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ESTALE)
_LATER = (408, 429, 500, *range(502, 600))


def is_unavailable(error: Optional[BaseException]) -> bool:
    """Return whether the server does not answer, or asks for a later retry."""
    is_found = False
    while error is not None:
        if is_refused(error) or isinstance(error, ssl.SSLCertVerificationError):
            return False
        # Of azure.core, gcsfs, aiohttp, requests and botocore.
        response = getattr(error, "response", None)
        values = [getattr(each, name, None) for each in (error, response) for name in ("status_code", "status", "code")]
        if isinstance(response, dict):
            values.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
        is_found |= any(value in _LATER for value in values) or getattr(error, "errno", None) in _NETWORK
        is_found |= any(_NO_ANSWER.fullmatch(each.__name__) for each in type(error).__mro__)
        # Libraries translate the errors of others.
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return is_found


def redacted(text: str) -> str:
    """Return the text without user names and passwords in URLs, and other credentials."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET:
            text = text.replace(value, "***")
    return _USER_INFO.sub("://***@", text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
