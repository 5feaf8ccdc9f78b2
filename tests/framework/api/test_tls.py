"""The API over https, with client certificates."""

import http.client
import socket
import ssl
from contextlib import suppress

import pytest

from kit.api import an_app
from tf_scheduler.api.http import server as http_server
from tf_scheduler.api.http.server import ApiError, ApiServer, ServerTls

PATIENCE = 20


def ask(port, certificates, method, path, who=""):
    context = ssl.create_default_context(cafile=certificates.ca)
    if who:
        context.load_cert_chain(*certificates.pair(who))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_client_certificates_grant_access(certificates) -> None:
    """409: access granted, but this app has no loop."""
    certificate, key = certificates.pair("server")
    files = ServerTls(certificate, key, client_ca=certificates.ca)
    app = an_app(client_certificates=True, writers=frozenset({"client"}))
    with ApiServer(app, "127.0.0.1", 0, files) as server:
        codes = {
            who: [
                ask(server.port, certificates, *what, who)
                for what in (("GET", "/v1/health"), ("GET", "/v1/plans"), ("POST", "/v1/plans/deploy/stop"))
            ]
            for who in ("client", "other", "")
        }

    assert {"client": [204, 200, 409], "other": [204, 200, 403], "": [204, 401, 401]} == codes


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("none.pem", "server.key"), "none.pem"),
        (("server.pem", "client.key"), "server.pem"),
        (("ca.key",) * 2, "ca.key"),
    ],
)
def test_invalid_tls_files_are_named(certificates, names, message: str) -> None:
    """Before the port is in use."""
    with pytest.raises(ApiError, match=f"invalid TLS files of the API: .*{message}"):
        ApiServer(an_app(), "127.0.0.1", 0, ServerTls(*map(certificates.path, names)))


@pytest.mark.parametrize(
    "start", [b"", b"GET /v1/plans HTTP/1.1\r\nHost: loc", b"GET /v1/plans HTTP/1.1\r\nHost: a\r\n\r\nGET /"]
)
def test_incomplete_request_head_times_out(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the first request, and after an answer."""
    assert 20.0 == http_server.HEAD_TIMEOUT  # what is promised
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT", 0.2)
    with (
        ApiServer(an_app(), "127.0.0.1", 0) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
    ):
        connection.sendall(start)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass

    assert received.startswith(b"HTTP/1.1 200") is start.endswith(b"GET /")
    assert b"HTTP/1.1 408 " in received


def test_missing_tls_handshake_times_out(certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a connection is not counted by the limit on connections."""
    monkeypatch.setattr(http_server, "HANDSHAKE_TIMEOUT", 0.2)
    tls = ServerTls(*certificates.pair("server"))
    with (
        ApiServer(an_app(), "127.0.0.1", 0, tls) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
    ):
        connection.sendall(b"\x16\x03\x01")
        with suppress(ConnectionResetError):
            assert b"" == connection.recv(65536)
