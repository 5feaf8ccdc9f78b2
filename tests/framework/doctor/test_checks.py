"""Each check of `doctor`: from facts to red, yellow, green or not checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mesos_local.libmesos.native import DEBIAN_PACKAGES
from tf_executor.contract.http import is_loopback
from tf_scheduler.doctor.checks import CHECKS, Level, judge, libraries
from tf_scheduler.doctor.facts import (
    AgentFacts,
    ApiFacts,
    ArtefactFacts,
    CertificateFacts,
    Facts,
    FrameworkFacts,
    LaptopFacts,
    MasterFacts,
    ServiceFacts,
    StoreFacts,
    Unknown,
)
from tf_scheduler.model.secrets import RunningTask
from tf_scheduler.options.load import resolve

NOW = 1_800_000_000.0
SAFE_FLAGS = {
    "authenticate_http_executors": "true",
    "authenticate_http_readwrite": "true",
    "switch_user": "true",
    "isolation": "filesystem/linux, namespaces/pid",
}
SECRETS = [{"source": "env:KEY", "env": "KEY"}]
GIB = 1 << 30


def options(**sections: Any) -> Mapping[str, Any]:
    service = {"name": "mnist", "user": "trainer", "command": "true", **sections.pop("service", {})}
    return resolve({"service": service, **sections})


OWN = FrameworkFacts("id-1", "mnist", "http://10.0.0.9:8080")
OWN_TASK = RunningTask("id-1", "S0", "trainer")
SERVICE = ServiceFacts("mnist", "http://10.0.0.9:8080", "id-1", "", (), (), (), ())
TF = {"tensorflow_cpu": "2.21.0", "keras": "3.15.1", "tf_keras": "2.21.0"}
TF_3 = {"tensorflow": "2.21.0"}
LAPTOP = LaptopFacts((3, 12), (), (), "", {"/tmp": 50 * GIB}, 8 * GIB, {"this Python": TF})
#: Facts without a problem.
GOOD = Facts(
    now=NOW,
    options=options(),
    laptop=LAPTOP,
    master=MasterFacts("http://10.0.0.1:5050", 0.4, (OWN,), frozenset({OWN_TASK})),
    agents=(AgentFacts("S0", "agent-1", SAFE_FLAGS, -0.4), AgentFacts("S1", "agent-2", SAFE_FLAGS, 1.0)),
    store=StoreFacts("zk://10.0.0.1:2181", is_open=False, has_credentials=True),
    api=ApiFacts("https://10.0.0.9:8080", 401),
    certificates=(CertificateFacts("https://10.0.0.9:8080", 300.0),),
    service=SERVICE,
    artefacts=(ArtefactFacts("service.job_url", "https://example.com/job.zip"),),
)
WITH_SECRETS = options(secrets=SECRETS)
UNKNOWN = Unknown("it does not answer")


def agents(**flags: str) -> tuple[AgentFacts, ...]:
    return (AgentFacts("S0", "agent-1", SAFE_FLAGS), AgentFacts("S1", "agent-2", {**SAFE_FLAGS, **flags}))


def others(user: str, agent: str, name: str = "spark") -> MasterFacts:
    running = frozenset({OWN_TASK, RunningTask("id-2", agent, user)})
    return MasterFacts("http://10.0.0.1:5050", 0.0, (OWN, FrameworkFacts("id-2", name, "")), running)


#: Two frameworks of one name, of which only the first shares the user.
TWINS = MasterFacts(
    "http://10.0.0.1:5050",
    0.0,
    (OWN, FrameworkFacts("id-3", "spark", ""), FrameworkFacts("id-4", "spark", "")),
    frozenset({OWN_TASK, RunningTask("id-3", "S0", "trainer"), RunningTask("id-4", "S0", "other")}),
)


def service(**changes: Any) -> ServiceFacts:
    return replace(SERVICE, **changes)


def root_agent(is_root: bool | None) -> tuple[AgentFacts, ...]:
    return (AgentFacts("S0", "agent-1", {**SAFE_FLAGS, "switch_user": "false"}, runs_as_root=is_root),)


#: Rows of --acls as an agent returns them.
ACLS = "".join(
    f"{name} {{\n  principals {{\n    type: ANY\n  }}\n  users {{\n    type: NONE\n  }}\n}}\n"
    for name in (
        "launch_nested_containers_as_user",
        "launch_nested_container_sessions_as_user",
        "launch_standalone_containers",
    )
)


def open_agents(**flags: str) -> tuple[AgentFacts, ...]:
    return agents(authenticate_http_readwrite="false", **flags)


NO_LOGIN = agents(authenticate_http_executors="false")
MANY = tuple(AgentFacts(f"S{number}", f"agent-{number}", {}) for number in range(1000))
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("executor_login", {"agents": NO_LOGIN, "options": WITH_SECRETS}, "red", "agent-2"),
    ("executor_login", {"agents": NO_LOGIN, "options": options(service={"gcs_key": "{}"})}, "red", "agent-2"),
    ("executor_login", {"agents": NO_LOGIN}, "yellow", "agent-2"),
    ("executor_login", {"agents": open_agents(), "options": WITH_SECRETS}, "red", "run commands in a task"),
    ("executor_login", {"agents": open_agents(acls=ACLS[:150]), "options": WITH_SECRETS}, "red", "agent-2"),
    ("executor_login", {"agents": open_agents(acls=ACLS), "options": WITH_SECRETS}, "green", "authenticate"),
    ("executor_login", {"agents": open_agents(acls="permissive: false\n"), "options": WITH_SECRETS}, "green", ""),
    ("executor_login", {"agents": open_agents(authorizer="module"), "options": WITH_SECRETS}, "green", ""),
    ("executor_login", {"agents": open_agents()}, "green", "authenticate"),
    ("executor_login", {"agents": MANY}, "yellow", "agent-4 and 995 more"),
    ("executor_login", {"agents": (AgentFacts("S0", "agent-1", UNKNOWN),)}, "not checked", "does not answer"),
    ("executor_login", {"agents": (*GOOD.agents, AgentFacts("S2", "a-3", UNKNOWN))}, "yellow", "a-3"),  # type: ignore[misc]
    ("executor_login", {"agents": ()}, "not checked", "no agent"),
    ("shared_user", {"master": others("trainer", "S0")}, "red", "spark"),
    ("shared_user", {"master": others("trainer", "S1")}, "yellow", "spark"),
    ("shared_user", {"master": TWINS}, "red", "spark"),
    ("shared_user", {"master": others("other", "S0")}, "green", "trainer"),
    ("shared_user", {"master": UNKNOWN}, "not checked", "does not answer"),
    ("isolation", {"agents": root_agent(None)}, "red", "root"),
    ("isolation", {"agents": root_agent(is_root=True)}, "red", "root"),
    ("isolation", {"agents": root_agent(is_root=False)}, "yellow", "agent-1"),
    ("isolation", {"agents": agents(isolation="posix/cpu"), "options": WITH_SECRETS}, "red", "visible"),
    ("isolation", {"agents": agents(isolation="posix/cpu")}, "green", "task's user"),
    ("zookeeper_acl", {"store": StoreFacts("zk://h:2181", is_open=True)}, "red", "world:anyone"),
    ("zookeeper_acl", {"store": StoreFacts("zk://h:2181", None)}, "yellow", "no credentials"),
    ("zookeeper_acl", {"store": StoreFacts("zk://h:2181", None, has_credentials=True)}, "green", "only the service"),
    ("open_api", {"api": ApiFacts("http://h:1", 404)}, "red", "without a token"),
    ("open_api", {"api": ApiFacts("http://h:1", 404, from_master=True)}, "not checked", "master"),
    ("open_api", {"api": ApiFacts("http://h:1", 502)}, "not checked", "502"),
    ("open_api", {"api": UNKNOWN, "options": options(api={"authentication": "none"})}, "red", "none"),
    ("tls", {"api": ApiFacts("http://h:1", 401), "options": WITH_SECRETS}, "red", "http://h:1"),
    ("tls", {"api": ApiFacts("http://127.0.0.1:1", 401), "options": WITH_SECRETS}, "green", "days"),
    ("tls", {"api": UNKNOWN, "options": WITH_SECRETS}, "red", "no certificate"),
    ("tls", {"options": options(mesos={"secret": "env:S"}, service={"principal": "p"})}, "yellow", "mesos.secret"),
    ("tls", {"certificates": (CertificateFacts("https://h", 3.0),)}, "red", "3 days"),
    ("tls", {"certificates": (CertificateFacts("https://h", -1.0),)}, "red", "expired"),
    ("tls", {"certificates": (CertificateFacts("https://h", 20.0),)}, "yellow", "20 days"),
    ("tls", {"certificates": (CertificateFacts("https://h", problem="unknown CA"),)}, "yellow", "unknown CA"),
    ("same_name", {"master": others("x", "S0", "mnist")}, "red", "id-2"),
    ("same_name", {"service": UNKNOWN}, "red", "id-1"),
    ("clock", {"agents": (AgentFacts("S0", "agent-1", SAFE_FLAGS, 7.0),)}, "red", "7 s ahead"),
    ("clock", {"master": MasterFacts("http://h:5050", -60.0, ())}, "red", "1 min behind"),
    ("clock", {"service": service(clock_problems=("the clock was set back by 9 s",))}, "red", "set back"),
    ("clock", {"master": UNKNOWN, "agents": UNKNOWN}, "not checked", "does not answer"),
    ("refused_calls", {"service": service(refused_calls="401 no")}, "red", "401 no"),
    ("refused_calls", {"service": service(failed_calls=("KILL was not answered",))}, "yellow", "KILL"),
    ("leftovers", {"service": service(may_still_run=("worker-0 may still run on a",))}, "red", "worker-0"),
    ("failing_agents", {"service": service(failing_agents=(("a", (NOW,), NOW + 1),))}, "red", "a (1 launches)"),
    ("failing_agents", {"service": service(failing_agents=(("a", (NOW - 5,), 0.0),))}, "yellow", "900 s"),
    ("failing_agents", {"service": service(failing_agents=(("a", (NOW - 901,), 0.0),))}, "green", "recently"),
    ("artefacts", {"artefacts": (ArtefactFacts("executor.url", "http://h/x", "HTTP 404"),)}, "red", "HTTP 404"),
    ("artefacts", {"artefacts": (ArtefactFacts("o", "s3://x", is_checked=False),)}, "not checked", "s3://x"),
    ("ports", {"laptop": replace(LAPTOP, taken_ports=("5050 (nginx)", "31000"))}, "yellow", ": 5050 (nginx), 31000"),
    ("memory", {"laptop": replace(LAPTOP, memory=GIB // 2)}, "red", "512 MB"),
    ("memory", {"laptop": replace(LAPTOP, memory=3 * GIB // 2)}, "yellow", "1.5 GB"),
    ("memory", {"laptop": replace(LAPTOP, memory=None)}, "not checked", "unknown"),
    ("disk", {"laptop": replace(LAPTOP, free={"/tmp": GIB // 2})}, "red", "/tmp: 512 MB"),
    ("disk", {"laptop": replace(LAPTOP, free={"/tmp": 2 * GIB})}, "red", "2 GB"),
    ("disk", {"laptop": replace(LAPTOP, free={"/tmp": 4 * GIB})}, "yellow", "4 GB"),
    ("python", {"laptop": replace(LAPTOP, python=(3, 9))}, "red", "3.9"),
    ("python", {"laptop": replace(LAPTOP, missing_programs=("/no/python",))}, "red", "/no/python"),
    ("libraries", {"laptop": replace(LAPTOP, missing_libraries=("kazoo",))}, "red", "kazoo"),
    ("libraries", {"laptop": replace(LAPTOP, no_local_mesos="libsvn")}, "yellow", "libsvn"),
    ("training", {"laptop": replace(LAPTOP, trainings={"this Python": {}})}, "yellow", "neither"),
    ("training", {"laptop": replace(LAPTOP, trainings={"x": {**TF_3, "keras": "3.1"}})}, "yellow", "Keras 3.1"),
]


@pytest.mark.parametrize(("check", "changes", "status", "words"), CASES)
def test_check_has_its_finding(check: str, changes: dict[str, Any], status: str, words: str) -> None:
    """A finding that is not green says why, and unless it is unknown, what to do."""
    finding = {check.name: finding for check, finding in judge(replace(GOOD, **changes))}[check]

    assert (status, True) == (finding.level.value, words in finding.message), finding
    assert finding.remedy or finding.level in (Level.GREEN, Level.NOT_CHECKED)


def test_missing_system_libraries_have_the_apt_command() -> None:
    """With the packages that the local Mesos names itself."""
    missing, other = (
        libraries(replace(LAPTOP, no_local_mesos=problem)).remedy
        for problem in ("missing libraries: libsasl2", "libmesos has no build for Darwin")
    )

    assert f"sudo apt-get install {DEBIAN_PACKAGES};" in missing
    assert "apt" not in other


def test_good_facts_are_green() -> None:
    assert {Level.GREEN} == {finding.level for _, finding in judge(GOOD)}


def test_unknown_facts_are_not_checked() -> None:
    """Each line says why; none is green, and none fails."""
    names = ("options", "laptop", "master", "agents", "store", "api", "service", "artefacts")
    changes: dict[str, Any] = dict.fromkeys(names, UNKNOWN)
    unknown = replace(GOOD, certificates=(), **changes)

    assert {(Level.NOT_CHECKED, UNKNOWN.reason)} == {(item.level, item.message) for _, item in judge(unknown)}


def test_each_unknown_fact_fails_no_check() -> None:
    for name in ("options", "laptop", "master", "agents", "store", "api", "service", "artefacts"):
        change: dict[str, Any] = {name: UNKNOWN}
        assert len(CHECKS) == len(judge(replace(GOOD, **change)))


def test_security_selects_first_six() -> None:
    assert [check.name for check in CHECKS[:6]] == [check.name for check, _ in judge(GOOD, security=True)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://127.0.0.1:5", True), ("localhost:5050", True), ("http://[::1]:5", True), ("10.0.0.1:5050", False)],
)
def test_loopback_is_recognized(url: str, expected: bool) -> None:
    assert expected == is_loopback(url)
