"""Jobs of the original package: `main(server, log_dir, context)`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tf_executor.user import job
from tf_executor.user.job import JobModuleError, load, only_serves, read_context


@pytest.mark.parametrize(
    ("kind", "strategy", "expected"),
    [
        ("ps", "between_graph", True),
        ("worker", "between_graph", False),
        ("worker", "parameter_server", True),
        ("chief", "parameter_server", False),
        ("worker", "multi_worker_mirrored", False),
    ],
)
def test_serving_tasks_are_recognised(kind: str, strategy: str, expected: bool) -> None:
    assert expected == only_serves(kind, strategy)


@pytest.mark.parametrize("text", ["{", "[1]", "3", '"text"', "null"])
def test_context_that_is_not_an_object_is_refused(text: str) -> None:
    with pytest.raises(JobModuleError, match="option job_context"):
        read_context(text)


def test_context_is_parsed_to_dictionary() -> None:
    assert [{"a": [1, {"b": None}]}, {}] == [read_context('{"a": [1, {"b": null}]}'), read_context("")]


def test_missing_module_lists_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist_job.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(JobModuleError, match=rf"`mnist`: Python module not found in {tmp_path} \(mnist_job.py\)"):
        load("mnist")


def test_import_error_inside_module_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load("needs_more")


def test_module_without_main_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_main.py").write_text("main = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(JobModuleError, match=r"no_main.py does not define main\(server, log_dir, context\)"):
        load("no_main")


RECORD = """
import json
def main(server, log_dir, context):
    json.dump([server, log_dir, context], open("called", "w"))
"""


@pytest.mark.parametrize(("strategy", "kind"), [("multi_worker_mirrored", "worker"), ("parameter_server", "chief")])
def test_tensorflow2_strategies_get_no_server(executor: Any, strategy: str, kind: str) -> None:
    (executor.sandbox / "src" / "pkg").mkdir(parents=True)
    (executor.sandbox / "src" / "pkg" / "mnist.py").write_text(RECORD)
    config = {"cluster": {kind: ["h:1"]}, "task": {"type": kind, "index": 0}}
    executor.launch(
        "", job_name="pkg.mnist", job_path="src", job_context='{"rate": 0.5}', strategy=strategy, tf_config=config
    )
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    log_dir = f"{executor.sandbox}/logs"
    assert [None, log_dir, {"rate": 0.5}] == json.loads((executor.sandbox / "called").read_text())
    assert Path(log_dir).is_dir()


def test_invalid_job_name_fails_task(executor: Any) -> None:
    config = {"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}}
    executor.launch("", job_name="mnist", tf_config=config)
    message = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")["message"]
    assert message.startswith("exit code 1; stderr: job: option job_name: `mnist`: Python module not found in ")


def free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]


CLASSIC = """
import os
import tensorflow.compat.v1 as tf

def main(server, log_dir, context):
    cluster = server.server_def.cluster
    print([entry.name for entry in cluster.job], server.server_def.job_name, server.server_def.task_index)
    print("GPUs", server.server_def.default_session_config.device_count["GPU"])
    tf.disable_eager_execution()
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
        add = tf.group(total.assign_add(context["amount"]), step.assign_add(1))
    hooks = [tf.train.StopAtStepHook(last_step=5)]
    with tf.train.MonitoredTrainingSession(server.target, True, log_dir, hooks=hooks) as session:
        while not session.should_stop():
            session.run(add)
            value = session.run(total) if not session.should_stop() else value
    print("total", tf.train.load_variable(tf.train.latest_checkpoint(log_dir), "total"))
"""


@pytest.mark.usefixtures("real_tensorflow")
def test_classic_job_trains_on_real_cluster(start_executor: Any) -> None:
    ps, worker = free_addresses(2)
    cluster = {"ps": [ps], "worker": [worker]}
    tasks = {kind: start_executor(kind) for kind in ("ps", "worker")}
    for kind, executor in tasks.items():
        (executor.sandbox / "mnist.py").write_text(CLASSIC)
        executor.launch(
            "",
            job_name="mnist",
            job_context='{"amount": 2.0}',
            strategy="between_graph",
            tf_config={"cluster": cluster, "task": {"type": kind, "index": 0}},
            python=sys.executable,
            environment={"TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        executor.states("TASK_STARTING", "TASK_RUNNING")
    status = tasks["worker"].update()
    assert "TASK_FINISHED" == status["state"], tasks["worker"].output("stderr")
    assert "['ps', 'worker'] worker 0\nGPUs 0\ntotal 10.0\n" == tasks["worker"].output()
    tasks["ps"].kill(grace=0.0)
    tasks["ps"].states("TASK_KILLING", "TASK_KILLED")


def test_job_without_server_needs_no_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "mnist.py").write_text(RECORD)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{tmp_path}:{Path(job.__file__).parents[2]}",
        "TF_CONFIG": json.dumps({"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}}),
        "DISTRIBUTION_STRATEGY": "multi_worker_mirrored",
        "JOB_MODULE": "mnist",
        "LOG_DIR": "gs://bucket/logs",
    }
    command = [sys.executable, "-S", "-m", "tf_executor.job"]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    assert [None, "gs://bucket/logs", {}] == json.loads((tmp_path / "called").read_text())
