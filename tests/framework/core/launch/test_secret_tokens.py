"""Delivery of secrets: a token works once, and only after its use is stored."""

from __future__ import annotations

import hmac
import itertools
from dataclasses import replace

import pytest

from builders import a_job, a_spec, a_status, an_offer
from tf_executor.contract.payload import RENEW_SECRETS, Payload
from tf_executor.contract.states import TaskState
from tf_scheduler.core.launch import secret_tokens
from tf_scheduler.core.launch.launch import plan_launches
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import match_gang
from tf_scheduler.core.scheduler import handle
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import (
    MessageExecutor,
    SecretTokenRedeemed,
    StatusStored,
    TaskLaunched,
)
from tf_scheduler.model.events import AcknowledgeExposures, ReloadSecrets, SecretsRequested, StatusUpdated
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.resources import VirtualNetwork
from tf_scheduler.model.secrets import SecretDelivery, SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store import records

NOW = 1000.0
SECRETS = (SecretSpec("env:A", env="A", jobs=frozenset({"worker"})),)
URL = "http://10.0.0.9:8080"


def a_service(*secrets, **delivery):
    jobs = (a_job(JobKind.WORKER, 2), a_job(JobKind.PS, 1))
    return a_spec(jobs=jobs, secrets=secrets or SECRETS, secret_delivery=SecretDelivery(URL, **delivery))


def launched(spec):
    """Return the launches of all its tasks, and the state after they are stored."""
    numbers = map(str, itertools.count())
    tasks = tuple(spec.tasks())
    match = match_gang(tasks, [an_offer()], PlacementContext(executor=spec.executor.needs))
    launches = plan_launches(SchedulerState(spec), match.placements, NOW, lambda: f"id-{next(numbers)}")
    state = apply(SchedulerState(spec), *(TaskLaunched(launch.record) for launch in launches))
    return {launch.record.name: launch for launch in launches}, state


def payload(launch):
    return Payload.decode(launch.payload)


class Launched:
    """A service whose tasks are launched."""

    def __init__(self, *secrets, **delivery) -> None:
        self.launches, self.state = launched(a_service(*secrets, **delivery))
        self.id = self.launches["worker-0"].record.id
        self.token = payload(self.launches["worker-0"]).secrets_token

    def ask(self, nonce="mine", address="10.0.0.1", now=NOW + 1, token=None, task=None):
        event = SecretsRequested(task or self.id, self.token if token is None else token, nonce, address)
        decision = handle(self.state, event, now, lambda: "unused")
        self.state = decision.state
        return decision

    def gets_secrets(self, **question):
        return self.ask(**question).answer.reply is Reply.OK


@pytest.fixture
def world():
    return Launched()


def test_only_tasks_with_secrets_have_a_token(world) -> None:
    """Each task has its own; only a digest of it is stored."""
    payloads = {name: payload(launch) for name, launch in world.launches.items()}

    assert (f"{URL}/v1/secrets", "") == (payloads["worker-0"].secrets_url, payloads["ps-0"].secrets_url)
    tokens = [payloads[name].secrets_token for name in ("worker-0", "worker-1", "ps-0")]
    assert 3 == len(set(tokens))
    assert "" == tokens[2]
    for name, launch in world.launches.items():
        assert secret_tokens.digest(payloads[name].secrets_token) == launch.record.token or not launch.record.token
        stored = records.writes(TaskLaunched(launch.record), SchedulerState(world.state.spec))
        assert not any(token.encode() in write.value for write in stored[:1] for token in tokens if token)


def test_service_without_secrets_creates_no_tokens() -> None:
    """Nor ids for them: a launch has one for its task, and one as the key of `exec`."""
    launches, _ = launched(a_spec(workers=2, ps=1, chief=0))

    assert {"id-0", "id-2", "id-4"} == {launch.record.id.partition("__")[2] for launch in launches.values()}
    assert {""} == {payload(launch).secrets_url for launch in launches.values()}


def test_token_use_is_stored_before_secrets_are_sent(world) -> None:
    """Another nonce is too late from any client, also after a scheduler restart."""
    first = world.ask()
    assert (Reply.OK, (SecretTokenRedeemed(world.id, secret_tokens.digest("mine")),)) == (
        first.answer.reply,
        first.changes,
    )

    stolen = world.ask(nonce="theirs")
    assert Reply.FORBIDDEN is stolen.answer.reply
    assert not any(isinstance(change, SecretTokenRedeemed) for change in stolen.changes)
    assert "used by another client" in stolen.answer.message
    assert stolen.outcomes[0].warning

    written = [write for change in first.changes for write in records.writes(change, world.state)]
    record = records.writes(TaskLaunched(world.launches["worker-0"].record), SchedulerState(world.state.spec))[0]
    stored = {write.key: write.value for write in (record, *written)}
    world.state = apply(SchedulerState(world.state.spec), *records.changes(stored))
    assert not world.gets_secrets(nonce="theirs")


def test_lost_secret_response_is_repeated(world) -> None:
    """With the same nonce, without another write."""
    assert world.gets_secrets()
    again = world.ask()
    assert (Reply.OK, ()) == (again.answer.reply, again.changes)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (TaskState.STAGING, True),
        (TaskState.STARTING, True),
        (TaskState.RUNNING, False),
        (TaskState.KILLING, False),
        (TaskState.FAILED, False),
        (TaskState.UNREACHABLE, False),
    ],
)
def test_only_starting_task_gets_secrets(world, state, expected: bool) -> None:
    """A program that reads its own launch cannot request them again."""
    world.state = apply(world.state, StatusStored(a_status(world.id, state)))
    assert expected is world.gets_secrets()


def test_token_of_another_task_is_rejected(world) -> None:
    """The answer reveals no more than to any other client."""
    other = payload(world.launches["worker-1"]).secrets_token
    answers = [
        world.ask(token=other),
        world.ask(token=""),
        world.ask(token=world.launches["worker-0"].record.token),
        world.ask(task="worker-0__gone"),
        world.ask(task="nobody"),
        world.ask(task=world.launches["ps-0"].record.id, token=""),
    ]
    assert {(Reply.FORBIDDEN, answers[0].answer.message, ())} == {
        (one.answer.reply, one.answer.message, one.changes) for one in answers
    }
    assert all(world.token not in outcome.message for one in answers for outcome in one.outcomes)


def test_tokens_are_compared_in_constant_time(world, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hmac.compare_digest; the test replaces it, and its answer decides."""
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(tuple(map(len, pair))))
    assert not world.gets_secrets()
    assert not world.gets_secrets(token="wrong")
    assert [(64, 64)] * 2 == compared


def test_token_of_earlier_launch_is_rejected(world) -> None:
    """Its token ended with it; so did the record of its use."""
    assert world.gets_secrets()
    again = replace(world.launches["worker-0"].record, id="worker-0__again", token=secret_tokens.digest("new"))
    forgotten = records.writes(TaskLaunched(again), world.state)
    world.state = apply(world.state, TaskLaunched(again))

    assert not world.gets_secrets()
    assert world.gets_secrets(task="worker-0__again", token="new")
    assert f"redeemed/{world.id}" in [write.key for write in forgotten]


def test_token_expires() -> None:
    """token_seconds after the launch."""
    world = Launched(expires=60.0)
    assert not world.gets_secrets(now=NOW + 61)
    assert "60 s after the launch" in world.ask(now=NOW + 61).answer.message
    assert world.gets_secrets(now=NOW + 60)


# Secrets that another process may have.


def ends(world, *states):
    """Report states of worker-0; return the last outcomes about exposed secrets."""
    for state in states:
        status = replace(a_status(world.id, state, f"{state}-uuid"), timestamp=NOW + 5)
        decision = handle(world.state, StatusUpdated(status), NOW + 5, str)
        world.state = decision.state
    return [outcome for outcome in decision.outcomes if outcome.kind == "SecretsExposed"]


@pytest.mark.parametrize("end", [TaskState.DROPPED, TaskState.FAILED, TaskState.FINISHED, TaskState.KILLED])
def test_used_token_of_launch_that_never_started_is_reported(end) -> None:
    """Executors report their start before they request secrets."""
    world = Launched()
    assert world.gets_secrets()
    (outcome,) = ends(world, TaskState.STAGING, end)

    assert outcome.warning
    assert "secrets A may have been taken by another process on agent agent-1: worker-0 has ended" in outcome.message
    (exposure,) = world.state.stored.exposures.values()
    assert (("A",), world.id, "agent-1") == (exposure.secrets, exposure.launch, exposure.hostname)


@pytest.mark.parametrize("started", [TaskState.STARTING, TaskState.RUNNING])
@pytest.mark.parametrize("end", [TaskState.FAILED, TaskState.LOST])
def test_launch_that_started_does_not_expose_its_secrets(started, end) -> None:
    world = Launched()
    assert world.gets_secrets()
    assert [] == ends(world, started, end)
    assert {} == world.state.stored.exposures


def test_unused_token_does_not_expose_secrets() -> None:
    world = Launched()
    assert [] == ends(world, TaskState.DROPPED)


@pytest.mark.parametrize(("addresses", "count"), [((), 1), (("10.0.0.7",), 0)])
def test_lost_launch_exposes_secrets_unless_its_executor_had_reported(addresses, count: int) -> None:
    """The master's UNREACHABLE keeps the addresses of the executor's status."""
    world = Launched()
    assert world.gets_secrets()
    silent = a_status(world.id, TaskState.UNREACHABLE, "", addresses=addresses, timestamp=NOW)
    world.state = apply(world.state, StatusStored(silent))
    assert count == len(ends(world, TaskState.LOST))


def test_token_of_two_clients_exposes_secrets_once() -> None:
    """Whichever was first has the secrets; the end adds no second report."""
    world = Launched()
    assert world.gets_secrets(nonce="theirs")
    refused = world.ask(nonce="mine")
    again = world.ask(nonce="mine")

    assert (Reply.FORBIDDEN, Reply.FORBIDDEN) == (refused.answer.reply, again.answer.reply)
    assert ["SecretsRefused", "SecretsExposed"] == [outcome.kind for outcome in refused.outcomes]
    assert ["SecretsRefused"] == [outcome.kind for outcome in again.outcomes]
    assert [] == ends(world, TaskState.DROPPED)


def test_second_launch_on_the_agent_repeats_no_report() -> None:
    """Requests in turn for both would report each time; a later launch counts."""
    world = Launched()
    assert world.gets_secrets(nonce="theirs")
    world.ask(nonce="mine")
    (exposure,) = world.state.stored.exposures.values()
    other = replace(exposure, launch=TaskId("worker-1__x"))
    later = replace(exposure, launch=TaskId("worker-1__x"), at=exposure.at - 1000.0)

    kinds = []
    for change in (other, later):
        world.state = apply(world.state, change)
        kinds.append([outcome.kind for outcome in world.ask(nonce="mine").outcomes])

    assert [["SecretsRefused"], ["SecretsRefused", "SecretsExposed"]] == kinds


def test_exposure_stays_until_it_is_acknowledged() -> None:
    """Also across a restart of the scheduler."""
    world = Launched()
    assert world.gets_secrets()
    ends(world, TaskState.DROPPED)
    (exposure,) = world.state.stored.exposures.values()
    (write,) = records.writes(exposure, world.state)
    restarted = apply(SchedulerState(world.state.spec), *records.changes({write.key: write.value}))
    decision = handle(restarted, AcknowledgeExposures(), NOW, str)
    (delete,) = (write for change in decision.changes for write in records.writes(change, restarted))

    assert world.state.stored.exposures == restarted.stored.exposures
    assert (Reply.OK, {}) == (decision.answer.reply, decision.state.stored.exposures)
    assert write.key == delete.key
    assert Reply.ALREADY is handle(decision.state, AcknowledgeExposures(), NOW, str).answer.reply


# While the task runs.

FILE = SecretSpec("file:key", file="key", jobs=frozenset({"worker"}), reloads=True)


def running(*secrets, **delivery):
    """A world whose worker-0 has its secrets, and runs."""
    world = Launched(*secrets, **delivery)
    assert world.gets_secrets()
    world.state = apply(world.state, StatusStored(a_status(world.id, TaskState.RUNNING)))
    return world


def test_token_user_gets_reloadable_secrets_while_running() -> None:
    """Repeatedly, only those secrets, without a log entry; no other client gets them."""
    world = running(*SECRETS, FILE)
    again = world.ask(now=NOW + 10_000)

    assert (Reply.OK, (), ()) == (again.answer.reply, again.changes, again.outcomes)
    assert (FILE,) == secret_tokens.secrets_due(world.state, world.state.stored.tasks["worker-0"])
    assert "is not starting" in world.ask(nonce="theirs").answer.message
    assert "not the address of the task's agent" in world.ask(address="10.0.0.2").answer.message
    assert not world.gets_secrets(token="wrong")


def test_token_of_running_program_is_rejected() -> None:
    """If its executor has not used it, no other client can."""
    world = Launched(*SECRETS, FILE)
    world.state = apply(world.state, StatusStored(a_status(world.id, TaskState.RUNNING)))
    assert not world.gets_secrets()


@pytest.mark.parametrize("state", [TaskState.KILLING, TaskState.FINISHED, TaskState.UNREACHABLE])
def test_ended_task_gets_no_reloaded_secrets(state) -> None:
    """Nor does an unresponsive task."""
    world = running(FILE)
    world.state = apply(world.state, StatusStored(a_status(world.id, state)))
    assert not world.gets_secrets()


def test_running_task_without_reloadable_secrets_gets_none() -> None:
    """Its executor, which has used the token, has no reason to ask."""
    world = running()

    assert not secret_tokens.can_reload(world.state, world.state.stored.tasks["worker-0"])
    assert "is not starting" in world.ask().answer.message


def test_only_tasks_with_reloadable_secrets_poll() -> None:
    """With the interval of the options."""
    world = Launched(*SECRETS, FILE, reload_every=5.0)
    assert {"worker-0": 5.0, "ps-0": 0.0}.items() <= {
        name: payload(launch).secrets_reload for name, launch in world.launches.items()
    }.items()
    assert {0.0} == {payload(launch).secrets_reload for launch in Launched().launches.values()}


def test_operator_can_request_immediate_reload() -> None:
    """By every executor with reloadable secrets, and no other."""
    world = running(*SECRETS, FILE)

    request = ReloadSecrets()
    decision = handle(world.state, request, NOW, str)

    assert request.request_id == decision.request_id != ReloadSecrets().request_id
    record = world.state.stored.tasks["worker-0"]
    assert (MessageExecutor(record.id, record.agent_id, RENEW_SECRETS),) == decision.calls
    assert (Reply.OK, "Requested that worker-0 read secrets again") == (decision.answer.reply, decision.answer.message)
    assert () == decision.changes


@pytest.mark.parametrize(
    ("world", "reply"),
    [
        (lambda: Launched(FILE), Reply.ALREADY),
        (lambda: running(*SECRETS), Reply.CONFLICT),
        (Launched, Reply.CONFLICT),
    ],
)
def test_reload_without_reloadable_secrets_is_refused(world, reply) -> None:
    """No program runs; no secret reloads."""
    decision = handle(world().state, ReloadSecrets(), NOW, str)

    assert ((), reply) == (decision.calls, decision.answer.reply)


# Address of the request.


@pytest.mark.parametrize(
    ("address", "expected"),
    [("10.0.0.1", True), ("::ffff:10.0.0.1", True), ("10.0.0.2", False), ("127.0.0.1", False), ("", False)],
)
def test_only_agent_of_launch_gets_secrets(address: str, expected: bool) -> None:
    """By its address, unless the options disable the check."""
    assert expected is Launched().gets_secrets(address=address)
    assert Launched(from_agent_only=False).gets_secrets(address=address)


def test_agent_on_scheduler_host_may_use_loopback() -> None:
    """If the name of its host resolves to loopback."""
    world = Launched()
    spec = replace(world.state.spec, secret_delivery=SecretDelivery("http://agent-1:8080"))
    world.state = replace(world.state, spec=spec)
    assert world.gets_secrets(address="127.0.1.1")


def test_references_are_only_names(world) -> None:
    """The agent resolves them without a token; the executor gets variables to mask."""
    launches, _ = launched(a_service(SecretSpec("reference:team/key#user", env="USER_NAME")))
    launch = launches["ps-0"]

    assert {"USER_NAME": "reference:team/key#user"} == {name: str(at) for name, at in launch.references.items()}
    assert (("USER_NAME",), "") == (payload(launch).secrets, payload(launch).secrets_url)


def test_task_gets_only_references_of_its_job() -> None:
    """And none for a secret that the scheduler delivers."""
    team = SecretSpec("reference:team/key", env="USER_NAME", jobs=frozenset({"worker"}))
    launches, _ = launched(a_service(team, *SECRETS))

    assert {"ps-0": [], "worker-0": ["USER_NAME"], "worker-1": ["USER_NAME"]} == {
        name: list(launch.references) for name, launch in launches.items()
    }


# On a virtual network, and where agents offer under a name.


def networked(agent_address, **options):
    """A world with host names as task addresses; Mesos reports `agent_address`."""
    world = Launched(**options)
    record = world.launches["worker-0"].record
    named = replace(record, address="worker-0.service.zone:2222", agent_address=agent_address)
    world.state = apply(world.state, TaskLaunched(named))
    return world


def reports(world, *addresses) -> None:
    """The agent reports the addresses of the container."""
    status = a_status(world.id, TaskState.STARTING, addresses=addresses)
    world.state = handle(world.state, StatusUpdated(status), NOW, str).state


@pytest.mark.parametrize(
    ("address", "expected"),
    [("9.0.1.5", True), ("fd01::5", True), ("10.0.0.1", True), ("10.0.0.2", False), ("127.0.0.1", False), ("", False)],
)
def test_virtual_network_agent_and_container_get_secrets(address: str, expected: bool) -> None:
    """Packets of a container have its own source address, or that of its agent."""
    world = networked("10.0.0.1")
    reports(world, "9.0.1.5", "fd01::5")

    assert expected is world.gets_secrets(address=address)
    if not expected:
        why = world.ask(address=address).answer.message
        assert "is not the address of the task's agent or container: 10.0.0.1, 9.0.1.5, fd01::5" in why
    assert networked("10.0.0.1", from_agent_only=False).gets_secrets(address=address)


def test_unknown_agent_address_is_not_described() -> None:
    """Only the container's own address is known."""
    world = networked("")
    reports(world, "9.0.1.5")

    assert "agent or container: 9.0.1.5 (option" in world.ask(address="10.0.0.2").answer.message


@pytest.mark.parametrize("agent_address", ["", "agent-1", "10.0.0.1"])
def test_no_secrets_before_container_address_is_known(agent_address: str) -> None:
    """The client is asked to retry, without a log entry; host names are not resolved."""
    world = networked(agent_address)
    early = world.ask(address="9.0.1.5")

    assert (Reply.RETRY, (), ()) == (early.answer.reply, early.changes, early.outcomes)
    assert "secret_delivery.from_agent_only" in early.answer.message
    reports(world, "9.0.1.5")
    assert world.gets_secrets(address="9.0.1.5")


def test_container_address_is_kept_by_later_status() -> None:
    """Neither a status without addresses nor a new scheduler removes the addresses."""
    world = networked("10.0.0.1")
    reports(world, "9.0.1.5")
    reports(world)
    status = world.state.stored.statuses[world.id]
    [write] = records.writes(StatusStored(status), world.state)

    assert ("9.0.1.5",) == status.addresses
    assert (StatusStored(status),) == records.changes({write.key: write.value})


def test_agent_address_is_stored_for_named_tasks() -> None:
    """Otherwise their own address contains it."""
    _, named = launched(replace(a_service(), network=VirtualNetwork("dcos")))
    _, plain = launched(a_service())

    assert {"10.0.0.1"} == {record.agent_address for record in named.stored.tasks.values()}
    assert {""} == {record.agent_address for record in plain.stored.tasks.values()}


@pytest.mark.parametrize(
    ("has_used", "state"), [(False, TaskState.RUNNING), (True, None)], ids=["unused token", "no status yet"]
)
def test_only_running_task_with_used_token_reloads(has_used: bool, state: TaskState | None) -> None:
    """Otherwise its executor could not fetch the values."""
    world = Launched(FILE)
    assert not has_used or world.gets_secrets()
    world.state = world.state if state is None else apply(world.state, StatusStored(a_status(world.id, state)))

    decision = handle(world.state, ReloadSecrets(), NOW, str)

    assert ((), Reply.ALREADY) == (decision.calls, decision.answer.reply)


def test_request_with_invalid_token_is_a_warning(world) -> None:
    assert [("SecretsRefused", True)] == [
        (outcome.kind, outcome.warning) for outcome in world.ask(token="wrong").outcomes
    ]
