"""What `local status` prints on terminals of any width."""

from __future__ import annotations

import re

import pytest

from mesos_local.master_api import AgentStatus, ClusterStatus, FrameworkStatus, LocalTaskStatus
from tf_scheduler.cli.commands.local import print_status

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
    """Prints STATUS in so many columns; None: where no terminal is."""

    def run(columns: int | None) -> str:
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        print_status(STATUS)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100])
def test_nothing_is_cut(printed, columns: int) -> None:
    """No line is longer than the terminal, no ellipsis stands for data; what is folded is all there."""
    output = printed(columns)
    assert max(map(len, output.splitlines())) <= columns
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    letters = re.sub(r"\s", "", output)
    assert "127.0.0.1:5050" in letters
    assert "unlessitcomesback" in letters


@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [
        (100, ["rack:rack-1", "31000-31099", "second"], None),
        (80, ["31000-31099", "second"], "attributes"),
        (60, ["not reachable", "0/3072", "running, orphan"], "attributes, ports"),
    ],
)
def test_the_least_needed_columns_go_first(printed, columns: int, shown: list[str], left_out: str | None) -> None:
    """And it is said which: the others stay as readable as on a wide terminal."""
    lines = printed(columns).splitlines()
    for text in (*shown, "agent-1", "0.5/2", "digits-worker-0[red]"):
        assert any(text in line for line in lines), text
    assert (left_out is None) == (not any("left out" in line for line in lines))
    assert left_out is None or f"left out for want of width: {left_out}" in lines


def test_without_a_terminal_lines_are_as_long_as_they_are(printed) -> None:
    """A program that reads them finds all of them."""
    output = printed(None)
    assert "31000-31099   rack:rack-1" in output
    assert "left out" not in output


def test_orphans_are_marked(printed) -> None:
    """The tasks of a scheduler that is gone, what they hold and how long they will; not those of another one."""
    lines = printed(None).splitlines()
    (line,) = [line for line in lines if "is gone" in line]
    assert "The scheduler of digits is gone. It holds cpus 1.3, mem 2048 in 1 task;" in line
    assert line.endswith("Mesos ends all of that 10 s after it left.")
    assert [["digits-worker-0[red]", "running,", "orphan"]] == [li.split()[:3] for li in lines if "orphan" in li]
