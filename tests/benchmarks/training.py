"""Training program of side_by_side.py: between-graph replication, fixed steps.

Reads only its arguments, like published programs for TensorFlow 1. Each worker prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, WIDTH = 256, 512


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    spec = {"ps": given.ps_hosts.split(","), "worker": given.worker_hosts.split(",")}
    tf.disable_eager_execution()
    # One thread per worker: with more threads, one worker would already use all cores.
    config = tf.ConfigProto(
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=1,
        device_filters=["/job:ps", f"/job:worker/task:{given.task_index}"],
    )
    server = tf.train.Server(tf.train.ClusterSpec(spec), given.job_name, given.task_index, config=config)
    if given.job_name == "ps":
        server.join()
    device = tf.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(spec), worker_device=f"/job:worker/task:{given.task_index}"
    )
    with tf.device(device):
        step, train = graph()
    train_until_end(server, config, given, step, train)


def graph() -> tuple[tf.Tensor, tf.Operation]:
    """Build a network of two layers; it trains on noise."""
    noise = np.random.default_rng(0)
    images = tf.constant(noise.random((BATCH, WIDTH), dtype=np.float32))
    labels = tf.constant(noise.integers(0, 10, BATCH).astype(np.int32))
    step = tf.train.get_or_create_global_step()
    first = tf.get_variable("first", [WIDTH, WIDTH])
    second = tf.get_variable("second", [WIDTH, 10])
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.nn.relu(images @ first) @ second)
    return step, tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)


def train_until_end(
    server: tf.train.Server, config: tf.ConfigProto, given: argparse.Namespace, step: tf.Tensor, train: tf.Operation
) -> None:
    """Worker 0 exits last, because its exit ends the job."""
    workers = len(given.worker_hosts.split(","))
    ready = tf.report_uninitialized_variables()
    with tf.Session(server.target, config=config) as session:
        if given.task_index == 0:
            session.run(tf.global_variables_initializer())
        while session.run(ready).size:
            time.sleep(0.05)
        session.run(train)
        first = time.time()
        # Measure the workers only while all of them train.
        while session.run(step) < workers:
            time.sleep(0.01)
        begun = time.time()
        for _ in range(given.steps - 1):
            session.run(train)
        seconds = time.time() - begun
        print(json.dumps({"first": first, "examples_per_second": BATCH * (given.steps - 1) / seconds}), flush=True)
        while given.task_index == 0 and session.run(step) < given.steps * workers:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
