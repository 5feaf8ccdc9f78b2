"""Fetching with fsspec; its memory file system replaces a bucket."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tf_executor.user import fetch

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty memory file system; the working directory is the task's."""
    monkeypatch.chdir(tmp_path)
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return buffer.getvalue()


def tarred(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_fetch_writes_file_to_working_directory(bucket: Any, tmp_path: Path) -> None:
    bucket.pipe("/jobs/train.py", b"print(1)\n")
    assert 0 == fetch.main(["memory://jobs/train.py"])
    assert {"train.py": b"print(1)\n"} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def finish(*unpack: str, **digests: str) -> int:
    files = {"links": {}, "unpack": unpack, "digests": {f"{n}.zip": text for n, text in digests.items()}}
    return fetch.finish(json.dumps(files))


def test_linked_archive_is_checked_and_extracted_into_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of digests before the fetch links the file, too."""
    (tmp_path / "box").mkdir()
    monkeypatch.chdir(tmp_path / "box")
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped(words="x"))
    files = {"links": {"data/b.zip": str(archive)}, "unpack": ["data/b.zip"], "digests": {}}
    files["digests"] = {"data/b.zip": hashlib.sha256(archive.read_bytes()).hexdigest()}

    assert [0, 0] == [fetch.finish(json.dumps({**files, "unpack": []})), fetch.finish(json.dumps(files))]
    assert (tmp_path / "box" / "data" / "words").read_text() == "x"
    assert archive.samefile(tmp_path / "box" / "data" / "b.zip")


def link(**links: str) -> int:
    return fetch.finish(json.dumps({"links": links, "unpack": [], "digests": {}}))


def test_files_and_folders_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, host = folders(tmp_path)
    (host / "words").write_text("a")
    monkeypatch.chdir(box)

    assert 0 == link(**{"in/data": str(host), "words": str(host / "words")})
    assert ["a", "a"] == [(box / name).read_text() for name in ("in/data/words", "words")]


def folders(home: Path) -> tuple[Path, Path]:
    """Return new folders: a sandbox, and one of the agent."""
    box, host = home / "box", home / "host"
    box.mkdir()
    host.mkdir()
    return box, host


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ({"data": "/no/a"}, "cannot fetch /no/a: does not exist on this agent"),
        ({"stdout": "HOST"}, "cannot link stdout: stdout already exists"),
        ({"stdout/data": "HOST"}, "already exists"),
        ({"data": "HOST", "data/more/b": "HOST"}, "cannot link data/more/b: lies below another link"),
        ({"data": "HOST", "data/b": "HOST"}, "cannot link data/b: lies below another link"),
    ],
)
def test_impossible_link_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, links: dict[str, str], message: str
) -> None:
    """Neither of the task nor of the agent."""
    box, host = folders(tmp_path)
    (box / "stdout").write_text("printed")
    monkeypatch.chdir(box)

    assert 1 == link(**{name: target.replace("HOST", str(host)) for name, target in links.items()})
    assert message in capsys.readouterr().err
    assert ("printed", []) == ((box / "stdout").read_text(), list(host.iterdir()))


def test_finish_extracts_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.zip").write_bytes(zipped(src__train="zip"))
    Path("job.tgz").write_bytes(tarred((member("data/a"), b"tgz"), (member("data/b", tarfile.SYMTYPE, "a"), b"")))
    assert 0 == finish("job.zip", "job.tgz")
    contents = [(tmp_path / name).read_text() for name in ("src/train", "data/a", "data/b")]
    assert ["zip", "tgz", "tgz"] == contents


def test_finish_with_unsafe_archive_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.tar.gz").write_bytes(tarred((member("good"), b"x"), (member("../outside"), b"")))
    assert 1 == finish("job.tar.gz")
    assert "../outside leads outside the working directory" in capsys.readouterr().err
    assert ["job.tar.gz"] == [path.name for path in tmp_path.iterdir()]


def test_all_digests_are_checked_before_extraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.zip").write_bytes(zipped(a="x"))
    Path("b.zip").write_bytes(zipped(b="x"))
    a, b = (hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in ("a.zip", "b.zip"))
    assert fetch.WRONG_DIGEST == finish("a.zip", "b.zip", a=a, b=a)
    assert f"b.zip: wrong SHA-256 digest {b}; expected {a}\n" == capsys.readouterr().err
    assert {"a.zip", "b.zip"} == {path.name for path in tmp_path.iterdir()}
    assert 0 == finish("a.zip", "b.zip", a=a, b=b)


def test_missing_file_with_digest_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert 1 == finish(a="0" * 64)
    assert "a.zip" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "hard link", "file"])
def test_fetch_does_not_write_through_links(bucket: Any, tmp_path: Path, kind: str) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("old")
    part = tmp_path / "data.bin.part"
    if kind == "link":
        part.symlink_to(outside)
    elif kind == "hard link":
        part.hardlink_to(outside)
    else:
        part.write_text("longer than what comes")
    bucket.pipe("/data.bin", b"new")
    assert 0 == fetch.main(["memory://data.bin"])
    assert "old" == outside.read_text()
    assert {"data.bin": b"new"} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    outside.unlink()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory://no/such.zip", "FileNotFoundError"),
        ("memory://", "the URL has no file name"),
    ],
)
def test_fetch_error_is_reported(bucket: Any, url: str, reason: str, capsys: Any) -> None:
    assert 1 == fetch.main([url])
    error = capsys.readouterr().err
    assert error.startswith(f"cannot fetch {url}: {reason}"), error


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hdfs://host/job.zip", "-m pip install fsspec pyarrow"),
        ("abfss://name/job.zip", "-m pip install fsspec adlfs"),
        ("what://bucket/job.zip", "unknown scheme `what`: Protocol not known"),
    ],
)
def test_fetch_without_file_system_names_package(capsys: Any, url: str, message: str) -> None:
    """With fsspec alone, another launch on the machine would fail, too."""
    assert fetch.NO_PACKAGE == fetch.main([url])
    assert message in capsys.readouterr().err


def test_fetch_without_fsspec_names_packages(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert fetch.NO_PACKAGE == fetch.main(["gs://bucket/job.zip"])
    assert f"run: {sys.executable} -m pip install fsspec gcsfs" in capsys.readouterr().err


def test_task_fetches_before_program(executor: Any, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "job.zip").write_bytes(zipped(src__hello="print('hello')"))
    url = f"local://{tmp_path}/bucket/job.zip"
    executor.launch("python src/hello", pre_command="test -f src/hello", fetch=[url], python=sys.executable)
    starting = [executor.states("TASK_STARTING").get("message") for _ in range(3)]
    assert [None, "the fetch of files runs", "the pre command runs"] == starting
    executor.states("TASK_RUNNING", "TASK_FINISHED")
    assert "hello\n" == executor.output()


def test_failed_fetch_fails_task(executor: Any) -> None:
    executor.launch("true", fetch=["local:///no/such/file.zip"], python=sys.executable)
    message = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")["message"]
    said = "the fetch of files failed: exit code 1; stderr: cannot fetch local:///no/such/file.zip: FileNotFoundError"
    assert message.startswith(said), message
    assert os.listdir(executor.sandbox)  # noqa: PTH208


def test_wrong_digest_fails_task_finally(executor: Any) -> None:
    """The reason tells the scheduler that another launch would fail in the same way."""
    (executor.sandbox / "job.zip").write_bytes(content := zipped(hello="print('hello')"))
    wanted, actual = "0" * 64, hashlib.sha256(content).hexdigest()
    executor.launch("python hello", unpack=["job.zip"], digests={"job.zip": wanted}, python=sys.executable)
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    assert "REASON_TASK_INVALID" == status["reason"]
    assert f"job.zip: wrong SHA-256 digest {actual}; expected {wanted}" in status["message"]
    assert not (executor.sandbox / "hello").exists()


def test_file_of_agent_is_checked_and_extracted(executor: Any) -> None:
    (executor.sandbox / "job.zip").write_bytes(content := zipped(hello="print('hello')"))
    digests = {"job.zip": hashlib.sha256(content).hexdigest()}
    executor.launch("python hello; ls job.zip", unpack=["job.zip"], digests=digests, python=sys.executable)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "hello\njob.zip\n" == executor.output()


@pytest.mark.parametrize("module", ["hashlib", "json", "tarfile", "zipfile", "tf_executor"])
def test_fetched_module_does_not_replace_check(executor: Any, module: str) -> None:
    """A file named like a module that the check imports."""
    (executor.sandbox / f"{module}.py").write_text("import os\nos.write(2, b'attacked')\nos._exit(0)\n")
    digests, environment = {f"{module}.py": "0" * 64}, {"PYTHONPATH": str(executor.sandbox)}
    unpack = [f"{module}.py", "data.tar"]
    executor.launch("true", unpack=unpack, digests=digests, environment=environment, python=sys.executable)
    message = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")["message"]
    assert f"{module}.py: wrong SHA-256 digest" in message
    assert "attacked" not in message


def test_file_of_agent_is_checked_before_another_is_fetched(executor: Any, tmp_path: Path) -> None:
    """Fetching imports the program's fsspec, with the sandbox in its path."""
    (tmp_path / "train.py").write_text("print('hello')\n")
    (executor.sandbox / "fsspec.py").write_text("import os\nos.write(2, b'attacked')\nos._exit(0)\n")
    job = hashlib.sha256((tmp_path / "train.py").read_bytes()).hexdigest()
    digests = {"fsspec.py": "0" * 64, "train.py": job}
    executor.launch("true", fetch=[f"local://{tmp_path}/train.py"], digests=digests, python=sys.executable)
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    assert "REASON_TASK_INVALID" == status["reason"]
    assert "fsspec.py: wrong SHA-256 digest" in status["message"]
    assert "attacked" not in status["message"]


def test_digests_of_both_ways_are_checked(executor: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (executor.sandbox / "data.txt").write_text("data")
    files = (tmp_path / "train.py", executor.sandbox / "data.txt")
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    fetched = [f"local://{tmp_path}/train.py"]
    executor.launch("python train.py", fetch=fetched, digests=digests, python=sys.executable)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "hello\n" == executor.output()


def test_other_files_need_no_stage(executor: Any) -> None:
    executor.launch("true", unpack=["train.py"])
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
