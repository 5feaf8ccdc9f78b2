"""Only the newest launch of a task uses CHECKPOINT_DIR."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kit.waiting import wait_until
from tf_executor.around import fencing
from tf_executor.around.fencing import FOLDER, FolderClaim, FolderFence, fence_of
from tf_executor.contract.events import Superseded
from tf_executor.contract.payload import Payload

Start = Callable[..., Any]


def a_claim(task_id: str, *frameworks: str, serial: int = 1, at: float = 10.0) -> FolderClaim:
    return FolderClaim(task_id, frameworks or ("a",), serial, at)


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        ("own file", a_claim("mine", serial=9, at=90.0), (False, False)),
        ("earlier launch", a_claim("other", serial=4, at=40.0), (False, False)),
        ("later launch", a_claim("other", serial=6, at=60.0), (True, True)),
        # The last writer wins: a launch that starts replaces the file, and the running one ends.
        ("state from a backup", a_claim("other", serial=4, at=60.0), (False, True)),
        ("clock set back", a_claim("other", serial=6, at=40.0), (False, True)),
        ("unknown framework", a_claim("other", "b", serial=9, at=40.0), (False, False)),
        ("unknown framework, later", a_claim("other", "b", serial=1, at=60.0), (False, True)),
        ("earlier framework", a_claim("other", "b", "a", serial=1, at=1.0), (False, False)),
        ("later framework", a_claim("other", "a", "b"), (True, True)),
    ],
)
def test_newer_launch_supersedes(mine: str, other: FolderClaim, expected: tuple[bool, bool]) -> None:
    """The results are those of a launch that starts, and of one that runs."""
    claim = a_claim("mine", serial=5, at=50.0)
    assert expected == (claim.is_superseded(other, running=False), claim.is_superseded(other, running=True)), mine


def test_two_launches_never_both_win() -> None:
    """Each sees the file of the other; one of them ends, whatever the numbers say."""
    claims = [a_claim(f"{s}-{at}", serial=s, at=at) for s in (1, 2) for at in (1.0, 2.0)]
    for one in claims:
        for other in claims:
            if one is not other:
                assert one.is_superseded(other, running=True) or other.is_superseded(one, running=True)


def test_file_lists_frameworks_in_order() -> None:
    """The last hundred; a framework is listed once."""
    assert ("b", "c", "a") == a_claim("t", "a").after(a_claim("u", "a", "b", "c")).frameworks
    many = a_claim("t", "new").after(a_claim("u", *map(str, range(200)))).frameworks
    assert (100, "101", "new") == (len(many), many[0], many[-1])


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b'{"task_id": "t"}', b"[" * 5000, a_claim("t").encode().replace(b'"a"', b"")]
)
def test_damaged_file_is_ignored(data: bytes) -> None:
    """A program, or a full disk, may damage it."""
    assert FolderClaim.decode(data) is None


@pytest.mark.parametrize("name", ["x" * 256, "a\nb", "\x1b[2J", "\ud800"])
def test_unprintable_name_is_damage(name: str) -> None:
    """An agent refuses a lone surrogate: the end of the task would be lost."""
    assert FolderClaim.decode(a_claim(name).encode()) is None
    assert FolderClaim.decode(a_claim("t", "a", name).encode()) is None


def test_claim_round_trips() -> None:
    assert a_claim("t", "a", "b") == FolderClaim.decode(a_claim("t", "a", "b").encode())


def a_fence(folder: Path, service: str = "digits", **claim: object) -> tuple[FolderFence, SimpleQueue[object]]:
    queue: SimpleQueue[object] = SimpleQueue()
    payload = Payload(
        "chief-0", "chief", 0, "x", {}, environment={"CHECKPOINT_DIR": str(folder)}, service=service, **claim
    )
    fence = fence_of(payload, "mine", {"MESOS_FRAMEWORK_ID": "a"}, queue.put)
    assert fence is not None
    return fence, queue


def written(folder: Path) -> FolderClaim | None:
    try:
        return FolderClaim.decode((folder / FOLDER / "digits.chief-0.json").read_bytes())
    except FileNotFoundError:
        return None


def put(folder: Path, claim: FolderClaim | None) -> None:
    new = folder / FOLDER / "new"
    new.write_bytes(b"damaged" if claim is None else claim.encode())
    new.replace(folder / FOLDER / "digits.chief-0.json")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "INTERVAL", 0.01)


@pytest.mark.usefixtures("quick")
def test_running_launch_keeps_and_loses_the_folder(tmp_path: Path) -> None:
    """It repairs the file after damage and an older launch; a newer one ends it."""
    (tmp_path / "checkpoint").touch()
    fence, queue = a_fence(tmp_path, serial=5, launched_at=50.0)
    fence.start(None)
    mine = a_claim("mine", serial=5, at=50.0)
    assert mine == written(tmp_path)
    for stored in (None, a_claim("other", serial=4, at=40.0)):
        put(tmp_path, stored)
        wait_until(lambda: written(tmp_path) == mine, "the file is repaired")
    (tmp_path / FOLDER / "digits.chief-0.json").unlink()
    wait_until(lambda: written(tmp_path) == mine, "the file is written again")
    put(tmp_path, a_claim("other", serial=6, at=60.0))
    event = queue.get(timeout=10)
    assert isinstance(event, Superseded)
    assert "newer launch other" in event.reason
    assert ["digits.chief-0.json"] == [path.name for path in (tmp_path / FOLDER).iterdir()]


@pytest.mark.usefixtures("quick")
def test_framework_that_never_had_the_folder_loses_it_for_good(tmp_path: Path) -> None:
    """Its program ran before another file existed; its next launch must not win."""
    fence, queue = a_fence(tmp_path, launched_at=5.0)
    fence.start(None)
    (tmp_path / FOLDER).mkdir()
    put(tmp_path, a_claim("other", "b", at=6.0))
    assert isinstance(queue.get(timeout=10), Superseded)
    assert a_claim("other", "a", "b", at=6.0) == written(tmp_path)
    again, queue = a_fence(tmp_path, launched_at=7.0)
    again.start(None)
    assert isinstance(queue.get(timeout=10), Superseded)


@pytest.mark.usefixtures("quick")
def test_empty_folder_stays_empty(tmp_path: Path) -> None:
    """Some programs refuse a folder that is not empty; there is nothing to protect."""
    fence, _ = a_fence(tmp_path / "new")
    fence.start(None)
    (tmp_path / "new").mkdir()
    assert [] == os.listdir(tmp_path / "new")  # noqa: PTH208
    (tmp_path / "new" / "checkpoint").touch()
    wait_until(lambda: written(tmp_path / "new") == a_claim("mine", serial=0, at=0.0), "the file is written")
    fence.stop()


@pytest.mark.parametrize("folder", ["", "hdfs://name/ck", "gs://bucket/ck", "relative"])
def test_urls_are_not_fenced(folder: str) -> None:
    payload = Payload("chief-0", "chief", 0, "x", {}, environment={"CHECKPOINT_DIR": folder}, service="digits")
    assert fence_of(payload, "mine", {}, print) is None


def test_name_of_service_may_have_slashes(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    fence, _ = a_fence(tmp_path, service="/team/digits")
    fence.start(None)
    fence.stop()
    assert ["%2Fteam%2Fdigits.chief-0.json"] == os.listdir(tmp_path / FOLDER)  # noqa: PTH208


# On real processes.


def launch(executor: Any, command: str, folder: Path | str, serial: int, at: float = 1.0, **fields: Any) -> None:
    executor.launch(
        command,
        service="digits",
        serial=serial,
        launched_at=at,
        environment={"CHECKPOINT_DIR": str(folder)},
        **fields,
    )


def test_older_program_gets_sigterm_and_its_grace_period(start: Start, tmp_path: Path) -> None:
    """Within 5 s; its last checkpoint is whole."""
    folder = tmp_path / "ck"
    folder.mkdir()
    old, new = (start(name, MESOS_FRAMEWORK_ID=name) for name in ("old", "new"))
    save = f"sleep 1; echo saved > {folder}/saved; exit 143"
    launch(old, f"echo > {folder}/checkpoint; trap {shlex.quote(save)} TERM; sleep 3600 & wait", folder, 7, 7.0)
    old.states("TASK_STARTING", "TASK_RUNNING")
    # As after the loss of the scheduler's state: another framework, whose numbers begin again.
    wait_until((folder / "checkpoint").exists, "the program runs")
    launch(new, f"cat {folder}/{FOLDER}/*.json; sleep 3600", folder, 1, 8.0, task_id="t2")
    new.states("TASK_STARTING", "TASK_RUNNING")
    status = old.states("TASK_KILLING", "TASK_FAILED")
    assert "used by framework new of the same service" in status["message"]
    assert "REASON_TASK_UNAUTHORIZED" == status["reason"]
    assert "saved\n" == (folder / "saved").read_text()
    # The file was written before the program started.
    wait_until(lambda: new.output(), "output")
    assert "t2" == json.loads(new.output())["task_id"]
    new.kill(task_id="t2")
    new.states("TASK_KILLING", "TASK_KILLED")


@pytest.mark.parametrize("framework", ["same", "other"])
def test_older_program_does_not_start(start: Start, tmp_path: Path, framework: str) -> None:
    """A slow agent, and a framework whose folder another one has taken over."""
    folder = tmp_path / "ck"
    (folder / FOLDER).mkdir(parents=True)
    newer = a_claim("newer", *(("same",) if framework == "same" else ("same", "other")), serial=9, at=9.0)
    name = folder / FOLDER / "digits.worker-0.json"
    name.write_bytes(newer.encode())
    old = start("old", MESOS_FRAMEWORK_ID="same")
    launch(old, "echo ran", folder, 1, pre="echo prepared")
    status = old.states("TASK_STARTING", "TASK_KILLING", "TASK_FAILED")
    assert "newer" in status["message"]
    assert "the program had not started" in status["message"]
    # Only another framework keeps the folder: the scheduler may relaunch the task of a restored backup.
    assert ("REASON_TASK_UNAUTHORIZED" if framework == "other" else None) == status.get("reason")
    assert "" == old.output()
    assert newer.encode() == name.read_bytes()


def test_unusable_folder_does_not_stop_the_program(executor: Any) -> None:
    """The program may report the problem better, or never write there."""
    (executor.sandbox / "file").touch()
    launch(executor, "true", executor.sandbox / "file" / "ck", 1)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "is not protected against older launches" in executor.output("stderr")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start programs as another user")
@pytest.mark.parametrize("is_link", [False, True])
def test_file_is_written_as_the_program_user(executor: Any, is_link: bool) -> None:
    """Not as root, whom an NFS server refuses, and whom a link could mislead."""
    entry = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as forbidden:
        folder = Path(name)
        (folder / "checkpoint").touch()
        if is_link:
            (folder / FOLDER).symlink_to(forbidden)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        launch(executor, "true", folder, 1, user="nobody")
        executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
        if is_link:
            assert "Permission denied" in executor.output("stderr")
            assert [] == os.listdir(forbidden)  # noqa: PTH208
        else:
            status = (folder / FOLDER).stat()
            assert (entry.pw_uid, 0o700) == (status.st_uid, status.st_mode & 0o777)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can use files as another user")
def test_groups_of_the_program_user_count() -> None:
    """A shared folder often belongs to a group; the other threads keep theirs."""
    entry, groups = pwd.getpwnam("nobody"), os.getgroups()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoint").touch()
        os.chown(folder, 0, 4321)
        folder.chmod(0o770)
        fence, _ = a_fence(folder)
        fence.start((entry.pw_uid, entry.pw_gid, (entry.pw_gid, 4321)))
        fence.stop()
        assert written(folder) is not None
    assert groups == os.getgroups()
