"""Ports of local runs: no two runs at once get the same."""

import os
import socket

import pytest

from tf_scheduler.cli.ports import port_block, ports_to_stay
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

    assert (31000, None) == ports_to_stay(first)
    assert (30000, first) == ports_to_stay(second)
    assert (31000, None) == ports_to_stay(first)


def test_the_ports_of_a_cluster_that_has_ended_are_free(notes, tmp_path):
    """The process that started it is gone, and nothing runs in its folder; a note that says nothing is none."""
    folder = tmp_path / f"dcos-tensorflow-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for text in (f"1 1 {tmp_path / 'one'}", "nonsense"):
        (folder / "up-31000").write_text(text)

        assert (31000, None) == ports_to_stay(tmp_path / "two")


def test_when_there_are_no_ports_left_that_is_told(notes, tmp_path):
    """Four clusters on one machine are many."""
    for number in range(4):
        ports_to_stay(tmp_path / str(number))

    with pytest.raises(JobError, match="4 local clusters are up"):
        ports_to_stay(tmp_path / "5")
