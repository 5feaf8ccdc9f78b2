"""The connection to Mesos: raw events go to the runner's inbox, calls go out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mesos_client import Aborted, Credentials, Detector, Disconnected, SchedulerDriver, SendResult, Tls
from tf_scheduler.model import events
from tf_scheduler.model.effects import Call, Teardown
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.spec import ServiceSpec

from . import decode, encode, filters
from .permissions import explained

#: What the inbox takes: decoded by the runner, in its own thread.
Thunk = Callable[[], events.Event | None]


class MesosDriver:
    """Subscribes as the service; never sends TEARDOWN unless it is told to perform it.

    `master`: host:port, several with commas, zk://..., or a Detector. What was decided before SUBSCRIBED is handled is
    not sent: the offers of an earlier subscription are void. `webui_url`: where Mesos' pages, and DC/OS' Admin Router,
    find the API. `leads` raises when another scheduler may lead: then there is no further subscription. Raises
    ValueError for what SchedulerDriver refuses.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        master: str | Detector,
        framework_id: FrameworkId | None,
        put: Callable[[Thunk], None],
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        *,
        webui_url: str = "",
        leads: Callable[[], None] | None = None,
    ) -> None:
        self._put = put
        #: Of the SUBSCRIBED event that was last handled. Used by the runner's thread only.
        self._subscription = 0
        self._driver = SchedulerDriver(
            encode.framework_info(spec, framework_id, socket.gethostname(), webui_url),
            master,
            on_event=self._on_event,
            on_state=self._on_state,
            credentials=credentials,
            tls=tls,
            offer_constraints=filters.offer_constraints(spec),
            permit=leads,
        )

    @property
    def master(self) -> str | None:
        """Base URL of the master that is asked now; None when there is none."""
        return self._driver.master

    def start(self) -> None:
        """Connect in the background; what happens arrives in the inbox."""
        self._driver.start()

    def stop(self) -> None:
        """Leave; the tasks go on."""
        self._driver.stop()

    def perform(self, call: Call) -> SendResult:
        """Send one call. A call that was not sent is not an error: reconciliation and repeats repair it."""
        if not isinstance(call, Teardown):
            body = encode.call(call, FrameworkId(self._driver.framework_id or ""))
            return self._driver.send(body, self._subscription)
        result = self._driver.teardown()
        if result.ok:
            self._put(events.TornDown)
        return result

    def _on_event(self, raw: Mapping[str, Any]) -> None:
        if raw.get("type") == "SUBSCRIBED":
            self._put(partial(self._subscribed, raw, self._driver.subscription))
        else:
            self._put(partial(decode.event, raw))

    def _subscribed(self, raw: Mapping[str, Any], subscription: int) -> events.Event | None:
        self._subscription = subscription
        return decode.event(raw)

    def _on_state(self, state: Disconnected | Aborted) -> None:
        if isinstance(state, Aborted):
            self._put(partial(events.Refused, explained(state.reason)))
        else:
            self._put(partial(events.Disconnected, state.reason))
