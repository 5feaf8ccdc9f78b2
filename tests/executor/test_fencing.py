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

from kit.payloads import a_payload
from kit.waiting import wait_until
from tf_executor.launch import fencing
from tf_executor.launch.fencing import FOLDER, FolderClaim, FolderFence, fence_of
from tf_executor.lifecycle.events import Superseded

Start = Callable[..., Any]
#: For executors whose fence looks often.
QUICK = "launch.fencing.INTERVAL=0.1"


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
    payload = a_payload("x", task, environment=environment, service=service, **claim)
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


def use(folder: Path) -> None:
    """As earlier launches have left it: the next one writes its file before it starts."""
    (folder / "checkpoint").touch()
    (folder / FOLDER).mkdir()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "INTERVAL", 0.01)


@pytest.mark.usefixtures("quick")
def test_running_launch_keeps_and_loses_the_folder(tmp_path: Path) -> None:
    """It repairs the file after damage and an older launch; a newer one ends it."""
    use(tmp_path)
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
    use(tmp_path)
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
    use(tmp_path)
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

        def start_together(fence: FolderFence, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            fence.start(None)

        threads = [threading.Thread(target=start_together, args=(fence,)) for fence, _ in fences.values()]
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
@pytest.mark.parametrize("error", [errno.EPERM, 524])  # 524: ENOTSUPP of Linux, which Python does not know
def test_file_system_without_links_is_protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, "no links")

    monkeypatch.setattr(os, "link", refuse)
    use(tmp_path)
    first, lost = a_fence(tmp_path, name="first")
    first.start(None)
    second, _ = a_fence(tmp_path, framework="b")
    second.start(None)
    assert isinstance(lost.get(timeout=10), Superseded)
    second.stop()


def test_list_without_links_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(524, "no links")

    monkeypatch.setattr(os, "link", refuse)
    new, path = tmp_path / "new", tmp_path / "list"
    new.write_bytes(b"first")
    fencing._create(new, path)
    new.write_bytes(b"second")
    with pytest.raises(FileExistsError):
        fencing._create(new, path)
    assert b"first" == path.read_bytes()


@pytest.mark.usefixtures("quick")
def test_damaged_list_of_frameworks_is_replaced(tmp_path: Path) -> None:
    put(tmp_path, None, "7")
    fence, _ = a_fence(tmp_path)
    fence.start(None)
    fence.stop()
    assert a_claim("mine", serial=0, at=0.0) == FolderClaim.decode((tmp_path / FOLDER / "digits.8.json").read_bytes())


def test_old_lists_of_frameworks_are_removed(tmp_path: Path) -> None:
    """A folder of many runs stays small."""
    use(tmp_path)
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
    (tmp_path / "checkpoint").touch()
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
def test_program_may_remove_its_folder(tmp_path: Path) -> None:
    """It takes several checks; another task may start meanwhile."""
    folder = tmp_path / "ck"
    (folder / "export").mkdir(parents=True)
    use(folder)
    names = [folder / part / str(number) for part in ("", "export") for number in range(9)]
    for name in names:
        name.touch()
    fences = [a_fence(folder, task=task)[0] for task in ("chief-0", "worker-0")]
    running, steps = False, [*names, folder / "export", folder / "checkpoint"]
    fences[0]._check(running=False)
    shutil.rmtree(folder / FOLDER)
    for step in steps:
        for fence in fences:
            assert fence._check(running) is None
        running = True
        assert not (folder / FOLDER).exists()
        step.rmdir() if step.is_dir() else step.unlink()
    folder.rmdir()
    for fence in fences:
        fence._check(running=True)
    folder.mkdir()
    (folder / "checkpoint").touch()
    for fence in fences:
        fence._check(running=True)
    files = {path.name for path in (folder / FOLDER).iterdir()}
    assert {"digits.1.json", "digits.chief-0.json", "digits.worker-0.json"} == files


def test_new_file_is_written_at_the_second_check(tmp_path: Path) -> None:
    """The first one cannot know whether another task's program removes the folder."""
    (tmp_path / "checkpoint").touch()
    fence, _ = a_fence(tmp_path)
    fence._check(running=False)
    assert written(tmp_path) is None
    fence._check(running=True)
    assert written(tmp_path) is not None


@pytest.mark.parametrize("framework", ["a", "b"])
@pytest.mark.parametrize("is_old_first", [False, True])
def test_older_launch_stops_after_the_newer_has_cleared_the_folder(
    tmp_path: Path, framework: str, is_old_first: bool
) -> None:
    """Faster than the older one's check, which sees its file missing."""
    use(tmp_path)
    old, _ = a_fence(tmp_path, name="old", serial=1, launched_at=1.0)
    old._check(running=False)
    new, _ = a_fence(tmp_path, framework=framework, name="new", serial=2, launched_at=2.0)
    new._check(running=False)
    shutil.rmtree(tmp_path / FOLDER)
    results = {"old": old._check(running=True), "new": new._check(running=True)}
    for _ in range(2):
        for name in ("old", "new") if is_old_first else ("new", "old"):
            results[name] = results[name] or {"old": old, "new": new}[name]._check(running=True)
    assert results["old"] is not None
    assert results["new"] is None


@pytest.mark.parametrize("is_winner_first", [False, True])
def test_removed_list_does_not_return_the_folder(tmp_path: Path, is_winner_first: bool) -> None:
    """The later framework's program removes it, the earlier one relaunches."""
    use(tmp_path)
    a_fence(tmp_path, name="old", launched_at=1.0)[0]._check(running=False)
    winner, _ = a_fence(tmp_path, framework="b", name="winner", launched_at=2.0)
    winner._check(running=False)
    shutil.rmtree(tmp_path / FOLDER)
    again, _ = a_fence(tmp_path, name="again", launched_at=3.0)
    fences = [winner, again] if is_winner_first else [again, winner]
    results = [fence._check(running=False) for fence in fences]
    assert [None, None] == results
    for _ in range(2):
        results = [result or fence._check(running=True) for result, fence in zip(results, fences, strict=True)]
    lost, kept = results[fences.index(again)], results[fences.index(winner)]
    assert lost is not None
    assert ("b", None) == (lost.framework, kept)
    # For good, also for its next launch.
    later = a_fence(tmp_path, name="later", launched_at=4.0)[0]._check(running=False)
    assert later is not None


def test_launch_of_an_older_framework_ends_at_a_full_list(tmp_path: Path) -> None:
    """Also its next launch, and the list gets one file only."""
    names = tuple(map(str, range(100)))
    use(tmp_path)
    put(tmp_path, a_claim("other", *names, at=9.0), "7")
    put(tmp_path, a_claim("other", *names, at=9.0))
    results = [a_fence(tmp_path, launched_at=at)[0]._check(running=at < 9) for at in (1.0, 10.0)]
    assert ["99", "99"] == [result and result.framework for result in results]
    changed = FolderClaim.decode((tmp_path / FOLDER / "digits.8.json").read_bytes())
    assert (*names[1:-1], "a", "99") == (changed and changed.frameworks)
    assert not (tmp_path / FOLDER / "digits.9.json").exists()


@pytest.mark.parametrize("folder", ["", "hdfs://name/ck", "gs://bucket/ck", "relative"])
def test_urls_are_not_fenced(folder: str) -> None:
    payload = a_payload("x", "chief-0", environment={"CHECKPOINT_DIR": folder}, service="digits")
    assert fence_of(payload, "mine", {}, print) is None


def test_name_of_service_may_have_slashes(tmp_path: Path) -> None:
    use(tmp_path)
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


def test_older_program_gets_sigterm_and_its_grace_period(start_executor: Start, tmp_path: Path) -> None:
    """Its last checkpoint is whole."""
    folder = tmp_path / "ck"
    (folder / FOLDER).mkdir(parents=True)
    old, new = (start_executor(name, QUICK, MESOS_FRAMEWORK_ID=name) for name in ("old", "new"))
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
def test_older_program_does_not_start(start_executor: Start, tmp_path: Path, framework: str) -> None:
    """A slow agent, and a framework whose folder another one has taken over."""
    folder = tmp_path / "ck"
    (folder / FOLDER).mkdir(parents=True)
    newer = a_claim("newer", *(("same",) if framework == "same" else ("same", "other")), serial=9, at=9.0)
    names = [folder / FOLDER / f"digits.{name}.json" for name in ("worker-0", "1")]
    for name in names:
        name.write_bytes(newer.encode())
    old = start_executor("old", MESOS_FRAMEWORK_ID="same")
    launch(old, "echo ran", folder, 1, pre_command="echo prepared")
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
def test_file_is_written_as_the_program_user(start_executor: Start, is_link: bool) -> None:
    """Not as root, whom an NFS server refuses, and whom a link could mislead."""
    entry, executor = pwd.getpwnam("nobody"), start_executor("t", QUICK)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as forbidden:
        folder = Path(name)
        (folder / "checkpoint").touch()
        if is_link:
            (folder / FOLDER).symlink_to(forbidden)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        launch(executor, f"until [ -e {folder / FOLDER} ]; do sleep 0.1; done", folder, 1, user="nobody")
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
        os.chown(folder, 0, 4321)
        folder.chmod(0o770)
        use(folder)
        (folder / FOLDER).chmod(0o770)
        os.chown(folder / FOLDER, 0, 4321)
        fence, _ = a_fence(folder)
        fence.start((entry.pw_uid, entry.pw_gid, (entry.pw_gid, 4321)))
        fence.stop()
        assert written(folder) is not None
    assert groups == os.getgroups()
