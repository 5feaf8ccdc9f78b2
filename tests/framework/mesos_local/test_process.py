"""Find and stop processes by id and start time, or environment, never by name."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.commands import run_program
from mesos_local import cluster, guard, host
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import (
    MARK,
    DamagedRecordError,
    MesosLocalError,
    ProcessId,
    end_orphans,
    find_orphans,
    read_stat,
    spawn,
    uninterrupted,
)
from mesos_local.node import helper_folder, remove_helpers, write_helpers
from mesos_local.record import (
    NAME,
    ClusterRecord,
    ClusterSettings,
    NodeRecord,
    clear_directory,
    make_directory,
    read_record,
)

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessId]:
    process = spawn(SLEEPER, {}, tmp_path / "log")
    yield process
    process.end(0)


def record(process: ProcessId | None) -> ClusterRecord:
    settings = ClusterSettings("/lib.so", (AgentSpec("a", "cpus:1", {"x": "y"}),), {"m": "1"}, {}, False, False)
    nodes = {"master": NodeRecord("127.0.0.1:1", process), "a": NodeRecord("127.0.0.1:2", None)}
    return ClusterRecord(settings, nodes, process, "some id")


def test_start_time_distinguishes_reused_pid(sleeper: ProcessId) -> None:
    """A process with the same id and another start time is never signalled."""
    other = ProcessId(sleeper.pid, sleeper.start_time - 1)
    assert not other.alive()
    assert other.wait(0)
    other.signal(signal.SIGKILL)
    other.end(0)
    assert sleeper.alive()


def test_end_uses_sigkill_after_the_grace(tmp_path: Path) -> None:
    """For a process that ignores SIGTERM."""
    program = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = ProcessId.of(child.pid)
        assert process is not None
        process.end(0.05)
        assert not process.alive()
        child.returncode = 0  # it was reaped by `end`


def test_frozen_process_can_be_ended(sleeper: ProcessId) -> None:
    """A stopped process does not see SIGTERM until it is continued."""
    sleeper.signal(signal.SIGSTOP)
    assert sleeper.alive()
    sleeper.end(30)
    assert not sleeper.alive()
    assert read_stat(sleeper.pid) is None  # reaped, not a zombie


def test_spawned_process_has_its_own_session(tmp_path: Path) -> None:
    """Own session (Ctrl-C), no inherited descriptors, no ignored SIGPIPE."""
    shell = "grep SigIgn /proc/self/status; cut -d' ' -f1,6 /proc/self/stat; ls /proc/self/fd"
    with (tmp_path / "open").open("w") as kept:
        os.set_inheritable(kept.fileno(), True)
        process = spawn(["/bin/sh", "-c", f"exec 2>&1; {shell}"], {"PATH": os.environ["PATH"]}, tmp_path / "log")
    assert process.wait(30)
    ignored, ids, *descriptors = (tmp_path / "log").read_text().splitlines()
    assert 0 == int(ignored.split()[1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)
    assert process.pid == int(ids.split()[1])
    assert ["0", "1", "2", "3"] == descriptors  # 3 is the folder that `ls` reads


def test_record_survives_writing_and_reading(tmp_path: Path, sleeper: ProcessId) -> None:
    """What one process writes, another one understands."""
    record(sleeper).write(tmp_path)
    assert record(sleeper) == read_record(tmp_path)
    assert record(sleeper).any_alive()
    assert [NAME] == [path.name for path in tmp_path.iterdir() if path.name != "log"]


def test_absent_record_is_none(tmp_path: Path) -> None:
    """No cluster was ever there."""
    assert read_record(tmp_path) is None
    assert read_record(tmp_path / "none") is None


DAMAGED = ["", "[]", "{}", "[" * 100_000, '{"version": 99}', '{"version": 1, "settings": {"agents": [1]}}']


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    """No traceback: the file, what it is, and what to do."""
    (tmp_path / NAME).write_text(content)
    with pytest.raises(DamagedRecordError, match=rf"{NAME} is damaged.* dcos-tensorflow local down --dir {tmp_path}$"):
        read_record(tmp_path)


@pytest.mark.parametrize("name", ["address", "process", "agents", "library", "zookeeper", "master_flags", "nodes"])
@pytest.mark.parametrize("value", [7, [1], {"x": 1}])
def test_record_with_one_wrong_value_is_damaged(tmp_path: Path, name: str, value: object) -> None:
    """Whatever a person has edited: it is read as it was meant, or refused as a whole."""
    record(None).write(tmp_path)
    content = json.loads((tmp_path / NAME).read_text())
    for place in (content, content["settings"], content["nodes"]["master"]):
        if name in place:
            place[name] = value
    (tmp_path / NAME).write_text(json.dumps(content))
    with pytest.raises(DamagedRecordError):
        read_record(tmp_path)


def test_record_that_is_a_folder_is_named(tmp_path: Path) -> None:
    """Not damaged: something is in its place."""
    (tmp_path / NAME).mkdir()
    with pytest.raises(MesosLocalError, match=rf"{tmp_path / NAME} cannot be read: Is a directory"):
        read_record(tmp_path)


@pytest.mark.parametrize("variable", [MARK, "MESOS_DIRECTORY", "MESOS_SANDBOX"])
def test_orphans_are_found_by_environment(tmp_path: Path, variable: str) -> None:
    """Processes of a folder: by their environment, with all their children."""
    ours, others = tmp_path / "ours", tmp_path / "ours-not"
    program = f"import subprocess; subprocess.run({SLEEPER!r}, env={{}}, start_new_session=True)"
    parents = [
        spawn([sys.executable, "-u", "-c", program], {variable: str(folder / "x")}, tmp_path / "log")
        for folder in (ours, others)
    ]
    try:
        while len(orphans := find_orphans(ours)) < 2:  # until the child is there, too
            assert not parents[0].wait(0.01)
        assert parents[0] in orphans
        assert parents[1] not in orphans
        end_orphans(ours, 5)
        assert set() == find_orphans(ours)
        assert not any(process.alive() for process in orphans)
        assert parents[1].alive()
    finally:
        end_orphans(others, 5)


def test_orphans_exclude_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may run `local down` from a task's own environment."""
    program = (
        "import sys; from pathlib import Path; from mesos_local.host import end_orphans;"
        "end_orphans(Path(sys.argv[1]), 1); print('alive')"
    )
    environment = {"MESOS_DIRECTORY": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert "alive\n" == run_program(*command, env=environment, check=True).stdout


def test_foreign_folder_is_not_emptied(tmp_path: Path) -> None:
    """`--dir` may be mistyped: only what a local cluster left is removed."""
    (tmp_path / "master").mkdir()
    (tmp_path / "master" / "thesis.txt").write_text("precious")
    with pytest.raises(MesosLocalError, match="is not empty"):
        clear_directory(make_directory(tmp_path))
    assert "precious" == (tmp_path / "master" / "thesis.txt").read_text()


def test_directory_in_use_is_refused(tmp_path: Path, sleeper: ProcessId) -> None:
    """A second cluster in the same folder would end the first one's processes."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    record(sleeper).write(folder)
    with pytest.raises(MesosLocalError, match=r"already runs in .*127\.0\.0\.1:1"):
        clear_directory(make_directory(folder))


def test_unusable_folder_is_explained(tmp_path: Path) -> None:
    """A file is in the way."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "sub", tmp_path / "file"):
        with pytest.raises(MesosLocalError, match=rf"{path} cannot be used: (Not a directory|it is a file)"):
            make_directory(path)


def test_full_disk_is_reported_and_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, simulated by a file size limit, and a folder forbidden to root."""
    monkeypatch.setattr(cluster, "ensure_library", lambda: tmp_path / "lib.so")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        with pytest.raises(MesosLocalError, match=f"^folder {tmp_path / 'c'} cannot be used: File too large"):
            LocalCluster(None, tmp_path / "c").start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {"last-cluster", "lock", "logs"} == {path.name for path in (tmp_path / "c").iterdir()}
    with pytest.raises(MesosLocalError, match=r"^folder /sys/c cannot be used: [A-Z]"):
        LocalCluster(None, Path("/sys/c")).start()


def test_path_with_a_line_break_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: it would be two lines of a configuration file."""
    odd = tmp_path / "a\nb"
    odd.mkdir()
    with pytest.raises(MesosLocalError, match="unprintable characters"):
        make_directory(odd / "cluster")
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    with pytest.raises(MesosLocalError, match="unprintable characters"):
        make_directory(None)


def test_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Not the program that was to be started."""
    with pytest.raises(FileNotFoundError) as caught:
        spawn(SLEEPER, {}, tmp_path / "none" / "log")
    assert str(tmp_path / "none" / "log") == str(caught.value.filename)


@pytest.mark.parametrize(
    ("program", "expected"), [("exit 3", "exit code 3"), ("kill -9 $$", "killed by SIGKILL"), ("kill -40 $$", "40")]
)
def test_exit_of_a_child_is_described(tmp_path: Path, program: str, expected: str) -> None:
    """Until it has been waited for."""
    process = spawn(["/bin/sh", "-c", program], {}, tmp_path / "log")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.how_it_ended().endswith(expected)
    assert process.wait()
    assert "" == process.how_it_ended()


def test_graceful_end_is_waited_for_together(tmp_path: Path) -> None:
    """Not one after the other: ten stubborn tasks take as long as one."""
    program = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    stubborn = [spawn([sys.executable, "-c", program], {MARK: str(tmp_path)}, tmp_path / f"{n}") for n in range(3)]
    waits: list[float] = []
    clock = iter(range(100))
    with pytest.MonkeyPatch.context() as patch:
        while not all((tmp_path / f"{n}").read_text() for n in range(3)):
            assert not stubborn[0].wait(0.01)
        patch.setattr(host, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
        patch.setattr(ProcessId, "wait", lambda process, timeout=None: bool(waits.append(timeout)))
        host._wait_all(stubborn, 2.0)
    assert [1.0, 0.0, 0.0] == waits
    end_orphans(tmp_path, 0)
    assert not any(process.alive() for process in stubborn)


def test_guard_uses_no_grace_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: ProcessId) -> None:
    """Without an owner nodes are killed; another cluster in the folder is untouched."""
    graces: list[float] = []
    monkeypatch.setattr(guard, "end_orphans", lambda _directory, grace: graces.append(grace))
    gone = ProcessId(sleeper.pid, sleeper.start_time - 1)
    record(None).write(tmp_path)
    guard.run_guard(tmp_path, "another id", False, gone)
    assert [] == graces
    guard.run_guard(tmp_path, "some id", False, gone)
    assert [0] == graces


def test_unused_folder_is_left_alone(tmp_path: Path) -> None:
    """`local down --dir /tmp` spares processes of clusters in folders below."""
    stranger = spawn(SLEEPER, {"MESOS_SANDBOX": str(tmp_path / "other" / "sandbox")}, tmp_path / "log")
    try:
        assert not LocalCluster.end(tmp_path)
        assert stranger.alive()
    finally:
        stranger.end(0)


def test_signals_are_deferred_during_clean_up() -> None:
    """The first one is delivered then, once; handlers are what they were."""
    seen: list[int] = []
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {each: signal.signal(each, lambda number, _frame: seen.append(number)) for each in signals}
    try:
        with uninterrupted():
            with uninterrupted():
                for number in signals:
                    signal.raise_signal(number)
            assert [] == seen
        assert [signal.SIGTERM] == seen
        signal.raise_signal(signal.SIGTERM)
        assert [signal.SIGTERM] * 2 == seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ignored_signals_stay_ignored() -> None:
    """As by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with uninterrupted():
            assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_helpers_of_a_plain_path_are_in_the_folder(tmp_path: Path) -> None:
    """Only a path that a shell would misread needs another place, private to us."""
    plain, odd = tmp_path / "plain", tmp_path / "o d"
    for folder in (plain, odd):
        folder.mkdir()
        write_helpers(folder, tmp_path / "lib'.so")
    assert plain / "libexec" == helper_folder(plain)
    private = helper_folder(odd)
    assert 0o700 == private.stat().st_mode & 0o777
    for folder in (plain, odd):
        remove_helpers(folder)
        remove_helpers(folder)
    assert not private.exists()
    assert [[], []] == [list(folder.iterdir()) for folder in (plain, odd)]


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    """Nothing is removed that we have not made."""
    other = tmp_path / "precious"
    other.mkdir()
    (other / "mesos-fetcher").touch()
    (tmp_path / "libexec").symlink_to(other)
    remove_helpers(tmp_path)
    assert (other / "mesos-fetcher").exists()
