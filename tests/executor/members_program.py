"""Servers (`serve`), or a chief with `loop` or Keras' `fit`.

Runs on every TensorFlow 2 of the tests. A chief trains until the file `enough` exists, and prints as JSON how many
steps it has scheduled and how many the parameter server has counted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
STEPS = 10  # between two looks at the file


def serve() -> None:
    """For each line `JOB INDEX` fork a server; print its number and address.

    Each process has its own servers and threads, but TensorFlow is imported only once.
    """
    import tensorflow as tf

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaves no zombies
    for line in sys.stdin:
        job, index = line.split()
        if os.fork() == 0:
            config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
            server = tf.distribute.Server({job: {int(index): "localhost:0"}}, job, int(index), "grpc", config)
            print("server", os.getpid(), server.target.removeprefix("grpc://"), flush=True)
            server.join()


def show(step: int) -> None:
    """Print a step, and the process's threads."""
    native = len(list(Path("/proc/self/task").iterdir()))
    print("step", step, "threads", threading.active_count(), "native", native, flush=True)


def loop(tf: Any, strategy: Any) -> tuple[int, int]:
    """Each step adds one on the ps, so that a lost or repeated step is seen."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        done = tf.Variable(0, dtype=tf.int64)

    @tf.function  # type: ignore[untyped-decorator]
    def step(iterator: Any) -> Any:
        strategy.run(lambda batch: done.assign_add(tf.cast(batch, tf.int64)), args=(next(iterator),))
        return tf.constant(0)

    scheduled = 0
    while not Path("enough").exists():
        # A new data set while workers come and go, as at the start of each epoch in some programs.
        batches = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(1).repeat()))
        for _ in range(STEPS):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()
        scheduled += STEPS
        while Path("hold").exists():
            Path("held").touch()
            time.sleep(0.1)
        show(scheduled)
    return scheduled, int(done.numpy())


def fit(tf: Any, strategy: Any) -> tuple[int, int]:
    """Keras 2: its optimizer counts the steps."""
    keras = tf.keras
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def data(_context: Any) -> Any:
        x = tf.random.stateless_uniform([64, 4], seed=[1, 2])
        return tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True))).repeat().batch(8)

    class Stop(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            show(STEPS * (epoch + 1))
            self.model.stop_training = Path("enough").exists()

    creator = keras.utils.experimental.DatasetCreator(data)
    history = model.fit(creator, epochs=10_000, steps_per_epoch=STEPS, verbose=0, callbacks=[Stop()])
    return STEPS * len(history.history["loss"]), int(model.optimizer.iterations.numpy())


def main(train: Any) -> None:
    """Connect to the servers of TF_CONFIG and train."""
    import tensorflow as tf

    if most := os.environ.get("MOST_UPDATES"):
        sys.modules["tf_executor.members"]._MAX_UPDATES = int(most)  # type: ignore[attr-defined]
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    scheduled, counted = train(tf, tf.distribute.ParameterServerStrategy(resolver))
    print(json.dumps({"scheduled": scheduled, "counted": counted}), flush=True)
    os._exit(0)  # its threads may wait for servers that have gone


if sys.argv[1] == "serve":
    serve()
else:
    main({"loop": loop, "fit": fit}[sys.argv[1]])
