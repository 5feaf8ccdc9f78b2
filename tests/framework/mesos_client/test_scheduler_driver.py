"""SchedulerDriver against a scripted master: what it sends, reports and answers."""

from __future__ import annotations

import json
import threading

import pytest

from mesos_client.credentials import BasicCredentials, Tls, TokenCredentials
from mesos_client.http import TransportError
from mesos_client.results import (
    DriverAborted,
    DriverDisconnected,
    Failed,
    NotConnected,
    RegistrationRefusedError,
    Rejected,
    Sent,
)
from mesos_client.scheduler import SchedulerDriver, SubscribeRetry
from wire.client import FRAMEWORK
from wire.peer import FRAMEWORK_ID, Peer, cut_after, message, status, stream, subscribed, update, vanish

REVIVE = {"type": "REVIVE"}


def test_framework_id_is_sent_after_first_subscription(driver_of, recorder) -> None:
    """The master's rule: framework_id and framework_info.id are equal, or both absent."""
    with Peer(cut_after(subscribed()), stream(subscribed())) as peer:
        driver = driver_of(peer.address)
        driver.start()
        first, second = peer.wait("SUBSCRIBE").body, peer.wait("SUBSCRIBE", 2).body
        assert {"type": "SUBSCRIBE", "subscribe": {"framework_info": FRAMEWORK}} == first
        assert FRAMEWORK_ID == second["framework_id"] == second["subscribe"]["framework_info"]["id"]
        assert driver.framework_id == FRAMEWORK_ID["value"]
        assert "id" not in FRAMEWORK


def test_forbidden_subscription_is_not_sent(driver_of, recorder) -> None:
    """After the leadership is lost, subscribing would take the framework away."""
    leads = threading.Event()
    leads.set()
    asked = threading.Semaphore(0)

    def permit() -> None:
        asked.release()
        if not leads.is_set():
            raise RuntimeError("another scheduler leads")

    def deposed(exchange) -> None:
        leads.clear()
        cut_after(subscribed())(exchange)

    with Peer(deposed, stream(subscribed())) as peer:
        driver = driver_of(peer.address, permit=permit)
        driver.start()
        peer.wait("SUBSCRIBE")
        for _ in range(2):
            assert asked.acquire(timeout=30)
        driver.stop()

        assert 1 == len(peer.all("SUBSCRIBE"))
        assert "another scheduler leads" == driver.last_failure


def test_suppressed_roles_are_in_the_subscription(driver_of) -> None:
    """Or SUBSCRIBE would un-suppress them."""
    with Peer(stream(subscribed())) as peer:
        driver_of(peer.address, suppressed_roles=["r"]).start()
        assert peer.wait("SUBSCRIBE").body["subscribe"]["suppressed_roles"] == ["r"]


def test_calls_carry_stream_id_and_framework_id(driver_of, recorder) -> None:
    """Calls belong to the subscription; SUBSCRIBE has no stream id."""
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer.address)
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.send(REVIVE) == Sent()
        call = peer.wait("REVIVE")
        assert (call.headers["mesos-stream-id"], call.body["framework_id"]) == ("stream-1", FRAMEWORK_ID)
        assert "mesos-stream-id" not in peer.wait("SUBSCRIBE").headers


def test_events_except_heartbeats_are_passed_on(driver_of, recorder) -> None:
    """Also those of a type that is not known yet."""
    unknown = {"type": "SOMETHING_NEW", "something_new": {"a": 1}}
    with Peer(stream(subscribed(), {"type": "HEARTBEAT"}, unknown, message())) as peer:
        driver_of(peer.address).start()
        assert [subscribed(), unknown, message()] == [recorder.next() for _ in range(3)]


def plain(value):
    """Whether it is made of JSON's own types, at every depth."""
    if type(value) is dict:
        return all(type(key) is str and plain(item) for key, item in value.items())
    return all(map(plain, value)) if type(value) is list else type(value) in (str, int, float, bool, type(None))


def test_p26_events_are_plain_dicts(driver_of, recorder) -> None:
    """P26: a missing field is missing: reading an attribute does not create it."""
    with Peer(stream(subscribed(), update())) as peer:
        driver_of(peer.address).start()
        assert all(plain(recorder.next()) for _ in range(2))


def test_p29_updates_are_not_acknowledged_implicitly(driver_of, recorder) -> None:
    """P29: an update is acknowledged when its owner has stored it, and says so."""
    with Peer(stream(subscribed(), update(), message())) as peer:
        driver = driver_of(peer.address)
        driver.start()
        status_ = recorder.wait_event("UPDATE")["update"]["status"]
        recorder.wait_event("MESSAGE")
        assert driver.send(REVIVE).ok
        assert peer.all("ACKNOWLEDGE") == []
        expected = {name: status_[name] for name in ("agent_id", "task_id", "uuid")}
        assert driver.send({"type": "ACKNOWLEDGE", "acknowledge": expected}).ok
        assert expected == peer.wait("ACKNOWLEDGE").body["acknowledge"]


def test_results_are_typed(driver_of, recorder) -> None:
    """not connected, sent, rejected, failed; none quotes the request."""
    answers = iter([status(202), status(400, b"no such offer"), vanish])
    with Peer(stream(subscribed()), on_call=lambda exchange: next(answers)(exchange)) as peer:
        driver = driver_of(peer.address)
        assert driver.send(REVIVE) == NotConnected()
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.send(REVIVE).ok
        assert driver.send(REVIVE) == Rejected(400, "no such offer")
        failed = driver.send({"type": "ACCEPT", "accept": {"secret": "hush"}})
        assert isinstance(failed, Failed)
        assert "hush" not in str(failed)
        driver.stop()
        assert driver.send(REVIVE) == NotConnected()


def test_nothing_is_sent_between_loss_and_subscribed(driver_of, recorder) -> None:
    """Calls of that time are dropped, not kept."""
    gate = threading.Event()

    def late(exchange) -> None:
        exchange.begin("stream-2")
        gate.wait(30)
        exchange.send(subscribed())
        exchange.hold()

    with Peer(cut_after(subscribed()), late) as peer:
        driver = driver_of(peer.address)
        driver.start()
        peer.wait("SUBSCRIBE", 2)
        assert driver.send(REVIVE) == NotConnected()
        gate.set()
        recorder.wait_event("SUBSCRIBED")
        recorder.wait_event("SUBSCRIBED")
        assert driver.send(REVIVE).ok
        assert peer.wait("REVIVE").headers["mesos-stream-id"] == "stream-2"
        assert len(peer.all("REVIVE")) == 1


def test_teardown_is_sent_on_demand_only_and_ends_the_driver(driver_of, recorder) -> None:
    """The one call that ends the framework; afterwards the driver is stopped."""
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer.address)
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.teardown().ok
        assert driver.aborted
        assert len(peer.all("TEARDOWN")) == 1


def test_teardown_outlives_the_stream_that_it_ends(driver_of, recorder) -> None:
    """A real master closes the stream before it answers: not a disconnection."""

    def close_then_answer(exchange) -> None:
        exchange.peer.drop()
        exchange.peer.wait_left()
        exchange.answer(202)

    with Peer(stream(subscribed()), on_call=close_then_answer) as peer:
        driver = driver_of(peer.address)
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.teardown() == Sent()
        assert recorder.reports.empty()
        assert len(peer.all("SUBSCRIBE")) == 1


def test_unanswered_teardown_keeps_subscribing(driver_of, recorder) -> None:
    """If the stream was lost with the call, the driver reconnects for another try."""

    def lose_both(exchange) -> None:
        exchange.peer.drop()
        vanish(exchange)

    with Peer(stream(subscribed()), on_call=lose_both) as peer:
        driver = driver_of(peer.address)
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert isinstance(driver.teardown(), Failed)
        recorder.wait_event("SUBSCRIBED")


def test_a_teardown_that_is_rejected_leaves_the_driver_running(driver_of, recorder) -> None:
    """So that it can be tried again."""
    with Peer(stream(subscribed()), on_call=status(503)) as peer:
        driver = driver_of(peer.address)
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert isinstance(driver.teardown(), Rejected)
        assert not driver.aborted


def test_a_redirect_is_followed_to_the_leader(driver_of, recorder) -> None:
    """307 with a Location without scheme, as Mesos answers."""
    with Peer(stream(subscribed())) as leader:
        location = f"//{leader.address}/api/v1/scheduler"
        with Peer(status(307, Location=location)) as peer:
            driver = driver_of(peer.address)
            driver.start()
            recorder.wait_event("SUBSCRIBED")
            assert driver.master == f"http://{leader.address}"
            assert driver.send(REVIVE).ok
            assert len(leader.all("REVIVE")) == 1


def test_a_redirect_away_from_tls_is_not_followed(certificates, driver_of, recorder) -> None:
    """Credentials that were to go over TLS are not sent without."""
    with Peer(stream(subscribed())) as plain_peer:
        location = f"http://{plain_peer.address}/api/v1/scheduler"
        scripts = (status(307, Location=location), stream(subscribed()))
        with Peer(*scripts, tls=certificates.server_context()) as peer:
            driver_of(peer.address, tls=Tls(certificates.ca), credentials=BasicCredentials("me", "secret")).start()
            recorder.wait_event("SUBSCRIBED")
            assert len(peer.all("SUBSCRIBE")) == 2
        assert plain_peer.all("SUBSCRIBE") == []


def test_a_list_of_masters_is_tried_in_turn(driver_of, recorder) -> None:
    """A master that is not there is passed over."""
    with Peer(stream(subscribed())) as peer:
        driver_of(f"127.0.0.1:1,{peer.address}").start()
        recorder.wait_event("SUBSCRIBED")


def test_a_refusal_is_reported_once_and_tried_again(driver_of, recorder) -> None:
    """401: the process lives, its owner knows why, and goes on trying."""
    with Peer(status(401, b"Unauthenticated"), status(401), stream(subscribed())) as peer:
        driver_of(peer.address, credentials=BasicCredentials("me", "wrong")).start()
        assert DriverDisconnected("HTTP 401: Unauthenticated") == recorder.next()
        assert recorder.next() == subscribed()


def test_stop_may_be_called_from_a_callback_and_twice(recorder) -> None:
    """It does not wait for its own thread."""
    with Peer(stream(subscribed())) as peer:
        stopped = threading.Event()

        def on_event(_) -> None:
            driver.stop()
            stopped.set()

        driver = SchedulerDriver(FRAMEWORK, peer.address, on_event=on_event, on_state=recorder.reports.put)
        driver.start()
        assert stopped.wait(30)
        driver.stop()
        assert recorder.reports.empty()


@pytest.mark.parametrize("bad", [b"x", b"3\nabc", b"2\n[]"], ids=["no RecordIO", "no JSON", "no object"])
def test_garbage_on_the_stream_is_a_loss(driver_of, recorder, bad) -> None:
    """The driver says so without quoting it, and subscribes again."""

    def garbage(exchange) -> None:
        exchange.begin()
        exchange.send(subscribed())
        exchange.connection.sendall(b"%x\r\n%s\r\n" % (len(bad), bad))
        exchange.hold()

    with Peer(garbage, stream(subscribed())) as peer:
        driver_of(peer.address).start()
        recorder.wait_event("SUBSCRIBED")
        assert isinstance(recorder.next(), DriverDisconnected)
        recorder.wait_event("SUBSCRIBED")


def test_non_utf8_executor_text_is_accepted(driver_of, recorder) -> None:
    """The lost stream would be lost forever, because Mesos resends the update."""
    written = json.dumps(update()).replace('"uuid"', '"message": "MARK", "uuid"').encode()
    record = written.replace(b"MARK", b"\xff\xed\xa0\x80")

    def raw(exchange) -> None:
        exchange.begin()
        exchange.send(subscribed())
        exchange.connection.sendall(
            b"%x\r\n%d\n%s\r\n" % (len(record) + len(b"%d\n" % len(record)), len(record), record)
        )
        exchange.hold()

    with Peer(raw, stream(subscribed())) as peer:
        driver_of(peer.address).start()
        assert "\ufffd" in recorder.wait_event("UPDATE")["update"]["status"]["message"]


def test_a_driver_starts_once(driver_of) -> None:
    """A second start is an error with a sentence, not a second thread."""
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer.address)
        driver.start()
        with pytest.raises(RuntimeError, match="already started"):
            driver.start()


def test_aborted_comes_once_and_last(driver_of, recorder) -> None:
    """After ERROR there is one DriverAborted, and stop() adds nothing."""
    with Peer(stream(subscribed(), {"type": "ERROR", "error": {"message": "gone"}})) as peer:
        driver = driver_of(peer.address)
        driver.start()
        assert recorder.wait_event("ERROR")
        assert DriverAborted("gone") == recorder.next()
        driver.stop()
        assert recorder.reports.empty()
        assert peer.all("TEARDOWN") == []


def answering(*answers):
    """Answer calls of the operator API one after the other; the last answer repeats."""
    left = list(answers)
    return lambda exchange: (left.pop(0) if len(left) > 1 else left[0])(exchange)


SHOWN = status(200, json.dumps({"type": "GET_FRAMEWORKS", "get_frameworks": {}}).encode())
QUERY = "GET_FRAMEWORKS"


def test_registration_is_checked_with_the_master(driver_of, recorder) -> None:
    """Before SUBSCRIBE without an id, with its credentials; the answer may be an id."""
    asked = []

    def check(ask):
        asked.append(ask(QUERY))
        return "framework-1"

    basic = BasicCredentials("me", "secret")
    with Peer(cut_after(subscribed()), stream(subscribed()), on_call=answering(SHOWN)) as peer:
        driver_of(peer.address, credentials=basic, before_registration=check).start()
        subscribe, query = peer.wait("SUBSCRIBE", 2), peer.wait(QUERY)
        first = peer.wait("SUBSCRIBE")
        assert [Sent({"type": QUERY, "get_frameworks": {}})] == asked
    assert ("/api/v1", basic.header()) == (query.path, query.headers["authorization"])
    assert query.at <= first.at
    assert [FRAMEWORK_ID] * 2 == [call.body["framework_id"] for call in (first, subscribe)]


def test_registered_framework_is_not_checked(driver_of, recorder) -> None:
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer.address, {**FRAMEWORK, "id": FRAMEWORK_ID}, before_registration=lambda ask: ask(QUERY))
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert [] == peer.all(QUERY)


def test_refused_registration_aborts_without_subscription(driver_of, recorder) -> None:
    """The reason is the caller's own, not the master's."""

    def refuse(ask):
        raise RegistrationRefusedError("it lives")

    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer.address, before_registration=refuse)
        driver.start()
        assert DriverAborted("it lives", by_master=False) == recorder.next()
        assert driver.aborted
        assert [] == peer.all("SUBSCRIBE")


def test_check_is_repeated_until_master_is_ready(driver_of, recorder) -> None:
    """It recovers, answers nothing, or the caller wants to wait: SUBSCRIBE comes last."""
    waits = [TransportError("later"), ValueError("a defect")]

    def check(ask):
        ask(QUERY)
        if waits:
            raise waits.pop()

    answers = answering(status(503, b"recovering"), vanish, SHOWN)
    with Peer(stream(subscribed()), on_call=answers) as peer:
        driver_of(peer.address, before_registration=check).start()
        recorder.wait_event("SUBSCRIBED")
        assert (5, 1) == (len(peer.all(QUERY)), len(peer.all("SUBSCRIBE")))


def test_check_follows_redirect_to_leader(driver_of, recorder) -> None:
    with Peer(stream(subscribed()), on_call=answering(SHOWN)) as leader:
        redirect = status(307, Location=f"//{leader.address}/api/v1")
        with Peer(stream(subscribed()), on_call=redirect) as peer:
            driver_of(peer.address, before_registration=lambda ask: ask(QUERY) and None).start()
            recorder.wait_event("SUBSCRIBED")
            assert [] == peer.all("SUBSCRIBE")
        assert (1, 1) == (len(leader.all(QUERY)), len(leader.all("SUBSCRIBE")))


def test_check_renews_credentials_once(driver_of, recorder) -> None:
    """Then the refusal is an answer: it may need another permission than SUBSCRIBE."""
    tokens, replies = iter("abc"), []
    credentials = TokenCredentials(lambda: next(tokens))

    def check(ask) -> None:
        replies.append(ask(QUERY))

    with Peer(stream(subscribed()), on_call=status(401, b"who are you")) as peer:
        driver_of(peer.address, credentials=credentials, before_registration=check).start()
        recorder.wait_event("SUBSCRIBED")
        assert ["Bearer a", "Bearer b"] == [call.headers["authorization"] for call in peer.all(QUERY)]
    assert [Rejected(401, "who are you")] == replies


@pytest.mark.parametrize(
    "event",
    [
        {"type": "SUBSCRIBED"},
        {"type": "SUBSCRIBED", "subscribed": {"framework_id": 1}},
        {"type": "SUBSCRIBED", "subscribed": {"framework_id": FRAMEWORK_ID, "heartbeat_interval_seconds": "soon"}},
        {"type": "SUBSCRIBED", "subscribed": {"framework_id": FRAMEWORK_ID, "heartbeat_interval_seconds": 1e300}},
        {"type": "ERROR", "error": "none"},
    ],
)
def test_invalid_event_drops_stream(driver_of, event, caplog: pytest.LogCaptureFixture) -> None:
    """The driver subscribes again, and logs no traceback."""
    with Peer(stream(event), stream(subscribed())) as peer:
        driver_of(peer.address).start()
        peer.wait("SUBSCRIBE", 2)
    assert f"not subscribed: invalid {event['type']} event" in caplog.text
    assert [] == [record for record in caplog.records if record.exc_info]


def test_internal_error_is_not_an_invalid_event(driver_of, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    """The traceback shows where this project is wrong."""

    def defect(*_: object) -> None:
        raise KeyError("defect")

    monkeypatch.setattr(SubscribeRetry, "subscribed", defect)
    with Peer(stream(subscribed()), stream()) as peer:
        driver_of(peer.address).start()
        peer.wait("SUBSCRIBE", 2)
    assert "invalid SUBSCRIBED event" not in caplog.text
    assert "KeyError: 'defect'" in caplog.text


def test_deeply_nested_event_drops_stream(driver_of, caplog: pytest.LogCaptureFixture) -> None:
    """Python's parser has a limit."""

    def nested(exchange) -> None:
        exchange.begin()
        record = b"[" * 100_000
        exchange.connection.sendall(b"%x\r\n%d\n%s\r\n" % (len(record) + 7, len(record), record))

    with Peer(nested, stream(subscribed())) as peer:
        driver_of(peer.address).start()
        peer.wait("SUBSCRIBE", 2)
    assert "not subscribed: a record of 100000 bytes is not a JSON object" in caplog.text
    assert [] == [record for record in caplog.records if record.exc_info]
