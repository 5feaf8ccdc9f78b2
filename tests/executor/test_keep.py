"""New files of a task's working directory are kept in CHECKPOINT_DIR/kept-files."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tf_executor.user import keep


def write(path: Path, size: int, at: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))


def run(checkpoints: Path | str, task: str = "worker-0", **settings: object) -> dict[str, list[list[object]]]:
    """Keep the files of the current directory; return the lists of the stored record."""
    own = {"task": task, "launch": f"{task}__1", "folder": str(checkpoints), "place": str(checkpoints)}
    assert 0 == keep.main(json.dumps({**own, "limit": 1000, "since": 100.0, "is_leader": False, **settings}))
    return lists(Path(checkpoints) / "kept-files" / f"{settings.get('launch', own['launch'])}.json")


def lists(record: Path) -> dict[str, list[list[object]]]:
    values = json.loads(record.read_text()) if record.exists() else {}
    return {name: values[name] for name in ("kept", "left") if name in values}


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sandbox"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def test_only_own_new_files_are_kept(sandbox: Path, checkpoints: Path) -> None:
    """Also with an old time, as of an archive; none of the executor or Python."""
    names = ["checkpoints/d", "checkpoints_best/c", "out/model.keras", "out/stdout", "stdout.csv", "stdout.d/a"]
    for name in names:
        write(sandbox / name, 10, 150.0)
    for name in ("stdout", "executor.log.1", "stderr.times", "out/__pycache__/a.pyc", ".tf_executor/b"):
        write(sandbox / name, 10, 150.0)

    record = run(checkpoints, since=time.time() - 60)
    assert (names, []) == (sorted(str(name) for name, _ in record["kept"]), record["left"])
    kept = checkpoints / "kept-files" / "worker-0__1"
    assert names == sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())


def test_older_files_are_not_kept(sandbox: Path, checkpoints: Path) -> None:
    write(sandbox / "train.py", 10, 150.0)
    assert {} == run(checkpoints, since=time.time() + 60)


def test_what_is_not_kept_is_named(sandbox: Path, checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hidden folder as a whole, unless libraries write it; a link would be followed."""
    for name in ("model.keras", ".netrc", ".git/a", ".git/b/c", ".cache/matplotlib/a", ".config/b"):
        write(sandbox / name, 10, 150.0)
    (sandbox / "link").symlink_to("/etc/passwd")
    (sandbox / "folder").symlink_to("/etc")
    os.mkfifo(sandbox / "pipe")

    record = run(checkpoints)
    assert [["model.keras", 10]] == record["kept"]
    hidden, link = "it is hidden", "it is a link"
    sizes = [[".git", 20, hidden], [".netrc", 10, hidden], ["folder", 4, link], ["link", 11, link]]
    assert [*sizes, ["pipe", 0, "it is not a regular file"]] == sorted(record["left"])
    # The last lines of an output are the cause of a failure.
    assert capsys.readouterr().err == ""


def test_unreadable_folder_keeps_the_others(sandbox: Path, checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does a file that cannot be copied."""
    write(sandbox / "model", 10, 150.0)
    write(sandbox / "long" / ("n" * 250), 10, 150.0)
    (sandbox / "cache").mkdir()
    scan, copy = os.scandir, shutil.copy2

    def refuse(path: str) -> Any:
        return scan(path if not str(path).endswith("cache") else os.devnull)

    def fail(source: str, target: str, **settings: Any) -> Any:
        return copy(source, target if "long" not in source else "/no/target", **settings)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(shutil, "copy2", fail)

    record = run(checkpoints)
    assert [["model", 10]] == record["kept"]
    assert [["cache", 0, "Not a directory"], ["long/" + "n" * 250, 10, "No such file or directory"]] == record["left"]


def test_checkpoints_of_the_sandbox_are_left_out(sandbox: Path) -> None:
    """CHECKPOINT_DIR is a folder of the sandbox if a storage carries it, for example."""
    for name in ("checkpoints/ckpt-1", "runs/checkpoints/model"):
        write(sandbox / name, 10, 150.0)
    assert {"kept": [["runs/checkpoints/model", 10]], "left": []} == run("checkpoints")


def test_newest_files_fit_first(sandbox: Path, checkpoints: Path) -> None:
    """What does not fit is named."""
    for name, size, at in (("a", 400, 101.0), ("b", 700, 102.0), ("c", 300, 103.0)):
        write(sandbox / name, size, at)

    left = [["a", 400, "service.keep_files is full"]]
    assert {"kept": [["c", 300], ["b", 700]], "left": left} == run(checkpoints)


def test_files_of_earlier_launches_stay_while_there_is_room(sandbox: Path, checkpoints: Path) -> None:
    """Also of another job. The oldest give way, and their records say so."""
    folder = checkpoints / "kept-files"
    for number, size in enumerate((400, 500, 450), 1):
        begun = keep.next_file_time(str(sandbox))
        (sandbox / "model").write_bytes(b"x" * size)
        assert [["model", size]] == run(checkpoints, launch=f"worker-0__{number}", since=begun)["kept"]

    assert {"kept": [], "left": [["model", 400, "removed for files of worker-0"]]} == lists(folder / "worker-0__1.json")
    assert ["worker-0__2", "worker-0__3"] == sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_files_of_the_program_are_never_removed(sandbox: Path, checkpoints: Path) -> None:
    """Whatever their names are."""
    own = ["files/worker-0/mine.ckpt", "files/run1.json", "kept-files/run1/weights.h5", "kept-files/odd.json"]
    for name in own:
        write(checkpoints / name, 600, 50.0)
    (checkpoints / "kept-files/run1.json").write_text('{"kept": [["weights.h5", 600]]}')
    (checkpoints / "kept-files/odd.json").write_text("[" * 100_000)
    write(sandbox / "model", 700, 101.0)

    assert [["model", 700, "service.keep_files is full"]] == run(checkpoints, is_leader=True)["left"]
    assert all((checkpoints / name).exists() for name in own)


def test_files_of_before_the_start_are_not_new(sandbox: Path) -> None:
    """Their archive was extracted a moment before."""
    for number in range(20):
        write(sandbox / "data.bin", number, 150.0)
        begun = keep.next_file_time(str(sandbox))
        (sandbox / "model").write_bytes(b"x" * number)
        assert ([("model", number)], []) == keep.new_files(str(sandbox), "checkpoints", begun)


def test_nothing_is_kept_through_a_link(sandbox: Path, checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoints / "elsewhere").mkdir()
    (checkpoints / "kept-files").symlink_to(checkpoints / "elsewhere")
    write(sandbox / "model", 10, 101.0)

    assert {} == run(checkpoints)
    assert f"files are not kept: {checkpoints}/kept-files is a link\n" == capsys.readouterr().err


def test_leader_comes_first(sandbox: Path, checkpoints: Path) -> None:
    """A task gets what others leave; the leader takes it back."""
    write(sandbox / "model", 600, 101.0)

    assert [["model", 600]] == run(checkpoints, "worker-1")["kept"]
    assert [["model", 600, "service.keep_files is full"]] == run(checkpoints, "worker-2")["left"]
    assert [["model", 600]] == run(checkpoints, "chief-0", is_leader=True)["kept"]
    assert not (checkpoints / "kept-files" / "worker-1__1").exists()
    record = lists(checkpoints / "kept-files" / "worker-1__1.json")
    assert {"kept": [], "left": [["model", 600, "removed for files of chief-0"]]} == record


def test_file_above_the_limit_takes_no_room(sandbox: Path, checkpoints: Path) -> None:
    """Files of other tasks stay."""
    write(sandbox / "model", 600, 101.0)
    run(checkpoints, "worker-1")
    write(sandbox / "huge", 1001, 102.0)
    (sandbox / "model").unlink()

    record = run(checkpoints, "chief-0", is_leader=True)
    assert [["huge", 1001, "service.keep_files is smaller"]] == record["left"]
    assert (checkpoints / "kept-files" / "worker-1__1" / "model").exists()


def test_problem_does_not_fail_the_task(sandbox: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(sandbox / "model", 1, 101.0)
    (tmp_path / "file").touch()

    assert {} == run("s3://bucket/run")
    assert {} == run(tmp_path / "file")
    assert "files are not kept: " in capsys.readouterr().err
