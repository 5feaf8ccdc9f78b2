"""Stages before and after the program, with real processes and a simulated agent."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest

from kit import payloads
from tf_executor.contract.payload import Payload
from tf_executor.contract.reports import TaskEnd
from tf_executor.launch.environment import stage_command, stages_of
from tf_executor.lifecycle.events import (
    Exited,
    KillTree,
    LaunchRequested,
    LifecycleState,
    Overdue,
    Prepared,
    SendReport,
    Spawn,
    Spawned,
    Stage,
    TaskPhase,
    TaskStopRequested,
    TreeGone,
)
from tf_executor.lifecycle.steps import step

CLUSTER = {"ps": ["h1:1", "h1:2"], "worker": {"1": "h3:1", "0": "h2:1"}}


def a_payload(command: str = "run", **fields: Any) -> Payload:
    return payloads.a_payload(command, "worker-1", tf_config={"cluster": CLUSTER}, **fields)


def ending(status: dict[str, Any]) -> TaskEnd:
    return TaskEnd.decode(base64.b64decode(status["data"]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [Stage.PROGRAM]),
        ({"pre_command": "a", "post_command": "b"}, [Stage.PRE, Stage.PROGRAM, Stage.POST]),
        ({"storage": {"url": "s3://x"}, "post_command": "b"}, [Stage.STORAGE, Stage.PROGRAM, Stage.SAVE, Stage.POST]),
        ({"gpus": 1, "gpu_check": False}, [Stage.DEVICES, Stage.PROGRAM]),
        ({"gpus": 1, "fetch": ["s3://x"]}, [Stage.DEVICES, Stage.FETCH, Stage.GPU_CHECK, Stage.PROGRAM]),
    ],
)
def test_only_configured_stages_run(fields: dict[str, Any], expected: list[Stage]) -> None:
    assert expected == list(stages_of(a_payload(**fields)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run --i={task_index} --n={task_name}", "run --i=1 --n=worker-1"),
        ("run {ps_hosts} {worker_hosts} {job_name}", "run h1:1,h1:2 h2:1,h3:1 worker"),
        ("run {log_dir} {port}", "run /sandbox/logs 31000"),
        ("run {port_1} {port_2} ${port_1}", "run 7 {port_2} ${port_1}"),
        ("""run ${task_index} '{"a": {b}}' {unknown} {}""", """run ${task_index} '{"a": {b}}' {unknown} {}"""),
    ],
)
def test_known_placeholders_are_replaced(line: str, expected: str) -> None:
    assert expected == stage_command(Stage.PROGRAM, a_payload(command=line, port=31000, more_ports=[7]), "/sandbox")


def test_cluster_flags_are_appended() -> None:
    flags = "--ps_hosts=h1:1,h1:2 --worker_hosts=h2:1,h3:1 --job_name=worker --task_index=1"
    assert f"run {flags}" == stage_command(Stage.PROGRAM, a_payload(cluster_flags=True), "/sandbox")


def test_module_runs_with_job_runner() -> None:
    assert "exec python -m tf_executor.job" == stage_command(Stage.PROGRAM, a_payload(command="", job_name="m"), "/s")


def test_pre_program_and_post_run_in_order(executor: Any) -> None:
    executor.launch(
        "echo program; exit 3",
        pre_command="echo pre {task_index}",
        post_command='echo "post $TASK_EXIT_CODE $TASK_NAME"',
    )
    starting = executor.states("TASK_STARTING", "TASK_STARTING")
    assert "the pre command runs" == starting["message"]
    post = executor.states("TASK_RUNNING", "TASK_RUNNING")
    assert "exit code 3; the post command runs" == post["message"]
    assert TaskEnd(3) == ending(post)
    status = executor.states("TASK_FAILED")
    assert ("exit code 3; stdout: pre 0 | program | post 3 worker-0", TaskEnd(3, error="post 3 worker-0")) == (
        status["message"],
        ending(status),
    )


def test_failed_pre_prevents_program(executor: Any) -> None:
    executor.launch("echo program", pre_command="echo no data >&2; exit 4", post_command="echo post")
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    assert "the pre command failed: exit code 4; stderr: no data" == status["message"]
    assert TaskEnd(failed_stage="pre") == ending(status)
    assert "" == executor.output()


def test_failed_post_fails_task(executor: Any) -> None:
    """For example a failed upload; the program's own end is still reported."""
    executor.launch("true", post_command="echo no bucket >&2; exit 5")
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FAILED")
    assert "the program succeeded, but the post command failed: exit code 5; stderr: no bucket" == status["message"]
    assert TaskEnd(0, failed_stage="post") == ending(status)


def test_background_process_of_pre_lives_until_end(executor: Any) -> None:
    """For example a mount helper."""
    os.mkfifo(executor.sandbox / "go")
    executor.launch("cat go > /dev/null", pre_command="sleep 3600 & echo $! > helper; echo ready > ready &")
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    helper = int((executor.sandbox / "helper").read_text())
    assert helper in executor.processes()
    (executor.sandbox / "go").write_text("go\n")
    executor.states("TASK_FINISHED")
    assert [] == executor.processes()


@pytest.mark.parametrize("hook", ["pre", "post"])
def test_kill_reaches_background_processes(executor: Any, hook: str) -> None:
    executor.launch("true", **{f"{hook}_command": "echo ready > ready; exec sleep 3600"})
    before = ["TASK_STARTING", "TASK_STARTING"] if hook == "pre" else ["TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING"]
    executor.states(*before)
    executor.await_file("ready")
    executor.kill(grace=60)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    how = "; the program had not started" if hook == "pre" else ""
    assert f"stopped on request{how}" == status["message"]


def test_slow_hook_fails_task(executor: Any) -> None:
    executor.launch("true", pre_command="sleep 3600", hook_timeout=0.1)
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    assert "the pre command took longer than 0.1 s" == status["message"]
    assert [] == executor.processes()


def test_max_completion_time_fails_task(executor: Any) -> None:
    limit = {"max_completion_time": {"nanoseconds": int(0.2e9)}}
    executor.launch("trap 'echo saved; exit 143' TERM; sleep 3600 & wait", info=limit, kill_grace=60.0)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_FAILED")
    assert "REASON_MAX_COMPLETION_TIME_REACHED" == status["reason"]
    assert status["message"].startswith("the task exceeded its max_completion_time of 0.2 s; exit code 143")
    assert "saved\n" == executor.output()


def test_kill_policy_overrides_payload(executor: Any) -> None:
    policy = {"kill_policy": {"grace_period": {"nanoseconds": int(0.1e9)}}}
    executor.launch_ready("trap '' TERM; echo ready > ready; sleep 3600 & wait; wait", info=policy, kill_grace=3600.0)
    executor.kill()
    assert "(kill_grace)" in executor.states("TASK_KILLING", "TASK_KILLED")["message"]


def test_user_package_is_importable_in_hooks(executor: Any) -> None:
    line = "python -c 'import tf_executor; print(tf_executor.devices.get_num_gpus())'"
    executor.launch(line, pre_command=line)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "0\n0\n" == executor.output()


# Without processes.


def test_stage_without_process_runs() -> None:
    state, _ = play(LaunchRequested((Stage.DEVICES, Stage.PROGRAM)), Spawned())
    ready, actions = step(state, Prepared(), 0.0)
    assert (TaskPhase.STARTING, (Spawn(Stage.PROGRAM),)) == (ready.phase, actions)
    unfit, actions = step(state, Prepared("no GPU"), 0.0)
    assert (TaskPhase.SWEEPING, (KillTree(),)) == (unfit.phase, actions)
    _, (report,) = step(unfit, TreeGone(), 0.0)
    assert SendReport("TASK_FAILED", "no GPU", TaskEnd(failed_stage="choice of GPUs")) == report


def test_check_of_checkpoint_folder_has_no_hook_timeout() -> None:
    """A file system that hangs delays the program, and does not fail it."""
    state, _ = play(LaunchRequested((Stage.FENCE, Stage.PROGRAM), hook_timeout=1.0), Spawned())
    assert state.deadline is None


def test_time_limit_includes_hooks() -> None:
    state, _ = play(
        LaunchRequested((Stage.PRE, Stage.PROGRAM), time_limit=10.0, hook_timeout=60.0, grace=5.0), Spawned()
    )
    assert 10.0 == state.deadline
    state, _ = step(state, Overdue(), 10.0)
    assert (TaskPhase.STOPPING, 15.0) == (state.phase, state.deadline)


def test_stop_between_stages_wins() -> None:
    """The queued exit of pre starts nothing."""
    state, _ = play(LaunchRequested((Stage.PRE, Stage.PROGRAM)), Spawned(), TaskStopRequested("killed", 1.0))
    state, actions = step(state, Exited(TaskEnd(0)), 0.0)
    assert (TaskPhase.STOPPING, ()) == (state.phase, actions)


def play(*events: Any) -> tuple[LifecycleState, list[Any]]:
    state = LifecycleState()
    actions: list[Any] = []
    for event in events:
        state, more = step(state, event, 0.0)
        actions += more
    return state, actions


def test_context_is_passed_as_text(executor: Any) -> None:
    context = json.dumps({"rate": 0.1, "text": "a 'b' \"c\" $d"})
    executor.launch('printf %s "$JOB_CONTEXT" > context', job_name="job", job_context=context)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert context == (executor.sandbox / "context").read_text()
