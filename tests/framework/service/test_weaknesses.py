"""Settings that weaken the security are in the log and in the health of a real scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.commands import SchedulerCommand
from kit.waiting import wait_until

NO_MASTER = "127.0.0.1:9"

Start = Callable[..., SchedulerCommand]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a scheduler with these sections of options."""
    commands: list[SchedulerCommand] = []

    def start(**sections: Any) -> SchedulerCommand:
        commands.append(SchedulerCommand(tmp_path / f"options-{len(commands)}.json", NO_MASTER, **sections))
        commands[-1].start()
        return commands[-1]

    yield start
    for command in commands:
        command.stop()


def observe(command: SchedulerCommand) -> tuple[list[str], str]:
    """Return the reasons of the health and the log of a running scheduler."""
    wait_until(lambda: command.status("/v1/health"))
    reasons = command.request("/v1/health?verbose=true").json["reasons"]
    return reasons[1:], command.end(command.processes[-1])


def test_open_api_is_reported(start: Start) -> None:
    """The option's name is enough to find what weakens the service."""
    reasons, log = observe(start(api={"authentication": "none"}))
    without, _ = observe(start())

    assert [True] == ["api.authentication: none: every client that can connect" in reason for reason in reasons]
    assert "option api.authentication: none" in log
    assert [] == without
