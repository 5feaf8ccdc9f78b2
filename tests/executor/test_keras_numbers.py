"""Reported loss and speed of real trainings, compared with those of the program."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesos_local.host import free_ports
from own_runtimes import need_tensorflow_1, python_of, python_with_tensorflow

#: Global batches, fixed data and weights: the loss after each step is the same with any number of workers.
PROGRAM = """
import json, sys, time
import tensorflow as tf
if "own" in sys.argv:
    from tf_executor.keras import ProgressCallback
if "mirrored" in sys.argv:
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
elif "workers" in sys.argv:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.get_strategy()
keras = tf.keras
x = tf.random.stateless_normal((2400, 20), [1, 2])
data = tf.data.Dataset.from_tensor_slices((x, tf.cast(tf.reduce_sum(x, 1) > 0, tf.int32))).batch(60)
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(2, kernel_initializer="zeros")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])

class Log(keras.callbacks.Callback):
    _supports_tf_logs = True
    losses, times = {}, {}
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.04)
        step = 40 * self.epoch + batch + 1
        self.losses[step], self.times[step] = float(logs["loss"]), time.time()
    def on_epoch_end(self, epoch, logs=None):
        step = 40 * (epoch + 1)  # reported again
        self.losses[step], self.times[step] = float(logs["loss"]), time.time()
        self.accuracy = float(logs["accuracy"])

log = Log()
callbacks = [log] + ([ProgressCallback(batch_size=60)] if "own" in sys.argv else [])
model.fit(data, epochs=3, verbose=1, callbacks=callbacks)
json.dump([log.losses, log.times, log.accuracy], open("log", "w"))
"""
EPOCH_ENDS = (40, 80, 120)
Train = Callable[..., list[Any]]


@pytest.fixture
def train(start_executor: Any) -> Train:
    """Run the program in `workers` tasks; return their executors and the losses."""

    def train(name: str, arguments: str, workers: int = 1, python: str = sys.executable, **fields: Any) -> list[Any]:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
        variables = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_USE_LEGACY_KERAS": "1", **fields.pop("environment", {})}
        executors = []
        for index in range(workers):
            executor = start_executor(f"{name}-{index}")
            (executor.sandbox / "train.py").write_text(PROGRAM)
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            fields["tf_config"] = config if workers > 1 else {"cluster": {}}
            executor.launch(f"python -W ignore train.py {arguments}", python=python, environment=variables, **fields)
            executors.append(executor)
        for executor in executors:
            assert "TASK_FINISHED" == executor.end("TASK_STARTING", "TASK_RUNNING")["state"]
        return executors

    return train


def log_of(executor: Any) -> tuple[dict[int, float], dict[int, float], float]:
    losses, times, accuracy = json.loads(Path(executor.sandbox / "log").read_text())
    return {int(step): loss for step, loss in losses.items()}, {int(step): at for step, at in times.items()}, accuracy


def assert_right(executor: Any, expected: dict[int, float], source: str) -> None:
    """Each message has the loss of its step; the last one all values of the end."""
    messages = [message for message in executor.messages if "loss" in message]
    assert {source} == {message["source"] for message in messages}
    for message in messages:
        assert message["loss"] == pytest.approx(expected[message["step"]], rel=0.01), message
    last, (_, times, accuracy) = messages[-1], log_of(executor)
    assert (120, 120, 3, 3) == tuple(last[name] for name in ("step", "total", "epoch", "epochs"))
    assert last["metrics"]["accuracy"] == pytest.approx(accuracy, rel=0.01)
    # A bar may end with the next one only, and Keras does not draw all.
    exact = 0.01 if source == "report" else 0.05
    assert last["steps_per_second"] == pytest.approx(119 / (times[120] - times[1]), rel=exact)


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.parametrize("version", [pytest.param("2.12", marks=pytest.mark.long), "2.15", "2.21"])
def test_callback_reports_the_loss_of_one_process(train: Train, version: str) -> None:
    """Within an epoch Keras 2 itself shows the loss of each worker added up.

    Slow: each of the trainings imports TensorFlow.
    """
    python = python_with_tensorflow(version)
    # Only TensorFlow 2.16 and newer need the variable; 2.15 fails with it.
    variables = {"TF_USE_LEGACY_KERAS": "1" if python == sys.executable else ""}
    (single,) = train("single", "own", python=python, environment=variables)
    expected, _, _ = log_of(single)
    assert_right(single, expected, "report")
    fields = {"strategy": "multi_worker_mirrored", "python": python, "environment": variables}

    for executor in train("worker", "own workers", workers=2, **fields):
        summed, times, _ = log_of(executor)
        assert summed[20] == pytest.approx(2 * expected[20], rel=0.01)
        assert_right(executor, expected, "report")
        last = executor.messages[-1]
        assert ("job", 7200) == (last["of"], last["examples"])
        assert last["examples_per_second"] == pytest.approx(60 * 119 / (times[120] - times[1]), rel=0.01)


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.parametrize("legacy", ["0", "1"], ids=["keras-3", "tf_keras"])
def test_mirrored_replicas_are_not_summed(train: Train, legacy: str) -> None:
    """Two replicas in one process: the callback divides nothing."""
    (mirrored,) = train("mirrored", "own mirrored", environment={"TF_USE_LEGACY_KERAS": legacy})
    expected, _, _ = log_of(mirrored)
    assert 0.69 < expected[1] < 0.7
    assert_right(mirrored, expected, "report")


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.parametrize("legacy", ["0", "1"], ids=["keras-3", "tf_keras"])
def test_progress_bar_is_read(train: Train, legacy: str) -> None:
    """Of a program that reports nothing; its first step within seconds."""
    (single,) = train("single", "", environment={"TF_USE_LEGACY_KERAS": legacy}, progress_from_output=True)
    expected, times, _ = log_of(single)
    assert_right(single, expected, "output")
    first = next(message for message in single.messages if "step" in message)
    assert first["time"] < times[1] + 2


@pytest.mark.usefixtures("real_tensorflow")
def test_progress_bar_of_workers_counts_at_ends_of_epochs(train: Train) -> None:
    """Within an epoch it shows twice the loss."""
    fields: dict[str, Any] = {"strategy": "multi_worker_mirrored", "progress_from_output": True}
    for executor in train("worker", "workers", workers=2, **fields):
        losses, _, _ = log_of(executor)
        for message in executor.messages:
            ends = [losses[step] for step in EPOCH_ENDS if step <= message.get("step", 0)]
            assert message.get("loss") == (pytest.approx(ends[-1], rel=0.01) if ends else None), message
        assert 120 == executor.messages[-1]["step"]


ESTIMATOR = """
import json, time
import numpy as np
import tensorflow as tf
tf.compat.v1.logging.set_verbosity("INFO")
x = np.random.RandomState(0).rand(1000, 4).astype("float32")
class Times(tf.estimator.SessionRunHook):
    times = []
    def after_run(self, context, values):
        self.times.append(time.time())
        time.sleep(0.02)
batches = tf.compat.v1.estimator.inputs.numpy_input_fn({"x": x}, x.sum(1), 32, num_epochs=None, shuffle=False)
model = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x", (4,))], model_dir="model")
model.train(batches, steps=301, hooks=[Times()])
json.dump(Times.times, open("log", "w"))
"""


@pytest.mark.usefixtures("real_tensorflow")
def test_estimator_of_tensorflow_1_shows_its_steps(start_executor: Any) -> None:
    """Its first step within two seconds, and each loss that it prints."""
    need_tensorflow_1()
    executor = start_executor("estimator")
    (executor.sandbox / "train.py").write_text(ESTIMATOR)
    variables = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    executor.launch(
        "python -W ignore train.py", python=python_of("test-1.15"), environment=variables, progress_from_output=True
    )
    assert "TASK_FINISHED" == executor.end("TASK_STARTING", "TASK_RUNNING")["state"]

    times = json.loads((executor.sandbox / "log").read_text())
    printed = dict(re.findall(r"loss = (\S+), step = (\d+)", executor.output("stderr")))
    losses = {int(step): float(loss) for loss, step in printed.items()}
    messages = [message for message in executor.messages if "step" in message]
    assert (1, "output") == (messages[0]["step"], messages[0]["source"])
    assert messages[0]["time"] < times[0] + 2
    assert 301 == messages[-1]["step"]
    for message in messages:
        assert message["loss"] == pytest.approx(losses[message["step"]], rel=0.01), message
