"""P21: TLS with a private authority and client certificates, on loopback."""

from __future__ import annotations

import logging
import socket
import threading
from logging.handlers import QueueHandler
from pathlib import Path

import pytest

from kit.commands import run_program
from mesos_client.credentials import BasicCredentials, Tls
from mesos_client.executor import AgentEnvironment, ExecutorDriver
from mesos_client.http import HttpRequest, TransportError
from mesos_client.scheduler import SchedulerDriver
from mesos_client.transport import Transport
from wire.client import ENVIRON, FRAMEWORK
from wire.peer import EXECUTOR_ID, PATIENCE, Peer, executor_subscribed, hang, stream, subscribed

CALL = b'{"type": "KILL", "secret": "in the body"}'


def post(made, peer, host="127.0.0.1"):
    port = peer.address.rpartition(":")[2]
    try:
        return made.post(HttpRequest(f"https://{host}:{port}/api", {}, CALL, PATIENCE)).status
    finally:
        made.close()


def test_certificate_of_configured_ca_is_accepted(certificates) -> None:
    """By address and by name."""
    for host in ("127.0.0.1", "localhost"):
        with Peer(tls=certificates.server_context()) as peer:
            assert post(Transport(Tls(certificates.ca)), peer, host) == 202


@pytest.mark.parametrize("verify", [True, "stranger.pem"], ids=["the machine's authorities", "another authority"])
def test_certificate_of_unknown_ca_is_rejected(certificates, verify) -> None:
    """Nothing is sent, and the error says why."""
    tls = Tls(verify if verify is True else certificates.path(verify))
    with Peer(tls=certificates.server_context()) as peer:
        with pytest.raises(TransportError, match=r"(?i)certificate.verify failed"):
            post(Transport(tls), peer)
        assert peer.all("KILL") == []


def test_a_certificate_for_another_host_is_refused(certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is for localhost, not for another name of the same address."""
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest, **options: real("localhost", *rest, **options))
    with Peer(tls=certificates.server_context()) as peer, pytest.raises(TransportError, match=r"master\.example"):
        post(Transport(Tls(certificates.ca)), peer, "master.example")
    with Peer(tls=certificates.server_context()) as peer:
        assert post(Transport(Tls(certificates.ca, check_hostname=False)), peer, "master.example") == 202


def test_a_rogue_master_learns_nothing(certificates, driver_of, recorder) -> None:
    """A server with a wrong certificate gets no subscription, call or credentials."""
    log, handler = logging.getLogger("mesos_client.stream"), QueueHandler(recorder.reports)
    log.addHandler(handler)
    try:
        with Peer(stream(subscribed()), tls=certificates.server_context()) as rogue:
            tls = Tls(certificates.path("stranger.pem"))
            driver = driver_of(rogue.address, tls=tls, credentials=BasicCredentials("me", "canary"))
            driver.start()
            assert "certificate verify failed" in recorder.next().getMessage()
            assert not driver.send({"type": "REVIVE"}).ok
            assert [] == rogue.all("SUBSCRIBE") + rogue.all("REVIVE")
    finally:
        log.removeHandler(handler)


def test_verification_can_be_turned_off(certificates) -> None:
    """For a cluster with self-signed certificates."""
    with Peer(tls=certificates.server_context()) as peer:
        assert post(Transport(Tls(verify=False)), peer) == 202


def test_client_certificate_is_sent(certificates) -> None:
    """From two files, or from one with both."""
    both = certificates.folder / "both.pem"
    both.write_text("".join(certificates.folder.joinpath(f"client.{kind}").read_text() for kind in ("pem", "key")))
    for cert in (certificates.client, str(both)):
        with Peer(tls=certificates.server_context(ask_clients=True)) as peer:
            assert post(Transport(Tls(certificates.ca, cert)), peer) == 202


def test_missing_client_certificate_is_rejected(certificates) -> None:
    """The failure is one of the transport."""
    with Peer(tls=certificates.server_context(ask_clients=True)) as peer:
        with pytest.raises(TransportError):
            post(Transport(Tls(certificates.ca)), peer)
        assert peer.all("KILL") == []


def test_http_and_tls_mismatch_fails(certificates) -> None:
    """A wrong scheme is a failure with a reason, not a hang."""
    with Peer(tls=certificates.server_context()) as peer:
        made = Transport()
        with pytest.raises(TransportError):
            made.post(HttpRequest(f"http://{peer.address}/api", {}, CALL, PATIENCE))
        made.close()


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        (Tls("/no/such/ca.pem"), "/no/such/ca.pem"),
        (Tls(True, "/no/such/client.pem"), "/no/such/client.pem"),
        (Tls(True, (__file__, __file__)), "test_tls.py"),
    ],
    ids=["authority", "certificate", "no certificate"],
)
def test_unusable_tls_files_are_named(tls, named) -> None:
    """When the transport is made, not at each attempt to connect."""
    with pytest.raises(ValueError, match=named):
        Transport(tls)


def test_encrypted_key_is_rejected_without_prompt(certificates) -> None:
    """OpenSSL would ask the terminal, and a service has none."""

    locked = certificates.folder / "locked.key"
    command = ["openssl", "pkey", "-in", certificates.client[1], "-aes256", "-passout", "pass:secret", "-out", locked]
    run_program(*command, check=True)
    with pytest.raises(ValueError, match=r"locked\.key"):
        Transport(Tls(True, (certificates.client[0], str(locked))))


def test_handshake_without_answer_times_out() -> None:
    """A silent peer does not delay a driver's stop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made, failed = Transport(), []

        def call() -> None:
            try:
                url = "https://127.0.0.1:{1}/".format(*listener.getsockname())
                made.post(HttpRequest(url, {}, CALL, 10 * PATIENCE))
            except TransportError as error:
                failed.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        connection, _ = listener.accept()
        assert connection.recv(1) != b"", "the handshake has begun"
        made.close()
        thread.join(PATIENCE)
        connection.close()
        assert len(failed) == 1


def test_p21_the_scheduler_speaks_tls(certificates, driver_of, recorder) -> None:
    """P21: subscription and calls use a client certificate; `tls` implies https."""
    with Peer(stream(subscribed()), tls=certificates.server_context(ask_clients=True)) as peer:
        driver = driver_of(peer.address, tls=Tls(certificates.ca, certificates.client))
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.master == f"https://{peer.address}"
        assert driver.send({"type": "REVIVE"}).ok
        assert len(peer.all("REVIVE")) == 1


def test_p21_a_scheduler_stops_while_a_tls_stream_is_silent(certificates, driver_of, recorder) -> None:
    """Another thread's shutdown must not disturb the session of the one that reads."""
    with Peer(stream(subscribed()), tls=certificates.server_context()) as peer:
        driver = driver_of(f"https://{peer.address}", tls=Tls(certificates.ca))
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        driver.stop()
        peer.wait_left()
        assert recorder.reports.empty()


def test_a_bad_file_is_an_error_of_the_drivers_constructor(recorder) -> None:
    """Where an operator's option is read, not in a thread's log."""
    with pytest.raises(ValueError, match=r"/no/such/ca\.pem"):
        SchedulerDriver(FRAMEWORK, "a", on_event=print, on_state=print, tls=Tls("/no/such/ca.pem"))


def executor_of(peer: Peer, recorder, **environ: str) -> ExecutorDriver:
    variables = {**ENVIRON, "MESOS_AGENT_ENDPOINT": peer.address, **environ}
    return ExecutorDriver(on_event=recorder.reports.put, on_state=recorder.reports.put, environ=variables)


def test_p21_the_executor_speaks_tls(certificates, recorder) -> None:
    """P21: as LIBPROCESS_SSL_* in its environment say."""
    certificate, key = certificates.client
    with Peer(stream(executor_subscribed()), tls=certificates.server_context(ask_clients=True)) as peer:
        driver = executor_of(
            peer,
            recorder,
            LIBPROCESS_SSL_ENABLED="true",
            LIBPROCESS_SSL_VERIFY_SERVER_CERT="1",
            LIBPROCESS_SSL_CA_FILE=certificates.ca,
            LIBPROCESS_SSL_CERT_FILE=certificate,
            LIBPROCESS_SSL_KEY_FILE=key,
        )
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.send_message(b"x").ok
        driver.stop()
        assert len(peer.all("MESSAGE")) == 1


def test_p21_the_executor_speaks_through_a_domain_socket(tmp_path: Path, recorder) -> None:
    """P21: HTTPS to the agent, on the path of its own actor, as in libmesos."""
    path = tmp_path / "agent.sock"
    with Peer(stream(executor_subscribed()), host=str(path)) as peer:
        driver = executor_of(
            peer,
            recorder,
            MESOS_DOMAIN_SOCKET=str(path),
            MESOS_SLAVE_PID="slave(1)@127.0.0.1:5051",
            MESOS_AGENT_ENDPOINT="",
        )
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.send_message(b"x").ok
        driver.stop()
        assert peer.wait("SUBSCRIBE").path == peer.wait("MESSAGE").path == "/slave(1)/api/v1/executor"
        assert peer.wait("MESSAGE").body["executor_id"] == EXECUTOR_ID


SSL = {**ENVIRON, "MESOS_AGENT_ENDPOINT": "10.0.0.1:5051", "LIBPROCESS_SSL_ENABLED": "1"}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, Tls(False, None, False)),
        ({"VERIFY_CERT": "true"}, Tls(True, None, False)),
        ({"VERIFY_SERVER_CERT": "true", "CA_DIR": "/ca"}, Tls("/ca", None, False)),
        ({"VERIFY_SERVER_CERT": "1", "CA_FILE": "/ca.pem", "CA_DIR": "/ca"}, Tls("/ca.pem", None, False)),
        ({"CA_FILE": "/ca.pem", "HOSTNAME_VALIDATION_SCHEME": "openssl"}, Tls(False, None, True)),
        ({"CERT_FILE": "/dev/null", "KEY_FILE": "/dev/zero"}, Tls(False, ("/dev/null", "/dev/zero"), False)),
        ({"CERT_FILE": "/dev/null", "KEY_FILE": "/no/such/key"}, Tls(False, None, False)),
    ],
)
def test_agent_tls_settings_are_parsed_like_libprocess(extra, expected) -> None:
    """docs/ssl.md of Mesos: only VERIFY_SERVER_CERT verifies; names by `openssl`."""
    read = AgentEnvironment.read({**SSL, **{f"LIBPROCESS_SSL_{name}": value for name, value in extra.items()}})
    assert expected == read.tls
    assert read.agent == "https://10.0.0.1:5051"


def test_tls_is_none_without_ssl() -> None:
    """LIBPROCESS_SSL_ENABLED=0 means the same as unset."""
    read = AgentEnvironment.read({**SSL, "LIBPROCESS_SSL_ENABLED": "0"})
    assert (read.tls, read.agent) == (None, "http://10.0.0.1:5051")


def test_hanging_calls_over_tls_are_interrupted(certificates, driver_of, recorder) -> None:
    """A stream that is lost ends the call that waits on the same master."""
    with Peer(stream(subscribed()), on_call=hang, tls=certificates.server_context()) as peer:
        driver = driver_of(peer.address, tls=Tls(certificates.ca), call_timeout=PATIENCE)
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        results = []
        thread = threading.Thread(target=lambda: results.append(driver.send({"type": "REVIVE"})))
        thread.start()
        peer.wait("REVIVE")
        peer.drop()
        thread.join(PATIENCE)
        assert len(results) == 1
        assert not results[0].ok
