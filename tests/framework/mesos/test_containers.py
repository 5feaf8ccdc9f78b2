"""ContainerInfo of launches."""

from builders import EXECUTOR
from tf_scheduler.mesos import encode
from tf_scheduler.model.effects import Launch
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId, TaskName
from tf_scheduler.model.resources import Volume
from tf_scheduler.model.spec import ExecutorSpec, JobKind
from tf_scheduler.model.task import TaskRecord


def executor_info(**options):
    record = TaskRecord(
        TaskName("worker-0"), TaskId("w-0"), JobKind.WORKER, 0, AgentId("a"), "agent-1", "10.0.0.1:31000", 1, (), 0.0
    )
    executor = ExecutorSpec("http://host/tf_executor.pyz", needs=EXECUTOR)
    launch = Launch(record, (), (), executor, (), port=31000, kill_grace=10.0, payload=b"{}", **options)
    return encode.executor_info(launch, FrameworkId("f"))


def test_image_uses_mesos_containerizer() -> None:
    """The executor's container is also the task's."""
    expected = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": "tensorflow/tensorflow"}}}}

    assert expected == executor_info(image="tensorflow/tensorflow")["container"]


def test_agent_folders_become_volumes() -> None:
    volumes = (Volume("/mnt/nfs", "data", read_only=True), Volume("/scratch", "/scratch"))

    assert {
        "type": "MESOS",
        "mesos": {},
        "linux_info": {"ipc_mode": "PRIVATE"},
        "volumes": [
            {"mode": "RO", "container_path": "data", "host_path": "/mnt/nfs"},
            {"mode": "RW", "container_path": "/scratch", "host_path": "/scratch"},
        ],
    } == executor_info(volumes=volumes)["container"]


def test_launch_without_image_has_no_container_info() -> None:
    """Agents without an image provider reject a ContainerInfo with an image."""
    assert "container" not in executor_info()
