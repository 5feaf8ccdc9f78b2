"""Compare loss and speed of `progress` with the programs' own logs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from own_runtimes import need_horovod, need_torch

pytestmark = [pytest.mark.usefixtures("real_tensorflow"), pytest.mark.timeout(600)]

STEPS, BATCH = 60, 64
AGENT = AgentSpec("agent-1", "cpus:8;mem:16000;disk:9000;ports:[13100-13199]")
#: Every program logs each step, reports it at the same time, and waits in the end until the test has seen the report.
BEGIN = f"""
import json, os, sys, time
import tf_executor
STEPS, BATCH, LOG = {STEPS}, {BATCH}, dict()
job, index = os.environ["TASK_NAME"].split("-")
def wait(step):
    time.sleep(0.7 if step == STEPS else 0.03)  # two reports need 0.5 s
def note(step, loss):
    LOG[step] = [loss, time.time()]
def tell(step, loss, of):
    wait(step)
    note(step, float(loss))
    tf_executor.report(step=step, total=STEPS, loss=loss, examples=BATCH * step, of=of)
def end():
    folder = os.environ["CHECKPOINT_DIR"]
    with open(f"{{folder}}/{{job}}-{{index}}.part", "w") as file:
        json.dump(LOG, file)
    os.rename(f"{{folder}}/{{job}}-{{index}}.part", f"{{folder}}/{{job}}-{{index}}.log")
    while not os.path.exists(folder + "/seen"):
        time.sleep(0.1)
"""
DATA = """
import tensorflow as tf
if job in ("ps", "worker") and STRATEGY == "parameter_server":
    config = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(config.cluster_spec(), job, int(index)).join()
if STRATEGY == "parameter_server":
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
elif STRATEGY == "multi_worker_mirrored":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.get_strategy()
def make_data():
    x = tf.random.stateless_normal((BATCH * STEPS, 20), [1, 2])
    y = tf.cast(tf.reduce_sum(x, 1) > 0, tf.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat()
"""
#: `Model.fit` with the callback. Losses of batches are not compared: Keras 2 adds them up over the workers.
FIT = (
    DATA
    + """
from tf_executor.keras import ProgressCallback
keras = tf.keras
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(2, kernel_initializer="zeros")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
class Log(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.before = epoch * STEPS // 3
    def on_train_batch_end(self, batch, logs=None):
        wait(self.before + batch + 1)
        note(self.before + batch + 1, None)
    def on_epoch_end(self, epoch, logs=None):
        LOG[(epoch + 1) * STEPS // 3][0] = float(logs["loss"])
        if epoch == 2:
            time.sleep(0.5)
            LOG[STEPS][1] = time.time()
log = Log()
log._supports_tf_logs = STRATEGY == "parameter_server"  # as Keras 2 has it
model.fit(make_data(), steps_per_epoch=STEPS // 3, epochs=3, verbose=2, callbacks=[log, ProgressCallback(BATCH)])
end()
"""
)
#: A training loop: `Model.fit` of Keras 3 does not support these strategies.
LOOP = (
    DATA
    + """
with strategy.scope():
    weights = tf.Variable(tf.zeros([20, 2]), aggregation=tf.VariableAggregation.SUM)
def replica_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weights)) / BATCH
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss
@tf.function
def train(batches):
    return strategy.reduce("SUM", strategy.run(replica_step, next(batches)), axis=None)
if STRATEGY == "parameter_server":
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batches = iter(coordinator.create_per_worker_dataset(make_data))
else:
    batches = iter(strategy.experimental_distribute_dataset(make_data()))
for step in range(1, STEPS + 1):
    is_remote = STRATEGY == "parameter_server"
    tell(step, coordinator.schedule(train, (batches,)).fetch() if is_remote else train(batches), of="job")
end()
"""
)
BETWEEN_GRAPH = """
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
server = tf.train.Server(tf.train.ClusterSpec(config["cluster"]), job, int(index))
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
    x = tf.get_variable("x", initializer=5.0, use_resource=False)
    loss = tf.square(x)
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
with tf.train.MonitoredTrainingSession(server.target, is_chief=True) as session:  # others wait for 30 s
    for step in range(1, STEPS + 1):
        tell(step, session.run([loss, train])[0], of="task")
    end()
"""
#: Each process counts its own examples.
RANKS = """
for step in range(1, STEPS + 1):
    tell(step, all_reduce(2.0 / step), of="task")
end()
"""
TORCH_RANKS = (
    """
import torch
from torch import distributed
distributed.init_process_group("gloo")
def all_reduce(value):
    tensor = torch.tensor(value)
    distributed.all_reduce(tensor)
    return tensor
"""
    + RANKS
)
HOROVOD_RANKS = (
    """
import horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
all_reduce = lambda value: hvd.allreduce(tf.constant(value))
"""
    + RANKS
)
#: Name -> strategy, program, whether Keras is tf_keras, runtime.
TRAININGS = {
    "mirrored-keras-2": ("multi_worker_mirrored", FIT, True, ""),
    "ps-keras-3": ("parameter_server", LOOP, False, ""),
    "between-graph": ("between_graph", BETWEEN_GRAPH, False, ""),
    "pytorch-ddp": ("pytorch_ddp", TORCH_RANKS, False, "torch"),
    "horovod": ("horovod", HOROVOD_RANKS, False, "horovod"),
}


NEEDS = {"pytorch-ddp": need_torch, "horovod": need_horovod}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster([AGENT], tmp_path_factory.mktemp("cluster") / "kept", die_with_parent=True) as made:
        yield made


class Job:
    """A training by `local run` on the cluster, ended at the latest with the test."""

    def __init__(self, folder: Path, cluster: LocalCluster, stack: ExitStack, name: str) -> None:
        strategy, program, legacy, runtime = TRAININGS[name]
        self.folder = folder
        (folder / "train.py").write_text(f"{BEGIN}\nSTRATEGY = {strategy!r}\n{program}")
        sizes = {"cpus": 0.2, "mem": 1024, "disk": 0}
        service = {"name": name, "strategy": strategy, "job_url": "train.py", "command": "python -W ignore train.py"}
        service["python"] = f"runtime:{runtime}" if runtime else sys.executable
        variables = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
        variables |= {"TF_USE_LEGACY_KERAS": "1"} if legacy else {}
        (folder / "checkpoints").mkdir()
        options = {
            "service": {**service, "environment": variables, "checkpoint_dir": str(folder / "checkpoints")},
            "worker": {"count": 2, **sizes},
            "api": {"authentication": "none"},
        }
        if strategy in ("parameter_server", "between_graph"):
            options["parameter_server"] = {"count": 1, **sizes}
        if strategy == "parameter_server":
            options["chief"] = {"count": 1, **sizes}
        (folder / "options.json").write_text(json.dumps(options))
        command = [
            sys.executable,
            "-m",
            "tf_scheduler",
            "local",
            "run",
            "options.json",
            "--dir",
            str(cluster.directory),
        ]
        with (folder / "output").open("w") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "XDG_STATE_HOME": str(folder)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        stack.callback(self.close)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def get(self, view: str) -> dict[str, Any]:
        """Return a view of the API; nothing before the service is there."""
        assert self.process.poll() is None, self.output
        address = re.search(r"^\S+ page: (http://\S+?)/?$", self.output, re.MULTILINE)
        if address is None:
            return {}
        with urllib.request.urlopen(f"{address[1]}/v1/tf/{view}", timeout=10) as answer:
            body: dict[str, Any] = json.load(answer)
            return body

    def finished_tasks(self) -> list[dict[str, Any]]:
        """Return overview, progress and tasks after the last report, or nothing."""
        body, logs = self.get("progress"), self.logs()
        tasks = [task for task in body.get("tasks", ()) if task["name"] in logs]
        ends = {name: log[str(STEPS)][1] for name, log in logs.items()}
        is_over = len(ends) == self.trained and all((task["time"] or 0) > ends[task["name"]] for task in tasks)
        return [self.get("overview"), body, *tasks] if tasks and is_over else []

    def logs(self) -> dict[str, dict[str, Any]]:
        """Return the logs of the tasks that have written them."""
        return {path.stem: json.loads(path.read_text()) for path in (self.folder / "checkpoints").glob("*.log")}

    @property
    def trained(self) -> int:
        return 1 if TRAININGS[self.folder.name][0] == "parameter_server" else 2


@pytest.mark.parametrize("name", TRAININGS)
def test_progress_equals_the_log_of_the_program(tmp_path: Path, cluster: LocalCluster, name: str) -> None:
    """Each loss, and the speed of the job, within 1 %.

    Slow: several processes import their library at once; the first use of a library makes its runtime.
    """
    NEEDS.get(name, bool)()
    folder = tmp_path / name
    folder.mkdir()
    with ExitStack() as stack:
        job = Job(folder, cluster, stack, name)
        overview, body, *tasks = wait_until(job.finished_tasks, "no last step", ignore=OSError)
        (folder / "checkpoints" / "seen").touch()
        assert 0 == job.process.wait(60), job.output

    speeds = []
    for task in tasks:
        log = job.logs()[task["name"]]
        (_, began), (loss, ended) = log["1"], log[str(STEPS)]
        speeds.append(BATCH * (STEPS - 1) / (ended - began))
        assert task["step"] == STEPS
        assert task["loss"] == pytest.approx(loss, rel=0.01)
        assert task["steps_per_second"] == pytest.approx((STEPS - 1) / (ended - began), rel=0.01)
        for point in task["points"]:
            expected = log[str(point["step"])][0]
            assert expected is None or point["loss"] == pytest.approx(expected, rel=0.01), point
    expected = sum(speeds) if tasks[0]["of"] == "task" else speeds[0]
    for view in (body, overview):
        assert view["examples_per_second"] == pytest.approx(expected, rel=0.01)
