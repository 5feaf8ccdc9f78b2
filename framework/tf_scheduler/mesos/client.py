"""Connection to the Mesos master: pass on events, send calls, compare the clocks."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from mesos_client.credentials import Credentials, Tls
from mesos_client.http import TransportError
from mesos_client.masters import Detector
from mesos_client.results import DriverAborted, DriverDisconnected, Rejected, SendResult
from mesos_client.scheduler import AskMaster, SchedulerDriver
from tf_scheduler.model import events
from tf_scheduler.model.effects import Accept, Call, Teardown
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.spec import ServiceSpec

from . import decode, encode
from .decode import explain_acl_error, sanitize_text
from .fetch_errors import FetchErrors
from .neighbours import DemandWatch, MasterWatch, NeighbourWatch, shares_secrets
from .offer_gate import OfferGate, read_flags
from .outbox import DecodeEvent, Outbox, QueuedCall
from .registration import LostFrameworks, check_registration, find_filter

#: Seconds to send waiting calls at a stop. The next scheduler repeats all calls but TEARDOWN.
FLUSH_SECONDS, TEARDOWN_SECONDS = 5.0, 20.0
#: Tolerated seconds between the clocks. An answer's Date may be as old as the call timeout (10 s) plus 1 s; clocks that
#: are synchronized differ by less than 1 s.
MAX_CLOCK_OFFSET = 30.0


class MesosDriver:
    """Subscribe as the service's framework; send TEARDOWN only for a Teardown call.

    An outbox sends the calls. It does not send a call that the loop decided on before it handled the latest SUBSCRIBED,
    because the offers of earlier subscriptions are void.

    Args:
        master: host:port, a comma-separated list, zk://..., or a Detector.
        put: Enqueues an event.
        lost: What to do with a live framework of the service when `framework_id` is None.
        webui_url: URL of the API for Mesos' pages and the DC/OS Admin Router.
        check_leadership: Raises if another scheduler may lead; then the driver does not subscribe again.
        fetch_errors: Completes statuses of failed fetches; default: they pass unchanged.

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
        fetch_errors: FetchErrors | None = None,
    ) -> None:
        self._put, self._spec, self._lost, self._fetch_errors = put, spec, lost or LostFrameworks(), fetch_errors
        #: Whether it was reported that the master does not show frameworks.
        self._reported_hidden = False
        #: Whether the next subscription registers a new framework, after the master showed none of the service.
        self._registers = False
        #: Number of the subscription handled last. Used by the runner's thread only.
        self._subscription = 0
        delivers_secrets = any(secret.reference is None for secret in spec.secrets)
        self._gate = OfferGate(put, self._read_flags) if delivers_secrets else None
        self._credentials, self._tls = credentials, tls
        self._driver = SchedulerDriver(
            encode.framework_info(spec, framework_id, socket.gethostname(), webui_url),
            master,
            on_event=self._on_event,
            on_state=self._on_state,
            credentials=credentials,
            tls=tls,
            offer_constraints=encode.offer_constraints(spec),
            permit=check_leadership,
            before_registration=None if self._lost.ignore and not self._lost.adopt else self._before_registration,
        )
        self._outbox = Outbox(self._send, self._driver.resubscribe, put, check_leadership or (lambda: None))
        questions = self._driver.ask, lambda: self._driver.framework_id, put
        self._watches: list[MasterWatch] = [NeighbourWatch(spec.user, *questions)] if shares_secrets(spec) else []
        if spec.grows:
            self._watches.append(DemandWatch(*questions))
        self._flush_seconds = FLUSH_SECONDS
        self._has_drifted = False

    @property
    def master(self) -> str | None:
        """Base URL of the current master; None if unknown."""
        return self._driver.master

    @property
    def problem(self) -> str:
        """Why it is not subscribed, with the master's URL; empty: it is, or unknown."""
        why = (self._driver.last_failure or "").rstrip(": ")
        return f"{sanitize_text(why)} from {self.master}" if why and self.master and self.master not in why else why

    @property
    def queued_calls(self) -> int:
        """Number of calls that are waiting to be sent or answered."""
        return len(self._outbox)

    def start(self) -> None:
        """Connect in the background."""
        self._outbox.start()
        for watch in self._watches:
            watch.start()
        self._driver.start()

    def stop(self) -> None:
        """Send waiting calls for up to some seconds, then disconnect; tasks keep running."""
        for watch in self._watches:
            watch.stop()
        self._outbox.close(self._flush_seconds)
        self._driver.stop()
        if self._gate is not None:
            self._gate.close()

    def perform(self, call: Call) -> None:
        """Enqueue one call. If it fails, an event reports the failure."""
        body = {} if isinstance(call, Teardown) else encode.call(call, FrameworkId(self._driver.framework_id or ""))
        if isinstance(call, Teardown):
            self._flush_seconds = TEARDOWN_SECONDS
        self._outbox.add(QueuedCall(call, body, self._subscription))

    # For the outbox's thread

    def _send(self, item: QueuedCall) -> SendResult:
        if isinstance(item.call, Teardown):
            result = self._driver.teardown()
            if result.ok:
                self._put(events.TornDown)
        else:
            result = self._driver.send(item.body, item.subscription)
            for watch in self._watches if isinstance(item.call, Accept) and item.call.launches else ():
                watch.notice()
        self._check_clock()
        return replace(result, text=sanitize_text(result.text)) if isinstance(result, Rejected) else result

    def _check_clock(self) -> None:
        """Report that the master's clock differs from this machine's, or agrees again."""
        offset = self._driver.clock_offset
        if offset is not None and (abs(offset) > MAX_CLOCK_OFFSET) != self._has_drifted:
            self._has_drifted = not self._has_drifted
            self._put(partial(events.ClockDrifted, offset if self._has_drifted else 0.0))

    def _before_registration(self, ask: AskMaster) -> str | None:
        event = check_registration(self._spec, self._lost, ask)
        if event is None and self._lost.uninstall:
            self._put(partial(events.StopRequested, self._lost.uninstall))
            raise TransportError(f"Mesos has no live framework of {self._spec.name}")  # waits for the stop
        self._registers = event is None
        if isinstance(event, events.FrameworkAdopted):
            # Handled, and so stored, before the SUBSCRIBED that follows.
            self._put(lambda: event)
            return event.framework_id
        if event is not None and not self._reported_hidden:
            self._reported_hidden = True
            self._put(lambda: event)
        return None

    def _read_flags(self, address: str) -> Mapping[str, str]:
        """Return the flags of the agent at IP:PORT. Called in the gate's threads."""
        scheme = urlsplit(self.master or "http:").scheme
        return read_flags(f"{scheme}://{address}", self._credentials, self._tls)

    def _on_event(self, raw: Mapping[str, Any]) -> None:
        holders = (self._gate, self._fetch_errors)
        if any(holder.take(raw) for holder in holders if holder is not None):
            return
        if raw.get("type") == "SUBSCRIBED":
            self._put(partial(self._subscribed, raw, self._driver.subscription))
            self._check_clock()
            self._check_filter()
        else:
            self._put(partial(decode.event, raw))

    def _subscribed(self, raw: Mapping[str, Any], subscription: int) -> events.Event | None:
        self._subscription = subscription
        return decode.event(raw)

    def _check_filter(self) -> None:
        """Report if ACLs hide frameworks. Runs outside the loop: the master may be slow."""
        if self._registers:
            self._registers = False
            if hidden := find_filter(self._driver.ask("GET_FRAMEWORKS"), self._driver.framework_id or ""):
                self._put(lambda: hidden)

    def _on_state(self, state: DriverDisconnected | DriverAborted) -> None:
        if self._gate is not None:
            self._gate.clear()
        if isinstance(state, DriverAborted):
            reason = explain_acl_error(state.reason) if state.by_master else state.reason
            self._put(partial(events.SubscriptionRefused, reason, state.by_master))
        else:
            self._put(partial(events.Disconnected, state.reason))
