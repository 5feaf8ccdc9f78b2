from __future__ import annotations

import json

import pytest

from tf_executor.environment import Place, program_environment
from tf_executor.interpreter import Interpreter
from tf_executor.payload import Payload

CLUSTER = {"chief": ["h0:1"], "ps": ["h1:1", "h1:2"], "worker": {"1": "h3:1", "0": "h2:1"}}
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
PLACE = Place("/sandbox", PYTHON)


def environment(base: dict[str, str] = AGENT, gpus: int = 0, **own: str) -> dict[str, str]:
    return program_environment(payload(environment=own, gpus=gpus), base, PLACE, ("GPU-a", "GPU-b")[:gpus])


def payload(**fields: object) -> Payload:
    return Payload("worker-1", "worker", 1, "true", CONFIG, **fields)  # type: ignore[arg-type]


def test_the_cluster_is_told_in_every_dialect() -> None:
    """TF_CONFIG is the payload's, and the older variables agree with it."""
    result = environment()
    assert {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}} == json.loads(result["TF_CONFIG"])
    assert CLUSTER == json.loads(result["CLUSTER_SPEC"])
    names = ("JOB_NAME", "TASK_INDEX", "TASK_NAME", "PS_HOSTS", "WORKER_HOSTS")
    assert ["worker", "1", "worker-1", "h1:1,h1:2", "h2:1,h3:1"] == [result[name] for name in names]


def test_what_is_between_agent_and_executor_stays_there() -> None:
    """No token, no endpoint, no libprocess; the sandbox and the agent's own additions remain."""
    result = environment()
    private = [name for name in result if name.startswith(("MESOS_", "LIBPROCESS_"))]
    assert ["MESOS_SANDBOX"] == private
    assert "secret" not in "".join(result.values())
    assert "north" == result["SITE"]


def test_defaults_fill_what_an_agent_does_not_pass_on() -> None:
    """HOME and LANG are set unless the operator has set them."""
    result = environment()
    assert ("/sandbox", "C.UTF-8") == (result["HOME"], result["LANG"])
    assert "/home/me" == environment({**AGENT, "HOME": "/home/me"})["HOME"]


def test_python_is_the_tasks_python() -> None:
    """PATH starts with the interpreter's folder; output is not held back."""
    result = environment()
    assert "/opt/tf/bin:/usr/bin:/bin" == result["PATH"]
    assert ("/opt/tf", "1") == (result["VIRTUAL_ENV"], result["PYTHONUNBUFFERED"])


def test_an_agent_without_path_gets_the_usual_one() -> None:
    """A program can find `ls` in any case."""
    assert "/bin" in environment({})["PATH"].split(":")


@pytest.mark.parametrize(
    ("gpus", "cuda", "nvidia", "growth"), [(0, "", "void", None), (2, "GPU-a,GPU-b", "GPU-a,GPU-b", "true")]
)
def test_a_task_sees_its_own_gpus_only(gpus: int, cuda: str, nvidia: str, growth: str | None) -> None:
    """TensorFlow would take all that it sees, and all of their memory."""
    result = environment(gpus=gpus)
    assert [cuda, nvidia] == [result["CUDA_VISIBLE_DEVICES"], result["NVIDIA_VISIBLE_DEVICES"]]
    assert (str(gpus), growth) == (result["TF_EXECUTOR_GPUS"], result.get("TF_FORCE_GPU_ALLOW_GROWTH"))


def test_gpus_that_the_container_isolates_are_left_as_they_are() -> None:
    """What is visible is what the task has."""
    assert not {"CUDA_VISIBLE_DEVICES"} & set(program_environment(payload(gpus=2), AGENT, PLACE, None))


@pytest.mark.parametrize(
    ("fields", "given", "expected"),
    [
        ({}, None, "/library"),
        ({}, "/mine", "/mine:/library"),
        ({"job_name": "mnist"}, None, "/sandbox:/library"),
        ({"job_name": "mnist", "job_path": "src"}, "/mine", "/sandbox/src:/mine:/library"),
        ({"job_path": "/opt/src"}, None, "/opt/src:/library"),
    ],
)
def test_python_finds_the_job_then_what_the_user_gave_then_our_part(
    fields: dict[str, object], given: str | None, expected: str
) -> None:
    """A module of the user's wins over one of ours."""
    own = {} if given is None else {"PYTHONPATH": given}
    place = Place("/sandbox", PYTHON, library="/library")
    assert expected == program_environment(payload(environment=own, **fields), AGENT, place)["PYTHONPATH"]


def test_without_any_folder_there_is_no_python_path() -> None:
    """An empty one would mean the working directory."""
    assert "PYTHONPATH" not in environment()


def test_a_job_of_the_original_package_finds_its_variables() -> None:
    """The module, its context, where to log."""
    job = payload(job_name="mnist", job_context='{"a": 1}', strategy="between_graph", log_dir="hdfs://x/logs", port=99)
    result = program_environment(job, AGENT, PLACE)
    names = ("JOB_MODULE", "JOB_CONTEXT", "DISTRIBUTION_STRATEGY", "LOG_DIR", "TASK_PORT")
    assert ["mnist", '{"a": 1}', "between_graph", "hdfs://x/logs", "99"] == [result[name] for name in names]
    assert "/sandbox/logs" == environment()["LOG_DIR"]


def test_the_users_own_variables_win() -> None:
    """Whatever we set can be overruled."""
    assert "0" == environment(CUDA_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"]


def test_the_agents_environment_is_not_touched() -> None:
    """The function gives a new mapping."""
    before = dict(AGENT)
    environment()
    assert before == AGENT
