"""Ports of local clusters: concurrent clusters get different blocks."""

import os
import socket
from pathlib import Path

import pytest

from tf_scheduler.cli.local_run.ports import claim_ports, claimed_port, port_block
from tf_scheduler.errors import JobError


def test_concurrent_runs_get_different_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also with different state folders."""
    with port_block() as one:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        with port_block() as other:
            assert abs(one - other) >= 300


def test_block_with_used_first_port_is_skipped() -> None:
    with port_block() as first:
        pass
    with socket.create_server(("127.0.0.1", first)), port_block() as other:
        assert first != other


def test_port_is_claimed_by_one_process_only() -> None:
    """Before anything listens there, as while a cluster starts."""
    with port_block() as first:
        with claimed_port([first]) as port:
            assert port is None
        with claimed_port([first, first + 1]) as port:
            assert port == first + 1


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder for claims."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_concurrent_clusters_get_different_ports(notes, tmp_path: Path) -> None:
    """The first has the default ports; each keeps its own."""
    first, second = tmp_path / "one", tmp_path / "two"

    assert (31000, None) == claim_ports(first)
    assert (30000, first) == claim_ports(second)
    assert (31000, None) == claim_ports(first)


def test_ports_of_stopped_cluster_are_free(notes, tmp_path: Path) -> None:
    """Its process has exited and its folder is unused. An invalid claim is ignored."""
    folder = tmp_path / f"dcos-tensorflow-ports-{os.getuid()}"
    folder.mkdir(mode=0o700)
    for text in (f"1 1 {tmp_path / 'one'}", "nonsense"):
        (folder / "up-31000").write_text(text)

        assert (31000, None) == claim_ports(tmp_path / "two")


def test_missing_ports_are_reported(notes, tmp_path: Path) -> None:
    for number in range(4):
        claim_ports(tmp_path / str(number))

    with pytest.raises(JobError, match="all 4 port blocks are in use"):
        claim_ports(tmp_path / "5")


@pytest.fixture
def folder(notes, tmp_path: Path):
    """The predictable folder of this user's claims."""
    return tmp_path / f"dcos-tensorflow-ports-{os.getuid()}"


@pytest.fixture
def precious(tmp_path: Path):
    """A file that a link could truncate."""
    file = tmp_path / "precious"
    file.write_text("kept")
    return file


@pytest.mark.parametrize("name", ["choice", "up-31000"])
def test_link_among_claims_is_not_followed(folder: Path, precious: Path, tmp_path: Path, name: str) -> None:
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(precious)

    with pytest.raises(JobError, match=f"{name}: cannot be opened"):
        claim_ports(tmp_path / "one")

    assert precious.read_text() == "kept"


def _writable_by_others(folder) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def _link_elsewhere(folder) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def _belongs_to_another(folder) -> None:
    if os.getuid():
        pytest.skip("only root gives a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize("made", [_writable_by_others, _link_elsewhere, _belongs_to_another])
def test_folder_of_another_user_is_rejected(folder: Path, tmp_path: Path, made) -> None:
    """Before a file in it is opened."""
    made(folder)

    with pytest.raises(JobError, match="must be a folder that only you can write"):
        claim_ports(tmp_path / "one")
    with pytest.raises(JobError, match="must be a folder that only you can write"), port_block():
        pass

    assert not list(folder.iterdir())
