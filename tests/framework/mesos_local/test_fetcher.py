"""The fetcher as the agent runs it: a process with JSON in its environment."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kit.http_server import HttpServer
from mesos_local.node import node_command


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    folder = tmp_path / "sandbox"
    folder.mkdir()
    return folder


@pytest.fixture
def server(source: Path) -> Iterator[str]:
    """A web server of the folder `source`."""
    with HttpServer(partial(SimpleHTTPRequestHandler, directory=str(source))) as web:
        yield web.url


def fetch(sandbox: Path, *uris: dict[str, Any], **info: Any) -> int:
    items = [{"uri": uri, "action": "BYPASS_CACHE"} for uri in uris]
    content = {"sandbox_directory": str(sandbox), "items": items} | info
    environment = {"MESOS_FETCHER_INFO": json.dumps(content), "PATH": os.environ["PATH"]}
    return subprocess.run(node_command("fetcher"), env=environment, check=False).returncode


def stderr(sandbox: Path) -> str:
    return (sandbox / "stderr").read_text()


def make_zip(path: Path, members: dict[str, str], mode: int = 0o644) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(info, content)


def make_tar(path: Path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for member in members:
            member.size = 4 if member.isfile() else 0
            archive.addfile(member, io.BytesIO(b"text") if member.isfile() else None)


def test_file_uri_and_plain_path(source: Path, sandbox: Path) -> None:
    """Both name a file of the agent's machine; a URI may be percent-encoded."""
    (source / "a b.txt").write_text("one")
    (source / "c.txt").write_text("two")
    uris = [{"value": f"file://{source}/a%20b.txt"}, {"value": str(source / "c.txt")}]
    assert fetch(sandbox, *uris) == 0
    assert (sandbox / "a b.txt").read_text() == "one"
    assert (sandbox / "c.txt").read_text() == "two"


def test_http_uri(server: str, source: Path, sandbox: Path) -> None:
    """The file's name is the last part of the path, without the query."""
    (source / "job.bin").write_bytes(bytes(range(256)) * 4096)
    assert fetch(sandbox, {"value": f"{server}/job.bin?version=2"}) == 0
    assert (source / "job.bin").read_bytes() == (sandbox / "job.bin").read_bytes()


def test_output_file_renames_and_may_make_folders(source: Path, sandbox: Path) -> None:
    """As in Mesos 1.11."""
    (source / "a").write_text("one")
    assert fetch(sandbox, {"value": str(source / "a"), "output_file": "lib/b"}) == 0
    assert (sandbox / "lib/b").read_text() == "one"


def test_renamed_archive_is_extracted_into_the_sandbox(source: Path, sandbox: Path) -> None:
    """As in src/launcher/fetcher.cpp of Mesos: not into the folder of the archive."""
    make_zip(source / "a.zip", {"words": "one"})
    assert fetch(sandbox, {"value": str(source / "a.zip"), "output_file": "lib/b.zip"}) == 0
    assert (sandbox / "words").read_text() == "one"


@pytest.mark.parametrize("output_file", ["../b", "/b", "."])
def test_output_file_stays_in_the_sandbox(source: Path, sandbox: Path, output_file: str) -> None:
    """A path that leaves the sandbox fails the fetch and writes nothing."""
    (source / "a").write_text("one")
    before = set(sandbox.parent.iterdir())
    assert fetch(sandbox, {"value": str(source / "a"), "output_file": output_file}) == 1
    assert before == set(sandbox.parent.iterdir())
    assert "is not a file name inside" in stderr(sandbox)


def test_executable_is_not_extracted(source: Path, sandbox: Path) -> None:
    """`executable` sets the bits and turns extraction off: a zip may be a program."""
    make_zip(source / "program.zip", {"__main__.py": ""})
    assert fetch(sandbox, {"value": str(source / "program.zip"), "executable": True}) == 0
    assert os.access(sandbox / "program.zip", os.X_OK)
    assert not (sandbox / "__main__.py").exists()


def test_extract_false_keeps_the_archive_whole(source: Path, sandbox: Path) -> None:
    """Extraction is the default and can be turned off."""
    make_zip(source / "a.zip", {"inner": "one"})
    assert fetch(sandbox, {"value": str(source / "a.zip"), "extract": False}) == 0
    assert not (sandbox / "inner").exists()


def test_zip_is_extracted_with_its_modes(source: Path, sandbox: Path) -> None:
    """As in Mesos, the archive stays and executable members stay executable."""
    make_zip(source / "a.zip", {"bin/tool": "one"}, mode=0o755)
    assert fetch(sandbox, {"value": str(source / "a.zip")}) == 0
    assert (sandbox / "bin/tool").read_text() == "one"
    assert os.access(sandbox / "bin/tool", os.X_OK)
    assert (sandbox / "a.zip").exists()


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
def test_tar_is_extracted(source: Path, sandbox: Path, suffix: str) -> None:
    """Plain and compressed."""
    make_tar(source / f"a{suffix}", tarfile.TarInfo("lib/inner"))
    assert fetch(sandbox, {"value": str(source / f"a{suffix}")}) == 0
    assert (sandbox / "lib/inner").read_text() == "text"


@pytest.mark.parametrize("name", ["../evil", "/evil", "ok/../../evil"])
def test_zip_cannot_leave_the_sandbox(source: Path, sandbox: Path, name: str) -> None:
    """One bad member: nothing of the archive is written, inside or outside."""
    make_zip(source / "a.zip", {"good": "one", name: "two"})
    assert fetch(sandbox, {"value": str(source / "a.zip")}) == 1
    assert not (sandbox / "good").exists()
    assert not (sandbox.parent / "evil").exists()
    assert "outside" in stderr(sandbox)


def symbolic_link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize(
    "members", [[tarfile.TarInfo("../evil")], [symbolic_link("out", ".."), tarfile.TarInfo("out/evil")]]
)
def test_tar_cannot_leave_the_sandbox(source: Path, sandbox: Path, members: list[tarfile.TarInfo]) -> None:
    """Neither by name nor through a link."""
    make_tar(source / "a.tar", tarfile.TarInfo("good"), *members)
    assert fetch(sandbox, {"value": str(source / "a.tar")}) == 1
    assert not (sandbox / "good").exists()
    assert not (sandbox.parent / "evil").exists()
    assert "a.tar: extraction refused: " in stderr(sandbox)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz", "a.gz"])
def test_damaged_archive_fails_with_a_reason(source: Path, sandbox: Path, name: str) -> None:
    """Not a traceback."""
    (source / name).write_text("not an archive")
    assert fetch(sandbox, {"value": str(source / name)}) == 1
    assert "cannot extract" in stderr(sandbox)
    assert "Traceback" not in stderr(sandbox)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("/no/such/file", "No such file"),
        ("hdfs://name/file", "unsupported URI scheme `hdfs`; use `file`, `http` or `https`"),
        ("file://elsewhere/file", "must name a local file"),
        ("relative/file", "frameworks_home"),
        ("http://127.0.0.1:1/file", "Connection refused"),
    ],
)
def test_failure_names_the_uri_and_the_reason(sandbox: Path, uri: str, reason: str) -> None:
    """In the sandbox's stderr, which is where its user looks."""
    assert fetch(sandbox, {"value": uri}) == 1
    assert f"cannot fetch {uri}" in stderr(sandbox)
    assert reason in stderr(sandbox)
    assert "Traceback" not in stderr(sandbox)


def test_http_error_fails(server: str, sandbox: Path) -> None:
    """404 is not a file."""
    assert fetch(sandbox, {"value": f"{server}/none"}) == 1
    assert "404" in stderr(sandbox)
    assert not (sandbox / "none").exists()


def test_cache_is_filled_and_used(source: Path, sandbox: Path, tmp_path: Path) -> None:
    """The second fetch does not need the source any more."""
    cache = tmp_path / "cache"
    (source / "a").write_text("one")
    uri = {"value": str(source / "a"), "output_file": "b"}
    for action in ("DOWNLOAD_AND_CACHE", "RETRIEVE_FROM_CACHE"):
        items = [{"uri": uri, "action": action, "cache_filename": "c1-a"}]
        assert fetch(sandbox, items=items, cache_directory=str(cache)) == 0
        assert (sandbox / "b").read_text() == "one"
        (source / "a").unlink(missing_ok=True)
        (sandbox / "b").unlink()


def test_relative_path_is_below_frameworks_home(source: Path, sandbox: Path) -> None:
    """The agent's flag of that name."""
    (source / "a").write_text("one")
    assert fetch(sandbox, {"value": "a"}, frameworks_home=str(source)) == 0
    assert (sandbox / "a").read_text() == "one"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_user_owns_fetched_files(source: Path, sandbox: Path) -> None:
    """The task runs as that user and must be able to read and replace it."""
    make_zip(source / "a.zip", {"lib/inner": "one"})
    assert fetch(sandbox, {"value": str(source / "a.zip")}, user="nobody") == 0
    owners = {path.owner() for path in (sandbox, sandbox / "a.zip", sandbox / "lib", sandbox / "lib/inner")}
    assert {"nobody"} == owners
