"""TLS with certificates for both sides, on a real server."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from kit.certificates import Certificates
from kit.shared import SharedServers
from kit.zookeeper_ensemble import ServerTls, ZooKeeperEnsemble
from tf_scheduler.store.interface import Put, StoreError, StoreUnavailableError
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore, ZooKeeperTls
from tf_scheduler.store.zookeeper.session import KazooSockets, tls_context


def tls_of(certificates: Certificates, name: str = "client", authority: str = "ca") -> ZooKeeperTls:
    return ZooKeeperTls(*map(Path, (certificates.path(f"{authority}.pem"), *certificates.pair(name))))


@pytest.fixture
def secure_server(real_zookeeper: None, module_servers: SharedServers, certificates: Certificates) -> ZooKeeperEnsemble:
    """A server that accepts only clients with a certificate of the authority."""
    stores = ServerTls(certificates.folder / "server.both.pem", Path(certificates.ca))
    return module_servers.ensemble(tls=stores)


@pytest.fixture
def place(secure_server: ZooKeeperEnsemble, certificates: Certificates, request) -> ZooKeeperAddress:
    chroot = f"/{abs(hash(request.node.name))}"
    return ZooKeeperAddress((secure_server.secure_addresses,), chroot, tls=tls_of(certificates), request_timeout=3.0)


def test_store_works_over_tls(place, open_at) -> None:
    """Leadership, thousands of values, many concurrent answers, megabytes."""
    store = open_at(place, request_timeout=15.0)
    store.lead()
    store.load()
    values = {f"tasks/{number}": b"%d" % number for number in range(5_000)} | {"big": bytes(range(256)) * 8192}
    store.apply([Put(key, value) for key, value in values.items()])
    for number in range(150):
        store.apply([Put("n", b"%d" % number)])

    assert {**values, "n": b"149"} == open_at(place, request_timeout=15.0).load()


def test_nodes_belong_to_client_certificate(place, open_at, operator, secure_server, certificates) -> None:
    """Clients without that certificate cannot read them."""
    store = open_at(place)
    store.load()
    store.apply([Put("a", b"1")])
    with pytest.raises(StoreError, match="belong to another user or certificate"):
        open_at(place, tls=tls_of(certificates, "other")).load()
    plain = operator(replace(place, servers=(secure_server.addresses,)))
    with pytest.raises(NoAuthError):
        plain.get(f"{place.chroot}/dcos-service-tensorflow/head")

    assert {"a": b"1"} == open_at(place).load()


@pytest.mark.parametrize(
    ("name", "authority", "message"),
    [("client", "stranger", "certificate verify failed"), ("unknown", "ca", ""), ("", "ca", "")],
)
def test_unknown_certificates_are_rejected(place, certificates, name, authority, message) -> None:
    """A server of another authority, and a client with another certificate or none."""
    tls = tls_of(certificates, name, authority) if name else ZooKeeperTls(Path(certificates.ca))
    with pytest.raises(StoreUnavailableError, match=f"zks://127.0.0.1:.*{message}"):
        ZooKeeperStore(replace(place, tls=tls), "tensorflow")


@pytest.mark.usefixtures("real_zookeeper")
def test_wrong_host_name_is_rejected(certificates) -> None:
    """Even with a valid certificate."""
    stores = ServerTls(certificates.folder / "elsewhere.both.pem", Path(certificates.ca))
    with ZooKeeperEnsemble(tls=stores) as server:
        place = ZooKeeperAddress((server.secure_addresses,), tls=tls_of(certificates), request_timeout=2.0)
        with pytest.raises(StoreUnavailableError, match="IP address mismatch"):
            ZooKeeperStore(place, "tensorflow")


def test_plain_client_fails_at_tls_port(place) -> None:
    """With an error, not with a timeout."""
    with pytest.raises(StoreUnavailableError, match="zk://"):
        ZooKeeperStore(replace(place, tls=None, request_timeout=1.0), "tensorflow")


def test_unusable_tls_file_is_named(certificates, tmp_path: Path) -> None:
    """With its option."""
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    good = tls_of(certificates)
    for tls, option in (
        (replace(good, ca=tmp_path / "none.pem"), "option ca: .*none.pem"),
        (replace(good, ca=nonsense), "option ca: .*nonsense.pem"),
        (replace(good, certificate=nonsense), "option certificate: .*nonsense.pem"),
        (replace(good, key=certificates.folder / "other.key"), "option certificate: "),
    ):
        with pytest.raises(StoreError, match=option):
            tls_context(tls)


def test_answers_in_one_tls_record_are_read(certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first answer is read, the second one is in no socket, but readable."""
    waited = []

    def select(readers, writers, others, timeout):
        waited.append(timeout)
        return [], [], []

    monkeypatch.setattr("kazoo.handlers.threading.selector_select", select)
    sockets = KazooSockets(ZooKeeperTls(Path(certificates.ca)), 10.0)

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with certificates.server_context().wrap_socket(connection, server_side=True) as secured:
            secured.sendall(b"firstother")
            secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        with sockets.create_connection(listener.getsockname(), hostname="127.0.0.1") as connection:
            assert b"first" == connection.recv(5)
            assert ([connection], [], []) == sockets.select([connection], [], [], 10.0)
            assert [0] == waited
            assert b"other" == connection.recv(5)
            assert ([], [], []) == sockets.select([connection], [], [], 10.0)
            assert [0, 10.0] == waited
            connection.sendall(b".")
            server.join()
