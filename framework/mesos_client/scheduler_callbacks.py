"""Optional.

Calls an object with pymesos' Scheduler methods, so that code written for pymesos runs on the hardened driver.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

Json = Mapping[str, Any]


def _failure(sched: Any, driver: Any, body: Json) -> None:
    if "executor_id" in body:
        sched.executorLost(driver, body["executor_id"], body.get("agent_id"), body.get("status"))
    else:
        sched.slaveLost(driver, body.get("agent_id"))


def _message(sched: Any, driver: Any, body: Json) -> None:
    sched.frameworkMessage(driver, body["executor_id"], body["agent_id"], body["data"])


_CALLBACKS: dict[str, Callable[[Any, Any, Json], None]] = {
    "OFFERS": lambda sched, driver, body: sched.resourceOffers(driver, body.get("offers", [])),
    "INVERSE_OFFERS": lambda sched, driver, body: sched.inverseOffers(driver, body.get("inverse_offers", [])),
    "RESCIND": lambda sched, driver, body: sched.offerRescinded(driver, body["offer_id"]),
    "RESCIND_INVERSE_OFFER": lambda sched, driver, body: sched.inverseOfferRescinded(driver, body["inverse_offer_id"]),
    "UPDATE": lambda sched, driver, body: sched.statusUpdate(driver, body["status"]),
    "UPDATE_OPERATION_STATUS": lambda sched, driver, body: sched.operationStatusUpdate(driver, body["status"]),
    "MESSAGE": _message,
    "FAILURE": _failure,
    "ERROR": lambda sched, driver, body: sched.error(driver, body.get("message", "")),
}


class SchedulerCallbacks:
    """Does nothing without such an object."""

    #: pymesos' name for it.
    sched: Any
    _was_registered: bool | None = None

    def _callback(self, event: Json) -> None:
        kind = event.get("type", "")
        if self.sched is None:
            return
        if kind == "SUBSCRIBED":
            self._callback_subscribed(event["subscribed"])
        elif kind in _CALLBACKS:
            _CALLBACKS[kind](self.sched, self, event.get(kind.lower(), {}))

    def _callback_subscribed(self, info: Json) -> None:
        master_info = info.get("master_info", {})
        if self._was_registered:
            self.sched.reregistered(self, master_info)
        else:
            self._was_registered = True
            self.sched.registered(self, info["framework_id"], master_info)

    def _callback_heartbeat(self) -> None:
        if self.sched is not None:
            self.sched.processHeartBeat(self)

    def _callback_disconnected(self) -> None:
        if self.sched is not None:
            self.sched.disconnected(self)
