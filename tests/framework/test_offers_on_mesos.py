"""Offers on a real Mesos: GPUs, racks, maintenance, draining, quota."""

from __future__ import annotations

import getpass
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import a_job, a_spec, needs
from kit.scheduler_process import WatchedScheduler
from kit.shared import SharedServers
from mesos_local import master_api
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.placement import AgentLocation, Constraint, Operator, PlacementSpec
from tf_scheduler.model.spec import ExecutorSpec, JobKind, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.zipapp_builder import build_bundle

pytestmark = pytest.mark.usefixtures("real_mesos")

MASTER_FLAGS = {
    "acls": "{}",  # operators drain agents
    "allocation_interval": "100ms",
    "allocator_agent_recovery_factor": "0",
    "allocator_recovery_timeout": "1secs",
}
AGENTS = (
    AgentSpec("a-1", "cpus:1;mem:1024;disk:1000;ports:[31700-31719]", "rack:a;weight:1.5"),
    AgentSpec("a-2", "cpus:1;mem:1024;disk:1000;ports:[31720-31739]", "rack:a;weight:2"),
    AgentSpec("b-1", "cpus:1;mem:1024;disk:1000;ports:[31740-31759]", "rack:b"),
    AgentSpec("gpu-1", "cpus:1;mem:1024;disk:1000;gpus:2;ports:[31760-31779]", "rack:b"),
)
HALF = needs(cpus=0.4, mem=128)
FOREVER, BRIEFLY = "exec sleep 1000", "exec sleep 2"


@pytest.fixture
def cluster(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    """Three agents in two racks and one with GPUs."""
    return module_servers.cluster(AGENTS, master_flags=MASTER_FLAGS)


class Watched(WatchedScheduler):
    """Waits for its running tasks."""

    def until_running(self, *names: str) -> dict[str, str]:
        """Wait until these tasks run, or all without names; return their host names."""
        expected = names or tuple(task.name for task in self.state.spec.tasks())
        state = self.until(lambda state: all(_runs(state, name) for name in expected))
        return {name: state.stored.tasks[name].hostname for name in expected}


def _runs(state: SchedulerState, name: str) -> bool:
    status = state.status(name)
    return status is not None and status.state is TaskState.RUNNING


@pytest.fixture
def start_service(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Start services; stop those that still run at the end."""
    with ExitStack() as stack:
        yield lambda spec: launched(stack, spec, cluster, tmp_path)


def launched(stack: ExitStack, spec: ServiceSpec, cluster: LocalCluster, folder: Path) -> Watched:
    executor = ExecutorSpec(str(build_bundle()), python=sys.executable, needs=needs(0.01, 32, ports=0))
    spec = replace(spec, executor=executor, user=getpass.getuser(), role=f"{spec.name}-role")
    return Watched(stack, spec, cluster.master.address, folder / f"{spec.name}.db")


def a_service(*jobs: Any, name: str = "offers", **options: Any) -> ServiceSpec:
    defaults = {"strategy": Strategy.PARAMETER_SERVER, "hold_seconds": 1.0}
    return a_spec(name=name, jobs=jobs, **{**defaults, **options})


def workers(count: int, command: str = FOREVER, **options: Any) -> Any:
    return a_job(JobKind.WORKER, count, **{"needs": HALF, "command": command, "kill_grace": 1.0, **options})


def operate(cluster: LocalCluster, kind: str, **content: Any) -> dict[str, Any]:
    """Call the master's operator API."""
    return master_api.call(cluster.master.address, kind, **({kind.lower(): content} if content else {}))


def test_gpu_and_cpu_workers_form_one_job_on_mesos(start_service) -> None:
    """GPU workers share the GPU agent, others avoid it. No GPU devices are involved."""
    service = start_service(
        a_service(
            a_job(JobKind.PS, 1, needs=HALF, command=FOREVER),
            workers(1, section="worker"),
            workers(2, section="gpu_worker", first_index=1, needs=needs(0.3, 128, gpus=1), gpu_check=False),
        )
    )

    hosts = service.until_running()

    assert {"worker-1": "gpu-1", "worker-2": "gpu-1"} == {name: host for name, host in hosts.items() if host == "gpu-1"}
    assert ["worker-0", "worker-1", "worker-2"] == sorted(name for name in hosts if name.startswith("worker"))


def test_service_without_gpus_gets_no_gpu_offers(start_service) -> None:
    """The master offers it only to frameworks with the GPU capability."""
    service = start_service(a_service(workers(1, needs=needs(cpus=64))))

    state = service.until(lambda state: len(state.session.round.reasons.get("worker-0", ())) == 4)

    assert ["a-1", "a-2", "b-1"] == sorted(reason.hostname for reason in state.session.round.reasons["worker-0"][:3])


@pytest.mark.parametrize(
    ("constraint", "offered"),
    [
        (Constraint("rack", Operator.IS, "b"), {"b-1"}),
        (Constraint("weight", Operator.IS, "2"), {"a-1", "a-2"}),
    ],
)
def test_master_applies_offer_constraints(start_service, constraint, offered) -> None:
    """The master applies the offer constraints, except those on numbers."""
    service = start_service(a_service(workers(2, needs=needs(cpus=64), constraints=(constraint,))))

    state = service.until(lambda state: state.process.evaluations and state.session.round.reasons)

    listed = {reason.hostname for reason in state.session.round.reasons["worker-0"] if hasattr(reason, "reasons")}
    assert offered == listed


def test_two_competing_services_both_complete(start_service) -> None:
    """Each needs two of the three agents; when the first ends, the other runs."""
    large = needs(cpus=0.8, mem=128)
    job = {"needs": large, "constraints": (Constraint("hostname", Operator.UNIQUE),)}
    rivals = [
        start_service(a_service(workers(2, BRIEFLY, **job), name=name, strategy=Strategy.MULTI_WORKER_MIRRORED))
        for name in ("one", "two")
    ]

    for rival in rivals:
        rival.until(lambda state: state.process.finished)

    assert ["succeeded", "succeeded"] == [rival.state.stored.result.verdict.value for rival in rivals]


def test_agent_that_joins_late_completes_gang(cluster, start_service) -> None:
    """Without it nothing is launched, and offers of other agents are declined."""
    cluster.agents["b-1"].stop()
    try:
        service = start_service(a_service(workers(3, constraints=(Constraint("hostname", Operator.UNIQUE),))))
        service.until(lambda state: state.session.round.failures >= 1)
        assert not service.state.stored.tasks
    finally:
        cluster.agents["b-1"].start()
        cluster.wait_registered()

    assert {"a-1", "a-2", "b-1"} == set(service.until_running().values())


def test_task_moves_before_maintenance_window(cluster, start_service) -> None:
    """The inverse offer is accepted; the task moves, and its first agent stays unused."""
    service = start_service(a_service(workers(1)))
    ((_, host),) = service.until_running().items()
    first = service.state.stored.tasks["worker-0"].id
    machine = {"hostname": host, "ip": "127.0.0.1"}
    start_at = {"nanoseconds": round((time.time() + 30) * 1e9)}
    try:
        window = {"machine_ids": [machine], "unavailability": {"start": start_at}}
        operate(cluster, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window]})
        service.until(lambda state: state.stored.tasks["worker-0"].id != first)
        assert host != service.until_running()["worker-0"]
        answers = operate(cluster, "GET_MAINTENANCE_STATUS")["status"]["draining_machines"]
        assert ["ACCEPT"] == [status["status"] for item in answers for status in item["statuses"]]
    finally:
        operate(cluster, "UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": []})


def test_task_moves_from_draining_agent(cluster, start_service) -> None:
    """Mesos kills it with its own reason, not as a failure; it moves to another agent."""
    service = start_service(a_service(workers(1)))
    ((_, host),) = service.until_running().items()
    first = service.state.stored.tasks["worker-0"]
    agent = {"agent_id": {"value": first.agent_id}}
    try:
        operate(cluster, "DRAIN_AGENT", **agent, max_grace_period={"nanoseconds": 1_000_000_000})
        service.until(lambda state: state.stored.tasks["worker-0"].id != first.id)
        assert host != service.until_running()["worker-0"]
        assert () == service.state.stored.recoveries["worker-0"].failures
    finally:
        operate(cluster, "REACTIVATE_AGENT", **agent)


def test_gang_beyond_quota_waits_for_raise(cluster, start_service) -> None:
    """The role's quota is one cpu: offers stop there, and the reasons say so."""

    def limit(cpus: float) -> None:
        config = {"role": "offers-role", "limits": {"cpus": {"value": cpus}}}
        operate(cluster, "UPDATE_QUOTA", force=True, quota_configs=[config])

    limit(1.0)
    try:
        service = start_service(a_service(workers(2, needs=needs(0.8, 128))))
        state = service.until(lambda state: state.session.round.failures >= 1)
        assert not state.stored.tasks
        limit(2.0)
        assert len(service.until_running()) == 2
    finally:
        operate(cluster, "UPDATE_QUOTA", force=True, quota_configs=[{"role": "offers-role"}])


def domain(region: str, zone: str) -> str:
    return json.dumps({"fault_domain": {"region": {"name": region}, "zone": {"name": zone}}})


def test_remote_region_is_used_only_if_configured(tmp_path: Path) -> None:
    """The master is in one region, its agent in another."""
    agents = [AgentSpec("far", "cpus:1;mem:1024;disk:1000;ports:[31780-31799]")]
    master_flags = {**MASTER_FLAGS, "domain": domain("eu", "eu-1")}
    agent_flags = {"domain": domain("us", "us-1")}
    with (
        LocalCluster(agents, master_flags=master_flags, agent_flags=agent_flags, die_with_parent=True) as cluster,
        ExitStack() as stack,
    ):
        home = launched(stack, a_service(workers(1), name="home"), cluster, tmp_path)
        zone = (Constraint("@zone", Operator.IS, "us-1"),)
        spec = a_service(workers(1, constraints=zone), name="abroad", placement=PlacementSpec(region="us"))
        abroad = launched(stack, spec, cluster, tmp_path)

        assert {"worker-0": "far"} == abroad.until_running()
        assert AgentLocation("far", "us", "us-1") == abroad.state.stored.tasks["worker-0"].location
        state = home.until(lambda state: state.session.round.reasons)
        assert "eu" == state.session.region
        assert "no offers from any agent" in str(state.session.round.reasons["worker-0"][0])
