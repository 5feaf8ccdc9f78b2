"""Several real ZooKeeper servers, and what becomes of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.commands import ENVIRONMENT
from kit.shared import SharedServers
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.host.errors import MesosLocalError
from mesos_local.host.process import ProcessId
from mesos_local.node import is_listening

pytestmark = pytest.mark.usefixtures("real_zookeeper")


@pytest.fixture
def ensemble(real_zookeeper: None, module_servers: SharedServers) -> ZooKeeperEnsemble:
    return module_servers.ensemble(3)


def test_one_leads_and_the_others_follow(ensemble: ZooKeeperEnsemble) -> None:
    """Three servers, one ensemble."""
    ensemble.wait_serving()

    assert ["follower", "follower", "leader"] == sorted(str(server.mode()) for server in ensemble.servers)
    assert ensemble.leader() not in ensemble.followers()
    assert ensemble.addresses.split(",") == [server.address for server in ensemble.servers]


def test_another_leads_when_the_leader_is_killed(ensemble: ZooKeeperEnsemble) -> None:
    """The rest elects a leader; the killed server comes back as a follower."""
    ensemble.wait_serving()
    killed = ensemble.leader()
    killed.kill()
    ensemble.wait_serving()
    assert ensemble.leader() is not killed
    killed.start()

    assert "follower" == killed.mode()


def test_service_needs_a_majority(ensemble: ZooKeeperEnsemble) -> None:
    """One of three does not serve; with a second one it does again."""
    ensemble.wait_serving()
    first, second = ensemble.followers()
    first.kill()
    second.kill()
    with pytest.raises(MesosLocalError, match="does not serve after"):
        ensemble.wait_serving(timeout=3)
    first.launch()
    second.launch()
    ensemble.wait_serving()

    assert 2 == len(ensemble.followers())


def test_single_server_is_standalone() -> None:
    """A single server needs no ensemble; afterwards process, port and folder are gone."""
    with ZooKeeperEnsemble() as alone:
        (server,) = alone.servers
        process, folder = server.process, server.log_path.parent.parent
        assert process is not None
        assert "standalone" == server.mode()

    assert not process.alive()
    assert not is_listening(server.address)
    assert not folder.exists()


_OWNER = """
import sys
from kit.zookeeper_ensemble import ZooKeeperEnsemble
with ZooKeeperEnsemble() as ensemble:
    print(ensemble.servers[0].pid, ensemble._guard.pid, ensemble.servers[0].log_path, flush=True)
    sys.stdin.read()
"""


def test_it_dies_with_its_owner() -> None:
    """SIGKILL of the process that started it leaves nothing behind."""
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        try:
            server, guard, log = owner.stdout.readline().split()
            processes = [ProcessId.of(int(pid)) for pid in (server, guard)]
        finally:
            owner.send_signal(signal.SIGKILL)

    assert all(process is not None and process.wait(30) for process in processes)
    assert not Path(log).parent.parent.exists()
