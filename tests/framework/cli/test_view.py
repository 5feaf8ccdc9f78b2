"""What `local run` shows, from overviews of states."""

from __future__ import annotations

import io
import signal
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from builders import a_spec, with_fields
from dcos_command.service import LINE_SECONDS
from dcos_command.tasks import ProgressLines
from kit.api import a_record
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Activity, TaskState
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import Overview, overview
from tf_scheduler.cli.common.output import fold_lines
from tf_scheduler.cli.local_run.follow import StopMonitor, collect_signals, follow
from tf_scheduler.cli.local_run.view import RunHistory, run_view
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.logging_setup import handle_signals
from tf_scheduler.model.effects import StatusStored, TaskLaunched
from tf_scheduler.model.reasons import AgentRejected, TooSmall
from tf_scheduler.model.resources import Shortage
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskStatus

PAGE = "http://127.0.0.1:26763/"
NOW = 1_000_000.0
#: As `local run` knows it; the token is only in the link.
FULL_PAGE = f"{PAGE}#token={'x' * 43}"


def training(**values) -> Overview:
    """The overview of a running job whose chief reports these values."""
    spec = a_spec()
    records = [a_record(spec, task.name) for task in spec.tasks()]
    chief = next(record for record in records if record.name == "chief-0")
    statuses = [TaskStatus(record.id, TaskState.RUNNING, healthy=True) for record in records]
    state = apply(SchedulerState(spec), *map(TaskLaunched, records), *map(StatusStored, statuses))
    progress = {chief.id: Progress(1, 0.0, **values)} if values else {}
    return overview(Snapshot(with_fields(state, progress=progress, connected=True)))


def drawn(shown: Overview, width: int, height: int = 40, log=(), history: RunHistory | None = None) -> list[str]:
    paper = io.StringIO()
    view = run_view(shown, log, (51.0, NOW), (width, height), FULL_PAGE, history or RunHistory())
    Console(width=width, file=paper).print(view)
    return [line.rstrip() for line in paper.getvalue().splitlines()]


STEPS = {
    "step": 406,
    "total": 700,
    "loss": 0.0324,
    "steps_per_second": 16.2,
    "examples_per_second": 1037.0,
    "seconds_left": 18.1,
}


def test_wide_view_has_a_bar_and_the_page() -> None:
    lines = drawn(training(**STEPS), 100)

    assert lines[0].split()[1:] == ["TRAINING", "51", "s", PAGE]
    assert lines[1].startswith("━━━━")
    assert lines[1].endswith("  58 %  step 406 of 700  16.2 steps/s  18 s left")
    assert lines[2] == "loss 0.0324  1,037 examples/s"
    assert ["chief-0", "TRAINING", "step", "406", "16.2", "steps/s"] in [line.split()[:6] for line in lines[3:]]
    assert ["ps-0", "RUNNING"] in [line.split()[:2] for line in lines[3:]]


@pytest.mark.parametrize("width", [39, 40, 60, 79, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(training(**STEPS), width, log=["x" * 500])

    assert max(map(len, lines)) <= width
    assert any("TRAINING" in line for line in lines[:1])
    assert any("406" in line for line in lines)
    assert any(PAGE in line for line in lines) == (width >= 40)


def test_metrics_are_beside_the_loss() -> None:
    shown = drawn(training(**STEPS, metrics={"accuracy": 0.99671, "val_loss": float("nan"), "lr": 0.001}), 100)

    assert shown[2] == "loss 0.0324  accuracy 0.9967  val_loss nan  lr 0.001  1,037 examples/s"


def test_memory_is_beside_the_agent() -> None:
    """At 60 columns there is room for the amounts only."""
    used = {"chief-0": (1000.0, 1024.0), "ps-0": (930.0, 1024.0), "worker-0": (310.2, 512.0)}
    ended = {"memory_used_mb": 40_000.0, "memory_mb": 65_536.0, "live": False}
    shown = training(**STEPS)
    amounts = [
        dict(zip(("memory_used_mb", "memory_mb"), used.get(task.name, ()), strict=False)) for task in shown.tasks
    ]
    tasks = [replace(task, **(values or ended)) for task, values in zip(shown.tasks, amounts, strict=True)]
    shown = replace(shown, tasks=tuple(tasks))

    wide, narrow = ("\n".join(drawn(shown, width)) for width in (100, 60))
    assert "agent-1  0.98 of 1 GB    near its limit" in wide
    assert "agent-1  930 MB of 1 GB\n" in wide
    assert "310 of 512 MB" in wide
    assert "64.0 GB" not in wide
    assert "TRAINING  step 406  16.2 steps/s  0.98 of 1 GB" in narrow
    assert "near" not in narrow


def test_tiny_view_has_step_and_loss_only() -> None:
    assert drawn(training(**STEPS), 39)[1:] == ["step 406  loss 0.0324"]


def test_view_fits_the_height() -> None:
    assert len(drawn(training(**STEPS), 100, 7, ["a", "b", "c"])) <= 7
    assert "  ... and 2 workers RUNNING, 1 chief TRAINING, step 406" in drawn(
        training(**STEPS), 100, 7, ["a", "b", "c"]
    )


def test_connected_task_names_the_missing_one() -> None:
    """Its server answers, and waits for the other one."""
    spec = a_spec()
    records = [a_record(spec, task.name) for task in spec.tasks()]
    statuses = [
        TaskStatus(record.id, TaskState.RUNNING, healthy=None if record.name == "worker-1" else True)
        for record in records
    ]
    state = apply(SchedulerState(spec), *map(TaskLaunched, records), *map(StatusStored, statuses))
    shown, history = overview(Snapshot(with_fields(state, connected=True))), RunHistory()
    history.add(shown, 50.0)

    rows = {line.split()[0]: line for line in drawn(shown, 100, history=history) if line.strip()}

    assert ["CONNECTING", "IMPORTING"] == [rows[name].split()[1] for name in ("worker-0", "worker-1")]
    assert [True, False] == ["waits for worker-1" in rows[name] for name in ("worker-0", "worker-1")]


def test_losses_are_remembered_and_restarts_counted() -> None:
    history, shown = RunHistory(), training(**STEPS)
    for number in range(20):
        history.add(training(**{**STEPS, "step": number, "loss": 1.0 / (number + 1)}), 0.0)
        history.add(training(**{**STEPS, "step": number, "loss": 9.0}), 0.0)  # the same step

    sparks = history.sparkline()
    assert (10, "█", "▁") == (len(sparks), sparks[0], sparks[-1])
    assert "1 restart" in drawn(replace(shown, restarts=1), 100, history=history)[2]


def test_equal_losses_are_a_flat_line() -> None:
    history = RunHistory()
    for number in range(3):
        history.add(training(**{**STEPS, "step": number}), 0.0)
    assert history.sparkline() == "▁▁▁"


def test_pipe_gets_a_line_per_change_and_every_ten_seconds() -> None:
    printed: list[str] = []
    view = ProgressLines(printed.append)
    for seconds in (0.0, 1.0, 2.0):
        view.show(asdict(training()), seconds)
    for seconds in (3.0, 4.0, 3.0 + LINE_SECONDS):
        view.show(asdict(training(**STEPS)), seconds)
    stopped = replace(training(), activity=Activity.STOPPED.value, reason="Ctrl-C", notices=("a secret",))
    view.show(asdict(stopped), 20.0)
    view.show(asdict(stopped), 21.0)

    text = "step 406 of 700, 58 %, loss 0.0324, 16.2 steps/s, 1,037 examples/s, 18 s left"
    assert printed == [
        "running",
        "training: first step after 3 s",
        f"training: {text}",
        "a secret",
        "stopped: Ctrl-C",
    ]


@pytest.mark.parametrize(
    "command", ["`--set worker.mem=4096 --set worker.count=1`", "dcos-tensorflow history show m-1 --report page.html"]
)
@pytest.mark.parametrize("width", [24, 40, 60])
def test_commands_are_not_folded(command: str, width: int) -> None:
    """A terminal wraps long lines by itself, without a line break in a copy."""
    lines = fold_lines(f"the job never fits this cluster; next: {command}; or wait", width, "  ")

    assert any(line.strip().startswith(command) for line in lines)
    assert [line for line in lines if len(line) > width and command not in line] == []


def test_pipe_has_restarts_between_two_overviews() -> None:
    """The count of restarts shows those that no overview has shown."""
    printed: list[str] = []
    view, shown = ProgressLines(printed.append), asdict(training(**STEPS))
    view.show(shown, 0.0)
    shown |= {"restarts": 1, "last_restart": "worker-1: exit code 1"}
    view.show(shown, 1.0)
    view.show({**shown, "activity": Activity.RESTARTING.value, "detail": "2 of 3: worker-1: exit code 1"}, 2.0)
    for seconds in (3.0, 4.0):
        view.show({**shown, "restarts": 2}, seconds)

    assert printed == [
        "training: first step after 0 s",
        "restarting: worker-1: exit code 1",
        "restarting: 2 of 3: worker-1: exit code 1",
        "training again: step 406",
    ]


@pytest.mark.parametrize(
    ("signals", "live", "expected"),
    [
        (["SIGINT"], 2, "stopping: worker-0 and worker-1 have 10 s to save (Ctrl-C again: leave at once)"),
        (["SIGINT"], 1, "stopping: worker-0 has 10 s to save (Ctrl-C again: leave at once)"),
        (["SIGTERM"], 2, "stopping: SIGTERM received; worker-0 and worker-1 have 10 s to save"),
        (["SIGINT"], 0, "stopping: SIGINT received"),
        ([], 4, "stopping: the run took longer than 5 s; worker-0, worker-1 and 2 others have 10 s to save"),
    ],
)
def test_stop_names_tasks_that_may_save_and_time(signals, live: int, expected: str) -> None:
    """Immediately, although its scheduler restarts first."""
    scheduler = SimpleNamespace(uninstall=lambda: None, trouble="")
    shown = training(**STEPS)
    rows = [replace(shown.tasks[0], name=f"worker-{number}", live=number < live) for number in range(5)]
    monitor, shown = StopMonitor(scheduler, 10.0, 5.0, signals), replace(shown, tasks=tuple(rows))
    monitor.check(shown, 6.0 if not signals else 1.0)
    lines = drawn(monitor.shown(shown), 120)
    assert ["STOPPING", expected] == [lines[0].split()[1], f"stopping: {lines[1].strip()}"]
    assert not any("left" in line for line in lines)


#: A job with a task that fits no agent, and the reason.
_TOO_SMALL = AgentRejected("agent-1", (TooSmall((Shortage("cpus", 1600, 1000),)),))
WAITING = overview(Snapshot(with_fields(SchedulerState(a_spec()), reasons={"worker-1": (_TOO_SMALL,)})))
REASONS = {"worker-1": ("agent agent-1: needs cpus 1.6, has 1",)}


def test_reasons_of_pending_tasks_are_kept_until_all_are_placed() -> None:
    """The report of a stopped run has them, also if the scheduler has none at its end."""
    state = SchedulerState(a_spec())
    monitor, kept = StopMonitor(SimpleNamespace(trouble=""), 10.0, None, []), []

    for shown in (WAITING, overview(Snapshot(state)), training(**STEPS)):
        monitor.check(shown, 1.0)
        kept.append(monitor.pending)

    assert [REASONS, REASONS, {}] == kept


def test_result_of_stopped_run_has_reasons_of_pending_tasks() -> None:
    answers = iter((WAITING, replace(training(), over=True)))
    scheduler = SimpleNamespace(refresh=lambda: next(answers), uninstall=lambda: None, trouble="")
    monitor = StopMonitor(scheduler, 10.0, None, ["SIGTERM"])

    result = follow(scheduler, monitor, SimpleNamespace(nodes=()), own=True, draw=lambda *_: None)

    assert ("SIGTERM received", REASONS) == (result.stop_reason, result.pending)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_is_collected_during_a_run(number: signal.Signals) -> None:
    """The job stops gracefully, also if its terminal is closed."""
    with handle_signals(lambda _: None, number), collect_signals() as received:
        signal.raise_signal(number)

    assert [number.name] == received
