"""Train a classifier the way of TensorFlow 1: between-graph replication over parameter servers (ps) and workers.

Start the same command once for each task of a cluster. TF_CONFIG tells each task who it is, or the flags --ps_hosts,
--worker_hosts, --job_name and --task_index do, as programs of that time have them. Every worker builds the same graph,
with the variables placed on the ps, and runs the training step on its own; with --sync the gradients of all workers
make one step together. Worker 0 also initialises the variables, writes the checkpoints, and tests the last one. A
worker that is started again takes the variables as the ps has them.

The data are the 1797 images of scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    """Run this process' task. A ps serves until it is stopped: it does not learn that training is over."""
    parser = argparse.ArgumentParser(description="Train a digits classifier on the cluster of TF_CONFIG, or of flags.")
    default = os.environ.get("CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--model-dir", type=Path, default=default, help="folder for checkpoints")
    parser.add_argument("--steps", type=int, default=2000, help="steps of all workers together (default: %(default)s)")
    parser.add_argument("--sync", action="store_true", help="a step takes the gradients of all workers")
    for flag in ("--ps_hosts", "--worker_hosts"):
        parser.add_argument(flag, type=lambda hosts: hosts.split(","), help="host:port of each, with commas between")
    parser.add_argument("--job_name", help="ps or worker; without it TF_CONFIG says everything")
    parser.add_argument("--task_index", type=int, help="number of this task in its job")
    options = parser.parse_args()
    jobs, job, index = place(options)
    cluster = tf.train.ClusterSpec(jobs)
    server = tf.train.Server(cluster, job, index)
    print(f"{job} {index} is ready", flush=True)
    if job == "ps":
        server.join()
    data = load_data()
    train(cluster, server, index, options, data)
    if index == 0:
        print(f"test accuracy {accuracy(options.model_dir, data):.4f}, checkpoints in {options.model_dir}", flush=True)


def place(options: argparse.Namespace) -> tuple[dict[str, list[str]], str, int]:
    """The addresses of each job, the job of this task, and its number there."""
    if options.job_name:
        return {"ps": options.ps_hosts, "worker": options.worker_hosts}, options.job_name, options.task_index
    config = json.loads(os.environ["TF_CONFIG"])
    return config["cluster"], config["task"]["type"], config["task"]["index"]


def load_data() -> list[Any]:
    """Training images, test images, training labels, test labels: images are 64 numbers in 0..1, labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    return list(train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=0))


def train(cluster: Any, server: Any, index: int, options: argparse.Namespace, data: list[Any]) -> None:
    """Run training steps until all workers together have done enough of them."""
    optimizer, hooks = tf.train.AdamOptimizer(0.01), [tf.train.StopAtStepHook(last_step=options.steps)]
    if options.sync:
        workers = cluster.num_tasks("worker")
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, total_num_replicas=workers)
        hooks.append(optimizer.make_session_run_hook(is_chief=index == 0))
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")):
            step, loss, train_op = build_graph(data[0], data[2], optimizer)
        # A worker sees the ps and itself, so that losing one worker does not stop the others.
        session_config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
        if index > 0:
            wait_for_variables(server, session_config)
        with tf.train.MonitoredTrainingSession(
            server.target,
            is_chief=index == 0,
            checkpoint_dir=str(options.model_dir),
            save_checkpoint_steps=500,
            hooks=hooks,
            config=session_config,
            # With --sync a thread of worker 0 waits for the next gradients, which no worker computes any more.
            stop_grace_period_secs=2,
        ) as session:
            printed = 0
            while not session.should_stop():
                now, value, _ = session.run([step, loss, train_op])
                if now // 250 > printed:
                    printed = now // 250
                    print(f"step {now}: loss {value:.4f}", flush=True)


def build_graph(images: Any, labels: Any, optimizer: Any) -> tuple[Any, Any, Any]:
    """Build softmax regression on batches of 32 images. Return its global step, loss and training operation."""
    step = tf.train.get_or_create_global_step()
    weights = tf.get_variable("weights", [64, 10])
    bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
    picked = tf.random.uniform([32], maxval=len(labels), dtype=tf.int32)
    logits = tf.gather(images, picked) @ weights + bias
    loss = tf.losses.sparse_softmax_cross_entropy(tf.gather(labels, picked), logits)
    return step, loss, optimizer.minimize(loss, global_step=step)


def wait_for_variables(server: Any, config: Any) -> None:
    """Wait until worker 0 has initialised the variables. MonitoredTrainingSession would look only every 30 seconds."""
    missing = tf.report_uninitialized_variables(tf.global_variables())
    with tf.Session(server.target, config=config) as session:
        while session.run(missing).size:
            time.sleep(0.5)


def accuracy(model_dir: Path, data: list[Any]) -> float:
    """The share of test images that the newest checkpoint gets right, 0 to 1."""
    _, images, _, labels = data
    checkpoint = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(model_dir)))
    logits = images @ checkpoint.get_tensor("weights") + checkpoint.get_tensor("bias")
    return float(np.mean(logits.argmax(axis=1) == labels))


if __name__ == "__main__":
    main()
