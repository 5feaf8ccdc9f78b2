"""Offers wait until it is known whether their agents authenticate executors."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tf_scheduler.mesos import offer_gate
from tf_scheduler.mesos.offer_gate import AgentFlagsError, OfferGate
from tf_scheduler.model.events import OffersReceived
from tf_scheduler.model.offer import ExecutorLogin, Offer

PATIENCE = 20.0
SAFE = {"authenticate_http_executors": "true"}


class Agents:
    """Answers of agents by address; an address in `slow` is not answered until `go`."""

    def __init__(self) -> None:
        self.flags: dict[str, Mapping[str, str]] = {}
        self.slow: set[str] = set()
        self.asked: list[str] = []
        self.go = threading.Event()
        self.events: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.gate = OfferGate(self.events.put, self.read)

    def read(self, address: str) -> Mapping[str, str]:
        self.asked.append(address)
        if address in self.slow:
            assert self.go.wait(PATIENCE)
        if address not in self.flags:
            raise AgentFlagsError(f"{address} does not answer")
        return self.flags[address]

    def received(self) -> list[Offer]:
        event = self.events.get(timeout=PATIENCE)()
        assert isinstance(event, OffersReceived)
        return list(event.offers)

    def offers(self, **agents: str) -> None:
        """Offer agents by name at these addresses."""
        assert self.gate.take({"type": "OFFERS", "offers": {"offers": [an_offer(*item) for item in agents.items()]}})


def an_offer(agent: str, address: str) -> dict[str, Any]:
    ip, _, port = address.rpartition(":")
    url = {"scheme": "http", "address": {"hostname": agent, "ip": ip, "port": int(port)}, "path": "/slave(1)"}
    return {"id": {"value": f"{agent}-offer"}, "agent_id": {"value": agent}, "hostname": agent, "url": url}


def rescind(agent: str) -> dict[str, Any]:
    return {"type": "RESCIND", "rescind": {"offer_id": {"value": f"{agent}-offer"}}}


@pytest.fixture
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.go.set()
    made.gate.close()


def test_offers_get_the_answer_of_their_agent(agents: Agents) -> None:
    agents.flags = {"10.0.0.1:5051": SAFE, "10.0.0.2:5051": {"authenticate_http_executors": "false"}}
    agents.offers(a="10.0.0.1:5051", b="10.0.0.2:5051", c="10.0.0.3:5051")
    logins = [offer.login for offer in agents.received()]
    assert [ExecutorLogin(True), ExecutorLogin(False), ExecutorLogin(None, "10.0.0.3:5051 does not answer")] == logins


def test_answer_is_cached(agents: Agents) -> None:
    agents.flags = {"10.0.0.1:5051": SAFE}
    for _ in range(3):
        agents.offers(a="10.0.0.1:5051")
        assert [ExecutorLogin(True)] == [offer.login for offer in agents.received()]
    assert ["10.0.0.1:5051"] == agents.asked


def test_silent_agent_delays_only_its_own_event(agents: Agents) -> None:
    agents.slow, agents.flags = {"10.0.0.1:5051"}, {"10.0.0.2:5051": SAFE, "10.0.0.1:5051": SAFE}
    agents.offers(a="10.0.0.1:5051")
    agents.offers(b="10.0.0.2:5051")
    assert ["b"] == [offer.agent_id for offer in agents.received()]
    agents.go.set()
    assert ["a"] == [offer.agent_id for offer in agents.received()]


def test_rescinded_held_offer_never_reaches_the_scheduler(agents: Agents) -> None:
    """A RESCIND that overtakes its offer would leave an invalid offer."""
    agents.slow, agents.flags = {"10.0.0.1:5051"}, {"10.0.0.1:5051": SAFE, "10.0.0.2:5051": SAFE}
    agents.offers(a="10.0.0.1:5051", b="10.0.0.2:5051")
    assert agents.gate.take(rescind("a"))
    assert not agents.gate.take(rescind("c"))
    agents.go.set()
    assert ["b"] == [offer.agent_id for offer in agents.received()]


def test_offers_of_a_lost_connection_are_dropped(agents: Agents) -> None:
    agents.slow, agents.flags = {"10.0.0.1:5051"}, {"10.0.0.1:5051": SAFE, "10.0.0.2:5051": SAFE}
    agents.offers(a="10.0.0.1:5051")
    agents.gate.clear()
    agents.go.set()
    agents.offers(b="10.0.0.2:5051")
    assert ["b"] == [offer.agent_id for offer in agents.received()]


def test_unexpected_error_does_not_hold_offers(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a login service that fails."""

    def fail(_address: str) -> Mapping[str, str]:
        raise ZeroDivisionError

    monkeypatch.setattr(agents.gate, "_read", fail)
    agents.offers(a="10.0.0.1:5051")
    assert [ExecutorLogin(None, "ZeroDivisionError")] == [offer.login for offer in agents.received()]


@pytest.mark.parametrize("wrong", [None, 7, [], {"url": 1}, {**an_offer("x", "1:1"), "agent_id": 3}])
def test_malformed_offer_does_not_delay_others(agents: Agents, wrong: Any) -> None:
    agents.flags = {"10.0.0.1:5051": SAFE}
    broken = {**wrong, "id": {"value": "broken"}} if isinstance(wrong, dict) else {"id": {"value": "broken"}}
    raw = {"type": "OFFERS", "offers": {"offers": [broken, an_offer("a", "10.0.0.1:5051")]}}
    assert agents.gate.take(raw)
    assert [("a", ExecutorLogin(True))] == [(offer.agent_id, offer.login) for offer in agents.received()]


@pytest.mark.parametrize("raw", [{"type": "OFFERS"}, {"type": "OFFERS", "offers": {"offers": 1}}, {"type": "RESCIND"}])
def test_malformed_event_is_left_to_the_decoder(agents: Agents, raw: dict[str, Any]) -> None:
    assert not agents.gate.take(raw)


def test_offer_without_agent_address_is_not_held(agents: Agents) -> None:
    offer = {name: value for name, value in an_offer("a", "1:1").items() if name != "url"}
    assert agents.gate.take({"type": "OFFERS", "offers": {"offers": [offer]}})
    (received,) = agents.received()
    assert (None, []) == (received.login.is_required, agents.asked)


def test_ipv6_address_has_brackets(agents: Agents) -> None:
    agents.offers(a="2001:db8::1:5051")
    agents.received()
    assert ["[2001:db8::1]:5051"] == agents.asked


def test_answer_that_expires_while_another_is_awaited_still_counts(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the offer of an agent that was asked would be refused as unsafe."""
    monkeypatch.setattr(offer_gate, "ANSWER_SECONDS", 0.0)
    agents.slow = {"10.0.0.2:5051"}
    agents.flags = dict.fromkeys(("10.0.0.1:5051", "10.0.0.2:5051", "10.0.0.3:5051"), SAFE)
    agents.offers(a="10.0.0.1:5051", b="10.0.0.2:5051")
    agents.offers(c="10.0.0.3:5051")
    assert ["c"] == [offer.agent_id for offer in agents.received()]
    agents.go.set()

    assert [ExecutorLogin(True)] * 2 == [offer.login for offer in agents.received()]
