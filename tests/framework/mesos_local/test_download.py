"""Download and verification of libmesos."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import resource
import socket
import socketserver
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kit.certificates import Certificates
from kit.http_server import HttpServer, LoopbackServer
from mesos_local.host import MesosLocalError
from mesos_local.libmesos import download, native, relink
from mesos_local.libmesos.download import index_urls

FAKE_LIBRARY = b"not an ELF file"
OTHER_SYSTEMS = [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")]


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index's simple endpoint; counts downloads of the egg."""

    downloads: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path.endswith(".egg"):
            self.downloads.append(self.path)
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def egg(tmp_path: Path) -> Path:
    """A fake egg in the layout of a simple index."""
    folder = tmp_path / "index" / native.PROJECT.replace(".", "-")
    folder.mkdir(parents=True)
    path = folder / native.EGG
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(native.MEMBER, FAKE_LIBRARY)
    return path


@pytest.fixture
def index(egg: Path) -> Iterator[str]:
    """Serves the egg on loopback."""
    link = f'<a href="{egg.name}#sha256={sha256(egg.read_bytes())}">{egg.name}</a>'
    (egg.parent / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    Index.downloads.clear()
    handler = partial(Index, directory=str(egg.parent.parent))
    with HttpServer(handler) as server:
        yield f"{server.url}/"


@pytest.fixture
def pinned_egg(egg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the fake egg and its library the pinned ones."""
    monkeypatch.setattr(download, "EGG_SHA256", sha256(egg.read_bytes()))
    monkeypatch.setattr(download, "LIBRARY_SHA256", sha256(FAKE_LIBRARY))
    monkeypatch.setattr(relink, "relink", lambda library: library)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_library_is_downloaded_once(tmp_path: Path, index: str, pinned_egg: None) -> None:
    """The second call finds it in the cache, which contains only it and the lock."""
    cache = tmp_path / "cache"
    first, second = (download.ensure_library(cache, index) for _ in range(2))
    assert first == second == cache / native.LIBRARY
    assert FAKE_LIBRARY == first.read_bytes()
    assert 1 == len(Index.downloads)
    assert {"lock", native.LIBRARY} == {path.name for path in cache.iterdir()}


def test_damaged_cache_is_replaced(tmp_path: Path, index: str, pinned_egg: None) -> None:
    """A file that lost a byte is never loaded."""
    cache = tmp_path / "cache"
    download.ensure_library(cache, index).write_bytes(FAKE_LIBRARY[:-1])
    assert FAKE_LIBRARY == download.ensure_library(cache, index).read_bytes()
    assert 2 == len(Index.downloads)


def test_egg_in_cache_needs_no_network(tmp_path: Path, egg: Path, pinned_egg: None) -> None:
    """The way for machines without a network."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / native.EGG).write_bytes(egg.read_bytes())
    assert FAKE_LIBRARY == download.ensure_library(cache, nowhere()).read_bytes()


def test_other_egg_is_refused(tmp_path: Path, index: str) -> None:
    """A file with an unexpected digest in the index is not downloaded."""
    with pytest.raises(MesosLocalError, match=r"with the expected digest is missing"):
        download.ensure_library(tmp_path / "cache", index)
    assert [] == Index.downloads


def test_damaged_download_is_refused(tmp_path: Path, index: str, egg: Path, pinned_egg: None) -> None:
    """The content differs from the announced digest; nothing is kept."""
    egg.write_bytes(egg.read_bytes() + b"more")
    with pytest.raises(MesosLocalError, match="damaged"):
        download.ensure_library(tmp_path / "cache", index)
    assert ["lock"] == [path.name for path in (tmp_path / "cache").iterdir()]


def nowhere() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"


def test_offline_error_suggests_egg(tmp_path: Path) -> None:
    """Which file to put where."""
    with pytest.raises(MesosLocalError) as caught:
        download.ensure_library(tmp_path / "cache", nowhere())
    assert f"put the file {native.EGG} of project {native.PROJECT} into {tmp_path / 'cache'}" in str(caught.value)


def test_pip_indexes_are_asked_in_order(
    tmp_path: Path, index: str, pinned_egg: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unavailable or incomplete index is skipped: the digest is pinned."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", nowhere())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{index}none/ {index}")
    assert FAKE_LIBRARY == download.ensure_library(tmp_path / "cache").read_bytes()


def test_error_names_all_indexes_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains no password."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    first, second = nowhere(), nowhere()
    monkeypatch.setenv("PIP_INDEX_URL", first.replace("//", "//somebody:secret@"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", second)
    with pytest.raises(MesosLocalError) as caught:
        download.ensure_library(tmp_path / "cache")
    for part in (first, second, "$PIP_INDEX_URL", "index-url", "$PIP_EXTRA_INDEX_URL", "$HTTPS_PROXY"):
        assert part in str(caught.value)
    assert "secret" not in str(caught.value)


def test_pips_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real pip; environment variables win."""
    pytest.importorskip("pip")
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nindex-url = http://127.0.0.1:1/a\n")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    assert "http://127.0.0.1:1/a" == index_urls("public")[0]
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/b")
    assert "http://127.0.0.1:1/b" == index_urls("public")[0]


class Proxy(socketserver.StreamRequestHandler):
    """A proxy of a company: relays CONNECT requests, and notes their targets."""

    targets: ClassVar[list[str]] = []

    def handle(self) -> None:
        target = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        self.targets.append(target)
        with socket.create_connection(target.split(":")) as far:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self._copy, args=(far, self.connection))
            back.start()
            self._copy(self.connection, far)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):  # one side has ended
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"cert": "ca.pem", "client-cert": "client.both.pem"}, ""),
        ({"trusted-host": "other.example 127.0.0.1", "client-cert": "client.both.pem"}, ""),
        ({"client-cert": "client.both.pem"}, "certificate verify failed"),
        ({"cert": "ca.pem"}, "certificate required|Connection reset|EOF|closed"),
    ],
)
def test_company_network_is_used_as_pip_does(
    tmp_path: Path,
    egg: Path,
    index: str,
    pinned_egg: None,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    error: str,
) -> None:
    """An index with its certificates, behind its proxy; other variables are wrong."""
    pytest.importorskip("pip")
    made = Certificates.make(tmp_path)
    handler = partial(Index, directory=str(egg.parent.parent))
    context = made.server_context(ask_clients=True)
    with HttpServer(handler) as far, LoopbackServer(socketserver.ThreadingTCPServer(("", 0), Proxy)) as proxy:
        far.encrypt(context)
        lines = {**settings, "proxy": f"http://{proxy.address}", "index-url": f"{far.url}/"}
        paths = {name: made.path(text) if text.endswith(".pem") else text for name, text in lines.items()}
        configuration = tmp_path / "pip.conf"
        configuration.write_text("[global]\n" + "".join(f"{name} = {text}\n" for name, text in paths.items()))
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", made.path("stranger.pem"))
        monkeypatch.setenv("HTTPS_PROXY", nowhere())
        if error:
            with pytest.raises(MesosLocalError, match=error):
                download.ensure_library(tmp_path / "cache")
        else:
            assert FAKE_LIBRARY == download.ensure_library(tmp_path / "cache").read_bytes()
        assert {far.address} == {*Proxy.targets}
        Proxy.targets.clear()


@pytest.mark.parametrize(
    ("environment", "settings", "expected"),
    [
        ({}, {}, ["public"]),
        ({"PIP_INDEX_URL": "a", "PIP_EXTRA_INDEX_URL": "b  a\nc"}, {"global.index-url": "d"}, ["a", "b", "c"]),
        ({}, {"global.index-url": "a", "install.index-url": "b", "global.extra-index-url": "\nc\nd"}, ["b", "c", "d"]),
        ({"PIP_EXTRA_INDEX_URL": "a"}, {}, ["public", "a"]),
    ],
)
def test_order_of_indexes(environment: dict[str, str], settings: dict[str, str], expected: list[str]) -> None:
    """As pip has it, none twice."""
    assert expected == index_urls("public", environment, lambda: settings)


def test_download_prints_one_line_without_terminal(
    tmp_path: Path, index: str, pinned_egg: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with name and size; nothing if it is cached."""
    for _ in range(2):
        download.ensure_library(tmp_path / "cache", index)
    assert f"downloading libmesos {native.VERSION} (0 MB)\n" == capsys.readouterr().err


def test_unusable_cache_is_named(tmp_path: Path) -> None:
    """A file is in its place, or the system forbids it, even for root."""
    (tmp_path / "file").touch()
    (tmp_path / "cache" / native.LIBRARY).mkdir(parents=True)
    for cache in (tmp_path / "file", tmp_path / "file" / "sub", tmp_path / "cache", Path("/sys/cache")):
        with pytest.raises(MesosLocalError, match=f"^cache folder {cache} cannot be used: [A-Z]"):
            download.ensure_library(cache, nowhere())


def test_full_disk_is_reported(tmp_path: Path, egg: Path, pinned_egg: None) -> None:
    """Simulated by a file size limit; no partial file remains."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / native.EGG).write_bytes(egg.read_bytes())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(FAKE_LIBRARY) - 1, before[1]))
        with pytest.raises(MesosLocalError, match=f"^cache folder {cache} cannot be used: File too large"):
            download.ensure_library(cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {"lock", native.EGG} == {path.name for path in cache.iterdir()}


def test_library_in_a_cache_that_is_read_only_is_used(
    tmp_path: Path, index: str, pinned_egg: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may provide it: no lock is taken, nothing is written."""
    library = download.ensure_library(tmp_path / "cache", index)
    (library.parent / "lock").unlink()
    monkeypatch.setattr(Path, "mkdir", lambda *_args, **_options: pytest.fail("it makes a folder"))
    assert library == download.ensure_library(tmp_path / "cache", index)
    assert [library] == list(library.parent.iterdir())


def test_missing_home_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in some containers; the error names the variable to set."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(MesosLocalError, match="set XDG_CACHE_HOME"):
        download.default_cache()


def test_index_without_project_is_reported(tmp_path: Path, index: str, egg: Path) -> None:
    """A mirror that lacks it."""
    egg.parent.rename(egg.parent.with_name("other"))
    with pytest.raises(MesosLocalError, match="cannot be downloaded"):
        download.ensure_library(tmp_path / "cache", index)


PROGRAM = """
import json, sys
from pathlib import Path
from mesos_local.libmesos import download, relink
egg, library, cache, index = json.loads(sys.argv[1])
download.EGG_SHA256, download.LIBRARY_SHA256 = egg, library
relink.relink = lambda content: content
print("ready", flush=True)
sys.stdin.readline()
print(download.ensure_library(Path(cache), index).read_bytes())
"""


def test_concurrent_processes_download_once(tmp_path: Path, index: str, egg: Path) -> None:
    """One downloads; the other waits and finds the complete file."""
    digests = sha256(egg.read_bytes()), sha256(FAKE_LIBRARY)
    command = [sys.executable, "-c", PROGRAM, json.dumps([*digests, str(tmp_path / "cache"), index])]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        for process in (one, other):
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()
        answers = {process.communicate("go\n")[0] for process in (one, other)}
    assert {f"{FAKE_LIBRARY!r}\n"} == answers
    assert 1 == len(Index.downloads)


@pytest.mark.parametrize("content", [FAKE_LIBRARY, b"", b"\x7fELF" + bytes(100)])
def test_relink_rejects_damaged_file(content: bytes) -> None:
    """A clear error, and nothing of unknown content is ever called."""
    with pytest.raises(MesosLocalError, match="cannot relink libmesos"):
        relink.relink(content)


def test_relink_rejects_another_library(tmp_path: Path) -> None:
    """A real ELF file with the same sections is still not the pinned one."""
    import ssl

    library = Path(ssl._ssl.__file__)  # type: ignore[attr-defined]
    with pytest.raises(MesosLocalError, match="cannot relink libmesos"):
        relink.relink(library.read_bytes())


@pytest.mark.parametrize(("system", "machine"), OTHER_SYSTEMS)
def test_unsupported_platform_is_reported(system: str, machine: str) -> None:
    """The error names the supported platform, this one and an alternative."""
    with pytest.raises(MesosLocalError) as caught:
        download.check_platform(system, machine)
    message = str(caught.value)
    assert "requires Linux x86-64" in message
    assert f"{system} {machine}" in message
    assert "existing Mesos" in message
    assert "\n" not in message


def test_default_cache_is_the_xdg_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG base directory specification."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "dcos-tensorflow" == download.default_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "dcos-tensorflow" == download.default_cache()
