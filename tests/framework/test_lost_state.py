"""A scheduler on a real Mesos whose stored state is removed while its tasks run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.commands import SMALL, SchedulerCommand
from kit.reasons import assert_shown
from kit.waiting import PATIENCE, wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import call, read_status

NAME = "lost-state"
#: Each start of a program writes its task and process id; the file `end` ends it.
COMMAND = 'echo "$TASK_NAME $$" >> $CHECKPOINT_DIR/starts; until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done'
WORKERS = {"worker-0", "worker-1"}


class Host(SchedulerCommand):
    """A machine that runs schedulers of one service, and can lose their state."""

    def __init__(self, folder: Path, master: str, checkpoints: Path) -> None:
        self.checkpoints = checkpoints
        self.checkpoints.mkdir(exist_ok=True)
        service = {
            "name": NAME,
            "command": COMMAND,
            "strategy": "independent",
            "checkpoint_dir": str(self.checkpoints),
            "failover_timeout": 600,
        }
        super().__init__(folder / "options.json", master, service=service, worker={"count": 2, **SMALL})

    def programs(self) -> dict[int, str]:
        """Return process id -> task of the programs that run."""
        file = self.checkpoints / "starts"
        started = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return {int(pid): name for name, pid in started if Path(f"/proc/{pid}").exists()}

    def until_running(self) -> dict[int, str]:
        """Wait until each task has one program, and the plan is complete."""
        wait_until(lambda: sorted(self.programs().values()) == sorted(WORKERS))
        wait_until(lambda: self.status("/v1/plans/deploy") == 200)
        return self.programs()

    def framework(self) -> str:
        """Return the id of the live framework."""
        (found,) = [item for item in read_status(self.master).frameworks if item.name == NAME]
        return found.framework_id

    def lose_state(self, process: Any) -> None:
        """Kill the scheduler, and remove its state."""
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        for file in self.file.parent.glob("state.db*"):
            file.unlink()
        wait_until(lambda: not any(item.connected for item in read_status(self.master).frameworks if item.name == NAME))

    def refusal(self, **variables: str) -> str:
        """Start a scheduler that exits; return its output."""
        process = self.start(**variables)
        _, errors = process.communicate(timeout=PATIENCE)
        assert 1 == process.returncode, errors
        return str(errors)


@pytest.fixture
def host(tmp_path: Path, local_cluster: LocalCluster) -> Iterator[Host]:
    machine = Host(tmp_path, local_cluster.master.address, tmp_path / "checkpoints")
    yield machine
    machine.stop()
    for item in read_status(machine.master).frameworks:
        if item.name == NAME:
            call(machine.master, "TEARDOWN", teardown={"framework_id": {"value": item.framework_id}})


def test_lost_state_is_adopted_without_restarts(host: Host) -> None:
    """No second job starts; `--adopt` continues the first one to its success."""
    first = host.start()
    programs, framework = host.until_running(), host.framework()
    host.lose_state(first)

    message = host.refusal()
    assert f"framework {framework} of {NAME}" in message
    assert "with 2 tasks (worker-0, worker-1)" in message
    assert f"`--adopt {framework}`" in message
    assert f"`--reset {framework}`" in message
    assert "Mesos does not know this framework" in host.refusal(ADOPT_FRAMEWORK="no-such-framework")
    assert programs == host.programs()

    log = host.file.parent / "log"
    with log.open("w") as stream:
        host.start(stderr=stream, ADOPT_FRAMEWORK=framework)
    assert programs == host.until_running()
    assert framework == host.framework()
    (host.checkpoints / "end").touch()
    wait_until(lambda: "job ended: succeeded" in log.read_text())
    assert f"adopted framework {framework} with 2 tasks" in log.read_text()
    assert 2 == len((host.checkpoints / "starts").read_text().splitlines())


def test_two_schedulers_do_not_fight_for_a_framework(host: Host, tmp_path: Path) -> None:
    """The second is refused unless forced; then the first says why, and exits."""
    first = host.start()
    programs, framework = host.until_running(), host.framework()
    (tmp_path / "rival").mkdir()
    rival = Host(tmp_path / "rival", host.master, host.checkpoints)
    try:
        refused = rival.refusal(ADOPT_FRAMEWORK=framework)
        assert f"cannot adopt framework {framework}: another scheduler is connected to it" in refused

        rival.start(ADOPT_FRAMEWORK=framework, FORCE_REGISTRATION="true")
        wait_until(lambda: host.status("/v1/health") == 317)
        url = f"http://127.0.0.1:{host.port}"
        assert_shown(url, 317, "rival", f"another scheduler has subscribed as framework {framework} of {NAME} at ")
        assert 3 == first.wait(PATIENCE)
        wait_until(lambda: rival.status("/v1/health") == 200)
        assert programs == host.programs()
    finally:
        rival.stop()


def test_reset_replaces_framework_of_lost_state(host: Host) -> None:
    """The old programs end before the new ones start; an uninstall frees the name."""
    first = host.start()
    programs, framework = host.until_running(), host.framework()
    host.lose_state(first)

    second = host.start(RESET_FRAMEWORK=framework)
    wait_until(lambda: programs.keys().isdisjoint(host.programs()))
    assert programs.keys().isdisjoint(host.until_running())
    assert framework != host.framework()
    # The variable may stay set: it names only the old framework.
    programs, framework, before = host.programs(), host.framework(), framework
    host.end(second)
    third = host.start(RESET_FRAMEWORK=before)
    assert programs == host.until_running()
    host.end(third)

    fourth = host.start(RESET_FRAMEWORK=framework)
    wait_until(lambda: programs.keys().isdisjoint(host.programs()))
    assert programs.keys().isdisjoint(host.until_running())
    # The uninstall asks Mesos for the framework.
    host.lose_state(fourth)

    fifth = host.start(SDK_UNINSTALL="true")
    wait_until(lambda: host.status("/v1/plans/deploy") == 200)
    host.end(fifth)
    assert {} == host.programs()
    sixth = host.start()
    host.until_running()
    host.end(sixth)
