"""Download libmesos once, verify and relink it, and cache it for the user."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mesos_local.host import MesosLocalError, explain_os_errors, locked

from .native import EGG, EGG_SHA256, LIBRARY, LIBRARY_SHA256, MEMBER, PROJECT, VERSION

if TYPE_CHECKING:
    from requests import Session

INDEX_HELP = (
    "The package index is $PIP_INDEX_URL, else pip's setting index-url, else the public index. $PIP_EXTRA_INDEX_URL "
    "and extra-index-url add further indexes. pip's cert, client-cert, proxy and trusted-host apply, as do "
    "$HTTPS_PROXY, $NO_PROXY and $REQUESTS_CA_BUNDLE."
)
_TIMEOUT = 30.0  # seconds


def index_urls(
    public: str, environment: Mapping[str, str] = os.environ, read: Callable[[], Mapping[str, str]] | None = None
) -> list[str]:
    """Return the package indexes that pip is set to use, in order; default: `public`."""
    settings = (read or pip_settings)()
    first = _setting("index-url", settings, environment) or public
    extra = _setting("extra-index-url", settings, environment)
    return list(dict.fromkeys([first.strip(), *extra.split()]))


def _setting(name: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return a setting of pip: a variable, section `install` or section `global`."""
    variable = environment.get(f"PIP_{name.upper().replace('-', '_')}")
    return variable or settings.get(f"install.{name}") or settings.get(f"global.{name}") or ""


def pip_session(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Session:
    """Return an HTTP session with pip's certificates, proxy and trusted hosts."""
    from requests import PreparedRequest, Response, Session
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import InsecureRequestWarning

    value = partial(_setting, settings=settings, environment=environment)
    trusted, authorities, proxy = value("trusted-host").split(), value("cert"), value("proxy")

    class PipAdapter(HTTPAdapter):
        def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
            url = urlsplit(request.url or "")
            # A variable such as REQUESTS_CA_BUNDLE would win over a setting of the session.
            options["verify"] = not {url.hostname, url.netloc} & {*trusted} and (authorities or options.get("verify"))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InsecureRequestWarning)  # the user has asked for it
                return super().send(request, *arguments, **options)

    session = Session()
    session.mount("https://", PipAdapter())
    session.cert = value("client-cert") or None
    if proxy:
        session.trust_env = False  # as pip does: variables of proxies would win
        session.proxies = {"http": proxy, "https": proxy}
    return session


def pip_settings() -> dict[str, str]:
    """Return settings of `pip config list` ("global.index-url"); empty without pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    with suppress(OSError, subprocess.SubprocessError):
        result = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=_TIMEOUT)
        return dict(_settings(result.stdout))
    return {}


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition("=")
        with suppress(ValueError, SyntaxError):
            yield name, str(ast.literal_eval(value))


def without_credentials(text: str, endpoint: str) -> str:
    """Remove the user and password of an endpoint's URL from a message."""
    credentials, at, _ = urlsplit(endpoint).netloc.rpartition("@")
    return text.replace(credentials + at, "") if at else text


UNSUPPORTED = (
    "a local Mesos requires Linux x86-64, but this is a {system} {machine} machine; use a Linux x86-64 container or "
    "machine, or point the scheduler at the master of an existing Mesos"
)


def check_platform(system: str | None = None, machine: str | None = None) -> None:
    """Raise MesosLocalError if libmesos has no build for the platform."""
    system, machine = system or platform.system(), machine or platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise MesosLocalError(UNSUPPORTED.format(system=system, machine=machine))


def default_cache() -> Path:
    """Return the cache folder in $XDG_CACHE_HOME or ~/.cache; ignore relative values."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if cache_home.is_absolute():
        return cache_home / "dcos-tensorflow"
    try:
        return Path.home() / ".cache" / "dcos-tensorflow"
    except RuntimeError as error:
        raise MesosLocalError("cannot cache libmesos: the user has no home folder; set XDG_CACHE_HOME") from error


def ensure_library(cache: Path | None = None, index: str | None = None) -> Path:
    """Return the relinked libmesos (123 MB); download it if no valid copy is cached.

    `index`: URL of a package index's simple API; default: pip's indexes. Concurrent calls share one download. If the
    cache folder contains the egg, nothing is downloaded. Raises MesosLocalError.
    """
    check_platform()
    folder = cache or default_cache()
    library = folder / LIBRARY
    with explain_os_errors("cache folder", folder):
        if not _has_digest(library, LIBRARY_SHA256):  # before locking: the cache may be read-only
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "lock"):
                if not _has_digest(library, LIBRARY_SHA256):
                    _build(library, index)
    return library


def _build(library: Path, index: str | None) -> None:
    from .relink import relink

    cached = library.parent / EGG
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        egg = cached if _has_digest(cached, EGG_SHA256) else _download(Path(scratch) / EGG, index, cached.parent)
        with zipfile.ZipFile(egg) as archive:
            content = relink(archive.read(MEMBER))
        temporary = Path(scratch) / LIBRARY
        temporary.write_bytes(content)
        temporary.chmod(0o644)  # tasks may run as another user
        temporary.replace(library)


def _download(path: Path, index: str | None, folder: Path) -> Path:
    """Download from the first working index. Raises MesosLocalError with all errors."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    reasons, settings = [], pip_settings()
    for endpoint in [index] if index else index_urls(PYPI_SIMPLE_ENDPOINT, read=lambda: settings):
        reason = _download_from(endpoint, path, pip_session(settings))
        if not reason:
            return path
        reasons.append(without_credentials(f"{endpoint}: {reason}", endpoint))
    raise MesosLocalError(
        f"Mesos {VERSION} cannot be downloaded from {'; '.join(reasons)}; on a machine without a network, "
        f"put the file {EGG} of project {PROJECT} into {folder}\n{INDEX_HELP}"
    )


def _download_from(endpoint: str, path: Path, session: Session) -> str:
    """Download from one index; return the error, or an empty text."""
    import requests  # pypi-simple, which requires it, raises its exceptions
    from pypi_simple import DigestMismatchError, NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

    try:
        with PyPISimple(endpoint, session=session) as client:
            packages = client.get_project_page(PROJECT, timeout=_TIMEOUT).packages
            package = next((p for p in packages if (p.filename, p.digests.get("sha256")) == (EGG, EGG_SHA256)), None)
            if package is None:
                return f"{EGG} with the expected digest is missing"
            bar = DownloadBar(f"libmesos {VERSION}", package.size)
            client.download_package(package, path=path, verify=True, progress=bar.expect, timeout=_TIMEOUT)
    except DigestMismatchError as error:
        return f"{EGG} is damaged: {error}"
    except (requests.RequestException, NoSuchProjectError, UnsupportedContentTypeError, ValueError) as error:
        return str(error)
    return "" if _has_digest(path, EGG_SHA256) else f"{EGG} is damaged"


def _has_digest(path: Path, sha256: str) -> bool:
    with suppress(FileNotFoundError):
        return digest_of(path) == sha256
    return False


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class DownloadBar:
    """Progress bar on stderr, or one line without a terminal.

    A pypi-simple progress tracker. `size`: bytes, None if unknown.
    """

    def __init__(self, what: str, size: int | None) -> None:
        from rich import console, progress  # most commands download nothing

        screen = console.Console(stderr=True)
        columns = (progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
        parts = (progress.TextColumn("{task.description}"), *columns, progress.TimeRemainingColumn())
        self._progress = progress.Progress(*parts, console=screen, disable=not screen.is_terminal)
        self._what, self._size = what, size
        self._task = self._progress.add_task(f"downloading {what}", total=size)

    def expect(self, size: int | None) -> DownloadBar:
        """Set the total bytes; None keeps the initial size. Returns itself."""
        size = size or self._size
        self._progress.update(self._task, total=size)
        if self._progress.disable:
            amount = f" ({size / 1e6:.0f} MB)" if size else ""
            print(f"downloading {self._what}{amount}", file=self._progress.console.file, flush=True)
        return self

    def __enter__(self) -> DownloadBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, increment: int) -> None:
        """Advance the bar by `increment` bytes."""
        self._progress.update(self._task, advance=increment)
