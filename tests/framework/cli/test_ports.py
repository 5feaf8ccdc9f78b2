"""Ports of local runs: no two runs at once get the same."""

import socket

from tf_scheduler.cli.ports import port_block


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
