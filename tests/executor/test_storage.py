"""Carried checkpoints; a local file system, which may fail, replaces a bucket."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kit.commands import processes, run_program
from kit.http_server import HttpServer, QuietHandler
from kit.namespaces import mount_namespace
from kit.waiting import wait_until
from tf_executor.user import fetch, storage
from tf_executor.user.fetch import NO_PACKAGE, is_refused
from tf_executor.user.storage import Carrier, RunningProgram, Store, bring, restore

pytest.importorskip("fsspec")

SETTINGS = {"mode": "carried", "role": "writer", "every": 0.1, "keep": 2, "grace": 1.0, "options": {}}


class Task:
    """The sandbox and settings of one launch."""

    def __init__(self, tmp_path: Path, name: str, **settings: Any) -> None:
        self.sandbox = tmp_path / name
        self.sandbox.mkdir()
        self.settings = {
            **SETTINGS,
            "launched_at": 1.0,
            "url": f"file://{tmp_path}/bucket/run",
            "task_id": name,
            **settings,
        }
        self.store = Store(self.settings["url"], {})
        self.program = RunningProgram.__new__(RunningProgram)
        self.program.ended, self.program.is_orderly, self.program.has_succeeded = None, False, False
        self.enter()
        bring(self.settings)
        self.carrier = Carrier(self.store, self.settings)

    def enter(self) -> None:
        os.chdir(self.sandbox)

    def save(self, number: int) -> None:
        """Write a checkpoint as tf.train.CheckpointManager with max_to_keep=1 does."""
        folder = self.sandbox / "checkpoints"
        old = list(folder.glob("ckpt-*"))
        for name in ("data-00000-of-00002", "data-00001-of-00002", "index"):
            (folder / f"ckpt-{number}.{name}").write_text(f"{name} of {number}")
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "ckpt-{number}"\n')
        for path in old:
            path.unlink()

    def round(self) -> bool:
        self.enter()
        return self.carrier.round(self.program)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Task]:
    monkeypatch.chdir(tmp_path)
    return lambda name, **settings: Task(tmp_path, name, **settings)


def content(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def checkpoint(number: int) -> dict[str, str]:
    names = ("data-00000-of-00002", "data-00001-of-00002", "index")
    state = f'model_checkpoint_path: "ckpt-{number}"\nall_model_checkpoint_paths: "ckpt-{number}"\n'
    return {"checkpoint": state, **{f"ckpt-{number}.{name}": f"{name} of {number}" for name in names}}


def test_next_launch_gets_newest_checkpoint(task: Any) -> None:
    first = task("first")
    for number in (1, 2, 3):
        first.save(number)
        first.round()
    assert checkpoint(3) == content(task("second").sandbox / "checkpoints")


def test_storage_keeps_only_newest_checkpoints(task: Any, tmp_path: Path) -> None:
    """Also over launches: the files of the one before go with its last checkpoint."""
    first = task("first")
    for number in (1, 2, 3):
        first.save(number)
        first.round()
    assert 2 == len(first.store.manifests())
    second = task("second")
    second.save(4)
    second.round()
    assert ["first", "second"] == [name.partition("/")[0][16:] for name in second.store.manifests()]
    second.save(5)
    second.round()
    assert {"second"} == {name.partition("/")[0][16:] for name in second.store.names()}
    # Four files of two checkpoints each, two manifests, and the two marks of the launch.
    assert 12 == len(second.store.names())


class FailingFiles:
    """A file system whose operation number `fails_at` fails in the middle."""

    def __init__(self, files: Any, fails_at: int, error: Exception) -> None:
        self._files, self._left, self._error = files, fails_at, error

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)
        if name not in ("put_file", "pipe_file", "rm_file", "find", "cat_file"):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left:
                return method(*args, **kwargs)
            if name in ("put_file", "pipe_file"):  # half of it arrives
                data = args[1] if name == "pipe_file" else Path(args[0]).read_bytes()
                target = Path(args[0] if name == "pipe_file" else args[1])
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data[: len(data) // 2])
            raise self._error

        return call


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), SystemExit(9)])
def test_upload_cut_anywhere_leaves_a_complete_checkpoint(task: Any, tmp_path: Path, error: Exception) -> None:
    """Whichever operation fails or is the last one."""
    cuts = 0
    while True:
        shutil.rmtree(tmp_path / "bucket", ignore_errors=True)
        cuts += 1
        writer = task(f"writer-{cuts}")
        for number in (1, 2):
            writer.save(number)
            writer.round()
        writer.save(3)
        failing = FailingFiles(writer.store.files, cuts, error)
        writer.carrier._store.files = failing
        try:
            writer.round()
        except (OSError, SystemExit):
            writer.carrier._store.files = failing._files
        if failing._left > 0:
            break
        assert content(task(f"reader-{cuts}").sandbox / "checkpoints") in (checkpoint(2), checkpoint(3))
        if isinstance(error, OSError):
            # The next launch is newer now, so this round goes on only up to there.
            with pytest.raises(storage.SupersededError):
                writer.round()
    assert cuts > 10


def test_failed_upload_is_repeated(task: Any) -> None:
    """A storage that is away costs time, not the checkpoint."""
    writer = task("writer")
    writer.save(1)
    files = writer.store.files
    cuts = 0
    while True:
        writer.store.files = FailingFiles(files, cuts + 1, OSError("away"))
        try:
            writer.round()
            break
        except OSError:
            cuts += 1
        finally:
            writer.store.files = files
    assert cuts > 3
    assert checkpoint(1) == content(task("reader").sandbox / "checkpoints")


@pytest.mark.parametrize("damage", [b"", b"other content", None])
def test_damaged_checkpoint_falls_back_to_the_one_before(
    task: Any, tmp_path: Path, damage: bytes | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Somebody may have deleted or overwritten objects in the bucket."""
    writer = task("writer")
    for number in (1, 2):
        writer.save(number)
        writer.round()
    newest = json.loads(writer.store.read(writer.store.manifests()[-1]))["files"][-1]
    path = Path(writer.store.path(f"{writer.carrier._launch}/{newest['sha256']}"))
    path.unlink() if damage is None else path.write_bytes(damage)
    assert checkpoint(1) == content(task("reader").sandbox / "checkpoints")
    assert "is skipped" in capfd.readouterr().err


ENTRY = {"path": "a", "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
#: Changes of a manifest's second file that no folder can hold, or that is not one.
MALFORMED: list[dict[str, Any]] = [
    *({"path": path} for path in ("", ".", "a\0b", 300 * "a", 3000 * "a/", "\ud800", "a/b", "..", "/etc/passwd")),
    *({"launch": launch} for launch in ("900000000000000.a\0b", "900000000000000.\ud800", 300 * "9")),
    *({"size": size} for size in (float("inf"), float("nan"), "many", None)),
    {"sha256": "x" * 64},
]


def test_malformed_manifests_do_not_stop_a_restore(task: Any, tmp_path: Path) -> None:
    """Each client that may write to the bucket could stop all restarts."""
    writer = task("writer")
    writer.save(1)
    writer.round()
    values = [{"label": "\ud800", "files": [ENTRY, {**ENTRY, **change}]} for change in MALFORMED]
    manifests = [json.dumps(value).encode() for value in (*values, [], {"label": "", "files": [[]]})]
    for number, manifest in enumerate((*manifests, b"", b"\xff", b"[" * 100_000)):
        for name in (f"000000001.json{'.old' * (number % 2)}", f"{number + 2:09d}.json"):
            writer.store.write(f"9{number:014d}.x/{name}", manifest)
        writer.store.write(f"9{number:014d}.x/{ENTRY['sha256']}", b"x")
    result = run_storage("bring", {**writer.settings, "task_id": "next"}, tmp_path)
    assert (0, "storage: restored ckpt-1\n") == (result.returncode, result.stdout), result.stderr
    last = {**ENTRY, "launch": f"9{number:014d}.x"}
    writer.store.write("990000000000000.x/000000001.json", json.dumps({"label": "\ud800", "files": [last]}).encode())
    result = run_storage("bring", {**writer.settings, "task_id": "last"}, tmp_path)
    assert (0, "storage: restored \\ud800\n") == (result.returncode, result.stdout), result.stderr


def test_older_of_two_writers_stops(task: Any) -> None:
    """A launch on an agent that was cut off may still run; its number is lower."""
    old = task("old")
    old.save(1)
    old.round()
    new = task("new")
    new.save(2)
    new.round()
    old.save(9)
    with pytest.raises(storage.SupersededError, match="new"):
        old.round()
    assert checkpoint(2) == content(task("reader").sandbox / "checkpoints")


def test_older_writer_in_the_middle_of_an_upload_does_no_harm(task: Any) -> None:
    """It notices the newer launch before its manifest; files of the newer one stay."""
    old = task("old")
    old.save(1)
    old.round()
    old.save(9)
    upload = old.store.upload
    launched: list[Task] = []

    def slow_upload(*args: Any, **kwargs: Any) -> None:
        if not launched:
            launched.append(task("new"))
            launched[0].save(2)
            launched[0].round()
            old.enter()
        upload(*args, **kwargs)

    old.store.upload = slow_upload
    with pytest.raises(storage.SupersededError):
        old.round()
    assert checkpoint(2) == content(task("reader").sandbox / "checkpoints")


def test_clock_set_back_keeps_the_order_of_launches(task: Any) -> None:
    """The number of a launch is its time, or one more than that of the launch before."""
    first = task("first", launched_at=2000.0)
    first.save(1)
    first.round()
    second = task("second", launched_at=1000.0)
    second.save(2)
    second.round()
    assert checkpoint(2) == content(task("reader").sandbox / "checkpoints")


def test_unchanged_restored_checkpoint_is_not_uploaded_again(task: Any) -> None:
    first = task("first")
    first.save(1)
    first.round()
    second = task("second")
    second.round()
    assert ["first"] == [name.partition("/")[0][16:] for name in second.store.manifests()]


def test_restored_saved_model_stays_in_later_checkpoints(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is downloaded in the order of names, so that its graph comes first."""
    first = task("first")
    model = first.sandbox / "checkpoints" / "best"
    (model / "variables").mkdir(parents=True)
    for name in ("variables/variables.data-00000-of-00001", "variables/variables.index", "saved_model.pb"):
        (model / name).write_text(name)
    expected = content(model)
    first.save(1)
    first.program.ended, first.program.is_orderly = 1.0, True
    first.round()

    download, times = Store.download, iter(range(100))

    def slow_download(store: Store, name: str, target: Path) -> None:
        download(store, name, target)
        os.utime(target, (seconds := next(times), seconds))

    monkeypatch.setattr(Store, "download", slow_download)
    second = task("second")
    second.program.ended, second.program.is_orderly = 1.0, True
    for number in (2, 3, 4):
        second.save(number)
        second.round()
    assert expected == content(task("third").sandbox / "checkpoints" / "best")


def test_restored_file_that_changes_keeps_its_version(task: Any) -> None:
    """Its content stays in the folder of the earlier launch, also for another carrier."""
    first = task("first")
    first.save(1)
    (first.sandbox / "checkpoints" / "best.keras").write_text("first")
    first.program.ended, first.program.is_orderly = 1.0, True
    first.round()
    second = task("second")
    second.round()
    assert ["first"] == [name.partition("/")[0][16:] for name in second.store.manifests()]
    for number in (2, 3, 4):
        second.carrier = Carrier(second.store, second.settings)
        second.save(number)
        (second.sandbox / "checkpoints" / "best.keras").write_text(f"part of {number}")
        second.round()
    third = task("third")
    assert {**checkpoint(4), "best.keras": "first"} == content(third.sandbox / "checkpoints")
    third.save(5)
    (third.sandbox / "checkpoints" / "best.keras").write_text("third")
    third.program.ended, third.program.is_orderly = 1.0, True
    third.round()
    third.save(6)
    third.round()
    assert {**checkpoint(6), "best.keras": "third"} == content(task("fourth").sandbox / "checkpoints")
    assert not [name for name in third.store.names() if ".first/" in name]


def test_evaluator_follows_and_uploads_its_events(task: Any, tmp_path: Path) -> None:
    writer, evaluator = task("writer"), task("evaluator", role="evaluator")
    for number in (1, 2, 3):
        writer.save(number)
        writer.round()
        evaluator.round()
    # The evaluator may still read the checkpoint before.
    assert {**checkpoint(2), **checkpoint(3)} == content(evaluator.sandbox / "checkpoints")
    events = evaluator.sandbox / "checkpoints" / "eval" / "events.out.tfevents.1.host"
    events.parent.mkdir()
    events.write_text("loss")
    evaluator.round()
    assert "loss" == (tmp_path / "bucket" / "run" / "eval" / events.name).read_text()


def test_other_task_keeps_a_folder_of_its_own(task: Any) -> None:
    """A parameter server neither has nor needs the chief's checkpoints."""
    writer, other = task("writer"), task("other", role="scratch")
    writer.save(1)
    writer.round()
    other.round()
    assert {} == content(other.sandbox / "checkpoints")


def test_peer_starts_with_the_checkpoint_of_its_writer(task: Any, tmp_path: Path) -> None:
    """An earlier launch may store another one: cut off, and by a clock that was ahead."""
    old = task("old", launched_at=5000.0)
    old.save(1)
    old.round()
    peer = tmp_path / "peer"
    peer.mkdir()
    settings = {**old.settings, "role": "peer", "launched_at": 2.0, "task_id": "peer", "writer": "new"}
    bring = [sys.executable, "-m", "tf_executor.user.storage", "bring"]
    process = subprocess.Popen(bring, cwd=peer, env=with_settings(settings), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "storage: waiting for the task that stores checkpoints\n" == process.stdout.readline()
        old.save(2)
        old.round()
        new = task("new", launched_at=2.0)
        new.save(3)
        new.round()
        assert "storage: restored ckpt-2\n" == process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert checkpoint(2) == content(peer / "checkpoints")


def test_tensorboard_reads_on_in_growing_event_files(task: Any) -> None:
    """TensorBoard keeps the file open, so that a replaced one would not grow for it."""
    writer, board = task("writer"), task("tensorboard", role="tensorboard")
    events = writer.sandbox / "checkpoints" / "events.out.tfevents.1.host"
    events.write_text("one")
    writer.round()
    board.round()
    with (board.sandbox / "checkpoints" / events.name).open() as reader:
        assert "one" == reader.read()
        events.write_text("one, two")
        writer.round()
        board.round()
        assert ", two" == reader.read()


def test_models_of_a_successful_program_have_their_own_names(task: Any, tmp_path: Path) -> None:
    writer = task("writer")
    writer.save(1)
    (writer.sandbox / "checkpoints" / "model.h5").write_text("weights")
    writer.program.ended, writer.program.is_orderly, writer.program.has_succeeded = 1.0, True, True
    writer.round()
    names = {path.name for path in (tmp_path / "bucket" / "run").iterdir()}
    assert {".carried", "model.h5"} == names


# The processes as the executor starts them.


def run_storage(
    mode: str, settings: dict[str, Any], folder: Path, limits: str = ":"
) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'{limits}; exec "$@"', "sh", sys.executable, "-m", "tf_executor.storage", mode]
    return run_program(*command, cwd=folder, env=with_settings(settings))


def with_settings(settings: dict[str, Any]) -> dict[str, str]:
    package = str(Path(storage.__file__).parents[2])
    return {**os.environ, "PYTHONPATH": package, storage.SETTINGS_VARIABLE: json.dumps(settings)}


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("what://bucket/run", NO_PACKAGE, "unknown scheme `what`"),
        ("hdfs://host/run", NO_PACKAGE, "missing Python package; run: "),
        ("abfss://name/run", NO_PACKAGE, "-m pip install fsspec adlfs"),
        ("filecache://run", 1, "ValueError: Please provide"),
        ("file:///proc/none/run", NO_PACKAGE, "the bucket or folder does not exist"),
    ],
)
def test_bring_explains_what_is_wrong(tmp_path: Path, url: str, code: int, message: str) -> None:
    """One line, in the first seconds of the task."""
    result = run_storage("bring", {**SETTINGS, "url": url, "task_id": "a", "launched_at": 1.0}, tmp_path)
    assert (code, 1) == (result.returncode, len(result.stderr.splitlines()))
    assert result.stderr.startswith(f"storage: {url}: ")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("bucket", NO_PACKAGE, "the bucket or folder does not exist"),
        ("key", NO_PACKAGE, "PermissionError: "),
    ],
)
def test_bring_fails_finally_if_the_server_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, code: int, message: str
) -> None:
    """No retry mends a missing bucket or a refused key."""
    pytest.importorskip("s3fs")
    from kit.s3_server import BUCKET, run_s3_server

    with run_s3_server() as s3:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" if fault == "key" else s3.secret)
        options = {"endpoint_url": s3.address}
        url = f"s3://{'missing' if fault == 'bucket' else BUCKET}/run"
        settings = {**SETTINGS, "url": url, "task_id": "a", "launched_at": 1.0, "options": options}
        result = run_storage("bring", settings, tmp_path)
    assert code == result.returncode, result.stderr
    assert f"storage: {url}: {message}" in result.stderr


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1", "EndpointConnectionError: Could not connect"),
        ("http://storage.invalid", "EndpointConnectionError: Could not connect"),
        ("5xx", "OSError: "),
        ("silence", "no answer"),
    ],
)
def test_bring_waits_for_a_storage_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, message: str
) -> None:
    """An outage is not the user's error, whatever it looks like."""
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with ExitStack() as stack:
        if address == "5xx":
            address = stack.enter_context(HttpServer(UnavailableHandler)).url
        elif address == "silence":
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = f"http://127.0.0.1:{server.getsockname()[1]}"
        # Calls without retries of their own: the first failure is soon.
        options = {"endpoint_url": address, "config_kwargs": {"retries": {"max_attempts": 1}}}
        settings = {**SETTINGS, "url": "s3://bucket/run", "task_id": "a", "launched_at": 1.0, "options": options}
        start = stack.enter_context(processes())
        command = [sys.executable, "-m", "tf_executor.storage", "bring"]
        process = start(*command, cwd=tmp_path, env=with_settings(settings), stderr=subprocess.PIPE)
        lines = [process.stderr.readline()]
        while message not in lines[-1] and lines[-1]:
            lines.append(process.stderr.readline())
        assert f"storage: s3://bucket/run: {message}" in lines[-1]
        assert lines[-1].endswith("; retrying\n")
        assert process.poll() is None


@pytest.mark.parametrize(("status", "expected"), [(401, True), (403, True), (404, True), (409, False), (503, False)])
def test_status_of_azure_shows_whether_server_refuses(status: int, expected: bool) -> None:
    error = Exception("The specified container does not exist.")
    error.status_code = status  # type: ignore[attr-defined]

    assert expected is is_refused(error)


class UnavailableHandler(QuietHandler):
    def respond(self) -> None:
        self.answer(503, b"")


def test_restore_without_room_fails_the_task(task: Any, tmp_path: Path) -> None:
    """A program without its checkpoint would start again at step 0."""
    first = task("first")
    (first.sandbox / "checkpoints" / "weights.pt").write_bytes(bytes(1 << 20))
    first.program.ended, first.program.is_orderly = 1.0, True
    first.round()
    result = run_storage("bring", {**first.settings, "task_id": "next"}, tmp_path, "ulimit -f 100")
    assert (1, False) == (result.returncode, (tmp_path / "checkpoints").exists())
    assert "File too large" in result.stderr


def test_messages_hide_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-1")
    error = OSError("no canary-1 at s3://user:canary-2@host/x")
    assert "OSError: no *** at s3://***@host/x" == fetch.describe(error)


@pytest.fixture
def carrying(task: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `carry` of a task, as the executor does."""
    with processes() as start:

        def carry(owner: Task, *prefix: str) -> subprocess.Popen[str]:
            command = [*prefix, sys.executable, "-m", "tf_executor.storage", "carry"]
            pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "env": with_settings(owner.settings)}
            process: subprocess.Popen[str] = start(*command, cwd=owner.sandbox, **pipes)
            return process

        yield carry


def test_carry_uploads_while_the_program_runs_and_at_its_end(task: Any, carrying: Any) -> None:
    writer = task("writer")
    process = carrying(writer)
    writer.save(1)
    wait_until(lambda: writer.store.manifests())
    writer.save(2)
    output = process.communicate("123 0\n", timeout=30)
    assert (0, "") == (process.returncode, output[1])
    assert checkpoint(2) == content(task("reader").sandbox / "checkpoints")


#: Moves a folder to a file system of its own, with 1 MB.
SMALL = """
set -e; cp -a "$1" "$1.old"; mount -t tmpfs -o size=1m none "$1"; cp -a "$1.old/." "$1"; cd "$PWD"; shift; exec "$@"
"""


@pytest.mark.parametrize("name", ["bucket", "writer"])
def test_full_disk_costs_checkpoints_only(task: Any, carrying: Any, tmp_path: Path, name: str) -> None:
    """Of the storage or of the task; with room again, the rest is stored."""
    private = mount_namespace(tmp_path)
    writer = task("writer")
    writer.save(1)
    process = carrying(writer, *private, "sh", "-c", SMALL, "sh", str(tmp_path / name))
    assert "stored ckpt-1" in process.stdout.readline()
    root = Path(f"/proc/{process.pid}/root{tmp_path}")
    wait_until(lambda: not (root / "writer" / storage.WORK / "copies").exists())
    process.send_signal(signal.SIGSTOP)
    writer.sandbox = root / "writer"
    writer.save(2)
    with suppress(OSError), (root / name / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    process.send_signal(signal.SIGCONT)
    assert "not stored: OSError: [Errno 28] No space left on device" in process.stderr.readline()
    (root / name / "filler").unlink()
    assert "stored ckpt-2" in process.stdout.readline()
    restore(Store(f"file://{root}/bucket/run", {}), tmp_path / "restored")
    assert checkpoint(2) == content(tmp_path / "restored")
    assert "storage: the storage works again\n" == process.stdout.readline()
    process.communicate("123 0\n", timeout=30)
    assert 0 == process.returncode


def test_carry_waits_for_a_program_that_saves_at_its_stop(task: Any, carrying: Any) -> None:
    """The shell of the program exits at once, the program saves its checkpoint."""
    writer = task("writer")
    process = carrying(writer)
    writer.save(1)
    wait_until(lambda: writer.store.manifests())
    program = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        process.send_signal(signal.SIGTERM)
        process.stdin.write(f"{program.pid} -15\n")
        process.stdin.flush()
        writer.save(2)
        assert process.poll() is None
    finally:
        program.kill()
        program.wait()
    assert "" == process.communicate(timeout=30)[1]
    assert checkpoint(2) == content(task("reader").sandbox / "checkpoints")


def test_carry_of_older_launch_ends_with_its_own_exit_code(task: Any, carrying: Any) -> None:
    writer = task("writer")
    process = carrying(writer)
    task("newer")
    assert storage.SUPERSEDED == process.wait(30)
    assert "used by the newer launch newer" in process.stderr.read()


def test_storage_that_stays_away_costs_checkpoints_only(task: Any, carrying: Any, tmp_path: Path) -> None:
    """The carrier says so, gives up at the end, and succeeds, as the training did."""
    writer = task("writer")
    (tmp_path / "bucket" / "run").rename(tmp_path / "away")
    (tmp_path / "bucket" / "run").write_text("no folder")
    writer.save(1)
    process = carrying(writer)
    errors = process.communicate("123 0\n", timeout=60)[1].splitlines()
    assert (0, 2) == (process.returncode, len(errors)), errors
    assert errors[0].startswith("storage: checkpoints are not stored: ")
    assert "gave up" in errors[1]


def test_restore_without_checkpoints_starts_empty(task: Any) -> None:
    reader = task("reader")
    assert restore(reader.store, reader.sandbox) is None
    assert {} == content(reader.sandbox / "checkpoints")


# The whole executor.

SAVE = """
import os, sys, time
folder = os.environ["CHECKPOINT_DIR"]
def save(number):
    for name in ("data-00000-of-00002", "data-00001-of-00002", "index"):
        open(folder + "/ckpt-%d.%s" % (number, name), "w").write("%s of %d" % (name, number))
    open(folder + "/checkpoint", "w").write('model_checkpoint_path: "ckpt-%d"' % number)
"""


def carried(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Fields of a payload."""
    storage_settings = {**SETTINGS, "url": f"file://{tmp_path}/bucket/run", **changes}
    return {"storage": storage_settings, "environment": {"CHECKPOINT_DIR": "file:///bucket"}, "kill_grace": 10.0}


def test_task_stores_its_last_checkpoint_before_it_finishes(start_executor: Any, tmp_path: Path, task: Any) -> None:
    executor = start_executor("task")
    program = f"{SAVE}\nsave(5); assert folder == os.environ['LOG_DIR'] == os.path.abspath('checkpoints')"
    executor.launch('python -c "$CODE"', **with_code(carried(tmp_path), program))
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FINISHED")
    assert "exit code 0" == status["message"]
    assert checkpoint(5) == content(task("reader").sandbox / "checkpoints")


def test_task_stores_kept_files_before_it_finishes(start_executor: Any, tmp_path: Path) -> None:
    """The upload ended before the copy of files, whose record said that all were kept."""
    executor = start_executor("task")
    program = f"{SAVE}\nsave(5)\nfor number in range(2000): open('note-%d' % number, 'w').write('done')"
    executor.launch('python -c "$CODE"', task="worker-0", keep_files=10**6, **with_code(carried(tmp_path), program))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FINISHED")
    (record,) = (tmp_path / "bucket" / "run" / "kept-files").glob("*.json")
    assert 2000 == len(list(record.with_suffix("").iterdir()))
    values = json.loads(record.read_text())
    assert 2000 == len(values["kept"])
    assert f"file://{tmp_path}/bucket/run/kept-files/{record.stem}" == values["folder"]
    assert [] == [path for path in (tmp_path / "bucket" / "run" / ".carried").rglob("*") if b"note-" in read(path)]


def test_other_users_cannot_read_the_settings(start_executor: Any, tmp_path: Path) -> None:
    """They may have credentials, and the arguments of a process are public."""
    executor = start_executor("task")
    fields = carried(tmp_path, every=60, options={"auto_mkdir": True, "note": "canary"})
    executor.launch("exec sleep 3600", **fields)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    wait_until(lambda: b"tf_executor.storage\0carry" in command_lines(executor))
    assert b"canary" not in command_lines(executor)
    (carrier,) = carriers(executor)
    assert b"canary" in Path(f"/proc/{carrier}/environ").read_bytes()
    program = next(pid for pid in executor.processes() if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
    assert b"canary" not in Path(f"/proc/{program}/environ").read_bytes()


def test_task_stores_what_a_stopped_program_saves(start_executor: Any, tmp_path: Path, task: Any) -> None:
    """The program saves in its grace period, while its shell is gone."""
    executor = start_executor("task")
    program = f"{SAVE}\nimport signal\nsignal.signal(15, lambda *_: (time.sleep(1), save(6), os._exit(143)))"
    program += "\nopen('ready', 'w').write('1')\nwhile True: time.sleep(1)"
    executor.launch('python -c "$CODE"; true', **with_code(carried(tmp_path, every=60), program))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    wait_until(lambda: b"tf_executor.storage" in command_lines(executor))
    executor.kill(grace=30)
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert checkpoint(6) == content(task("reader").sandbox / "checkpoints")


def test_killed_program_leaves_its_last_whole_checkpoint(start_executor: Any, tmp_path: Path, task: Any) -> None:
    """As the kernel does without memory."""
    executor = start_executor("task")
    program = f"{SAVE}\nsave(7); open(folder + '/half.h5', 'w').write('half'); os.kill(os.getpid(), 9)"
    executor.launch('exec python -c "$CODE"', **with_code(carried(tmp_path), program))
    status = executor.end("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING")
    assert "TASK_FAILED" == status["state"]
    assert checkpoint(7) == content(task("reader").sandbox / "checkpoints")


def test_restore_that_fails_gives_only_its_reason(start_executor: Any, tmp_path: Path) -> None:
    """TensorFlow, which is imported to learn its file systems, writes several lines."""
    package = tmp_path / "packages" / "tensorflow"
    package.mkdir(parents=True)
    noise = "import os\nos.write(2, b'I0000 00:00:1795 oneDNN custom operations are on\\n')\nraise ImportError"
    (package / "__init__.py").write_text(noise)
    executor = start_executor("task")
    fields = carried(tmp_path, url="what://bucket/run", mode="auto")
    fields["environment"] = {**fields["environment"], "PYTHONPATH": str(package.parent)}
    executor.launch("true", **fields)
    message = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")["message"]
    failed = f"the restore of checkpoints failed: exit code {NO_PACKAGE}; stderr: storage: what://bucket/run: unknown"
    assert message.startswith(failed), message
    assert "oneDNN" in (executor.sandbox / "stderr").read_text()


def test_task_fails_before_its_program_without_storage(start_executor: Any, tmp_path: Path) -> None:
    executor = start_executor("task")
    executor.launch("echo started > started", **carried(tmp_path, url="what://bucket/run"))
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    failed = f"the restore of checkpoints failed: exit code {NO_PACKAGE}"
    assert f"{failed}; stderr: storage: what://bucket/run: unknown scheme `what`" in status["message"]
    end = json.loads(base64.b64decode(status["data"]))
    assert ("storage", True, failed) == (end["failed_stage"], end["cannot_start"], end["error"])
    assert not (tmp_path / "task" / "started").exists()


def test_task_reports_that_checkpoints_are_not_stored(start_executor: Any, tmp_path: Path) -> None:
    """Until they are stored again: operators do not read each output."""
    executor, folder = start_executor("task"), tmp_path / "bucket" / "run" / ".carried"
    program = f"{SAVE}\nnumber = 0\nwhile True: number += 1; save(number); time.sleep(0.1)"
    executor.launch('exec python -c "$CODE"', **with_code(carried(tmp_path), program))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    wait_until(lambda: "stored ckpt" in executor.output())
    attempts = count()
    while not folder.is_file():  # the carrier may make the folder again before the file is there
        folder.rename(tmp_path / f"away-{next(attempts)}")
        with suppress(FileExistsError):
            folder.touch(exist_ok=False)
    while not (problem := executor.await_message().get("storage_error")):
        pass  # reports of stored checkpoints
    assert problem.startswith("checkpoints are not stored: "), problem
    folder.unlink()
    with suppress(OSError):  # the carrier has made it again
        (tmp_path / "away-0").rename(folder)
    while "" != executor.await_message()["storage_error"]:
        pass


def test_task_reports_a_carrier_that_ends(start_executor: Any, tmp_path: Path) -> None:
    """Its own log says so, too, but is read after the job only."""
    executor = start_executor("task")
    executor.launch("sleep 3600", **carried(tmp_path))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    wait_until(lambda: carriers(executor))
    os.kill(carriers(executor)[0], signal.SIGKILL)
    expected = "checkpoints are not stored: the carrier ended: killed by signal 9 (SIGKILL)"
    assert expected == executor.await_message()["storage_error"]
    assert "" == executor.await_message()["storage_error"]


@pytest.mark.parametrize(("role", "is_reported"), [("scratch", False), ("writer", True)])
def test_stop_that_kills_the_carrier_is_reported_for_a_writer(
    start_executor: Any, tmp_path: Path, role: str, is_reported: bool
) -> None:
    """Other tasks store nothing that could be lost."""
    executor = start_executor("task")
    executor.launch("trap '' TERM; sleep 3600 & while true; do wait; done", **carried(tmp_path, role=role))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    wait_until(lambda: carriers(executor))
    executor.kill(grace=1)
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert is_reported is any("carrier ended" in str(item.get("storage_error")) for item in executor.messages)


def test_task_stores_its_last_checkpoint_after_a_carrier_fails(start_executor: Any, tmp_path: Path, task: Any) -> None:
    """Nothing stored it later, and the task succeeded."""
    executor = start_executor("task")
    program = f"{SAVE}\nopen('go').read(); save(5); open(folder + '/young.h5', 'w').write('whole')"
    os.mkfifo(executor.sandbox / "go")
    executor.launch('exec python -c "$CODE"', **with_code(carried(tmp_path, every=60), program))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    wait_until(lambda: (executor.sandbox / storage.WORK / "launch").exists() and carriers(executor))
    (carrier,) = carriers(executor)
    os.kill(carrier, signal.SIGSTOP)
    (executor.sandbox / "go").write_text("")
    wait_until(lambda: executor.processes() == [carrier])
    os.kill(carrier, signal.SIGKILL)
    executor.states("TASK_RUNNING", "TASK_FINISHED")
    assert {**checkpoint(5), "young.h5": "whole"} == content(task("reader").sandbox / "checkpoints")


@pytest.mark.parametrize("is_stored", [True, False])
def test_task_counts_only_checkpoints_in_the_storage(start_executor: Any, tmp_path: Path, is_stored: bool) -> None:
    """A resize that waits for a checkpoint restarts all workers from the storage."""
    executor, folder = start_executor("task"), f"{tmp_path}/bucket/run/.carried"
    program = f'{SAVE}\ndef report(step):\n  values = \'{{"step": %d, "_time": %f}}\\n\' % (step, time.monotonic())'
    program += "\n  open(os.environ['TF_EXECUTOR_PROGRESS'], 'w').write(values)\n"
    if not is_stored:
        program += f"os.rename('{folder}', '{tmp_path}/away'); open('{folder}', 'w')\n"
    program += "report(3); save(1); time.sleep(0.2); report(9)\n"
    fields = {**with_code(carried(tmp_path, every=60), program), "kill_grace": 0.1}
    executor.launch('exec python -c "$CODE"', **fields)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FINISHED")
    expected = (9, 3, 1) if is_stored else (9, None, None)
    assert expected == tuple(executor.messages[-1].get(key) for key in ("step", "saved_step", "saves"))


def test_newer_launch_ends_the_task(start_executor: Any, tmp_path: Path, task: Any) -> None:
    """An agent was cut off, or two services have one URL."""
    executor = start_executor("task")
    executor.launch("sleep 3600", service="first", **carried(tmp_path))
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    task("newer", service="second")
    status = executor.end("TASK_KILLING")
    assert "TASK_FAILED" == status["state"]
    used = f"CHECKPOINT_DIR file://{tmp_path}/bucket/run is used by a newer launch of the task or by another service; "
    assert status["message"].startswith(used), status["message"]
    assert "used by the newer launch newer of service second; set another checkpoint_dir" in status["message"]


def read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def with_code(fields: dict[str, Any], program: str) -> dict[str, Any]:
    return {**fields, "environment": {**fields["environment"], "CODE": program}, "python": sys.executable}


def carriers(executor: Any) -> list[int]:
    """Running carriers; they ignore SIGTERM while their Python starts."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in executor.processes()}
    return [pid for pid, line in lines.items() if b"tf_executor.storage\0carry" in line]


def command_lines(executor: Any) -> bytes:
    """Command lines of the task's processes."""
    return b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in executor.processes())
