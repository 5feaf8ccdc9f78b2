"""Checkpoints in an S3 bucket, while programs and agents are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import PATIENCE
from kit.s3_server import BUCKET, OutageProxy, S3Server, run_s3_server
from kit.waiting import wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("real_tensorflow")

#: The master gives up an agent within seconds.
FLAGS = {"agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "multi_worker_mirrored" / "train.py"
#: Each step adds 1 to all weights: a mixture of two checkpoints would show.
TRAIN = """
import os, sys, time
import tensorflow as tf
folder = os.environ["CHECKPOINT_DIR"]
step, weights = tf.Variable(0, dtype=tf.int64), [tf.Variable(tf.zeros([10000])) for _ in range(4)]
manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=step, weights=weights), folder, max_to_keep=1)
manager.checkpoint.restore(manager.latest_checkpoint)
started = int(step)
assert all(bool(tf.reduce_all(item == float(started))) for item in weights)
print("started at", started, "in", folder, flush=True)
while not os.path.exists(sys.argv[1]) or int(step) < started + 3:
    step.assign_add(1)
    for item in weights:
        item.assign_add(tf.ones_like(item))
    manager.save(checkpoint_number=int(step))
    time.sleep(0.1)
tf.saved_model.save(tf.Module(), os.path.join(folder, "model"))
open("notes.txt", "w").write("done")
print("finished at", int(step), flush=True)
"""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server whose key is in the environment, as that of a user is."""
    with run_s3_server() as server:
        monkeypatch.setenv("MY_S3_KEY", server.key)
        monkeypatch.setenv("MY_S3_SECRET", server.secret)
        yield server


@pytest.fixture
def cluster(state_folder: Path) -> Iterator[LocalCluster]:
    """The local cluster that `local run` uses: two agents, each large enough."""
    agents = [AgentSpec(f"agent-{number}", "cpus:4;mem:8000;disk:9000") for number in (1, 2)]
    with LocalCluster(agents, state_folder / "local", FLAGS, die_with_parent=True) as cluster:
        yield cluster


def options(folder: Path, s3: S3Server, bucket: str = BUCKET, workers: int = 1) -> Path:
    """A job of which `folder/end` ends the training; with two workers: the example."""
    command = f"train.py {folder}/end"
    if workers == 1:
        (folder / "train.py").write_text(TRAIN)
    else:
        shutil.copy(EXAMPLE, folder)
        command = "train.py --epochs 200"
    small = {"cpus": 1, "mem": 3000, "disk": 0}
    document = {
        "service": {
            "name": "carried",
            "strategy": "multi_worker_mirrored",
            "command": f"python {command}",
            "job_url": "train.py",
            "checkpoint_dir": f"s3://{bucket}/run",
        },
        "parameter_server": {"count": 0},
        "worker": {"count": workers, **small},
        "storage": {"every": 1, "keep": 2, "options": json.dumps({"endpoint_url": s3.address})},
        "recovery": {"unreachable_timeout": 1},
        "secrets": [
            {"source": "env:MY_S3_KEY", "env": "AWS_ACCESS_KEY_ID"},
            {"source": "env:MY_S3_SECRET", "env": "AWS_SECRET_ACCESS_KEY"},
        ],
    }
    path = folder / "options.json"
    path.write_text(json.dumps(document))
    return path


def outputs(cluster: LocalCluster, file: str = "stdout") -> dict[str, str]:
    """Output of each launch by its path, the earliest first."""
    # Unlike glob, walk passes over folders that vanish meanwhile, and follows no link.
    paths = (Path(folder, file) for folder, _, names in os.walk(cluster.directory) if file in names)
    own = sorted((path for path in paths if not path.is_symlink()), key=lambda path: path.stat().st_ctime_ns)
    return {str(path.relative_to(cluster.directory)): path.read_text() for path in own}


def starts(cluster: LocalCluster) -> list[int]:
    """The step at which each launch has started."""
    found = (re.search(r"^started at (\d+)", text, re.MULTILINE) for text in outputs(cluster).values())
    return sorted(int(match[1]) for match in found if match)


def programs(cluster: LocalCluster) -> dict[int, str]:
    """Agent by process of the training."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            folder, line = str((process / "cwd").readlink()), (process / "cmdline").read_bytes()
            if folder.startswith(str(cluster.directory)) and line.startswith(b"python\0train.py"):
                found[int(process.name)] = Path(folder).relative_to(cluster.directory / "agents").parts[0]
    return found


def manifests(s3: S3Server) -> list[str]:
    return [name for name in s3.names("run/.carried/") if name.endswith(".json")]


def stored_step(s3: S3Server) -> int:
    """Number of the newest checkpoint in the bucket."""
    names = manifests(s3)
    label = json.loads(s3.read(names[-1]))["label"] if names else "ckpt-0"
    return int(label.rpartition("-")[2])


@pytest.mark.timeout(900)
def test_training_resumes_from_bucket_on_another_agent(
    start_process: Any, cluster: Any, s3: S3Server, tmp_path: Path
) -> None:
    """TensorFlow 2.21 cannot read s3://. The program is killed, then its agent.

    Slow: the training starts three times.
    """
    process = start_process("local", "run", options(tmp_path, s3))
    wait_until(lambda: stored_step(s3) > 5)
    (first,) = programs(cluster)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(starts(cluster)) == 2, ignore=FileNotFoundError)
    assert 5 < starts(cluster)[1]
    wait_until(lambda: stored_step(s3) > starts(cluster)[1] + 5)

    # The program of the lost agent goes on, and so does its upload, until it sees the next launch.
    ((second, agent),) = programs(cluster).items()
    before = stored_step(s3)
    cluster.agents[agent].kill()
    wait_until(lambda: len(starts(cluster)) == 3, ignore=FileNotFoundError)
    wait_until(lambda: second not in programs(cluster))
    assert starts(cluster)[2] >= before
    (tmp_path / "end").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, out + err

    last = next(text for text in reversed(outputs(cluster).values()) if "finished at" in text)
    assert f"finished at {stored_step(s3)}\n" in last, "the last checkpoint arrives before the task finishes"
    assert 2 == len(manifests(s3))
    kept = re.search(
        r"  files     notes\.txt \(4 bytes\) of worker-0 in s3://bucket/(run/kept-files/worker-0__\S+)", out + err
    )
    assert kept is not None, out + err
    assert {"run/model/saved_model.pb", f"{kept[1]}/notes.txt"} <= {*s3.names()}
    assert [] == holders_of(s3.secret, tmp_path), "only the training process may have the key"


def test_lost_bucket_is_reported_until_it_is_back(
    start_process: Any, run_process: Any, cluster: Any, s3: S3Server, tmp_path: Path
) -> None:
    """By health and by an event: the training itself continues.

    Slow: the bucket is lost and found during a real training.
    """
    process = start_process("local", "run", options(tmp_path, s3))
    wait_until(lambda: stored_step(s3) > 0)
    wait_until(lambda: is_bucket_removed(s3), ignore=s3.client.exceptions.ClientError)
    wait_until(lambda: "worker-0: checkpoints are not stored: " in run_process("health")[1])
    s3.client.create_bucket(Bucket=BUCKET)
    wait_until(lambda: "worker-0: checkpoints are stored again" in run_process("events")[1])
    assert "checkpoints are not stored" not in run_process("health")[1]
    (tmp_path / "end").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, out + err
    assert f"finished at {stored_step(s3)}\n" in list(outputs(cluster).values())[-1]


def test_checkpoints_that_were_never_stored_warn(
    start_process: Any, cluster: Any, s3: S3Server, tmp_path: Path
) -> None:
    """The training has succeeded, but a later job would start before its end."""
    process = start_process("local", "run", options(tmp_path, s3))
    wait_until(lambda: stored_step(s3) > 0)
    wait_until(lambda: is_bucket_removed(s3), ignore=s3.client.exceptions.ClientError)
    said = lambda: "checkpoints are not stored: " in "".join(outputs(cluster, "stderr").values())  # noqa: E731
    wait_until(said, ignore=FileNotFoundError)
    (tmp_path / "end").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, out + err
    assert "  warning   worker-0: checkpoints are not stored: " in out + err
    assert "  storage   CHECKPOINT_DIR is s3://bucket/run" in out + err


def test_restore_waits_for_storage_and_is_named(
    start_process: Any, run_process: Any, cluster: Any, s3: S3Server, tmp_path: Path
) -> None:
    """An outage never counts as the user's error."""
    with OutageProxy(s3.address) as proxy:
        path = options(tmp_path, replace(s3, address=proxy.url))
        document = json.loads(path.read_text())
        document["service"].update(command="echo trained", strategy="independent")
        document["storage"]["mode"] = "carried"
        document["restart"] = {"max_failures": 0}
        path.write_text(json.dumps(document))
        process = start_process("local", "run", path)
        named = r"worker-0 restores checkpoints since \d\d:\d\d UTC: s3://bucket/run/worker-0: OSError: .*Unavailable"
        wait_until(lambda: re.search(named, run_process("health")[1]))
        proxy.is_out = False
        out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, out + err
    assert "trained" in "".join(outputs(cluster).values())
    assert 1 == len(outputs(cluster))


def is_bucket_removed(s3: S3Server) -> bool:
    """Remove the bucket; fails if the carrier stores an object meanwhile."""
    for name in s3.names():
        s3.client.delete_object(Bucket=BUCKET, Key=name)
    return bool(s3.client.delete_bucket(Bucket=BUCKET))


def resumed(cluster: LocalCluster) -> list[list[int]]:
    """For each worker, the epochs after which its launches resumed."""
    found: dict[str, list[int]] = {}
    for path, text in outputs(cluster).items():
        for epoch in re.findall(r"^resumed after epoch (\d+)$", text, re.MULTILINE):
            found.setdefault(re.search(r"worker-\d", path)[0], []).append(int(epoch))
    return [sorted(epochs) for epochs in found.values()]


@pytest.mark.timeout(600)
def test_workers_resume_from_one_checkpoint_with_its_accuracy(
    start_process: Any, cluster: Any, s3: S3Server, tmp_path: Path
) -> None:
    """Worker 1 with variables of another epoch would spoil the model.

    Slow: two workers train to their accuracy, with two losses.
    """
    process = start_process("local", "run", options(tmp_path, s3, workers=2))
    wait_until(lambda: stored_step(s3) > 5)
    os.kill(chief(cluster)[0], signal.SIGKILL)
    wait_until(lambda: [1, 1] == [len(epochs) for epochs in resumed(cluster)])
    before = stored_step(s3)
    wait_until(lambda: stored_step(s3) > before + 5)
    cluster.agents[chief(cluster)[1]].kill()
    out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, out + err
    first, second = resumed(cluster)
    assert first == second
    assert 5 < first[0] <= before < first[1]
    texts = "".join(outputs(cluster).values())
    # The launch whose agent was killed may have been about to end.
    accuracies = re.findall(r"^test accuracy (\S+) on", texts, re.MULTILINE)
    assert min(map(float, accuracies), default=0.0) > 0.95


def chief(cluster: LocalCluster) -> tuple[int, str]:
    """Process and agent of worker 0."""
    running = programs(cluster).items()
    return next(item for item in running if "worker-0" in str(Path(f"/proc/{item[0]}/cwd").readlink()))


def holders_of(secret: str, folder: Path) -> list[str]:
    """Files that contain the secret."""
    hits = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
                hits.append(str(path))
    return hits


@pytest.mark.parametrize(
    ("bucket", "secret", "message"),
    [
        ("missing", "", "the bucket or folder does not exist"),
        (BUCKET, "canary-key-5c0f", "PermissionError: The request"),
    ],
)
def test_wrong_bucket_or_key_ends_the_job_before_its_program(
    start_process: Any,
    cluster: Any,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    secret: str,
    message: str,
) -> None:
    secret = secret or s3.secret
    monkeypatch.setenv("MY_S3_SECRET", secret)
    out, err = start_process("local", "run", options(tmp_path, s3, bucket)).communicate(timeout=PATIENCE)
    assert f"storage: s3://{bucket}/run: {message}" in out + err
    assert "each launch would fail in this way" in out + err
    assert len(outputs(cluster)) <= len(cluster.agents)
    assert [] == starts(cluster)
    assert [] == holders_of(secret, tmp_path)
    assert secret not in out + err
