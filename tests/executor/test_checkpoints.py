"""What counts as a complete checkpoint in a program's folder."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import pytest

from tf_executor.user import checkpoints
from tf_executor.user.checkpoints import FolderSnapshot, IncompleteError, Manifest

LONG_AGO = time.time() - 3600


def write(path: Path, content: str = "x", at: float = LONG_AGO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (at, at))
    return path


def save_tensorflow(folder: Path, number: int, content: str = "x") -> None:
    """Write the files of tf.train.Checkpoint in its order."""
    write(folder / f"ckpt-{number}.data-00000-of-00001", content)
    write(folder / f"ckpt-{number}.index", content)
    write(folder / "checkpoint", f'model_checkpoint_path: "ckpt-{number}"\n')


@pytest.fixture
def snapshot(tmp_path: Path) -> FolderSnapshot:
    (tmp_path / "run").mkdir()
    return FolderSnapshot(tmp_path / "run", tmp_path / "copies")


def taken(snapshot: FolderSnapshot, ended: float | None = None, *, is_orderly: bool = False) -> list[str]:
    snapshot.take(ended, is_orderly)
    return sorted(snapshot.copies)


def test_tensorflow_takes_prefix_that_state_names(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """Files of a prefix that is still being written are not named yet."""
    save_tensorflow(tmp_path / "run", 1)
    save_tensorflow(tmp_path / "run", 2)
    write(tmp_path / "run" / "ckpt-3.data-00000-of-00002")
    assert ["checkpoint", "ckpt-2.data-00000-of-00001", "ckpt-2.index"] == taken(snapshot)
    assert "ckpt-2" == snapshot.label


@pytest.mark.parametrize("missing", ["ckpt-1.index", "ckpt-1.data-00000-of-00001"])
def test_tensorflow_without_all_files_is_incomplete(snapshot: FolderSnapshot, tmp_path: Path, missing: str) -> None:
    """Also if the program has ended well: the checkpoint cannot be restored."""
    save_tensorflow(tmp_path / "run", 1)
    (tmp_path / "run" / missing).unlink()
    assert [] == taken(snapshot, time.time(), is_orderly=True)
    assert snapshot.waiting_for


def test_tensorflow_prefix_with_newer_data_is_incomplete(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """A program that saves to one prefix again replaces the data before the index."""
    save_tensorflow(tmp_path / "run", 1)
    write(tmp_path / "run" / "ckpt-1.data-00000-of-00001", "new", LONG_AGO + 60)
    assert [] == taken(snapshot)


def test_state_of_checkpoint_is_relative(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """Estimators write paths of the agent, which the next agent does not have."""
    folder = tmp_path / "run" / "größe"
    save_tensorflow(folder, 7)
    escaped = "".join(chr(byte) if byte < 128 else f"\\{byte:03o}" for byte in str(folder).encode())
    write(folder / "checkpoint", f'model_checkpoint_path: "{escaped}/ckpt-7"\n')
    assert 3 == len(taken(snapshot))
    state = snapshot.copies["größe/checkpoint"].read_text()
    assert 'model_checkpoint_path: "ckpt-7"\nall_model_checkpoint_paths: "ckpt-7"\n' == state


def test_saved_model_waits_for_its_graph(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    write(tmp_path / "run" / "model" / "saved_model.pb", at=LONG_AGO)
    write(tmp_path / "run" / "model" / "variables" / "variables.index", at=LONG_AGO + 60)
    assert [] == taken(snapshot)
    write(tmp_path / "run" / "model" / "saved_model.pb", at=LONG_AGO + 61)
    assert ["model/saved_model.pb", "model/variables/variables.index"] == taken(snapshot)


def test_changing_file_holds_its_folder(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """BackupAndRestore of Keras writes weights and their epoch one after the other."""
    write(tmp_path / "run" / "backup" / "latest.weights.h5")
    write(tmp_path / "run" / "backup" / "training_metadata.json", at=time.time())
    write(tmp_path / "run" / "model.keras")
    assert ["model.keras"] == taken(snapshot)
    assert ["backup/training_metadata.json"] == snapshot.waiting_for
    assert snapshot.is_kept("backup/latest.weights.h5")


def test_changing_file_does_not_hold_removed_checkpoints(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """A text that is never quiet would keep all checkpoints in the storage."""
    for number in (1, 2):
        save_tensorflow(tmp_path / "run", number)
        write(tmp_path / "run" / "train.txt", at=time.time())
        assert 3 == len(taken(snapshot))
        snapshot.keep()
    stored = ("ckpt-1.index", "ckpt-1.data-00000-of-00001", "train.txt", "earlier.txt")
    assert [False, False, True, True] == [snapshot.is_kept(name) for name in stored]


def test_incomplete_prefix_holds_the_one_before(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    save_tensorflow(tmp_path / "run", 2)
    (tmp_path / "run" / "ckpt-2.index").unlink()
    write(tmp_path / "run" / "model.keras")
    assert ["model.keras"] == taken(snapshot)
    stored = ("checkpoint", "ckpt-1.index", "train.txt", "sub/ckpt-1.index")
    assert [True, True, False, False] == [snapshot.is_kept(name) for name in stored]


def test_incomplete_saved_model_holds_its_folders(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    write(tmp_path / "run" / "best" / "saved_model.pb")
    write(tmp_path / "run" / "best" / "variables" / "variables.index", at=LONG_AGO + 60)
    write(tmp_path / "run" / "model.keras")
    assert ["model.keras"] == taken(snapshot)
    stored = ("best/variables/variables.index", "best/assets/words", "better/saved_model.pb")
    assert [True, True, False] == [snapshot.is_kept(name) for name in stored]


def test_file_that_a_process_writes_is_incomplete(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """HDF5 may compute for long between two writes."""
    path = write(tmp_path / "run" / "w.h5")
    with path.open("r+"):
        assert [] == taken(snapshot)
    with path.open():
        assert ["w.h5"] == taken(snapshot)


def test_killed_program_leaves_only_whole_archives(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """A program that was killed may have left the half of a file."""
    now = time.time()
    write(tmp_path / "run" / "a" / "half.h5", at=now)
    write(tmp_path / "run" / "b" / "half.pt", "PK\x03\x04half", at=now)
    with zipfile.ZipFile(tmp_path / "run" / "whole.keras", "w") as archive:
        archive.writestr("weights", "x")
    assert ["whole.keras"] == taken(snapshot, now + 0.1)
    assert ["a/half.h5", "b/half.pt", "whole.keras"] == taken(snapshot, now + 0.1, is_orderly=True)


def test_killed_program_leaves_no_half_file_that_was_quiet(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """A program may hang for long between two writes, and be killed then."""
    write(tmp_path / "run" / "a" / "half.pt", "PK\x03\x04half")
    write(tmp_path / "run" / "c" / "whole.h5")
    with write(tmp_path / "run" / "b" / "half.h5").open("r+"):
        assert ["a/half.pt", "c/whole.h5"] == taken(snapshot)
    assert ["c/whole.h5"] == taken(snapshot, time.time())
    assert ["a/half.pt", "b/half.h5", "c/whole.h5"] == taken(snapshot, time.time(), is_orderly=True)


def test_end_of_a_program_that_was_never_seen_running(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """A carrier that was started again at the end cannot know which files were open."""
    write(tmp_path / "run" / "a" / "half.h5")
    with zipfile.ZipFile(tmp_path / "run" / "whole.keras", "w") as archive:
        archive.writestr("weights", "x")
    assert ["whole.keras"] == taken(snapshot, time.time() + 60)
    assert ["a/half.h5", "whole.keras"] == taken(snapshot, time.time() + 60, is_orderly=True)


def test_drafts_and_event_files_belong_to_no_checkpoint(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    for name in (
        "ckpt-1_temp/part",
        "checkpoint.tmp12ab",
        "x.part",
        ".hidden",
        "train/events.out.tfevents.1.h",
        "a.csv",
    ):
        write(tmp_path / "run" / name)
    assert [] == taken(snapshot)
    assert ["a.csv", "train/events.out.tfevents.1.h"] == sorted(
        name for name in ("a.csv", "a.h5", "train/events.out.tfevents.1.h") if checkpoints.is_plain(name)
    )


def test_copy_survives_removal_but_not_a_change(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    """CheckpointManager removes old checkpoints, h5py writes into existing files."""
    path = write(tmp_path / "run" / "w.h5")
    taken(snapshot)
    path.unlink()
    snapshot.verify()
    write(path, at=LONG_AGO - 5)
    taken(snapshot)
    with path.open("a") as file:
        file.write("more")
    with pytest.raises(IncompleteError):
        snapshot.verify()


def test_unchanged_files_are_not_taken_again(snapshot: FolderSnapshot, tmp_path: Path) -> None:
    save_tensorflow(tmp_path / "run", 1)
    write(tmp_path / "run" / "vocabulary" / "words.txt")
    taken(snapshot)
    snapshot.keep()
    assert [] == taken(snapshot)
    save_tensorflow(tmp_path / "run", 2)
    assert ["checkpoint", "ckpt-2.data-00000-of-00001", "ckpt-2.index"] == taken(snapshot)
    assert [True, False] == [snapshot.is_kept(name) for name in ("vocabulary/words.txt", "ckpt-1.index")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"files": [{"path": "a", "size": 1, "sha256"',
        b'{"label": "x", "files": [{"path": "../a", "size": 1, "sha256": "%s"}]}' % (b"0" * 64),
        b'{"label": "x", "files": [{"path": "/a", "size": 1, "sha256": "%s"}]}' % (b"0" * 64),
        b'{"label": "x", "files": [{"path": "a", "size": 1, "sha256": "../launch"}]}',
        b'{"label": "x", "files": [{"path": "a", "size": 1, "sha256": "%s", "launch": ".."}]}' % (b"0" * 64),
    ],
)
def test_manifest_refuses_damage_and_foreign_paths(data: bytes) -> None:
    """Everyone who may write to the bucket could place files on the agent."""
    with pytest.raises(IncompleteError):
        Manifest.decode("000000000000001.a/000000001.json", data)
