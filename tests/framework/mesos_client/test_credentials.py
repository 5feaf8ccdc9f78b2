"""Basic credentials with any characters, and renewal of tokens after a 401."""

from __future__ import annotations

import base64
import threading

import pytest

from mesos_client.credentials import BasicCredentials, Credentials, TokenCredentials
from mesos_client.results import DriverDisconnected, Failed, Rejected, Sent
from wire.peer import Peer, Script, status, stream, subscribed

REVIVE = {"type": "REVIVE"}


class Login:
    """A login service: token-1, token-2, ... An exception in `failures` comes first."""

    def __init__(self, *failures: Exception) -> None:
        self.count, self.failures = 0, list(failures)

    def __call__(self) -> str:
        if self.failures:
            raise self.failures.pop(0)
        self.count += 1
        return f"token-{self.count}"


def only(token: str, script: Script) -> Script:
    """Answer 401 to requests without `token`."""

    def guarded(exchange) -> None:
        if exchange.received.headers.get("authorization") == token:
            script(exchange)
        else:
            exchange.answer(401, b"who are you")

    return guarded


@pytest.mark.parametrize(
    ("principal", "secret"), [("me", "secret"), ("Jürgen", "pässwörd ✓"), ("me", "a:b:"), ("", "")]
)
def test_basic_takes_any_secret(principal, secret) -> None:
    """P21: not only ASCII: UTF-8, as RFC 7617 says; a colon only in the secret."""
    header = BasicCredentials(principal, secret).header()
    assert header is not None
    assert f"{principal}:{secret}" == base64.b64decode(header.removeprefix("Basic ")).decode()


def test_basic_refuses_a_colon_in_the_principal() -> None:
    """Mesos would take the text before it for the principal. The secret is not quoted."""
    with pytest.raises(ValueError, match="colon") as caught:
        BasicCredentials("me:you", "hush")
    assert "hush" not in str(caught.value)


def test_a_fixed_header_is_not_renewed() -> None:
    """A wrong password does not become right."""
    assert not BasicCredentials("me", "secret").renew(BasicCredentials("me", "secret").header())
    assert (Credentials().header(), Credentials().renew(None)) == (None, False)


def test_token_is_renewed_after_rejection() -> None:
    """Two threads with a rejected token make one login."""
    login = Login()
    token = TokenCredentials(login)
    assert (token.header(), token.header(), login.count) == ("Bearer token-1", "Bearer token-1", 1)
    assert token.renew("Bearer token-1")
    assert token.renew("Bearer token-1")
    assert token.header() == "Bearer token-2"
    assert token.renew("Bearer token-1")
    assert token.header() == "Bearer token-2"


def test_concurrent_requests_share_one_login() -> None:
    """Under a lock."""
    gate, login = threading.Event(), Login()

    def slow():
        gate.wait(30)
        return login()

    token, headers = TokenCredentials(slow, scheme="token="), []
    threads = [threading.Thread(target=lambda: headers.append(token.header())) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(30)
    assert ["token=token-1"] * 4 == headers


def test_expired_token_loses_no_call(driver_of, recorder) -> None:
    """401 to a call: it is repeated once with a new token; the caller sees Sent."""
    with Peer(stream(subscribed()), on_call=only("Bearer token-2", status(202))) as peer:
        login = Login()
        driver = driver_of(peer.address, credentials=TokenCredentials(login))
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.send(REVIVE) == Sent()
        assert driver.send(REVIVE) == Sent()
        assert (len(peer.all("REVIVE")), login.count) == (3, 2)
        assert recorder.reports.empty()


def test_second_rejected_token_is_a_rejection(driver_of, recorder) -> None:
    """One repetition, no loop."""
    with Peer(stream(subscribed()), on_call=status(401)) as peer:
        driver = driver_of(peer.address, credentials=TokenCredentials(Login()))
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.send(REVIVE) == Rejected(401, "")
        assert len(peer.all("REVIVE")) == 2


def test_expired_token_loses_no_subscription(driver_of, recorder) -> None:
    """401 to SUBSCRIBE: retry immediately with a new token, report no rejection."""
    with Peer(only("Bearer token-2", stream(subscribed()))) as peer:
        driver_of(peer.address, credentials=TokenCredentials(Login())).start()
        assert recorder.next() == subscribed()
        assert len(peer.all("SUBSCRIBE")) == 2


def test_rejected_tokens_are_reported_once_and_retried(driver_of, recorder) -> None:
    """Each attempt gets a new token: the login service may return a valid one later."""
    with Peer(only("Bearer token-4", stream(subscribed()))) as peer:
        driver_of(peer.address, credentials=TokenCredentials(Login())).start()
        assert recorder.next() == DriverDisconnected("HTTP 401: who are you")
        assert recorder.next() == subscribed()
        assert len(peer.all("SUBSCRIBE")) == 4


def test_login_service_outage_is_a_failure(driver_of, recorder) -> None:
    """Without credentials the driver sends nothing, and keeps running."""
    login = Login(OSError("login is away"), OSError("login is away"))
    with Peer(stream(subscribed()), on_call=status(401)) as peer:
        driver = driver_of(peer.address, credentials=TokenCredentials(login))
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert [one.headers["authorization"] for one in peer.all("SUBSCRIBE")] == ["Bearer token-1"]
        login.failures.append(OSError("login is away"))
        assert driver.send(REVIVE) == Failed("no credentials: OSError: login is away", may_be_done=False)
