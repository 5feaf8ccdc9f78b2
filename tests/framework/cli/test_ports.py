"""Ports of local runs: no two runs at once get the same."""

import os
import socket

import pytest

from tf_scheduler.cli.local_run.ports import claim_ports, port_block
from tf_scheduler.errors import JobError


def test_runs_at_once_get_different_ports_wherever_they_keep_their_state(monkeypatch, tmp_path):
    with port_block() as one:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        with port_block() as other:
            assert abs(one - other) >= 300


def test_a_block_that_somebody_else_uses_is_left_alone():
    with port_block() as found:
        pass
    with socket.create_server(("127.0.0.1", found)), port_block() as other:
        assert found != other


@pytest.fixture
def notes(monkeypatch, tmp_path):
    """Nobody else's are seen."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_clusters_that_are_up_at_once_get_different_ports(notes, tmp_path):
    """The first has the usual ones; asked again, each has its own."""
    first, second = tmp_path / "one", tmp_path / "two"

    assert (31000, None) == claim_ports(first)
    assert (30000, first) == claim_ports(second)
    assert (31000, None) == claim_ports(first)


def test_the_ports_of_a_cluster_that_has_ended_are_free(notes, tmp_path):
    """The process that started it is gone, and nothing runs in its folder; a note that says nothing is none."""
    folder = tmp_path / f"dcos-tensorflow-ports-{os.getuid()}"
    folder.mkdir(mode=0o700)
    for text in (f"1 1 {tmp_path / 'one'}", "nonsense"):
        (folder / "up-31000").write_text(text)

        assert (31000, None) == claim_ports(tmp_path / "two")


def test_when_there_are_no_ports_left_that_is_told(notes, tmp_path):
    """Four clusters on one machine are many."""
    for number in range(4):
        claim_ports(tmp_path / str(number))

    with pytest.raises(JobError, match="4 local clusters are up"):
        claim_ports(tmp_path / "5")


@pytest.fixture
def folder(notes, tmp_path):
    """Where everybody knows that this user's notes are."""
    return tmp_path / f"dcos-tensorflow-ports-{os.getuid()}"


@pytest.fixture
def precious(tmp_path):
    """A file that somebody would like to see emptied."""
    file = tmp_path / "precious"
    file.write_text("kept")
    return file


@pytest.mark.parametrize("name", ["choice", "up-31000"])
def test_a_link_among_the_notes_is_not_followed(folder, precious, tmp_path, name):
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(precious)

    with pytest.raises(JobError, match=f"{name}, where ports are noted, cannot be used"):
        claim_ports(tmp_path / "one")

    assert precious.read_text() == "kept"


def _everybody_writes(folder):
    folder.mkdir()
    folder.chmod(0o777)


def _leads_elsewhere(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def _belongs_to_another(folder):
    if os.getuid():
        pytest.skip("only root gives a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize("made", [_everybody_writes, _leads_elsewhere, _belongs_to_another])
def test_a_folder_that_somebody_else_has_laid_out_is_refused(folder, tmp_path, made):
    """Before anything in it is opened."""
    made(folder)

    with pytest.raises(JobError, match="must be a folder that belongs to you"):
        claim_ports(tmp_path / "one")
    with pytest.raises(JobError, match="must be a folder that belongs to you"), port_block():
        pass

    assert not list(folder.iterdir())
