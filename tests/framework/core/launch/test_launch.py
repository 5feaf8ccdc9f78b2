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

CLUSTER = {"worker": ["10.0.0.1:31000"]}
CONFIG = {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}}


def payload(**document):
    """Return the payload of worker 0, encoded and decoded."""
    spec = to_spec(resolve({"service": {"command": "x"}, **document}))
    (job,) = [job for job in spec.jobs if job.section == "worker"]
    return Payload.decode(payload_of(spec, job, record(), CLUSTER).encode())


def record():
    return TaskRecord(
        TaskName("worker-0"), TaskId("w"), JobKind.WORKER, 0, AgentId("a"), "host", "10.0.0.1:31000", 7, (), 0.0
    )


def test_payload_describes_task():
    """Name, address in the cluster, and values shared by all tasks."""
    decoded = payload(
        service={"command": "train", "user": "me", "checkpoint_dir": "/models", "environment": {"A": "1"}}
    )

    assert (decoded.task, decoded.job, decoded.index, decoded.generation) == ("worker-0", "worker", 0, 7)
    assert (decoded.tf_config, decoded.port, decoded.strategy) == (CONFIG, 31000, "between_graph")
    assert (decoded.user, decoded.log_dir) == ("me", "/models")
    variables = {"A": "1", "CHECKPOINT_DIR": "/models", "TASK_ADDRESS": "10.0.0.1:31000", "SHARD_INDEX": "0"}
    assert {**variables, "NUM_SHARDS": "3"} == decoded.environment


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
def test_job_options_arrive(worker, expected):
    """Each in its field."""
    decoded = payload(worker=worker)

    assert expected == {name: getattr(decoded, name) for name in expected}


def test_program_of_original_package_arrives():
    """Without a command the module runs."""
    service = {"command": "", "job_url": "http://host/a.zip", "job_name": "mnist", "job_path": "src", "job_context": ""}

    decoded = payload(service=service)

    assert ("", "mnist", "src", "{}") == (decoded.command, decoded.job_name, decoded.job_path, decoded.job_context)


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
def test_executor_fetches_urls_unsupported_by_agent(url, by_agent):
    """Each file is fetched once."""
    spec = to_spec(resolve({"service": {"command": "x", "job_url": url}}))

    assert (([url], ()) if by_agent else ([], (url,))) == ([uri.value for uri in spec.uris], spec.fetch)
    assert spec.fetch == payload(service={"command": "x", "job_url": url}).fetch


def test_hdfs_configuration_is_fetched():
    """Next to the program, where Hadoop's clients look."""
    service = {"command": "x", "hdfs": {"config_uri": "http://host/endpoints/"}}
    spec = to_spec(resolve({"service": service}))

    assert ["http://host/endpoints/core-site.xml", "http://host/endpoints/hdfs-site.xml"] == [
        uri.value for uri in spec.uris
    ]
    assert "." == payload(service=service).environment["HADOOP_CONF_DIR"]


def test_liveness_applies_to_named_jobs():
    """By default for tasks that train: a parameter server reports no progress."""
    health = {"liveness": "http", "target": "http://127.0.0.1:{port}/", "interval": 1, "failures": 2}

    assert Liveness("http", "http://127.0.0.1:{port}/", 1.0, 20.0, 300.0, 2) == payload(health=health).liveness
    assert None is payload(health={**health, "jobs": "chief"}).liveness
    assert None is payload().liveness


def test_output_limits_arrive():
    """For every task."""
    decoded = payload(executor={"output_bytes": 1 << 20, "output_backups": 1})

    assert (1 << 20, 1) == (decoded.output_bytes, decoded.output_backups)


def test_minimal_spec_has_minimal_payload():
    """Empty defaults everywhere."""
    spec = a_spec()
    decoded = payload_of(spec, spec.jobs[0], record(), CLUSTER)

    assert ("", "", "", (), 0, None) == (
        decoded.pre,
        decoded.post,
        decoded.job_name,
        decoded.fetch,
        decoded.nice,
        decoded.liveness,
    )
