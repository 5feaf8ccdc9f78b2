"""Who gets secrets: a launch, once, while it starts, from its own agent, within its time.

The token is in the task that Mesos carries, so others may read it: masters, agents, whoever may see them. What makes it
worth nothing to them is in `asked`. Its digest is stored with the record of the launch; that it was used, and by whom,
is stored before anything is given, so that no restart of the scheduler makes it good again.

Who used it, and nobody else, may ask again while the task runs, for the values that are to be reloaded.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tf_executor.payload import Payload
from tf_scheduler.model.effects import Decision, Outcome, SecretsGiven
from tf_scheduler.model.events import SecretsAsked
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.plan import Answer, Reply
from tf_scheduler.model.secrets import SecretSpec, Source
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

from . import origin
from .reduce import decide

#: Path of the question in the scheduler's API.
PATH = "/v1/secrets"
#: Until the executor has the secrets it reports no more than that it starts.
_STARTING = (TaskState.STAGING, TaskState.STARTING)
_BY_ADDRESS = "(option secret_delivery.from_agent_only)"


def given_by_us(spec: ServiceSpec, section: str) -> tuple[SecretSpec, ...]:
    """What tasks of the section fetch from the scheduler."""
    return tuple(item for item in spec.secrets if item.reference is None and item.is_for(section))


def given_now(state: SchedulerState, record: TaskRecord) -> tuple[SecretSpec, ...]:
    """What the launch gets: all that is for it when it starts, then what is to be reloaded."""
    found = given_by_us(state.spec, record.group)
    return found if _starts(state, record) else tuple(item for item in found if item.reloads)


def reloads_now(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether its executor would get new values if it asked."""
    return record.id in state.given and _runs(state, record) and bool(given_now(state, record))


def tokens(spec: ServiceSpec, records: Iterable[TaskRecord], new_id: Callable[[], str]) -> Mapping[TaskName, str]:
    """Task -> the token that gets its secrets; only for those that have any."""
    return {record.name: new_id() for record in records if given_by_us(spec, record.group)}


def with_digest(record: TaskRecord, found: Mapping[TaskName, str]) -> TaskRecord:
    """The record as it is stored."""
    return replace(record, token=digest(found[record.name])) if record.name in found else record


def with_secrets(told: Payload, spec: ServiceSpec, job: JobSpec, token: str) -> Payload:
    """What the executor is told: where its secrets are, and which variables hold what the agent resolved."""
    masked = tuple(references(spec, job))
    if not token:
        return replace(told, secrets=masked)
    reloads = any(item.reloads for item in given_by_us(spec, job.group))
    return replace(
        told,
        secrets=masked,
        secrets_url=f"{spec.delivery.url}{PATH}",
        secrets_token=token,
        secrets_ca=spec.delivery.authorities,
        secrets_reload=spec.delivery.reload_every if reloads else 0.0,
    )


def references(spec: ServiceSpec, job: JobSpec) -> Mapping[str, Source]:
    """Variable -> what the agent resolves for tasks of the job."""
    return {item.env: item.reference for item in spec.secrets if item.reference and item.is_for(job.group)}


def digest(text: str) -> str:
    """What may be stored of a token or a nonce."""
    return hashlib.sha256(text.encode()).hexdigest()


def asked(state: SchedulerState, event: SecretsAsked, now: float) -> Decision:
    """Stored before it is given. The same nonce may ask again: an answer can get lost, also with the scheduler."""
    record = state.tasks.get(name_of(event.task_id))
    if record is None or not is_known(state, event):
        # No more than that: who has no token learns nothing of the tasks.
        told = Outcome(f"{event.address} asked for secrets with a token that is none", warning=True)
        answer = Answer(Reply.FORBIDDEN, "this token is not good: no task that starts now has it")
        return Decision(state, outcomes=(told,), answer=answer)
    nonce = digest(event.nonce)
    if wrong := _refusal(state, record, nonce, now) or _elsewhere(state, record, event.address):
        told = Outcome(f"{record.name} got no secrets for {event.address}: {wrong.message}", record.name, warning=True)
        # Who is to ask again does so soon, and often.
        return Decision(state, outcomes=() if wrong.reply is Reply.LATER else (told,), answer=wrong)
    told = Outcome(f"{record.name} gets its secrets, asked for by {event.address}", record.name)
    changes = () if state.given.get(record.id) == nonce else (SecretsGiven(record.id, nonce),)
    # Who looks every minute for new values is not told of each time.
    decision = decide(state, *changes, outcomes=(told,) if _starts(state, record) else ())
    return Decision(decision.state, decision.changes, (), decision.outcomes, Answer(Reply.OK, ""))


def is_known(state: SchedulerState, event: SecretsAsked) -> bool:
    """Whether the token is that of the launch; it takes as long whatever is shown."""
    record = state.tasks.get(name_of(event.task_id))
    if record is None or record.id != event.task_id or not record.token:
        return False
    return hmac.compare_digest(record.token, digest(event.token))


def _refusal(state: SchedulerState, record: TaskRecord, nonce: str, now: float) -> Answer | None:
    """Why not, in words for the user; None: they are given, if the question comes from where it may."""
    delivery, user = state.spec.delivery, state.given.get(record.id)
    starts = _starts(state, record)
    if not starts and not (user == nonce and _runs(state, record) and given_now(state, record)):
        return _no(f"the task does not start any more: it is {state.statuses[record.id].state.spoken}")
    if user not in (None, nonce):
        return _no("its token has been used by somebody else before: see who may read tasks in this cluster")
    if starts and now > record.launched_at + delivery.expires:
        late = f"its token was good for {delivery.expires:g} s after the launch"
        return _no(f"{late} (option secret_delivery.expires_seconds)")
    return None


def _elsewhere(state: SchedulerState, record: TaskRecord, address: str) -> Answer | None:
    """As `_refusal`, about where it comes from."""
    delivery, status = state.spec.delivery, state.statuses.get(record.id)
    if not delivery.from_agent_only or origin.is_right(record, status, address, delivery.url):
        return None
    if origin.is_open(record, status):
        return Answer(Reply.LATER, f"Mesos has not told which address the task's container has {_BY_ADDRESS}")
    return _no(f"{address} is not {origin.spoken(record, status)} {_BY_ADDRESS}")


def _no(why: str) -> Answer:
    return Answer(Reply.FORBIDDEN, why)


def _starts(state: SchedulerState, record: TaskRecord) -> bool:
    status = state.statuses.get(record.id)
    return status is None or status.state in _STARTING


def _runs(state: SchedulerState, record: TaskRecord) -> bool:
    status = state.statuses.get(record.id)
    return status is not None and status.state is TaskState.RUNNING
