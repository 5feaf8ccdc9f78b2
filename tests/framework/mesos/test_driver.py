"""Connection to Mesos, with a scripted master: inbox events, and calls not sent."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders import a_spec
from kit.http_server import HttpServer, QuietHandler
from kit.master_answers import MasterAnswers, a_framework, a_task
from mesos_client.credentials import BasicCredentials
from mesos_client.results import Sent
from tf_scheduler.mesos import decode
from tf_scheduler.mesos.client import MesosDriver
from tf_scheduler.mesos.registration import LostFrameworks
from tf_scheduler.model import events
from tf_scheduler.model.effects import Decline, Revive, Suppress, Teardown
from tf_scheduler.model.ids import FrameworkId, OfferId
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.spec import ServiceSpec
from wire.peer import FRAMEWORK_ID, PATIENCE, Exchange, Peer, Script, cut_after, error, status, stream, subscribed

RESCIND = {"type": "RESCIND", "rescind": {"offer_id": {"value": "o"}}}


class Inbox:
    """Stand-in for the runner: calls the enqueued functions in the test's thread."""

    def __init__(self) -> None:
        self.thunks: queue.Queue[Callable[[], Any]] = queue.Queue()

    def handle(self) -> Any:
        """Return the next event."""
        return self.thunks.get(timeout=PATIENCE)()


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def driver_of(inbox: Inbox) -> Iterator[Callable[..., MesosDriver]]:
    made: list[MesosDriver] = []

    def make(peer: Peer, spec: ServiceSpec | None = None, **options: Any) -> MesosDriver:
        made.append(
            MesosDriver(spec or a_spec(), peer.address, FrameworkId("framework-1"), inbox.thunks.put, **options)
        )
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_framework_registers_with_capabilities(driver_of) -> None:
    """The complete FrameworkInfo as sent."""
    with Peer(stream(subscribed())) as peer:
        driver_of(peer, webui_url="http://10.0.0.1:4711")
        info = peer.wait("SUBSCRIBE").body["subscribe"]["framework_info"]
        info.pop("offer_filters")
        assert info == {
            "hostname": socket.gethostname(),
            "webui_url": "http://10.0.0.1:4711",
            "id": {"value": "framework-1"},
            "name": "digits",
            "user": "nobody",
            "roles": ["digits-role"],
            "checkpoint": True,
            "failover_timeout": 7 * 24 * 3600.0,
            "capabilities": [
                {"type": name}
                for name in ("MULTI_ROLE", "PARTITION_AWARE", "TASK_KILLING_STATE", "RESERVATION_REFINEMENT")
            ],
        }


def test_p25_events_are_decoded_by_inbox_reader(driver_of, inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """P25: the driver's thread only enqueues, so that no handler delays Mesos' events."""
    threads = []

    def event(raw):
        threads.append(threading.current_thread())
        return real(raw)

    real = decode.event
    monkeypatch.setattr(decode, "event", event)
    with Peer(stream(subscribed())) as peer:
        driver_of(peer)
        assert isinstance(inbox.handle(), events.Subscribed)
    assert [threading.current_thread()] == threads


def test_only_service_with_secrets_asks_agents_for_flags(driver_of, inbox) -> None:
    """Its offers reach the loop with the answer; others send agents no request."""
    asked = []

    class Agent(QuietHandler):
        def respond(self) -> None:
            asked.append(self.path)
            self.answer(200, json.dumps({"flags": {"authenticate_http_executors": "true"}}).encode())

    with HttpServer(Agent) as agent:
        address = {"hostname": "a", "ip": "127.0.0.1", "port": agent.port}
        offer = {"id": {"value": "o"}, "agent_id": {"value": "a"}, "hostname": "a", "url": {"address": address}}
        offers = {"type": "OFFERS", "offers": {"offers": [offer]}}
        for secrets, login in (((), None), ((SecretSpec("env:KEY", env="KEY"),), True)):
            assert [] == asked
            with Peer(stream(subscribed(), offers)) as peer:
                driver = driver_of(peer, spec=a_spec(secrets=secrets))
                assert isinstance(inbox.handle(), events.Subscribed)
                (received,) = inbox.handle().offers
                assert login is received.login.is_required
                driver.stop()
    assert ["/flags"] == asked


def test_nothing_is_sent_before_subscribed_is_handled(driver_of, inbox) -> None:
    """The runner's decisions may be older than the driver's subscription."""
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer)
        peer.wait_stream()
        thunk = inbox.thunks.get(timeout=PATIENCE)
        driver.perform(Revive())
        thunk()
        driver.perform(Suppress())
        peer.wait("SUPPRESS")
        assert peer.all("REVIVE") == []


def test_calls_of_earlier_subscription_are_not_sent(driver_of, inbox) -> None:
    """Their offers are void. Both subscriptions are in the inbox."""
    with Peer(cut_after(subscribed()), stream(subscribed())) as peer:
        driver = driver_of(peer)
        peer.wait_stream()
        assert isinstance(inbox.handle(), events.Subscribed)
        driver.perform(Decline((OfferId("o"),), 5.0))
        assert isinstance(inbox.handle(), events.Disconnected)
        driver.perform(Decline((OfferId("o"),), 5.0))
        assert isinstance(inbox.handle(), events.Subscribed)
        driver.perform(Revive())
        peer.wait("REVIVE")
        assert [one.type for one in peer.all("DECLINE")] == []


def test_credentials_reach_the_master(driver_of, inbox) -> None:
    """With the subscription and with calls."""
    basic = BasicCredentials("me", "secret")
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer, credentials=basic)
        inbox.handle()
        driver.perform(Revive())
        headers = [peer.wait(kind).headers["authorization"] for kind in ("SUBSCRIBE", "REVIVE")]
        assert [basic.header()] * 2 == headers


def test_error_event_aborts_with_its_message(driver_of, inbox) -> None:
    with Peer(stream(subscribed(), error("Framework has been removed"))) as peer:
        driver_of(peer)
        seen = [inbox.handle() for _ in range(3)]
        assert events.SubscriptionRefused("Framework has been removed") in seen


def test_accepted_teardown_emits_event(driver_of, inbox) -> None:
    """TornDown comes after the master accepts the call; stop() alone sends none."""
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer)
        inbox.handle()
        driver.perform(Teardown())
        assert isinstance(inbox.handle(), events.TornDown)
        assert [FRAMEWORK_ID] == [one.body["framework_id"] for one in peer.all("TEARDOWN")]


def test_stop_keeps_tasks_running(driver_of, inbox) -> None:
    with Peer(stream(subscribed())) as peer:
        driver = driver_of(peer)
        inbox.handle()
        driver.stop()
        peer.wait_left()
        assert peer.all("TEARDOWN") == []


def test_live_framework_is_adopted_before_subscribed(inbox) -> None:
    """The runner stores the records before it handles the subscription."""
    answers = MasterAnswers([a_framework()], [a_task("worker-0__a")])
    with Peer(stream(subscribed()), on_call=answering(answers)) as peer:
        driver = MesosDriver(a_spec(), peer.address, None, inbox.thunks.put, lost=LostFrameworks(adopt="framework-1"))
        driver.start()
        adopted, then = inbox.handle(), inbox.handle()
        driver.stop()
        assert [FRAMEWORK_ID] == [call.body["framework_id"] for call in peer.all("SUBSCRIBE")]
    assert ["worker-0__a"] == [item.record.id for item in adopted.tasks]
    assert isinstance(then, events.Subscribed)


def test_registration_next_to_live_framework_is_refused(inbox) -> None:
    """Nothing is sent; the reason is the scheduler's own."""
    answers = MasterAnswers([a_framework()], [a_task("worker-0__a")])
    with Peer(stream(subscribed()), on_call=answering(answers)) as peer:
        driver = MesosDriver(a_spec(), peer.address, None, inbox.thunks.put)
        driver.start()
        refused = inbox.handle()
        driver.stop()
        assert [] == peer.all("SUBSCRIBE")
    assert not refused.by_master
    assert "`--adopt framework-1`" in refused.message


def test_forced_registration_asks_nothing(inbox) -> None:
    """Runs of `local run` may have the same name."""
    with Peer(stream(subscribed()), on_call=answering(MasterAnswers([a_framework()], [a_task("worker-0__a")]))) as peer:
        driver = MesosDriver(a_spec(), peer.address, None, inbox.thunks.put, lost=LostFrameworks(ignore=True))
        driver.start()
        assert isinstance(inbox.handle(), events.Subscribed)
        driver.stop()
        assert [] == peer.all("GET_FRAMEWORKS")


def test_hidden_frameworks_are_reported_once(inbox) -> None:
    """The driver registers, also after a master that did not answer."""
    with Peer(status(503), stream(subscribed()), on_call=status(403, b"no")) as peer:
        driver = MesosDriver(a_spec(), peer.address, None, inbox.thunks.put)
        driver.start()
        seen = [inbox.handle(), inbox.handle()]
        driver.stop()
    assert [
        events.FrameworksHidden("rejected with HTTP 403: no"),
        events.Subscribed(FrameworkId("framework-1")),
    ] == seen


@pytest.mark.parametrize("shown", ["framework-1", "framework-2"])
def test_filtered_answer_is_detected_after_registration(inbox, shown: str) -> None:
    """ACLs hide frameworks: the scheduler's own one is missing, too."""
    answers = MasterAnswers()

    def registered(exchange: Exchange) -> None:
        answering(answers)(exchange)
        if exchange.received.type == "GET_FRAMEWORKS":
            answers.frameworks["frameworks"] = [a_framework(shown)]

    with Peer(stream(subscribed(), RESCIND), on_call=registered) as peer:
        driver = MesosDriver(a_spec(), peer.address, None, inbox.thunks.put)
        driver.start()
        seen = list(iter(inbox.handle, events.OfferRescinded(OfferId("o"))))
        driver.stop()
    hidden = events.FrameworksHidden("its answer lacks this new framework framework-1")
    assert [events.Subscribed(FrameworkId("framework-1")), *([hidden] if shown == "framework-2" else [])] == seen


def test_slow_answer_after_registration_does_not_hold_the_loop(inbox) -> None:
    """The subscription is handled while the master does not answer GET_FRAMEWORKS."""
    answers, go_on, is_released = MasterAnswers(), threading.Event(), threading.Event()

    def answer(exchange: Exchange) -> None:
        if exchange.received.type == "GET_FRAMEWORKS" and "GET_FRAMEWORKS" in answers.asked:
            go_on.wait(PATIENCE)
            is_released.set()
        answering(answers)(exchange)

    with Peer(stream(subscribed()), on_call=answer) as peer:
        driver = MesosDriver(a_spec(), peer.address, None, inbox.thunks.put)
        driver.start()
        try:
            handled = threading.Thread(target=inbox.handle)
            handled.start()
            peer.wait("GET_FRAMEWORKS", 2)
            handled.join(PATIENCE / 10)
            assert (False, False) == (handled.is_alive(), is_released.is_set())
        finally:
            go_on.set()
            driver.stop()


def answering(answers: MasterAnswers) -> Script:
    """Answer calls of the operator API."""

    def answer(exchange: Exchange) -> None:
        reply = answers(exchange.received.type)
        assert isinstance(reply, Sent)
        exchange.answer(200, json.dumps(dict(reply.answer)).encode())

    return answer
