"""Issue and redeem one-time secret tokens; reload secrets; report exposed ones.

Masters, agents and everyone who may view tasks can read a token. So `redeem` accepts a token only if it is unused, not
expired, and sent from the launch's own agent or container. The token's digest is stored with the launch record. The use
of a token is stored before secrets are sent, so a restarted scheduler does not accept the token again. The client that
used the token may fetch reloadable secrets while the task runs.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from tf_executor.contract.payload import RENEW_SECRETS, Payload
from tf_executor.contract.states import TaskState
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import (
    Decision,
    EntryForgotten,
    MessageExecutor,
    Outcome,
    SecretTokenRedeemed,
)
from tf_scheduler.model.events import AcknowledgeExposures, ReloadSecrets, SecretsRequested, SharedUserFound
from tf_scheduler.model.ids import NewId, TaskName, executor_of, name_of
from tf_scheduler.model.plan import Answer, Reply
from tf_scheduler.model.secrets import SecretExposure, SecretSource, SecretSpec
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

# --- Origin of requests
#
# A request must come from the agent's address or from the container's own address. On a virtual network the latter is
# known from the first status that the executor sends (mesos.proto, ContainerStatus.network_infos); the agent's address
# counts because packets may be rewritten.


def matches(record: TaskRecord, status: TaskStatus | None, address: str, url: str) -> bool:
    """Return whether a request to `url` from `address` can come from the launch."""
    origin = _ip(address)
    if origin is None or origin in map(_ip, _known_addresses(record, status)):
        return origin is not None
    # The scheduler runs on the same host.
    return origin.is_loopback and urlsplit(url).hostname in (record.hostname, _host(record))


def is_unknown(record: TaskRecord, status: TaskStatus | None) -> bool:
    """Return whether the container's address is still unknown (DNS is not trusted)."""
    return _ip(_host(record)) is None and not _container_addresses(status)


def describe(record: TaskRecord, status: TaskStatus | None) -> str:
    """Describe the allowed origins: `the address of the task's agent: 10.0.0.1`."""
    whose = "the address of the task's agent" + ("" if _ip(_host(record)) else " or container")
    return f"{whose}: {', '.join(text for text in _known_addresses(record, status) if text)}"


def _known_addresses(record: TaskRecord, status: TaskStatus | None) -> tuple[str, ...]:
    host = _host(record)
    return (host,) if _ip(host) else (record.agent_address, *_container_addresses(status))


def _container_addresses(status: TaskStatus | None) -> tuple[str, ...]:
    return () if status is None else status.addresses


def _host(record: TaskRecord) -> str:
    return record.address.rpartition(":")[0].strip("[]")


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


# --- Tokens


#: Path in the scheduler's API.
PATH = "/v1/secrets"
_FROM_AGENT_ONLY = "(option secret_delivery.from_agent_only)"


def scheduler_secrets(spec: ServiceSpec, section: str) -> tuple[SecretSpec, ...]:
    """Return the secrets that tasks of the section fetch from the scheduler."""
    return tuple(item for item in spec.secrets if item.reference is None and item.is_for(section))


def protected_sections(spec: ServiceSpec) -> frozenset[str]:
    """Return the sections whose tasks need agents that authenticate executors."""
    if not spec.secret_delivery.requires_executor_login:
        return frozenset()
    return frozenset(job.group for job in spec.jobs if scheduler_secrets(spec, job.group))


def secrets_due(state: SchedulerState, record: TaskRecord) -> tuple[SecretSpec, ...]:
    """Return the secrets for a launch: all while it starts, later the reloadable ones."""
    secrets = scheduler_secrets(state.spec, record.group)
    return tuple(item for item in secrets if item.reloads) if state.has_run(record) else secrets


def can_reload(state: SchedulerState, record: TaskRecord) -> bool:
    """Return whether the launch's executor may fetch new values of secrets."""
    return record.id in state.stored.redeemed_tokens and _is_running(state, record) and bool(secrets_due(state, record))


def issue(spec: ServiceSpec, records: Iterable[TaskRecord], new_id: NewId) -> Mapping[TaskName, str]:
    """Return a token for every task that gets secrets from the scheduler."""
    return {record.name: new_id() for record in records if scheduler_secrets(spec, record.group)}


def with_digest(record: TaskRecord, tokens: Mapping[TaskName, str]) -> TaskRecord:
    """Return the record with the digest of its token."""
    return replace(record, token=digest(tokens[record.name])) if record.name in tokens else record


def with_secrets(payload: Payload, spec: ServiceSpec, job: JobSpec, token: str) -> Payload:
    """Return the payload with URL and token of secrets, and names of masked variables."""
    masked = tuple(references(spec, job))
    if not token:
        return replace(payload, secrets=masked)
    reloads = any(item.reloads for item in scheduler_secrets(spec, job.group))
    return replace(
        payload,
        secrets=masked,
        secrets_url=f"{spec.secret_delivery.url}{PATH}",
        secrets_token=token,
        secrets_ca=spec.secret_delivery.authorities,
        secrets_reload=spec.secret_delivery.reload_every if reloads else 0.0,
    )


def references(spec: ServiceSpec, job: JobSpec) -> Mapping[str, SecretSource]:
    """Return variable -> secret that the agent resolves, for tasks of the job."""
    return {item.env: item.reference for item in spec.secrets if item.reference and item.is_for(job.group)}


def digest(text: str) -> str:
    """Return the digest of a token or nonce for storage."""
    return hashlib.sha256(text.encode()).hexdigest()


def redeem(state: SchedulerState, event: SecretsRequested, now: float) -> Decision:
    """Decide on a request for secrets.

    The use of the token is stored before secrets are sent. A client may retry with the same nonce, because an answer
    can be lost.
    """
    record = state.stored.tasks.get(name_of(event.task_id))
    if record is None or not token_matches(state, event):
        # Reveal nothing about tasks to clients without a token.
        outcome = Outcome("SecretsRefused", f"{event.address} requested secrets with an invalid token", warning=True)
        answer = Answer(Reply.FORBIDDEN, "invalid or expired token")
        return Decision(state, outcomes=(outcome,), answer=answer)
    nonce = digest(event.nonce)
    if wrong := _refusal(state, record, nonce, now) or _wrong_origin(state, record, event.address):
        message = f"request from {event.address} for the secrets of {record.name} was refused: {wrong.message}"
        outcome = Outcome("SecretsRefused", message, record.name, warning=True)
        # Retried requests are frequent: not reported.
        refused = Decision(state, outcomes=() if wrong.reply is Reply.RETRY else (outcome,), answer=wrong)
        is_shared = not state.has_run(record) and state.stored.redeemed_tokens.get(record.id, nonce) != nonce
        why = "has a token that two clients used before its start"
        return refused.then(lambda after: _exposed(after, record, why, now)) if is_shared else refused
    message = f"{event.address} requested the secrets of {record.name}, and receives them"
    outcome = Outcome("SecretsDelivered", message, record.name)
    changes = () if state.stored.redeemed_tokens.get(record.id) == nonce else (SecretTokenRedeemed(record.id, nonce),)
    # Regular polls for new values are not reported.
    decision = decide(state, *changes, outcomes=() if state.has_run(record) else (outcome,))
    return Decision(decision.state, decision.changes, (), decision.outcomes, Answer(Reply.OK, ""))


def token_matches(state: SchedulerState, event: SecretsRequested) -> bool:
    """Return whether the token belongs to the launch, in constant time."""
    record = state.stored.tasks.get(name_of(event.task_id))
    if record is None or record.id != event.task_id:
        return False
    # No token has the empty digest of a record without a token.
    return hmac.compare_digest(record.token, digest(event.token))


def _refusal(state: SchedulerState, record: TaskRecord, nonce: str, now: float) -> Answer | None:
    """Return why the request is refused; `None` if only its origin must be checked."""
    delivery, user = state.spec.secret_delivery, state.stored.redeemed_tokens.get(record.id)
    starts = not state.has_run(record)
    if not starts and not (user == nonce and _is_running(state, record) and secrets_due(state, record)):
        return _forbidden(f"the task is not starting: its state is {state.stored.statuses[record.id].state.label}")
    if user not in (None, nonce):
        return _forbidden("the task's token was used by another client: check who may view tasks in this cluster")
    if starts and now > record.launched_at + delivery.expires:
        late = f"the task's token was valid until {delivery.expires:g} s after the launch"
        return _forbidden(f"{late} (option secret_delivery.expires_seconds)")
    return None


def _wrong_origin(state: SchedulerState, record: TaskRecord, address: str) -> Answer | None:
    """Return why the origin of the request is refused; `None` if it is allowed."""
    delivery, status = state.spec.secret_delivery, state.stored.statuses.get(record.id)
    if not delivery.from_agent_only or matches(record, status, address, delivery.url):
        return None
    if is_unknown(record, status):
        return Answer(Reply.RETRY, f"Mesos has not reported the address of the task's container yet {_FROM_AGENT_ONLY}")
    return _forbidden(f"{address} is not {describe(record, status)} {_FROM_AGENT_ONLY}")


def _forbidden(why: str) -> Answer:
    return Answer(Reply.FORBIDDEN, why)


def _is_running(state: SchedulerState, record: TaskRecord) -> bool:
    status = state.stored.statuses.get(record.id)
    return status is not None and status.state is TaskState.RUNNING


def command(state: SchedulerState, event: ReloadSecrets | AcknowledgeExposures) -> Decision:
    """Handle an operator's command about secrets."""
    return _reload(state) if isinstance(event, ReloadSecrets) else _acknowledge(state)


# --- Exposure
#
# An agent without --authenticate_http_executors hands the task to the first process that subscribes as its executor.
# An executor reports TASK_STARTING before it requests secrets. So if the token of a launch was used, and the launch
# ends without this report, or if two clients used the token, another process may have the secrets.


#: Maximum number of named tasks of other frameworks.
_MAX_PLACES = 5


def detect_exposure(state: SchedulerState, record: TaskRecord, previous: TaskStatus | None, now: float) -> Decision:
    """Report exposed secrets if a launch ended before its executor reported a start.

    Args:
        state: The state after the end.
        record: The launch, whose token was used.
        previous: The last status before the end.
        now: Unix time.
    """
    # A silent launch has the addresses of its container if its executor had reported.
    has_started = previous is not None and previous.state is not TaskState.STAGING
    if has_started and not (previous is not None and previous.state.is_silent and not previous.addresses):
        return decide(state)
    return _exposed(state, record, "has ended before its executor reported a start, but its token was used", now)


def _exposed(state: SchedulerState, record: TaskRecord, why: str, now: float) -> Decision:
    before = state.stored.exposures.get(record.agent_id)
    names = {item.name for item in scheduler_secrets(state.spec, record.group)}
    if before is not None and names <= set(before.secrets) and before.at >= record.launched_at:
        return decide(state)  # reported since the launch; requests in turn for two launches must not repeat it
    names |= set() if before is None else set(before.secrets)
    exposure = SecretExposure(record.agent_id, record.hostname, tuple(sorted(names)), record.id, why, now)
    outcome = Outcome("SecretsExposed", str(exposure), record.name, warning=True)
    return decide(state, exposure, outcomes=(outcome,))


def report_shared_user(state: SchedulerState, event: SharedUserFound) -> Decision:
    """Report tasks of other frameworks that run as the service's user."""
    more = f" and {len(event.places) - _MAX_PLACES} more" if len(event.places) > _MAX_PLACES else ""
    message = (
        f"other frameworks run tasks as user {event.user}, which can read the secrets of this service: "
        f"{', '.join(event.places[:_MAX_PLACES])}{more}; give each service its own service.user, or set images"
    )
    return decide(state, outcomes=(Outcome("SharedUserFound", message, warning=True),))


def _acknowledge(state: SchedulerState) -> Decision:
    """Forget all exposures, because an operator knows of the exposed secrets."""
    exposures = state.stored.exposures.values()
    if not exposures:
        return Decision(state, answer=Answer(Reply.ALREADY, "no secrets are reported as possibly taken"))
    message = f"Acknowledged that secrets may have been taken on {', '.join(item.hostname for item in exposures)}"
    decision = decide(
        state,
        *(EntryForgotten("exposures", item.agent_id) for item in exposures),
        outcomes=(Outcome("SecretsAcknowledged", message),),
    )
    return replace(decision, answer=Answer(Reply.OK, message))


# --- Reload
#
# Executors poll for new values regularly. A reload message only makes them poll immediately; it carries no value and no
# permission.


def _reload(state: SchedulerState) -> Decision:
    """Ask the executors of running tasks with reloadable secrets to fetch new values."""
    if not any(item.reloads for item in state.spec.secrets):
        why = "no secret has `reload`: tasks get new values at their next start, for example by `pod restart`"
        return Decision(state, answer=Answer(Reply.CONFLICT, why))
    records = [record for record in state.stored.tasks.values() if can_reload(state, record)]
    if not records:
        return Decision(state, answer=Answer(Reply.ALREADY, "no running task has reloadable secrets"))
    message = f"Requested that {', '.join(sorted(record.name for record in records))} read secrets again"
    calls = tuple(MessageExecutor(executor_of(record.id), record.agent_id, RENEW_SECRETS) for record in records)
    return Decision(
        state, calls=calls, outcomes=(Outcome("SecretsReloaded", message),), answer=Answer(Reply.OK, message)
    )
