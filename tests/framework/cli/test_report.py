"""Task output in the report of a local run."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import a_spec
from tf_scheduler.api.views.overview import Overview, TaskRow
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.local_run.follow import FollowResult, OutputFollower, OutputRedactor
from tf_scheduler.cli.local_run.report import build_report, summary_lines
from tf_scheduler.history.record import encode_line
from tf_scheduler.logging_setup import SecretRedactor
from tf_scheduler.model.secrets import SecretSpec

NO_SECRETS = SecretRedactor([])
_NAMES = ("name", "id", "executor_id", "agent_id", "hostname", "address", "generation", "state", "message", "live")
_VALUES = ("worker-0", "t", "e", "S", "agent", "a:1", 1, "failed", "exit code 4; stderr: it is ***", False)
WORKER = TaskRow(**dict(zip(_NAMES, _VALUES, strict=True)), progress="")
CHIEF = replace(WORKER, name="chief-0", state="finished", message="")
SEEN = Overview(
    *("digits", "/checkpoints", "f", "deploy", "ERROR", (), (WORKER, CHIEF), (), 0, {}, False, "chief-0"),
    *("failed", "worker-0 failed", False, "", True),
    reporter="chief-0",
)


@pytest.mark.parametrize(
    ("source", "jobs", "words"),
    [
        ("file:key", (), (["exit code 4; stderr: it is ***"], [])),
        ("vault:kv/a#key", (), (["exit code 4; stderr: it is ***"], [])),
        ("dcos:key", ("worker",), (["exit code 4; stderr: it is ***"], ["it is of-chief"])),
        ("reference:key", ("ps",), (["it is of-the-job"], ["it is of-chief"])),
        ("env:KEY", (), (["it is ********"], ["it is of-chief"])),
    ],
)
def test_report_has_no_secrets_of_any_source(tmp_path: Path, source: str, jobs, words) -> None:
    """Only the executor, which redacts secrets, quotes output of tasks with secrets."""
    (tmp_path / "stderr").write_text("it is of-the-job\n")
    (tmp_path / "stdout").write_text("it is of-chief\n")
    folder = RunFolder(tmp_path / "run")
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False)
    masks = SecretRedactor(["of-the-job"] if source == "env:KEY" else [])
    spec = a_spec(secrets=(SecretSpec(source, env="KEY", jobs=frozenset(jobs)),))

    report = build_report(FollowResult(SEEN), spec, cluster, folder, 1.0, OutputRedactor(spec, masks))

    assert words == tuple(task["last_lines"] for task in report["tasks"])
    shown = "\n".join(summary_lines(report))
    assert all(f"-0 | {line}" in shown for lines in words for line in lines)


@pytest.mark.parametrize(
    ("peak", "enforced", "expected"),
    [
        (1003.5, False, ["  memory    worker-0 0.98 of 1 GB at most (not enforced on this machine)"]),
        (1003.5, True, ["  memory    worker-0 0.98 of 1 GB at most"]),
        (1100.0, True, ["  memory    worker-0 1.07 of 1 GB at most"]),
        (
            1100.0,
            False,
            [
                "  memory    worker-0 1.07 of 1 GB at most (not enforced on this machine)",
                "  hint      worker-0: a cluster kills tasks above mem, as does local run --enforce-memory",
            ],
        ),
    ],
)
def test_report_has_peak_memory(tmp_path: Path, peak: float, enforced: bool, expected: list[str]) -> None:
    """A job that trains here may be out of memory on a cluster."""
    tasks = (replace(WORKER, memory_peak_mb=peak, memory_mb=1024.0), replace(CHIEF, memory_mb=1024.0))
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False)
    result, folder = FollowResult(replace(SEEN, tasks=tasks)), RunFolder(tmp_path / "run")
    spec = a_spec(executor=replace(a_spec().executor, enforces_memory=enforced))
    report = build_report(result, spec, cluster, folder, 1.0, OutputRedactor(spec, SecretRedactor([])))

    assert [peak, None] == [task["memory_peak_mb"] for task in report["tasks"]]
    assert expected == [line for line in summary_lines(report) if line.startswith(("  memory", "  hint"))]


TRACEBACK = """Traceback (most recent call last):
  File "/box/train.py", line 9, in <module>
    step()
  File "/box/train.py", line 31, in step
    raise ValueError("nan")
ValueError: nan
"""
LAUNCH = '{"t": %d, "launched": "t%d", "task": "worker-0", "generation": 1, "agent": "a", "address": "a:1"}\n'
ENDED = '{"t": %d, "status": "t%d", "state": "failed", "ended": true, "exit_code": 1}\n'


@pytest.mark.parametrize(
    ("message", "why", "stderr", "expected"),
    [
        (
            "ValueError: nan (train.py:31), exit code 1; hint: try less",
            "; the same error twice",
            TRACEBACK,
            [
                "digits failed in 1 min 1 s: worker-0: ValueError: nan (train.py:31), exit code 1",
                "  hint      try less",
                "  failed    2 times, at step 30; the same error twice",
                '  where     train.py:31 in step: raise ValueError("nan")',
                "  last      step 30",
                "  written   nothing in CHECKPOINT_DIR, /checkpoints",
            ],
        ),
        (
            "the agent cannot fetch the task's files: exit 1; hint: its stderr names the file",
            "; failure 2",
            "Failed to fetch 'http://h/x.npz': HTTP return code 404\n",
            [
                "digits failed in 1 min 1 s: worker-0 on agent failed: the agent cannot fetch the task's files: exit 1",
                "  hint      its stderr names the file",
                "  failed    2 times, at step 30; failure 2",
                "  last      step 30",
                "  worker-0: failed on agent",
                "    worker-0 | Failed to fetch 'http://h/x.npz': HTTP return code 404",
            ],
        ),
        (
            "exit code 3; stderr: a",
            "",
            "a\n",
            [
                "digits failed in 1 min 1 s: worker-0 on agent failed: exit code 3; stderr: a",
                "  failed    2 times, at step 30",
                "  last      step 30",
                "  worker-0: failed on agent",
                "    worker-0 | a",
            ],
        ),
    ],
)
def test_failure_is_reported_once(tmp_path: Path, message: str, why: str, stderr: str, expected: list[str]) -> None:
    """The cause, what to do, how often, and the line of the program."""
    (tmp_path / "stderr").write_text(stderr)
    folder = RunFolder(tmp_path)
    progress = '{"t": 2, "progress": "worker-0", "step": 30}\n'
    folder.scheduler.mkdir()
    peer = '{"t": 3, "replaced": "t0", "why": "restarts with worker-1"}\n'  # its own end does not count
    lines = [LAUNCH % (0, 0), ENDED % (1, 0), peer, LAUNCH % (1, 1), progress, ENDED % (3, 1)]
    folder.recording.write_text("".join([*lines, LAUNCH % (4, 2), ENDED % (5, 2)]))
    is_own = message.startswith("ValueError")
    start = f"worker-0: {message}" if is_own else f"worker-0 on agent failed: {message}"
    tasks = (replace(WORKER, message=message), replace(WORKER, name="worker-1", message=message))
    seen = replace(SEEN, tasks=tasks if is_own else tasks[:1], reason=start + why)
    cluster, spec = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False), a_spec()

    report = build_report(FollowResult(seen), spec, cluster, folder, 61.0, OutputRedactor(spec, SecretRedactor([])))

    assert expected == list(summary_lines(report))[: len(expected)]


def test_report_has_reasons_of_pending_tasks(tmp_path: Path) -> None:
    """They explain a timeout."""
    reason = "agent agent-1: needs cpus 1.6, has 1"
    result = FollowResult(SEEN, stop_reason="the run took longer than 25 s", pending={"worker-1": (reason,)})
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False)

    report = build_report(
        result, a_spec(), cluster, RunFolder(tmp_path / "run"), 25.0, OutputRedactor(a_spec(), NO_SECRETS)
    )
    lines = list(summary_lines(report))

    assert {"worker-1": [reason]} == report["pending"]
    assert f"    {reason}" == lines[lines.index("  worker-1 was pending:") + 1]


def test_last_lines_have_paths_below_the_sandbox(tmp_path: Path) -> None:
    """A sandbox has a path of 250 characters."""
    (tmp_path / "stderr").write_text(f'  File "{tmp_path}/lib/bad.py", line 3\n')
    seen = replace(SEEN, tasks=(replace(WORKER, message="exit code 1"),))
    cluster, spec = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False), a_spec()

    report = build_report(
        FollowResult(seen), spec, cluster, RunFolder(tmp_path), 61.0, OutputRedactor(spec, SecretRedactor([]))
    )

    assert ['  File "lib/bad.py", line 3'] == report["tasks"][0]["last_lines"]


def test_summary_has_medians_restarts_and_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that restart with a failed task are not counted as failures."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = RunFolder(tmp_path / "runs" / "digits-1")
    folder.scheduler.mkdir(parents=True)
    values = '"step": %d, "loss": 0.5, "steps_per_second": %d, "metrics": {"accuracy": 0.75}}\n'
    point = '{"t": %d, "progress": "worker-0", ' + values
    peer = LAUNCH.replace("worker-0", "ps-0") + '{"t": 5, "replaced": "t%d", "why": "restarts with worker-0"}\n'
    lines = [LAUNCH % (1, 1), *(point % (2 + number, 10 * number, number) for number in range(1, 4)), ENDED % (6, 1)]
    lines += ['{"t": 6, "replaced": "t1", "why": "worker-0: ValueError: nan"}\n', peer % (1, 9, 9), LAUNCH % (7, 2)]
    folder.recording.write_text("".join([*lines, point % (8, 70, 9)]))
    worker = replace(WORKER, state="finished", message="exit code 0", total=70, step=70)
    helper = replace(WORKER, name="ps-0", state="killed", message="")
    seen = replace(SEEN, tasks=(worker, helper), verdict="succeeded", reason="worker-0 has finished", leader="worker-0")
    seen = replace(seen, reporter="worker-0")
    cluster, spec = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False), a_spec()

    report = build_report(FollowResult(seen), spec, cluster, folder, 61.0, OutputRedactor(spec, SecretRedactor([])))

    assert [
        "digits succeeded in 1 min 1 s: worker-0 has finished",
        "  last      step 70 of 70, 100 %, loss 0.5, accuracy 0.75; 2.5 steps/s (median)",
        "  restart   1: worker-0: ValueError: nan, at step 30",
        "  stopped   ps-0 (no longer needed)",
        "  written   nothing in CHECKPOINT_DIR, /checkpoints",
        "  hint      restarts lost all steps: save checkpoints, docs/how-to/recipes.md#save-and-resume-checkpoints",
        "  logs      ~/runs/digits-1/logs",
        "next: dcos-tensorflow history show digits-1 --report page.html",
        "      dcos-tensorflow logs --run digits-1 worker-0",
    ] == list(summary_lines(report))


@pytest.mark.parametrize(
    ("task", "first_step", "continuation", "hint"),
    [
        (
            "worker-0",
            12,
            "; the program did not restore its checkpoint of step 179, and began again at step 12",
            "restore",
        ),
        ("worker-0", 180, "; continued at step 180", ""),
        ("worker-1", 206, "; continued at step 206", ""),
        ("worker-1", None, "", ""),
    ],
    ids=["begins again", "restores", "global step continues", "leader continues"],
)
def test_summary_says_where_a_restart_continued(
    tmp_path: Path, task: str, first_step: int | None, continuation: str, hint: str
) -> None:
    """A worker may restart alone: the leader, or the global step, continues."""
    folder = RunFolder(tmp_path / "run")
    folder.scheduler.mkdir(parents=True)
    (tmp_path / "written").mkdir()
    (tmp_path / "written" / "ckpt-179").touch()
    saved = ', "saved_step": 179' if first_step in (12, 180) else ""
    point = '{"t": %d, "progress": "%s", "step": %d, "first_step": %d%s}\n'
    own = task if first_step else "worker-0"
    lines = [launch % (1, 0) for launch in (LAUNCH, LAUNCH.replace("worker-0", "worker-1").replace('"t%d', '"u%d'))]
    lines += [point % (2, own, 205, 1, saved), '{"t": 3, "status": "%s0", "state": "failed", "ended": true}\n']
    lines += ['{"t": 3, "replaced": "%s0", "why": "exit code 1"}\n', LAUNCH.replace("worker-0", task) % (4, 1)]
    lines += [point % (5, own, 300, first_step or 1, "")]
    launch = {"worker-0": "t", "worker-1": "u"}[task]
    folder.recording.write_text("".join(line.replace("%s0", f"{launch}0") for line in lines))
    seen = replace(SEEN, verdict="succeeded", leader="worker-0", checkpoint_dir=str(tmp_path / "written"))
    cluster, spec = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False), a_spec()

    report = build_report(FollowResult(seen), spec, cluster, folder, 61.0, OutputRedactor(spec, NO_SECRETS))

    lines = list(summary_lines(report))
    assert [f"  restart   1: {task}: exit code 1, at step 205{continuation}"] == lines[2:3], lines
    page = "docs/how-to/recipes.md#save-and-resume-checkpoints"
    expected = [f"  hint      restarts lost all steps: {hint} checkpoints, {page}"] if hint else []
    assert expected == [line for line in lines if line.startswith("  hint")]


def test_report_names_url_of_checkpoints(tmp_path: Path) -> None:
    """What is in the bucket is unknown here: a refused key has stored nothing."""
    notices = ("worker-0: checkpoints are not stored: a",)
    seen = replace(SEEN, verdict="succeeded", checkpoint_dir="s3://bucket/run", notices=notices)
    cluster, spec = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {}, has_containers=False), a_spec()
    folder, redactor = RunFolder(tmp_path / "run"), OutputRedactor(a_spec(), SecretRedactor([]))
    report = build_report(FollowResult(seen), spec, cluster, folder, 61.0, redactor)
    lines = [line for line in summary_lines(report) if line.startswith(("  written", "  warning", "  storage"))]
    assert [f"  warning   {notices[0]}", "  storage   CHECKPOINT_DIR is s3://bucket/run"] == lines


def test_report_keeps_logs_of_earlier_launches(tmp_path: Path) -> None:
    """Of many launches, the first and the latest ones."""
    launches = {f"worker-0__{number}": tmp_path / str(number) for number in range(1, 14)}
    for id_, sandbox in {**launches, "chief-0__1": tmp_path / "chief"}.items():
        sandbox.mkdir()
        (sandbox / "stdout").write_text(id_)
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path / "13", sandboxes=lambda _: launches, has_containers=False)
    seen = replace(SEEN, tasks=(replace(WORKER, executor_id="worker-0__13"),))
    spec = a_spec()

    report = build_report(
        FollowResult(seen), spec, cluster, RunFolder(tmp_path / "run"), 1.0, OutputRedactor(spec, SecretRedactor([]))
    )

    logs = tmp_path / "run" / "logs"
    assert [str(logs / f"worker-0.{number}") for number in (1, *range(4, 13))] == report["tasks"][0]["earlier_logs"]
    assert "worker-0__1" == (logs / "worker-0.1" / "stdout").read_text()
    assert "worker-0__13" == (logs / "worker-0" / "stdout").read_text()
    assert f"  logs      {logs} (first launch: worker-0.1)" in summary_lines(report)


class Sandboxes:
    """A local cluster with the folders `PATH/TASK_ID` of executors."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sandbox(self, _agent: str, _framework: str, executor: str) -> Path:
        return self._path / executor

    def write(self, executor: str, text: str, name: str = "stdout") -> None:
        (self._path / executor).mkdir(exist_ok=True)
        with (self._path / executor / name).open("a") as file:
            file.write(text)


def launched(*names: str) -> Overview:
    """An overview of launches such as `worker-0.1`; the chief leads."""
    return replace(SEEN, tasks=tuple(replace(WORKER, name=n.split(".")[0], id=n, executor_id=n) for n in names))


def followed(folder: Path, selected: str, *secrets: str) -> tuple[Sandboxes, OutputFollower]:
    sandboxes = Sandboxes(folder)
    redactor = OutputRedactor(a_spec(), SecretRedactor(secrets))
    return sandboxes, OutputFollower(selected, sandboxes, redactor)


def test_followed_output_is_whole_lines_with_prefix(tmp_path: Path) -> None:
    """Both streams; without commands for the terminal, secrets, and overwritten bars."""
    sandboxes, follower = followed(tmp_path, "all", "s3cr3t-key")
    shown: list[str] = []
    seen = launched("worker-0", "chief-0")
    sandboxes.write("worker-0", "one\ntw")
    sandboxes.write("chief-0", "\x1b]52;c;aGk=\x07 1/9\r 9/9\n")
    follower.read(seen, shown.append)
    assert ["worker-0 | one", "chief-0 |  9/9"] == shown
    sandboxes.write("worker-0", "o s3cr3t-key\nthree")
    sandboxes.write("worker-0", "oops\n", "stderr")
    follower.read(seen, shown.append)
    follower.read(seen, shown.append)
    assert ["worker-0 | two ********", "worker-0 | oops"] == shown[2:]
    follower.finish(shown.append)
    assert ["worker-0 | three"] == shown[4:]


@pytest.mark.parametrize(
    ("selected", "names"),
    [("", []), ("leader", ["chief-0"]), ("worker-0", ["worker-0"]), ("all", ["worker-0", "chief-0"])],
)
def test_selected_tasks_are_followed(tmp_path: Path, selected: str, names: list[str]) -> None:
    sandboxes, follower = followed(tmp_path, selected)
    shown: list[str] = []
    for name in ("worker-0", "chief-0"):
        sandboxes.write(name, "x\n")
    follower.read(launched("worker-0", "chief-0"), shown.append)
    assert [f"{name} | x" for name in names] == shown


def test_last_lines_of_a_replaced_launch_are_followed(tmp_path: Path) -> None:
    """They say why it ended. The executor may also truncate the file."""
    sandboxes, follower = followed(tmp_path, "worker-0")
    shown: list[str] = []
    sandboxes.write("worker-0.1", "a long first line\n")
    follower.read(launched("worker-0.1"), shown.append)
    sandboxes.write("worker-0.1", "Traceback\nValueError")
    sandboxes.write("worker-0.2", "begin\n")
    follower.read(launched("worker-0.2"), shown.append)
    assert ["Traceback", "ValueError", "begin"] == [line.partition(" | ")[2] for line in shown[1:]]
    (tmp_path / "worker-0.2" / "stdout").write_text("new\n")
    follower.read(launched("worker-0.2"), shown.append)
    assert "worker-0 | new" == shown[-1]


def test_output_of_tasks_with_unknown_secrets_is_not_followed(tmp_path: Path) -> None:
    sandboxes = Sandboxes(tmp_path)
    spec = replace(a_spec(), secrets=(SecretSpec("file:key", env="KEY"),))
    follower = OutputFollower("all", sandboxes, OutputRedactor(spec, SecretRedactor(())))
    shown: list[str] = []
    sandboxes.write("worker-0", "x\n")
    follower.read(launched("worker-0"), shown.append)
    assert [] == shown


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("nothing", True),
        ("library", True),
        ("file", False),
        ("server", False),
        ("step", False),
        ("long", False),
        ("failed", False),
    ],
)
def test_quick_success_without_a_trace_is_doubted(tmp_path: Path, case: str, expected: bool) -> None:
    folder, sandbox = RunFolder(tmp_path / "run"), tmp_path / "sandbox"
    folder.scheduler.mkdir(parents=True)
    sandbox.mkdir()
    for name in ("train.py", "stdout", "model.h5")[: 3 if case == "file" else 2]:
        (sandbox / name).write_text("x")
        os.utime(sandbox / name, (100.0, 100.0 if name == "train.py" else 105.0))
    if case == "library":  # TensorFlow writes it when it is imported
        (sandbox / ".keras").mkdir()
        (sandbox / ".keras" / "keras.json").touch()
    if case == "file":  # written before the status RUNNING arrived
        (sandbox / ".user" / "tf_executor").mkdir(parents=True)
        (sandbox / ".user" / "tf_executor" / "__init__.py").touch()
        os.utime(sandbox / ".user" / "tf_executor" / "__init__.py", (100.0, 101.0))
        os.utime(sandbox / "model.h5", (100.0, 101.5))
    launched = {"launched": CHIEF.id, "task": "chief-0", "generation": 1, "agent": "a", "address": "a:1", "t": 100.0}
    running = {"status": CHIEF.id, "state": "running", "t": 102.0, "healthy": True if case == "server" else None}
    ended = {"status": CHIEF.id, "state": "finished", "ended": True, "t": 110.0 if case == "long" else 106.0}
    folder.recording.write_text("".join(map(encode_line, (launched, running, ended))))
    chief = replace(CHIEF, progress="step 5" if case == "step" else "")
    seen = replace(SEEN, tasks=(chief,), verdict="failed" if case == "failed" else "succeeded", checkpoint_dir="/none")
    cluster = SimpleNamespace(sandbox=lambda *_: sandbox, sandboxes=lambda _: {}, has_containers=False)

    report = build_report(FollowResult(seen), a_spec(), cluster, folder, 7.0, OutputRedactor(a_spec(), NO_SECRETS))

    assert expected == report["untrained"]
    first = next(summary_lines(report))
    assert ("7 s, but apparently nothing was trained (no step, no server and no file in 5 s): " in first) == expected
