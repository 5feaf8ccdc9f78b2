"""A real ZooKeeper beside the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.shared import SharedServers
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from mesos_local.node import four_letter_word, zookeeper_command


@pytest.fixture
def cluster(module_servers: SharedServers) -> LocalCluster:
    agents = [AgentSpec("agent-1", "cpus:1;mem:512;ports:[31970-31979]")]
    return module_servers.cluster(agents, zookeeper=True)


@pytest.mark.usefixtures("real_zookeeper")
def test_zookeeper_serves_and_is_in_status(cluster: LocalCluster) -> None:
    """One server, standalone, that answers."""
    assert "imok" == four_letter_word(cluster.zookeeper.address, "ruok")
    assert "Mode: standalone" in four_letter_word(cluster.zookeeper.address, "srvr")
    assert cluster.zookeeper.address == cluster.state().zookeeper


@pytest.mark.usefixtures("real_zookeeper")
def test_killed_zookeeper_comes_back_with_its_data(cluster: LocalCluster) -> None:
    """Sessions and nodes survive SIGKILL: the transaction log is on disk."""
    kazoo = pytest.importorskip("kazoo.client")
    client = kazoo.KazooClient(cluster.zookeeper.address, connection_retry={"max_tries": -1, "max_delay": 0.1})
    client.start(timeout=30)
    try:
        client.create("/kept", b"value")
        cluster.zookeeper.kill()
        cluster.zookeeper.start()
        assert b"value" == client.retry(client.get, "/kept")[0]
    finally:
        client.stop()
        client.close()


def test_absent_package_is_named(tmp_path: Path) -> None:
    """Which files are missing and which Debian package has them."""
    with pytest.raises(MesosLocalError, match=r"zookeeper\.jar.*apt-get install zookeeper"):
        zookeeper_command(tmp_path, "127.0.0.1:1", jars=tmp_path)


def test_absent_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MesosLocalError, match=r"java.*apt-get install"):
        zookeeper_command(tmp_path, "127.0.0.1:1")
