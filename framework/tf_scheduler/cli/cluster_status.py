"""What `dcos-tensorflow local status` prints: as wide as the terminal, and nothing in it cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mesos_local.status import AgentStatus, ClusterStatus, FrameworkStatus

_BOUNDLESS = 10_000  # columns: for a file or a pipe, where every line may be as long as it is
_AMOUNTS = ("cpus", "mem", "gpus")
#: What a narrow terminal can do without, the least needed first; --json has it all.
_DISPENSABLE = ("attributes", "ports", "framework", "tasks")

Rows = Sequence[Mapping[str, str]]


def print_status(snapshot: ClusterStatus) -> None:
    """Addresses, a table of agents, one of tasks if there are any, and what schedulers that are gone have left."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_BOUNDLESS)
    for name, address in (("Mesos master  http://", snapshot.master), ("ZooKeeper     ", snapshot.zookeeper)):
        if address:
            console.print(Text(f"{name}{address}"), overflow="fold")
    _print_table(console, [_agent_row(agent, snapshot) for agent in snapshot.agents], "cpus, mem, gpus: used/offered")
    _print_table(console, list(_task_rows(snapshot)))
    for line in _orphans(snapshot):
        console.print(Text(line), overflow="fold")


def _agent_row(agent: AgentStatus, snapshot: ClusterStatus) -> dict[str, str]:
    amounts = {name: f"{_amount(agent.used.get(name))}/{_amount(agent.resources.get(name))}" for name in _AMOUNTS}
    return {
        "agent": agent.hostname,
        "cpus": amounts["cpus"],
        "mem (MB)": amounts["mem"],
        "gpus": amounts["gpus"],
        "ports": str(agent.resources.get("ports", "")).replace(",", " "),
        "attributes": " ".join(f"{name}:{value}" for name, value in agent.attributes.items()),
        "tasks": str(sum(task.hostname == agent.hostname for task in snapshot.tasks)),
        "state": "registered" if agent.active else "not reachable",
    }


def _task_rows(snapshot: ClusterStatus) -> Iterator[dict[str, str]]:
    frameworks = {framework.framework_id: framework for framework in snapshot.frameworks}
    for task in snapshot.tasks:
        framework = frameworks.get(task.framework_id)
        state = task.state.removeprefix("TASK_").lower()
        yield {
            "task": task.name,
            "state": state if framework is None or framework.connected else f"{state}, orphan",
            "agent": task.hostname,
            "framework": task.framework_id if framework is None else framework.name,
        }


def _orphans(snapshot: ClusterStatus) -> Iterator[str]:
    for framework in snapshot.frameworks:
        if not framework.connected:
            tasks = sum(task.framework_id == framework.framework_id for task in snapshot.tasks)
            yield (
                f"The scheduler of {framework.name} is gone. It holds {_held(framework)} in {tasks} "
                f"{'task' if tasks == 1 else 'tasks'}; unless it comes back, Mesos ends all of that "
                f"{framework.failover_timeout:g} s after it left."
            )


def _held(framework: FrameworkStatus) -> str:
    held = [f"{name} {_amount(framework.used[name])}" for name in _AMOUNTS if name in framework.used]
    return ", ".join(held) or "nothing"


def _print_table(console: Console, rows: Rows, caption: str = "") -> None:
    if not rows:
        return
    columns, left_out = list(rows[0]), []
    for name in (name for name in _DISPENSABLE if name in columns):
        if _width(console, _table(rows, columns)) <= console.width:
            break
        columns.remove(name)
        left_out.append(name)
    console.print(_table(rows, columns))
    if caption:
        console.print(Text(caption, style="italic dim"), overflow="fold")
    if left_out:
        console.print(Text(f"left out for want of width: {', '.join(left_out)}", style="italic dim"), overflow="fold")


def _table(rows: Rows, columns: Iterable[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[name]) for name in columns))
    return table


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=_BOUNDLESS), table).maximum


def _amount(value: float | str | None) -> str:
    return f"{value or 0:g}" if not isinstance(value, str) else value
