"""One training with its injected faults, and its result."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from chaos.evidence import Record, accuracy
from chaos.faults import Round, Strike
from chaos.measures import Cost, Struck, cost, launched_twice, left_behind, needless_launches
from chaos.page import Training
from kit.containers import control_groups, inhabitants, interfaces, mounts
from kit.freezing import thaw
from mesos_local.host import MesosLocalError, ProcessId, find_orphans
from mesos_local.master_api import call
from tf_executor.process.ports import is_free
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.errors import JobError, SchedulerError
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import ServiceSpec

from .arena import Arena, arena, enough, in_run_folder
from .bare import bare_start
from .people import detached, members
from .strikes import strike

#: Seconds after the return of an agent within which a Mesos 1.11 master aborts; measured: 6 to 10.
_ABORT = 15.0
_GONE = 30.0  # seconds until executors and programs of a service that has ended are gone


def training(document: Mapping[str, Any], spec: ServiceSpec, planned: Round, go_on: Callable[[], bool]) -> Training:
    """Train until all faults were injected or `go_on` is false; find leftovers.

    `document`: checked options, `spec`: what they say.
    """
    return in_run_folder(lambda folder: _training(document, spec, planned, go_on, folder))


def _training(
    document: Mapping[str, Any], spec: ServiceSpec, planned: Round, go_on: Callable[[], bool], folder: RunFolder
) -> Training:
    began = time.monotonic()
    held: list[str] = []
    costs: list[Cost] = []
    attempted = 0
    bare: dict[str, float] = {}
    before, within = interfaces(), frozenset[ProcessId]()
    own_disks = any(what.fault.name == "agent-disk-full-running" for what in planned.strikes)
    with arena(document, folder, planned.store, own_disks=own_disks) as found:
        try:
            found.settle(frozenset(), 0.0)
            bare |= {"worker": bare_start(document)}
            for what in takewhile(lambda _: go_on(), planned.strikes):
                attempted += 1
                costs.append(_strike(found, spec, what))
            held += needless_launches(costs)
            _mark_gone(found)
            within = inhabitants(found.cluster.directory)
            enough(folder).touch()
            _bring_back(found)
            found.until("the training has ended", lambda: bool((seen := found.app.refresh()) and seen.over))
            _outlive(found)
            held += left_in_mesos(found)
        except (SchedulerError, MesosLocalError) as error:
            held.append(str(error))
        record, cluster = found.witness.record(), found.cluster.directory
        held += [*launched_twice(record), *sorted(found.witness.findings)]
    held += left_on_machine(cluster, folder, record)
    held += left_behind(namespaces=_pids(within), interfaces=interfaces() - before)
    return Training(
        store=planned.store,
        verdict=(found.app.overview and found.app.overview.verdict) or "did not end",
        accuracy=accuracy(found.witness.said),
        seconds=time.monotonic() - began,
        epochs=found.witness.epochs,
        costs=tuple(costs),
        attempted=attempted,
        bare=bare,
        findings=tuple(dict.fromkeys(held)),
    )


def _strike(found: Arena, spec: ServiceSpec, what: Strike) -> Cost:
    click.echo(f"{what.name}: {what.fault.what}", err=True)
    began = time.time()
    try:
        done = strike(found, what)
        unit = index_of(spec).restarts(map(TaskName, done.hit), moved=False)
        struck = Struck(what.fault.name, done.victim, began, found.settle(done.hit, began), done.hit, unit)
    except (SchedulerError, MesosLocalError) as error:
        raise JobError(f"{what.name}: {error}") from error
    except Exception as error:
        # Even a defect of this script must not cost the results of an hour.
        traceback.print_exc()
        raise JobError(f"{what.name}: {error!r}") from error
    found_cost = cost(struck, found.witness.record(), found.witness.said)
    click.echo(f"  {done.victim}: all as before after {found_cost.whole:.1f} s", err=True)
    return found_cost


def _mark_gone(found: Arena) -> None:
    """Report lost agents to Mesos, as operators do; the service would wait for them."""
    for agent_id in found.gone:
        call(found.cluster.master.address, "MARK_AGENT_GONE", mark_agent_gone={"agent_id": {"value": agent_id}})


def _bring_back(found: Arena) -> None:
    """Let frozen agents continue when the job has a result."""
    if found.away:
        found.until("the job has a result", lambda: bool((seen := found.app.refresh()) and seen.verdict))
    for node in found.away:
        thaw(node)


def _outlive(found: Arena) -> None:
    """Raise MesosLocalError if the master ends soon after an agent's return."""
    if found.away:
        began = time.time()
        found.until("the master has lived on for a while", lambda: time.time() > began + _ABORT, unseen=True)
        found.cluster.master.check_alive()


def left_in_mesos(found: Arena) -> Iterator[str]:
    """Leftovers in master, agents and processes after the service has ended."""
    deadline = time.monotonic() + _GONE
    while left := list(_in_mesos(found)):
        if time.monotonic() > deadline:
            yield from left
            return
        time.sleep(0.1)


def _in_mesos(found: Arena) -> Iterator[str]:
    state = found.cluster.state()
    agents = call(found.cluster.master.address, "GET_AGENTS").get("agents", ())
    executors = call(found.cluster.master.address, "GET_EXECUTORS").get("executors", ())
    yield from left_behind(
        tasks=[task.task_id for task in state.tasks],
        frameworks=[framework.framework_id for framework in state.frameworks],
        used_resources=[agent.hostname for agent in state.agents if agent.used],
        reservations=[name for agent in agents for name in _reserved(agent)],
        executors=[each["executor_info"]["executor_id"]["value"] for each in executors],
        processes=[f"{each.task} ({each.process.pid})" for each in members(found.cluster.directory)],
        detached_processes=[str(each.pid) for each in detached(found.folder.checkpoints)],
        unacknowledged_updates=found.unacknowledged(),
        containers=control_groups(found.cluster.directory, "agent-*/*/"),
        mounts=mounts(found.cluster) - found.mounts,
    )


def _reserved(agent: Mapping[str, Any]) -> Iterator[str]:
    name = agent["agent_info"]["hostname"]
    return (f"{each['name']} on {name}" for each in agent.get("total_resources", ()) if each.get("reservations"))


def left_on_machine(cluster: Path, folder: RunFolder, record: Record) -> Iterator[str]:
    """Leftovers on the machine after the cluster has ended."""
    ports = {launch.address.rpartition(":")[2] for launch in record.launched}
    mounts = Path("/proc/self/mounts").read_text()
    yield from left_behind(
        processes=[str(process.pid) for where in (cluster, folder.path) for process in find_orphans(where)],
        folders=[str(cluster)] if cluster.exists() else [],
        mounts=[str(where) for where in (cluster, folder.path) if f" {where}/" in mounts],
        open_ports=[port for port in ports if not is_free(int(port))],
        control_groups=control_groups(cluster),
    )


def _pids(found: Iterable[ProcessId]) -> list[str]:
    """Processes that still live."""
    return [f"of process {process.pid}" for process in found if process.alive()]
