"""Only the newest launch of a task uses CHECKPOINT_DIR."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import partial
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
        ("earlier launch", a_claim("other", serial=4, at=40.0), (False, False)),
        ("later launch", a_claim("other", serial=6, at=60.0), (True, True)),
        # The last writer wins: a launch that starts replaces the file, and the running one ends.
        ("state from a backup", a_claim("other", serial=4, at=60.0), (False, True)),
        ("clock set back", a_claim("other", serial=6, at=40.0), (False, True)),
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


def a_fence(
    folder: Path, service: str = "digits", framework: str = "a", task: str = "chief-0", name: str = "mine", **claim: Any
) -> tuple[FolderFence, SimpleQueue[object]]:
    queue: SimpleQueue[object] = SimpleQueue()
    environment = {"CHECKPOINT_DIR": str(folder)}
    payload = Payload(task, task[:-2], 0, "x", {}, environment=environment, service=service, **claim)
    fence = fence_of(payload, name, {"MESOS_FRAMEWORK_ID": framework}, queue.put)
    assert fence is not None
    return fence, queue


def written(folder: Path) -> FolderClaim | None:
    try:
        return FolderClaim.decode((folder / FOLDER / "digits.chief-0.json").read_bytes())
    except FileNotFoundError:
        return None


def put(folder: Path, claim: FolderClaim | None, name: str = "chief-0") -> None:
    (folder / FOLDER).mkdir(exist_ok=True)
    new = folder / FOLDER / "new"
    new.write_bytes(b"damaged" if claim is None else claim.encode())
    new.replace(folder / FOLDER / f"digits.{name}.json")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "INTERVAL", 0.01)
    monkeypatch.setattr(fencing, "REMOVAL_LIMIT", 0.01)


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
    assert {"digits.1.json", "digits.chief-0.json"} == {path.name for path in (tmp_path / FOLDER).iterdir()}


@pytest.mark.usefixtures("quick")
def test_exactly_one_of_two_frameworks_wins(tmp_path: Path) -> None:
    """Also if one comes first with its chief, and the other one with its worker."""
    (tmp_path / "checkpoint").touch()
    order = [("a", "chief-0"), ("b", "chief-0"), ("b", "worker-0"), ("a", "worker-0")]
    fences = {key: a_fence(tmp_path, framework=key[0], task=key[1], name="-".join(key)) for key in order}
    for fence, _ in fences.values():
        fence.start(None)
    for task in ("chief-0", "worker-0"):
        event = fences["a", task][1].get(timeout=10)
        assert isinstance(event, Superseded)
        assert event.is_final
        assert "uninstall framework b and install this service again" in event.reason
    for task in ("chief-0", "worker-0"):
        wait_until(partial(has_folder, tmp_path, task, "b"), "the second framework has the folder")
        fences["b", task][0].stop()
        assert fences["b", task][1].empty()


@pytest.mark.usefixtures("quick")
def test_installed_again_service_gets_the_folder(tmp_path: Path) -> None:
    """As the message of the loser says: no file has to be removed."""
    (tmp_path / "checkpoint").touch()
    for framework in "ab":
        fence, _ = a_fence(tmp_path, framework=framework, name=framework)
        fence.start(None)
        fence.stop()
    fence, queue = a_fence(tmp_path, framework="c", name="c")
    fence.start(None)
    fence.stop()
    assert has_folder(tmp_path, "chief-0", "c")
    assert queue.empty()


def has_folder(folder: Path, task: str, framework: str) -> bool:
    claim = FolderClaim.decode((folder / FOLDER / f"digits.{task}.json").read_bytes())
    return claim is not None and claim.framework == framework


@pytest.mark.usefixtures("quick")
def test_simultaneous_frameworks_agree_on_one_winner(tmp_path: Path) -> None:
    for number in range(20):
        folder, barrier = tmp_path / str(number), threading.Barrier(8)
        folder.mkdir()
        (folder / "checkpoint").touch()
        fences = {
            (name, task): a_fence(folder, framework=name, task=task, name=f"{name}{task}", launched_at=float(at))
            for at, name in enumerate("abcd")
            for task in ("chief-0", "worker-0")
        }

        def start(fence: FolderFence, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            fence.start(None)

        threads = [threading.Thread(target=start, args=(fence,)) for fence, _ in fences.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        wait_until(partial(have_lost, fences, 6), "six have lost")
        winners = {name for (name, _), (_, queue) in fences.items() if queue.empty()}
        for fence, _ in fences.values():
            fence.stop()
        assert 1 == len(winners)


def have_lost(fences: dict[tuple[str, str], tuple[FolderFence, SimpleQueue[object]]], number: int) -> bool:
    return sum(not queue.empty() for _, queue in fences.values()) >= number


@pytest.mark.usefixtures("quick")
def test_file_system_without_links_is_protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "checkpoint").touch()
    first, lost = a_fence(tmp_path, name="first")
    first.start(None)
    second, _ = a_fence(tmp_path, framework="b")
    second.start(None)
    assert isinstance(lost.get(timeout=10), Superseded)
    second.stop()


@pytest.mark.usefixtures("quick")
def test_damaged_list_of_frameworks_is_replaced(tmp_path: Path) -> None:
    put(tmp_path, None, "7")
    fence, _ = a_fence(tmp_path)
    fence.start(None)
    fence.stop()
    assert a_claim("mine", serial=0, at=0.0) == FolderClaim.decode((tmp_path / FOLDER / "digits.8.json").read_bytes())


def test_old_lists_of_frameworks_are_removed(tmp_path: Path) -> None:
    """A folder of many runs stays small."""
    (tmp_path / "checkpoint").touch()
    for number in range(103):
        fence, _ = a_fence(tmp_path, framework=str(number), name=str(number))
        fence.start(None)
        fence.stop()
    assert 101 == len(list((tmp_path / FOLDER).iterdir()))


@pytest.mark.usefixtures("quick")
def test_framework_that_never_had_the_folder_loses_it_for_good(tmp_path: Path) -> None:
    """Its program ran before another file existed; its next launch must not win."""
    fence, queue = a_fence(tmp_path, launched_at=5.0)
    fence.start(None)
    put(tmp_path, a_claim("other", "b", at=6.0), "1")
    assert isinstance(queue.get(timeout=10), Superseded)
    changed = FolderClaim.decode((tmp_path / FOLDER / "digits.2.json").read_bytes())
    assert a_claim("other", "a", "b", at=6.0) == changed
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


@pytest.mark.usefixtures("quick")
def test_program_may_remove_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example shutil.rmtree, which takes longer than the time between two checks."""
    checks: SimpleQueue[Path] = SimpleQueue()

    def is_empty(folder: Path) -> bool:
        checks.put(folder)
        return not folder.exists() or not any(folder.iterdir())

    def await_checks() -> None:
        """The first one may have begun before."""
        while not checks.empty():
            checks.get()
        for _ in range(2):
            checks.get(timeout=10)

    monkeypatch.setattr(fencing, "REMOVAL_LIMIT", 3600.0)
    monkeypatch.setattr(fencing, "_is_empty", is_empty)
    folder = tmp_path / "ck"
    folder.mkdir()
    (folder / "checkpoint").touch()
    fence, _ = a_fence(folder)
    fence.start(None)
    shutil.rmtree(folder / FOLDER)
    await_checks()
    (folder / "checkpoint").unlink()
    folder.rmdir()
    await_checks()
    folder.mkdir()
    (folder / "checkpoint").touch()
    wait_until(lambda: written(folder) == a_claim("mine", serial=0, at=0.0), "the file is written again")
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
    names = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert {"%2Fteam%2Fdigits.1.json", "%2Fteam%2Fdigits.chief-0.json"} == names


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
    launch(new, f"cat {folder}/{FOLDER}/digits.worker-0.json; sleep 3600", folder, 1, 8.0, task_id="t2")
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
    names = [folder / FOLDER / f"digits.{name}.json" for name in ("worker-0", "1")]
    for name in names:
        name.write_bytes(newer.encode())
    old = start("old", MESOS_FRAMEWORK_ID="same")
    launch(old, "echo ran", folder, 1, pre="echo prepared")
    status = old.states("TASK_STARTING", "TASK_KILLING", "TASK_FAILED")
    assert "newer" in status["message"]
    assert "the program had not started" in status["message"]
    # Only another framework keeps the folder: the scheduler may relaunch the task of a restored backup.
    assert ("REASON_TASK_UNAUTHORIZED" if framework == "other" else None) == status.get("reason")
    assert "" == old.output()
    assert [newer.encode()] * 2 == [name.read_bytes() for name in names]


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
