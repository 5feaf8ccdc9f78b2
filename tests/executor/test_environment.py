from __future__ import annotations

import json

import pytest

from tf_executor.contract.payload import Payload, setter_of
from tf_executor.contract.strategies import Strategy
from tf_executor.launch.environment import Interpreter, TaskPaths, program_environment

CLUSTER = {"chief": ["h0:1"], "ps": ["h1:1", "h1:2"], "worker": ["h2:1", "h3:1"]}
PYTHON = Interpreter("/opt/tf/bin/python", ("/opt/tf/bin",), "/opt/tf")
AGENT = {
    "PATH": "/usr/bin:/bin",
    "MESOS_SANDBOX": "/sandbox",
    "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "secret",
    "MESOS_AGENT_ENDPOINT": "127.0.0.1:5051",
    "LIBPROCESS_PORT": "0",
    "SITE": "north",
}


CONFIG = {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}
PLACE = TaskPaths("/sandbox", PYTHON)


def environment(base: dict[str, str] = AGENT, gpus: int = 0, **own: str) -> dict[str, str]:
    return program_environment(payload(environment=own, gpus=gpus), base, PLACE, ("GPU-a", "GPU-b")[:gpus])


def payload(**fields: object) -> Payload:
    return Payload("worker-1", "worker", 1, "true", CONFIG, **fields)


def test_environment_describes_cluster_in_all_formats() -> None:
    result = environment()
    assert {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}} == json.loads(result["TF_CONFIG"])
    assert CLUSTER == json.loads(result["CLUSTER_SPEC"])
    names = ("JOB_NAME", "TASK_INDEX", "TASK_NAME", "PS_HOSTS", "WORKER_HOSTS")
    assert ["worker", "1", "worker-1", "h1:1,h1:2", "h2:1,h3:1"] == [result[name] for name in names]


def test_environment_hides_agent_variables() -> None:
    result = environment()
    private = [name for name in result if name.startswith(("MESOS_", "LIBPROCESS_"))]
    assert ["MESOS_SANDBOX"] == private
    assert "secret" not in "".join(result.values())
    assert "north" == result["SITE"]


def test_environment_defaults_home_and_lang() -> None:
    result = environment()
    assert ("/sandbox", "C.UTF-8") == (result["HOME"], result["LANG"])
    assert "/home/me" == environment({**AGENT, "HOME": "/home/me"})["HOME"]


def test_environment_path_starts_with_interpreter() -> None:
    result = environment()
    assert "/opt/tf/bin:/usr/bin:/bin" == result["PATH"]
    assert ("/opt/tf", "1") == (result["VIRTUAL_ENV"], result["PYTHONUNBUFFERED"])


def test_environment_without_path_uses_default() -> None:
    assert "/bin" in environment({})["PATH"].split(":")


@pytest.mark.parametrize(
    ("gpus", "cuda", "nvidia", "growth"), [(0, "", "void", None), (2, "GPU-a,GPU-b", "GPU-a,GPU-b", "true")]
)
def test_environment_shows_only_own_gpus(gpus: int, cuda: str, nvidia: str, growth: str | None) -> None:
    """TensorFlow would use all visible GPUs and their memory."""
    result = environment(gpus=gpus)
    assert [cuda, nvidia] == [result["CUDA_VISIBLE_DEVICES"], result["NVIDIA_VISIBLE_DEVICES"]]
    assert (str(gpus), growth) == (result["TF_EXECUTOR_GPUS"], result.get("TF_FORCE_GPU_ALLOW_GROWTH"))


def test_environment_keeps_isolated_gpus() -> None:
    assert not {"CUDA_VISIBLE_DEVICES"} & set(program_environment(payload(gpus=2), AGENT, PLACE, None))


@pytest.mark.parametrize(
    ("fields", "inherited", "expected"),
    [
        ({}, None, "/library"),
        ({}, "/mine", "/mine:/library"),
        ({"job_name": "mnist"}, None, "/sandbox:/library"),
        ({"job_name": "mnist", "job_path": "src"}, "/mine", "/sandbox/src:/mine:/library"),
        ({"job_path": "/opt/src"}, None, "/opt/src:/library"),
    ],
)
def test_python_path_order_is_job_user_package(fields: dict[str, object], inherited: str | None, expected: str) -> None:
    own = {} if inherited is None else {"PYTHONPATH": inherited}
    place = TaskPaths("/sandbox", PYTHON, user_package="/library")
    assert expected == program_environment(payload(environment=own, **fields), AGENT, place)["PYTHONPATH"]


def test_python_path_without_folders_is_unset() -> None:
    """An empty PYTHONPATH would mean the working directory."""
    assert "PYTHONPATH" not in environment()


def test_environment_has_job_variables() -> None:
    job = payload(job_name="mnist", job_context='{"a": 1}', strategy="between_graph", log_dir="hdfs://x/logs", port=99)
    result = program_environment(job, AGENT, PLACE)
    names = ("JOB_MODULE", "JOB_CONTEXT", "DISTRIBUTION_STRATEGY", "LOG_DIR", "TASK_PORT")
    assert ["mnist", '{"a": 1}', "between_graph", "hdfs://x/logs", "99"] == [result[name] for name in names]
    assert "/sandbox/logs" == environment()["LOG_DIR"]


def test_environment_has_all_ports() -> None:
    """Under the names of Marathon."""
    result = program_environment(payload(port=99, more_ports=(7, 8)), AGENT, PLACE)
    assert ["99", "7", "8", None] == [result.get(f"PORT{number}") for number in range(4)]
    assert "PORT0" not in environment()


def test_environment_user_variables_win() -> None:
    assert "0" == environment(CUDA_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"]


#: The options may replace these: they do not tell a task who it is.
DEFAULTS = {"HOME", "LANG", "PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "TMPDIR", "MESOS_SANDBOX", "SITE"}
GPUS = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"}


def test_variables_have_setters_unless_defaults() -> None:
    """A new variable that validation does not know could be overridden in every task."""
    paths = TaskPaths("/sandbox", PYTHON, "/user", "/pipe", "/tmp/own", "/members/file")
    fields = {"port": 99, "more_ports": (7, 8), "strategy": "horovod", "job_name": "mnist", "gpus": 1}
    names = set(program_environment(payload(**fields), AGENT, paths, ("GPU-a",)))
    strategy = Strategy.HOROVOD
    free = {name for name in names if not setter_of(name, strategy)}
    assert DEFAULTS | GPUS == free


def test_environment_does_not_change_base() -> None:
    before = dict(AGENT)
    environment()
    assert before == AGENT
