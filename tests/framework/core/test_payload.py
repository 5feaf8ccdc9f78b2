"""Payload of the executor: every option of a task arrives."""

import pytest

from builders import a_spec
from tf_executor.contract.payload import Liveness, Payload
from tf_scheduler.core.launch.launch import payload_of
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec

CONFIG = {"cluster": {"worker": ["10.0.0.1:31000"]}, "task": {"type": "worker", "index": 0}}


def payload(**document):
    """Of worker 0, after the way over the wire."""
    spec = to_spec(resolve({"service": {"command": "x"}, **document}))
    (job,) = [job for job in spec.jobs if job.section == "worker"]
    return Payload.decode(payload_of(spec, job, record(), CONFIG, 31000).encode())


def record():
    return TaskRecord(
        TaskName("worker-0"), TaskId("w"), JobKind.WORKER, 0, AgentId("a"), "host", "10.0.0.1:31000", 7, (), 0.0
    )


def test_the_task_itself():
    """Name, place in the cluster, and what is the same for all."""
    found = payload(service={"command": "train", "user": "me", "checkpoint_dir": "/models", "environment": {"A": "1"}})

    assert (found.task, found.job, found.index, found.generation) == ("worker-0", "worker", 0, 7)
    assert (found.tf_config, found.port, found.strategy) == (CONFIG, 31000, "between_graph")
    assert (found.user, found.log_dir) == ("me", "/models")
    assert {"A": "1", "CHECKPOINT_DIR": "/models"} == found.environment


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ({"command": "own"}, {"command": "own"}),
        ({"python": "/py"}, {"python": "/py"}),
        ({"kill_grace": 30}, {"kill_grace": 30.0}),
        ({"gpus": 2, "gpu_check": False}, {"gpus": 2, "gpu_check": False}),
        ({"cluster_flags": True}, {"cluster_flags": True}),
        ({"pre_command": "a", "post_command": "b", "hook_timeout": 9}, {"pre": "a", "post": "b", "hook_timeout": 9.0}),
        ({"nice": 5, "ulimits": "core=0:-1"}, {"nice": 5, "ulimits": {"core": (0, -1)}}),
    ],
)
def test_a_jobs_options_arrive(worker, expected):
    """Each in its field."""
    found = payload(worker=worker)

    assert expected == {name: getattr(found, name) for name in expected}


def test_a_program_of_the_original_package_arrives():
    """Without a command the module is what runs."""
    service = {"command": "", "job_url": "http://host/a.zip", "job_name": "mnist", "job_path": "src", "job_context": ""}

    found = payload(service=service)

    assert ("", "mnist", "src", "{}") == (found.command, found.job_name, found.job_path, found.job_context)


@pytest.mark.parametrize(
    ("url", "by_agent"),
    [
        ("http://host/a.zip", True),
        ("/shared/a.zip", True),
        ("file:///a.zip", True),
        ("s3://bucket/a.zip", False),
        ("gs://bucket/a.zip", False),
        ("hdfs://default/a.zip", False),
    ],
)
def test_what_agents_cannot_fetch_the_executor_does(url, by_agent):
    """Each file is fetched once."""
    spec = to_spec(resolve({"service": {"command": "x", "job_url": url}}))

    assert (([url], ()) if by_agent else ([], (url,))) == ([uri.value for uri in spec.uris], spec.fetch)
    assert spec.fetch == payload(service={"command": "x", "job_url": url}).fetch


def test_the_files_of_hdfs_are_fetched_and_found():
    """Beside the program, where Hadoop's clients look."""
    service = {"command": "x", "hdfs": {"config_uri": "http://host/endpoints/"}}
    spec = to_spec(resolve({"service": service}))

    assert ["http://host/endpoints/core-site.xml", "http://host/endpoints/hdfs-site.xml"] == [
        uri.value for uri in spec.uris
    ]
    assert "." == payload(service=service).environment["HADOOP_CONF_DIR"]


def test_liveness_is_for_the_jobs_that_it_names():
    """By default for those that train: a parameter server reports no progress."""
    health = {"liveness": "http", "target": "http://127.0.0.1:{port}/", "interval": 1, "failures": 2}

    assert Liveness("http", "http://127.0.0.1:{port}/", 1.0, 20.0, 300.0, 2) == payload(health=health).liveness
    assert None is payload(health={**health, "jobs": "chief"}).liveness
    assert None is payload().liveness


def test_output_is_bounded_as_the_options_say():
    """For every task."""
    found = payload(executor={"output_bytes": 1 << 20, "output_backups": 1})

    assert (1 << 20, 1) == (found.output_bytes, found.output_backups)


def test_a_spec_without_any_of_it_is_the_least_that_runs():
    """Nothing is made up."""
    spec = a_spec()
    found = payload_of(spec, spec.jobs[0], record(), CONFIG, 31000)

    assert ("", "", "", (), 0, None) == (found.pre, found.post, found.job_name, found.fetch, found.nice, found.liveness)
