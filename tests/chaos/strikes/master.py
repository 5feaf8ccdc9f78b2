"""Faults of the master, its calls, events and offers."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from chaos.arena import Arena
from chaos.master_proxy import Calls
from chaos.witness import logged
from kit.freezing import frozen
from mesos_local.master_api import teardown

from .common import Done, Kind, health, is_healthy, program_of

_REFUSED = 317  # docs/reference/api.md, /v1/health
#: Seconds for which calls fail.
_FAILING = 20.0
#: Five heartbeats of 15 s, and some.
_HEARTBEATS = 120.0
#: Seconds that offers are held.
_HOARDED = 30.0


def _master(arena: Arena, _number: int) -> Done:
    arena.cluster.master.kill()
    return Done("master", mend=arena.cluster.master.start)


def _master_frozen(arena: Arena, _number: int) -> Done:
    began = time.time()
    with frozen(arena.cluster.master):
        lost = logged(arena.witness, "the connection to Mesos is lost", began)
        arena.until("the scheduler misses the master's heartbeats", lost, _HEARTBEATS)
    return Done("master")


def _registry_lost(arena: Arena, _number: int) -> Done:
    arena.cluster.master.kill()
    shutil.rmtree(arena.cluster.directory / "master")
    return Done("master", mend=arena.cluster.master.start)


def _calls(kind: Calls) -> Kind:
    def do(arena: Arena, number: int) -> Done:
        began = time.time()
        arena.proxy.answer(kind)
        try:
            done = program_of("worker")(arena, number)
            arena.until("a call has failed", lambda: arena.proxy.lost > 0)
            if kind is Calls.REFUSED:
                arena.until("the scheduler's health says so", lambda: health(arena) == _REFUSED)
            arena.until("the calls failed for a while", lambda: time.time() > began + _FAILING)
        finally:
            arena.proxy.answer(Calls.FORWARDED)
        arena.until("the scheduler is healthy again", lambda: is_healthy(arena))
        return done

    return do


def _event_unknown(arena: Arena, _number: int) -> Done:
    agent, number = {"value": "a"}, {"value": "0"}
    status = {"task_id": {"value": "worker-0__chaos"}, "state": "TASK_PAUSED", "agent_id": agent, "uuid": "AAAA"}
    offer = {"id": {"value": "chaos"}, "framework_id": number, "agent_id": agent, "hostname": "a"}
    resources = [{"name": "cpus", "type": "TEXT", "text": {"value": "many"}}]
    arena.proxy.tell({"type": "UPDATE", "update": {"status": status}})
    arena.proxy.tell({"type": "OFFERS", "offers": {"offers": [{**offer, "resources": resources}]}})
    arena.proxy.tell({"type": "NEWS_OF_A_LATER_MESOS", "news": {}})
    return Done("master's events")


def _hoarder(arena: Arena, number: int) -> Done:
    began, master = time.time(), arena.cluster.master.address
    with _holding_offers(master):
        done = program_of("worker")(arena, number)
        arena.until("the offers were held", lambda: time.time() > began + _HOARDED)
    return done


@contextmanager
def _holding_offers(master: str) -> Iterator[None]:
    """Subscribe a framework that neither accepts nor declines."""
    info = {"user": "nobody", "name": "hoarder", "roles": ["*"], "capabilities": [{"type": "MULTI_ROLE"}]}
    connection = http.client.HTTPConnection(master)
    try:
        body = json.dumps({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}})
        connection.request("POST", "/api/v1/scheduler", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        subscribed = json.loads(response.read(int(response.readline())))
        yield
        teardown(master, subscribed["subscribed"]["framework_id"]["value"])
    finally:
        connection.close()


KINDS: Mapping[str, Kind] = {
    "master": _master,
    "master-frozen": _master_frozen,
    "registry-lost": _registry_lost,
    "calls-refused": _calls(Calls.REFUSED),
    "calls-unanswered": _calls(Calls.UNANSWERED),
    "event-unknown": _event_unknown,
    "hoarder": _hoarder,
}
