"""What runs before and after the program, with real processes; only the wire is played by the test."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest

from tf_executor.commands import command, stages
from tf_executor.events import Exited, Kill, Launch, Overdue, Prepared, Report, Spawn, Spawned, Stage, Stop, TreeGone
from tf_executor.lifecycle import step
from tf_executor.payload import Payload
from tf_executor.reports import Ending
from tf_executor.task_state import Phase, State

CLUSTER = {"ps": ["h1:1", "h1:2"], "worker": {"1": "h3:1", "0": "h2:1"}}


def a_payload(**fields: Any) -> Payload:
    fields = {"command": "run", "tf_config": {"cluster": CLUSTER}, **fields}
    return Payload("worker-1", "worker", 1, **fields)


def ending(status: dict[str, Any]) -> Ending:
    return Ending.decode(base64.b64decode(status["data"]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [Stage.PROGRAM]),
        ({"pre": "a", "post": "b"}, [Stage.PRE, Stage.PROGRAM, Stage.POST]),
        ({"gpus": 1, "gpu_check": False}, [Stage.DEVICES, Stage.PROGRAM]),
        ({"gpus": 1, "fetch": ["s3://x"]}, [Stage.DEVICES, Stage.FETCH, Stage.GPU_CHECK, Stage.PROGRAM]),
    ],
)
def test_only_what_is_wanted_runs(fields: dict[str, Any], expected: list[Stage]) -> None:
    """In a fixed order."""
    assert expected == list(stages(a_payload(**fields)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run --i={task_index} --n={task_name}", "run --i=1 --n=worker-1"),
        ("run {ps_hosts} {worker_hosts} {job_name}", "run h1:1,h1:2 h2:1,h3:1 worker"),
        ("run {log_dir} {port}", "run /sandbox/logs 31000"),
        ("""run ${task_index} '{"a": {b}}' {unknown} {}""", """run ${task_index} '{"a": {b}}' {unknown} {}"""),
    ],
)
def test_placeholders_that_we_know_are_filled_in(line: str, expected: str) -> None:
    """All other braces are the user's."""
    assert expected == command(Stage.PROGRAM, a_payload(command=line, port=31000), "/sandbox")


def test_flags_of_a_classic_script_are_appended() -> None:
    """The four that the distributed examples of TensorFlow 1 take."""
    flags = "--ps_hosts=h1:1,h1:2 --worker_hosts=h2:1,h3:1 --job_name=worker --task_index=1"
    assert f"run {flags}" == command(Stage.PROGRAM, a_payload(cluster_flags=True), "/sandbox")


def test_a_module_runs_through_the_job_runner() -> None:
    """Where there is no command."""
    assert "exec python -m tf_executor.job" == command(Stage.PROGRAM, a_payload(command="", job_name="m"), "/s")


def test_pre_program_and_post_run_in_order(executor: Any) -> None:
    """In one folder, with the same environment; the one after learns how the program ended."""
    executor.launch("echo program; exit 3", pre="echo pre {task_index}", post='echo "post $TASK_EXIT_CODE $TASK_NAME"')
    starting = executor.states("TASK_STARTING", "TASK_STARTING")
    assert "the pre command runs" == starting["message"]
    post = executor.states("TASK_RUNNING", "TASK_RUNNING")
    assert "exit code 3; the post command runs" == post["message"]
    status = executor.states("TASK_FAILED")
    assert ("exit code 3; stdout: pre 0 | program | post 3 worker-0", Ending(3)) == (status["message"], ending(status))


def test_without_pre_there_is_no_program(executor: Any) -> None:
    """Its failure is the task's, and neither program nor post run."""
    executor.launch("echo program", pre="echo no data >&2; exit 4", post="echo post")
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    assert "the pre command failed: exit code 4; stderr: no data" == status["message"]
    assert Ending(failed_stage="pre") == ending(status)
    assert "" == executor.output()


def test_a_model_that_is_not_uploaded_is_no_success(executor: Any) -> None:
    """The program's own end is still told."""
    executor.launch("true", post="echo no bucket >&2; exit 5")
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FAILED")
    assert "the program succeeded, but the post command failed: exit code 5; stderr: no bucket" == status["message"]
    assert Ending(0, failed_stage="post") == ending(status)


def test_what_pre_starts_in_the_background_lives_until_the_end(executor: Any) -> None:
    """A mount helper, say; it is gone with the task."""
    os.mkfifo(executor.sandbox / "go")
    executor.launch("cat go > /dev/null", pre="sleep 3600 & echo $! > helper; echo ready > ready &")
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    helper = int((executor.sandbox / "helper").read_text())
    assert helper in executor.processes()
    (executor.sandbox / "go").write_text("go\n")
    executor.states("TASK_FINISHED")
    assert [] == executor.processes()


@pytest.mark.parametrize("hook", ["pre", "post"])
def test_a_kill_ends_what_is_beside_the_program_too(executor: Any, hook: str) -> None:
    """With its grace; nothing that was to follow runs."""
    executor.launch("true", **{hook: "echo ready > ready; exec sleep 3600"})
    before = ["TASK_STARTING", "TASK_STARTING"] if hook == "pre" else ["TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING"]
    executor.states(*before)
    executor.await_file("ready")
    executor.kill(grace=60)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    how = "the program had not started" if hook == "pre" else "exit code 0"
    assert f"killed on request; {how}" == status["message"]


def test_a_hook_that_takes_too_long_fails_the_task(executor: Any) -> None:
    """Its limit is its own."""
    executor.launch("true", pre="sleep 3600", hook_timeout=0.1)
    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
    assert "the pre command took longer than 0.1 s" == status["message"]
    assert [] == executor.processes()


def test_a_task_that_takes_too_long_fails_with_mesos_word_for_it(executor: Any) -> None:
    """After SIGTERM and its grace, from TaskInfo.max_completion_time."""
    limit = {"max_completion_time": {"nanoseconds": int(0.2e9)}}
    executor.launch("trap 'echo saved; exit 143' TERM; sleep 3600 & wait", info=limit, kill_grace=60.0)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_FAILED")
    assert "REASON_MAX_COMPLETION_TIME_REACHED" == status["reason"]
    assert status["message"].startswith("the task took longer than its max_completion_time of 0.2 s; exit code 143")
    assert "saved\n" == executor.output()


def test_the_tasks_own_kill_policy_wins_over_the_payloads(executor: Any) -> None:
    """A KILL without one uses it; the payload would wait an hour."""
    policy = {"kill_policy": {"grace_period": {"nanoseconds": int(0.1e9)}}}
    executor.launch("trap '' TERM; echo ready > ready; sleep 3600 & wait; wait", info=policy, kill_grace=3600.0)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.kill()
    assert "killed by signal 9" in executor.states("TASK_KILLING", "TASK_KILLED")["message"]


def test_the_user_code_package_is_there_for_the_hooks_too(executor: Any) -> None:
    """`import tf_executor` works in every stage, on any Python of the task."""
    line = "python -c 'import tf_executor; print(tf_executor.devices.get_num_gpus())'"
    executor.launch(line, pre=line)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "0\n0\n" == executor.output()


# Without processes.


def test_a_stage_without_process() -> None:
    """Its end starts the next one, or with a reason the sweep."""
    state, _ = play(Launch((Stage.DEVICES, Stage.PROGRAM)), Spawned())
    ready, actions = step(state, Prepared(), 0.0)
    assert (Phase.STARTING, (Spawn(Stage.PROGRAM),)) == (ready.phase, actions)
    unfit, actions = step(state, Prepared("no GPU"), 0.0)
    assert (Phase.SWEEPING, (Kill(),)) == (unfit.phase, actions)
    _, (report,) = step(unfit, TreeGone(), 0.0)
    assert Report("TASK_FAILED", "no GPU", Ending(failed_stage="choice of GPUs")) == report


def test_the_limit_of_the_whole_task_covers_the_hooks() -> None:
    """Whichever comes first counts, and is named."""
    state, _ = play(Launch((Stage.PRE, Stage.PROGRAM), time_limit=10.0, hook_timeout=60.0, grace=5.0), Spawned())
    assert 10.0 == state.deadline
    state, _ = step(state, Overdue(), 10.0)
    assert (Phase.STOPPING, 15.0) == (state.phase, state.deadline)


def test_a_stop_between_the_stages_wins() -> None:
    """The exit of pre that was on its way starts nothing."""
    state, _ = play(Launch((Stage.PRE, Stage.PROGRAM)), Spawned(), Stop("killed", 1.0))
    state, actions = step(state, Exited(Ending(0)), 0.0)
    assert (Phase.STOPPING, ()) == (state.phase, actions)


def play(*events: Any) -> tuple[State, list[Any]]:
    state, actions = State(), []
    for event in events:
        state, more = step(state, event, 0.0)
        actions += more
    return state, actions


def test_context_reaches_the_job_as_text(executor: Any) -> None:
    """Whatever JSON it is."""
    context = json.dumps({"rate": 0.1, "text": "a 'b' \"c\" $d"})
    executor.launch('printf %s "$JOB_CONTEXT" > context', job_name="job", job_context=context)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert context == (executor.sandbox / "context").read_text()
