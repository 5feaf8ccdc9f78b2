"""`local status` on terminals of any width."""

from __future__ import annotations

import re

import pytest

from mesos_local.master_api import AgentStatus, ClusterStatus, FrameworkStatus, LocalTaskStatus
from tf_scheduler.cli.commands import local
from tf_scheduler.cli.common.colour import ColourScreen

RESOURCES = {"cpus": 2.0, "mem": 3072.0, "gpus": 2.0, "ports": "31000-31099"}
AGENTS = tuple(
    AgentStatus(f"agent-{n}", f"id-{n}", "127.0.0.1:1", n != 2, {"rack": f"rack-{n}"}, RESOURCES, {"cpus": 0.5})
    for n in (1, 2, 3)
)
TASKS = (
    LocalTaskStatus("t1", "digits-worker-0[red]", "TASK_RUNNING", "agent-1", "f1"),
    LocalTaskStatus("t2", "other", "TASK_STAGING", "agent-3", "f2"),
)
FRAMEWORKS = (
    FrameworkStatus("f1", "digits", False, 10.0, {"cpus": 1.3, "mem": 2048.0, "ports": "31000-31001"}),
    FrameworkStatus("f2", "second", True, 0.0, {}),
)
STATUS = ClusterStatus("127.0.0.1:5050", "127.0.0.1:2181", AGENTS, TASKS, FRAMEWORKS)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Print STATUS on a terminal with `columns`; None: not a terminal."""

    def status_text(columns: int | None) -> str:
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
            monkeypatch.setattr(local, "screen", ColourScreen)
        local.print_status(STATUS)
        return capsys.readouterr().out

    return status_text


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100])
def test_status_fits_the_terminal(printed, columns: int) -> None:
    """No line is longer than the terminal, and no text is cut."""
    output = printed(columns)
    assert max(map(len, output.splitlines())) <= columns
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    letters = re.sub(r"\s", "", output)
    assert "127.0.0.1:5050" in letters
    assert "unlessitreconnects" in letters


def test_status_without_terminal_is_not_wrapped(printed) -> None:
    output = printed(None)
    assert "31000-31099  rack:rack-1" in output


def test_orphan_tasks_are_marked(printed) -> None:
    """The status names their resources and the time until Mesos releases them."""
    lines = printed(None).splitlines()
    (line,) = [line for line in lines if "is disconnected" in line]
    assert "The scheduler of digits is disconnected. It holds cpus 1.3, mem 2048 in 1 task;" in line
    assert line.endswith("Mesos releases the resources 10 s after the disconnect.")
    assert [["digits-worker-0[red]", "running,", "orphan"]] == [li.split()[:3] for li in lines if "orphan" in li]
