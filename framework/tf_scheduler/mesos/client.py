"""Connection to the Mesos master: enqueue its events, send the scheduler's calls."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mesos_client.credentials import Credentials, Tls
from mesos_client.masters import Detector
from mesos_client.results import DriverAborted, DriverDisconnected, SendResult
from mesos_client.scheduler import AskMaster, SchedulerDriver
from tf_scheduler.model import events
from tf_scheduler.model.effects import Call, Teardown
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.spec import ServiceSpec

from . import decode, encode
from .decode import explain_acl_error
from .registration import LostFrameworks, check_registration

#: An event in the inbox, decoded later in the runner's thread.
DecodeEvent = Callable[[], events.Event | None]


class MesosDriver:
    """Subscribe as the service's framework; send TEARDOWN only for a Teardown call.

    Calls decided before the latest SUBSCRIBED was handled are not sent: their offers are void.

    Args:
        master: host:port, a comma-separated list, zk://..., or a Detector.
        put: Enqueues an event.
        lost: What to do with a live framework of the service when `framework_id` is None.
        webui_url: URL of the API for Mesos' pages and the DC/OS Admin Router.
        check_leadership: Raises if another scheduler may lead; then the driver does not subscribe again.

    Raises ValueError as SchedulerDriver does.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        master: str | Detector,
        framework_id: FrameworkId | None,
        put: Callable[[DecodeEvent], None],
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        lost: LostFrameworks | None = None,
        *,
        webui_url: str = "",
        check_leadership: Callable[[], None] | None = None,
    ) -> None:
        self._put, self._spec, self._lost = put, spec, lost or LostFrameworks()
        #: Whether it was reported that the master does not show frameworks.
        self._reported_hidden = False
        #: Number of the subscription handled last. Used by the runner's thread only.
        self._subscription = 0
        self._driver = SchedulerDriver(
            encode.framework_info(spec, framework_id, socket.gethostname(), webui_url),
            master,
            on_event=self._on_event,
            on_state=self._on_state,
            credentials=credentials,
            tls=tls,
            offer_constraints=encode.offer_constraints(spec),
            permit=check_leadership,
            before_registration=None if self._lost.ignore else self._before_registration,
        )

    @property
    def master(self) -> str | None:
        """Base URL of the current master; None if unknown."""
        return self._driver.master

    def start(self) -> None:
        """Connect in the background."""
        self._driver.start()

    def stop(self) -> None:
        """Disconnect; the tasks keep running."""
        self._driver.stop()

    def perform(self, call: Call) -> SendResult:
        """Send one call; reconciliation and repeated calls repair a failed call."""
        if not isinstance(call, Teardown):
            body = encode.call(call, FrameworkId(self._driver.framework_id or ""))
            return self._driver.send(body, self._subscription)
        result = self._driver.teardown()
        if result.ok:
            self._put(events.TornDown)
        return result

    def _before_registration(self, ask: AskMaster) -> str | None:
        found = check_registration(self._spec, self._lost, ask)
        if isinstance(found, events.FrameworkAdopted):
            # Handled, and so stored, before the SUBSCRIBED that follows.
            self._put(lambda: found)
            return found.framework_id
        if found is not None and not self._reported_hidden:
            self._reported_hidden = True
            self._put(lambda: found)
        return None

    def _on_event(self, raw: Mapping[str, Any]) -> None:
        if raw.get("type") == "SUBSCRIBED":
            self._put(partial(self._subscribed, raw, self._driver.subscription))
        else:
            self._put(partial(decode.event, raw))

    def _subscribed(self, raw: Mapping[str, Any], subscription: int) -> events.Event | None:
        self._subscription = subscription
        return decode.event(raw)

    def _on_state(self, state: DriverDisconnected | DriverAborted) -> None:
        if isinstance(state, DriverAborted):
            reason = explain_acl_error(state.reason) if state.by_master else state.reason
            self._put(partial(events.SubscriptionRefused, reason, state.by_master))
        else:
            self._put(partial(events.Disconnected, state.reason))
