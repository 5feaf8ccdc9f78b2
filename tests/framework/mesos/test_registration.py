"""The check before a first registration: answers of the master, and orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_spec
from kit.master_answers import MasterAnswers, a_framework, a_task
from mesos_client.http import TransportError
from mesos_client.results import RegistrationRefusedError, Sent
from tf_executor.contract.states import TaskState
from tf_scheduler.mesos.registration import LostFrameworks, check_registration, find_filter
from tf_scheduler.model.events import FrameworkAdopted, FrameworksHidden
from tf_scheduler.model.ids import FrameworkId

TASKS = [a_task("worker-1__b"), a_task("worker-0__a")]
ADOPT, RESET = LostFrameworks(adopt="framework-1"), LostFrameworks(reset="framework-1")


def check(answers: MasterAnswers, orders: LostFrameworks | None = None, **options: Any) -> Any:
    return check_registration(replace(a_spec(), **options), orders or LostFrameworks(), answers)


def refusal(answers: MasterAnswers, orders: LostFrameworks | None = None, **options: Any) -> str:
    with pytest.raises(RegistrationRefusedError) as caught:
        check(answers, orders, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "frameworks",
    [
        [],
        [a_framework(name="letters")],
        [a_framework(role="other-role")],
    ],
)
@pytest.mark.parametrize("orders", [LostFrameworks(), RESET])
def test_first_installation_registers(frameworks, orders) -> None:
    """Frameworks of another name or role are those of other services."""
    answers = MasterAnswers(frameworks, TASKS)

    assert check(answers, orders) is None
    assert ["GET_FRAMEWORKS", "GET_AGENTS"] == answers.asked


@pytest.mark.parametrize("orders", [LostFrameworks(), RESET, ADOPT])
def test_nothing_counts_as_missing_before_all_agents_are_back(orders) -> None:
    """A restarted master knows tasks, and some frameworks, only from agents."""
    for answers in (MasterAnswers(), MasterAnswers([a_framework()])):
        answers.agents["recovered_agents"] = [{"hostname": "agent-2"}]

        with pytest.raises(TransportError, match="1 agents to register again"):
            check(answers, orders)


def test_hidden_agents_do_not_prevent_installation() -> None:
    answers = MasterAnswers()
    answers.rejected = {"GET_AGENTS": 403}

    assert check(answers) is None


def test_completed_framework_does_not_hinder() -> None:
    """After an uninstall."""
    answers = MasterAnswers()
    answers.frameworks["completed_frameworks"] = [a_framework()]

    assert check(answers) is None


def test_live_framework_is_refused_with_id_tasks_and_choices() -> None:
    message = refusal(MasterAnswers([a_framework()], [*TASKS, a_task("worker-0__z", "framework-2")]))

    assert message.startswith("framework framework-1 of digits (role digits-role) is live in Mesos with 2 tasks")
    assert "(worker-0, worker-1), but the state store does not contain it; " in message
    for choice in ("`--adopt framework-1`", "`--reset framework-1`", "ADOPT_FRAMEWORK", "RESET_FRAMEWORK"):
        assert choice in message


def test_refusal_names_a_few_of_many_tasks() -> None:
    message = refusal(MasterAnswers([a_framework()], [a_task(f"worker-{n}__a") for n in range(10, 20)]))

    assert "with 10 tasks (worker-10, worker-11, worker-12, worker-13, worker-14, ...)" in message


@pytest.mark.parametrize(
    "fields", [{"connected": True}, {"recovered": True}, {"allocated_resources": [{"name": "cpus"}]}]
)
def test_used_framework_without_visible_tasks_is_refused(fields) -> None:
    """A connected scheduler may launch tasks; agents may return; tasks may be hidden."""
    message = refusal(MasterAnswers([a_framework(**fields)]))

    assert "with 0 tasks" in message
    assert ("another scheduler is connected to it" in message) == ("connected" in fields)


def test_unused_framework_is_continued() -> None:
    """A scheduler that was killed before it stored the id left it."""
    assert FrameworkAdopted(FrameworkId("framework-1")) == check(MasterAnswers([a_framework()]))


def test_framework_with_hidden_tasks_is_refused() -> None:
    answers = MasterAnswers([a_framework()])
    answers.rejected = {"GET_TASKS": 403}

    assert "tasks that the master does not show (rejected with HTTP 403: no)" in refusal(answers)


def test_hidden_frameworks_are_reported() -> None:
    """The registration continues: such a cluster has never shown them."""
    answers = MasterAnswers([a_framework()], TASKS)
    answers.rejected = {"GET_FRAMEWORKS": 403}

    assert FrameworksHidden("rejected with HTTP 403: no") == check(answers)
    assert "tasks of digits, if any: the master shows no frameworks" in refusal(answers, LostFrameworks(uninstall="x"))
    assert "the master does not show frameworks" in refusal(answers, ADOPT)


UNINSTALL = LostFrameworks(uninstall="no state")


def test_uninstall_spares_frameworks_of_others() -> None:
    """Another user may have a service of the same name, whose scheduler is away."""
    assert "(its user is root, not nobody" in refusal(MasterAnswers([a_framework(user="root")], TASKS), UNINSTALL)
    assert "framework-1 (connected)" in refusal(MasterAnswers([a_framework(connected=True)], TASKS), UNINSTALL)
    assert check(MasterAnswers([a_framework()], TASKS), UNINSTALL).reset


def test_uninstall_waits_for_a_scheduler_that_may_reconnect() -> None:
    """After a failover of the master, no scheduler is connected."""
    with pytest.raises(TransportError, match="may be reconnecting"):
        check(MasterAnswers([a_framework(recovered=True)], TASKS), UNINSTALL)


def test_two_live_frameworks_are_both_named() -> None:
    message = refusal(MasterAnswers([a_framework("framework-2"), a_framework()], TASKS))

    assert message.startswith("framework framework-1 ")
    assert "; also live: framework-2; " in message


@pytest.mark.parametrize(
    ("frameworks", "completed", "why"),
    [
        ([], [], "Mesos does not know this framework"),
        ([], [a_framework()], "the framework has ended"),
        ([a_framework(name="letters")], [], "its name is letters, not digits (option service.name)"),
        ([a_framework(role="other-role")], [], "its roles are other-role, not digits-role (option service.role)"),
        ([a_framework("framework-2")], [], "live frameworks of this service: framework-2"),
    ],
)
def test_wrong_id_is_not_adopted(frameworks, completed, why: str) -> None:
    answers = MasterAnswers(frameworks, TASKS)
    answers.frameworks["completed_frameworks"] = completed

    message = refusal(answers, ADOPT)

    assert message.startswith("cannot adopt framework framework-1: ")
    assert why in message
    assert "environment variable ADOPT_FRAMEWORK" in message


@pytest.mark.parametrize(
    ("fields", "option", "why"),
    [
        ({"user": "root"}, "", "its user is root, not nobody (option service.user)"),
        ({"principal": "ann"}, "bob", "its principal is ann, not bob (option service.principal or service."),
        ({}, "bob", "its principal is empty, not bob (option service.principal or service."),
    ],
)
def test_framework_with_other_fixed_fields_is_not_adopted(fields, option: str, why: str) -> None:
    """SUBSCRIBE ignores another user, and refuses another principal without naming it."""
    answers = MasterAnswers([a_framework(**fields)])

    assert why in refusal(answers, ADOPT, principal=option)
    # Without tasks, it would be continued silently.
    message = refusal(answers, principal=option)
    assert "`--reset framework-1`" in message
    assert f"; {why}" in message


@pytest.mark.parametrize("option", ["", "ann"])
def test_principal_of_login_is_adopted(option: str) -> None:
    """The master fills in the principal that authenticates without naming itself."""
    assert "framework-1" == check(MasterAnswers([a_framework(principal="ann")]), ADOPT, principal=option).framework_id


def test_adoption_without_view_of_tasks_is_refused() -> None:
    answers = MasterAnswers([a_framework()])
    answers.rejected = {"GET_TASKS": 403}

    assert "the master refuses GET_TASKS: rejected with HTTP 403: no" in refusal(answers, ADOPT)


@pytest.mark.parametrize("label", [None, "", "{}", '{"schema": 99}', '{"schema": 1}', "[]"])
def test_task_without_readable_label_gets_partial_record(label: str | None) -> None:
    """Enough to stop it; the empty digest differs from that of any options."""
    labels = {} if label is None else {"labels": {"labels": [{"key": "record", "value": label}]}}
    ports = {"discovery": {"ports": {"ports": [{"number": 31000}]}}}
    status = {"state": "TASK_RUNNING", "timestamp": 12.5, "healthy": True, "uuid": "u"}
    answers = MasterAnswers(
        [a_framework()], [a_task("worker-0__a", **labels, **ports, statuses=[status]), a_task("gone-7__a")]
    )
    info = {"id": {"value": "agent-1-id"}, "hostname": "agent-1"}
    answers.agents["agents"] = [{"agent_info": info}]

    (found,) = check(answers, ADOPT).tasks

    assert ("worker-0__a", TaskState.RUNNING, True, "") == (
        found.status.id,
        found.status.state,
        found.status.healthy,
        found.status.uuid,
    )
    record = found.record
    assert ("agent-1:31000", "agent-1", "", 12.5) == (
        record.address,
        record.hostname,
        record.config,
        record.launched_at,
    )


def test_reset_and_further_frameworks_are_in_the_event() -> None:
    answers = MasterAnswers([a_framework(), a_framework("framework-2")])

    assert check(answers, RESET).reset
    assert (False, ("framework-2",)) == (check(answers, ADOPT).reset, check(answers, ADOPT).others)


@pytest.mark.parametrize(
    "frameworks",
    [
        None,
        {"frameworks": 1},
        {"frameworks": [{}]},
        {"frameworks": [{"framework_info": {"id": "x", "name": "digits"}}]},
    ],
)
def test_invalid_answer_of_master_is_asked_again(frameworks) -> None:
    """The driver retries; it neither registers a framework nor logs a traceback."""
    answers = MasterAnswers()
    answers.frameworks = frameworks

    with pytest.raises(TransportError, match="the master returned an invalid answer"):
        check(answers)
    assert FrameworksHidden("its answer is invalid") == find_filter(answers("GET_FRAMEWORKS"), "framework-1")


def test_answer_without_frameworks_is_not_an_empty_list() -> None:
    """A proxy may answer with a page; a second framework would start the job again."""
    with pytest.raises(TransportError, match="the master returned an invalid answer"):
        check_registration(a_spec(), LostFrameworks(), lambda _: Sent())
