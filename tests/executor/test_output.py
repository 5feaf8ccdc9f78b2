from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor.process.output import TAIL_BYTES, Output, OutputTimes, RotatedFile


@contextmanager
def rotated(path: Path, limit: int, backups: int) -> Iterator[RotatedFile]:
    file = RotatedFile(path, limit, backups)
    try:
        yield file
    finally:
        file.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_full_file_is_rotated(tmp_path: Path) -> None:
    with rotated(tmp_path / "stdout", 10, 2) as file:
        for number in range(1, 8):
            file.write(b"line %d\n" % number)
    expected = {"stdout": b"line 7\n", "stdout.1": b"line 6\n", "stdout.2": b"line 5\n"}
    assert expected == contents(tmp_path)


def test_backup_ends_with_complete_line(tmp_path: Path) -> None:
    with rotated(tmp_path / "stdout", 10, 1) as file:
        file.write(b"one\ntwo\nthree\n")
    assert {"stdout": b"three\n", "stdout.1": b"one\ntwo\n"} == contents(tmp_path)


def test_rotation_without_backups_truncates(tmp_path: Path) -> None:
    with rotated(tmp_path / "stdout", 10, 0) as file:
        for _ in range(5):
            file.write(b"12345678\n")
    assert {"stdout": b"12345678\n"} == contents(tmp_path)


def test_existing_content_counts(tmp_path: Path) -> None:
    """The agent's fetcher writes to the same file."""
    (tmp_path / "stderr").write_bytes(b"fetched\n")
    with rotated(tmp_path / "stderr", 10, 1) as file:
        file.write(b"program\n")
    assert {"stderr": b"program\n", "stderr.1": b"fetched\n"} == contents(tmp_path)


@pytest.mark.parametrize("name", ["gone", "folder/renamed"])
def test_output_continues_after_file_is_removed_or_renamed(tmp_path: Path, name: str) -> None:
    """Rotations lose nothing; a renamed file is kept, and a removed one is lost."""
    sandbox, away = tmp_path / "sandbox", tmp_path / name
    (tmp_path / "folder").mkdir()
    sandbox.mkdir()
    lines = [b"line %d\n" % number for number in range(10, 32)]
    with rotated(sandbox / "stdout", 16, 20) as file:
        file.write(lines[0])
        (sandbox / "stdout").rename(away)
        if name == "gone":
            away.unlink()
        for line in lines[1:]:
            file.write(line)
    names = ["stdout", *(f"stdout.{number}" for number in range(1, 11))]
    assert set(names) == set(contents(sandbox))
    kept = lines if away.exists() else lines[1:]
    assert b"".join(kept) == b"".join(contents(sandbox)[name] for name in reversed(names))
    if away.exists():
        assert b"".join(lines[:2]) == away.read_bytes()


def test_output_after_removal_is_visible_at_once(tmp_path: Path) -> None:
    """The file may be far from full, so that the next rotation is hours away."""
    with rotated(tmp_path / "stdout", 1000, 1) as file:
        file.write(b"before\n")
        (tmp_path / "stdout").unlink()
        file.write(b"after\n")
    assert {"stdout": b"after\n"} == contents(tmp_path)


@pytest.mark.parametrize("is_folder", [False, True])
def test_name_taken_by_the_program_is_left_alone(tmp_path: Path, is_folder: bool) -> None:
    """The output continues in the open file; a link to another file is not followed."""
    (tmp_path / "other").write_bytes(b"")
    with rotated(tmp_path / "stdout", 10, 2) as file:
        file.write(b"line 1\n")
        (tmp_path / "stdout").unlink()
        if is_folder:
            (tmp_path / "stdout").mkdir()
        else:
            (tmp_path / "stdout").symlink_to("other")
        for number in range(2, 5):
            file.write(b"line %d\n" % number)
        assert [b"line 3\n", b"line 2\n"] == [(tmp_path / f"stdout.{number}").read_bytes() for number in (1, 2)]
    assert b"" == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("exists", [True, False])
def test_backup_does_not_follow_a_link(tmp_path: Path, exists: bool) -> None:
    """The executor may be root, and the program's user owns the sandbox."""
    sandbox, other = tmp_path / "sandbox", tmp_path / "other"
    sandbox.mkdir()
    if exists:
        other.write_bytes(b"root's")
    with rotated(sandbox / "stdout", 10, 1) as file:
        (sandbox / "stdout.1").symlink_to(other)
        file.write(b"line 1\n")
        file.write(b"line 2\n")
    assert {"stdout": b"line 2\n", "stdout.1": b"line 1\n"} == contents(sandbox)
    assert not (sandbox / "stdout.1").is_symlink()
    assert (other.read_bytes() == b"root's") if exists else not other.exists()


def test_link_of_the_archive_is_replaced(tmp_path: Path) -> None:
    """The agent has unpacked the job's archive before the executor starts."""
    (tmp_path / "other").write_bytes(b"root's")
    (tmp_path / "stdout").symlink_to("other")
    with rotated(tmp_path / "stdout", 10, 1) as file:
        file.write(b"line 1\n")
    assert {"stdout": b"line 1\n", "other": b"root's"} == contents(tmp_path)


def test_pipe_of_the_archive_is_replaced(tmp_path: Path) -> None:
    """Writes would block without a reader."""
    os.mkfifo(tmp_path / "stdout")
    with rotated(tmp_path / "stdout", 10, 1) as file:
        file.write(b"line 1\n")
    assert (tmp_path / "stdout").is_file()
    assert {"stdout": b"line 1\n"} == contents(tmp_path)


def test_output_of_before_is_kept_if_it_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example at the limit of open files."""
    (tmp_path / "stdout").write_bytes(b"before\n")
    real = os.open

    def fail(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if path == "stdout" and not flags & os.O_EXCL:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many"):
        RotatedFile(tmp_path / "stdout", 10, 1)
    assert {"stdout": b"before\n"} == contents(tmp_path)


@pytest.mark.parametrize("backups", [1, 2])
def test_output_continues_if_a_backup_cannot_be_made(tmp_path: Path, backups: int) -> None:
    """The program may put a folder in its place."""
    with rotated(tmp_path / "stdout", 10, backups) as file:
        for number in range(1, backups + 1):
            (tmp_path / f"stdout.{number}").mkdir()
            (tmp_path / f"stdout.{number}" / "file").touch()
        for number in range(5):
            file.write(b"line %d\n" % number)
        assert b"line 4\n" == (tmp_path / "stdout").read_bytes()


def test_folder_renamed_by_the_program_is_kept(tmp_path: Path) -> None:
    """A link in its place leads the output nowhere else."""
    sandbox, other = tmp_path / "sandbox", tmp_path / "other"
    sandbox.mkdir()
    other.mkdir()
    with rotated(sandbox / "stdout", 10, 1) as file:
        sandbox.rename(tmp_path / "moved")
        sandbox.symlink_to(other)
        for number in range(3):
            file.write(b"line %d\n" % number)
    assert {"stdout": b"line 2\n", "stdout.1": b"line 1\n"} == contents(tmp_path / "moved")
    assert {} == contents(other)


@settings(deadline=None, max_examples=50)
@given(chunks=st.lists(st.binary(max_size=40), max_size=8), limit=st.integers(1, 30))
def test_rotation_loses_nothing_and_respects_limit(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], limit: int
) -> None:
    """With enough backups, all files together are what was written."""
    folder = tmp_path_factory.mktemp("rotated")
    with rotated(folder / "out", limit, 500) as file:
        for chunk in chunks:
            file.write(chunk)
    files = contents(folder)
    ordered = [files[f"out.{number}"] for number in range(len(files) - 1, 0, -1)]
    assert b"".join(chunks) == b"".join([*ordered, files["out"]])
    assert all(len(content) <= limit for content in files.values())


@pytest.mark.parametrize("flag", ["-f", "-F"])
def test_tail_follows_rotation(tmp_path: Path, flag: str) -> None:
    """The file is truncated, not replaced."""
    path = tmp_path / "stdout"
    with rotated(path, 100, 1) as file:
        file.write(b"x" * 89 + b"\n")
        command = ["tail", flag, "-n", "+1", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tail:
            try:
                assert tail.stdout is not None
                assert b"x" * 89 + b"\n" == tail.stdout.readline()
                file.write(b"after the rotation\n")
                assert b"after the rotation\n" == tail.stdout.readline()
                assert (tmp_path / "stdout.1").exists()
            finally:
                tail.kill()


@contextmanager
def output(folder: Path, limit: int = 1 << 20, backups: int = 1) -> Iterator[Output]:
    """Return an Output whose own stream is a regular file."""
    with (folder / "own").open("wb") as own:
        stream = Output(folder / "stdout", own.fileno(), limit, backups)
        try:
            yield stream
        finally:
            stream.finish(10.0)


def test_output_is_copied_and_tail_is_kept(tmp_path: Path) -> None:
    data = b"".join(b"line %d\n" % number for number in range(100_000))
    with output(tmp_path) as stream:
        program = "print(*['line %d' % n for n in range(100_000)], sep='\\n')"
        subprocess.run([sys.executable, "-c", program], stdout=stream.writer, check=True)
    assert data == (tmp_path / "stdout.1").read_bytes() + (tmp_path / "stdout").read_bytes()
    assert data[-TAIL_BYTES:] == stream.tail


def test_container_logger_pipe_is_used(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stream = Output(tmp_path / "stdout", writer, 10, 1)
    subprocess.run(["echo", "hello"], stdout=stream.writer, check=True)
    stream.finish(10.0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert b"hello\n" == file.read()
    assert [] == list(tmp_path.iterdir())


def test_full_disk_does_not_stop_program(tmp_path: Path) -> None:
    """/dev/full refuses every write."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        stream = Output(tmp_path / "stdout", full.fileno(), 10, 1)
        program = "print('x' * 5_000_000); print('end')"
        subprocess.run([sys.executable, "-c", program], stdout=stream.writer, check=True)
        stream.finish(10.0)
    assert stream.tail.endswith(b"x\nend\n")


def test_finish_does_not_wait_for_unkillable_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The process still holds the pipe."""
    with (tmp_path / "own").open("wb") as own:
        stream = Output(tmp_path / "stdout", own.fileno(), 10, 1)
    held = os.dup(stream.writer)
    stream.finish(0.01)
    os.close(held)
    assert "the last output may be lost: not written within 0.01 s" in caplog.text
    for thread in threading.enumerate():
        if thread.name == "stdout":
            thread.join()


def test_task_output_is_bounded_and_excerpted(executor: Any) -> None:
    line = "import sys\nfor n in range(300_000): print('line', n)\nsys.exit('it broke')"
    (executor.sandbox / "program.py").write_text(line)
    executor.launch("python program.py", output_bytes=100_000, output_backups=2)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert status["message"].startswith("exit code 1; stderr: it broke; stdout: ...")
    assert status["message"].endswith("line 299998 | line 299999")
    assert len(status["message"]) < 700
    sizes = {path.name: path.stat().st_size for path in executor.sandbox.glob("stdout*")}
    assert {"stdout", "stdout.1", "stdout.2", "stdout.times"} == set(sizes)
    assert all(size <= 100_000 for size in sizes.values())


def test_secret_in_message_is_redacted(executor: Any) -> None:
    command = 'echo "token=$TOKEN"; echo "login failed for $TOKEN" >&2; exit 1'
    executor.launch(command, environment={"TOKEN": "s3cr3t-value"}, secrets=["TOKEN"])
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert "exit code 1; stderr: login failed for ***; stdout: token=***" == status["message"]
    assert "token=s3cr3t-value\n" == executor.output()


def times(path: Path) -> list[tuple[int, float]]:
    return [(int(offset), float(time)) for offset, time in map(str.split, path.read_text().splitlines())]


def test_index_names_the_time_of_output(tmp_path: Path) -> None:
    """Output is shown by time, and agents keep bytes only."""
    before = time.time()
    with output(tmp_path) as stream:
        os.write(stream.writer, b"first\n")
        while not stream.recent[0]:
            time.sleep(0.01)
    ((offset, written),) = times(tmp_path / "stdout.times")
    assert 0 == offset
    assert before - 0.01 <= written <= time.time() + 0.01


def test_index_begins_again_with_a_rotated_file(tmp_path: Path) -> None:
    index = OutputTimes(tmp_path / "stdout.times")
    for offset, now in ((0, 1.0), (7, 1.1), (9, 2.0), (0, 2.1), (5, 3.0)):
        index.add(offset, now)
    index.close()
    assert [(0, 2.1), (5, 3.0)] == times(tmp_path / "stdout.times")


def test_full_index_keeps_its_newest_lines(tmp_path: Path) -> None:
    """A training prints for weeks."""
    index = OutputTimes(tmp_path / "stdout.times")
    for number in range(10_000):
        index.add(number, float(number))
    index.close()
    lines = times(tmp_path / "stdout.times")
    assert 1024 <= len(lines) <= 2049
    assert (0, 0.0) == lines[0]
    assert [float(number) for number in range(9500, 10_000)] == [now for _, now in lines[-500:]]
